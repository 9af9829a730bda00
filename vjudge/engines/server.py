"""The engine for a server that speaks OpenAI's protocol: OpenAI itself, vLLM, SGLang, llama.cpp and others.

vLLM tells the tokens of a conversation (`/tokenize`), so before a call's first prompt they are compared, token for
token, with the judge's own wording, also up to the place that score mode reads after; where the server's chat template
writes another prompt, the call is refused. Where a server shows no tokens, a line says that nothing was compared, and
score mode is refused.

Not as on this machine: the server's tokenizer reads "</s>" inside a response as a control token, if its vocabulary has
it; where a server can't be asked for the scores' tokens, a score outside the most probable ones counts as probability 0
(`usage.oddities` counts such verdicts); and a prompt without an answer is a failure that no run records, so that the
same call asks again.

Source: https://platform.openai.com/docs/api-reference/chat; docs.vllm.ai, "OpenAI-Compatible Server", for the fields
that continue an answer and name the tokens whose log-probabilities are wanted.
"""

from __future__ import annotations

import math
import os
import re
import time
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from PIL import Image

from vjudge.engines.engine import Answer, Ask, Engine, Quantity, check_images, say, whole
from vjudge.engines.transport import Client, Key, Rejected, ServerError, Unanswered, Usage, check_url, read_key
from vjudge.images import data_uri, picture
from vjudge.prompts import IMAGE, Control, Conversation, Prompt

OPENAI = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"
AT_ONCE = 8  # requests under batch_size="auto"
GIVE_UP = 8  # prompts in a row without an answer
MOST_TOKENS = 2**31 - 1  # a larger count is no count
LISTED = 20  # tokens at each place whose log-probabilities are requested; many servers allow no more
PROBE = "Answer with the word yes.\n\n###Ünit:  1 + 1\n\n###Feedback:"  # what templates change shows in it
UNCHECKED = "whether its prompt is the judge's own wording, token for token, is not checked"
UNCOUNTED = "without a token count, which are missing from the counts and the price"
OFF_LIST = "with a score outside the most probable tokens, counted as 0"

ScaleKey = tuple[tuple[int, str], ...]  # score, and what follows the marker
Token = tuple[str, dict[str, float]]  # text, or "token_id:5" where asked for -> log-probabilities, its own among them


class ServerEngine(Engine):
    """Ask a model behind an OpenAI-compatible server; a short request first tries a call's options.

    Args:
        model: as the server names it.
        base_url: up to and including "/v1". Plain http carries a key to this machine only, and never takes a proxy
            there. Redirects are refused. SSL_CERT_FILE names certificates to trust elsewhere.
        conversation: the words around a turn that the judge was trained with, which the server's tokens are checked
            against. None takes the server's own chat template as right.
        served_as: what a run's manifest says in place of base_url, for a server whose address changes; None keeps it.
        key_variable: the environment variable that holds the key, read anew for each call; None sends no key.
        timeout: seconds for one request, answer included.
        retries: repetitions at most of a request that met a connection error, a time-out, or HTTP 408, 429 or 5xx. The
            pause doubles from a second to a minute, and is never shorter than Retry-After.
        image_size: the longer side of a picture in pixels at most; None sends it as it is, as PNG.
        fields: further fields of each request, such as `{"reasoning_effort": "low"}`; None as a value leaves a field
            out. A run's manifest keeps them: no secrets.
        price: for a million prompt tokens and a million new tokens, in any currency.
        spend_limit: in that currency, for this engine's lifetime; no request starts beyond it (those under way end).

    Attributes:
        usage: what all requests came to, a `vjudge.engines.transport.Usage`.

    Raises:
        ValueError: an unsound option, all of them; a key that is missing, or would go over a network in the clear.

    >>> ServerEngine("my-judge", base_url="http://127.0.0.1:8000/v1", key_variable=None)
    ServerEngine('my-judge', base_url='http://127.0.0.1:8000/v1')
    """

    name = "server"

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OPENAI,
        conversation: Conversation | None = None,
        served_as: str | None = None,
        key_variable: str | None = KEY_VARIABLE,
        timeout: float = 300.0,
        retries: int = 6,
        image_size: int | None = None,
        fields: Mapping[str, Any] | None = None,
        price: tuple[float, float] | None = None,
        spend_limit: float | None = None,
    ) -> None:
        sound = {
            f"timeout={timeout!r}: use seconds above 0": 0 < timeout < math.inf,
            f"retries={retries!r}: use a whole number from 0": whole(retries, 0),
            f"image_size={image_size!r}: use pixels from 1, or None": image_size is None or whole(image_size, 1),
            f"price={price!r}: use two numbers from 0": price is None or (len(price) == 2 and min(price) >= 0),
            f"spend_limit={spend_limit!r}: give a price= too": spend_limit is None or price is not None,
        }
        if faults := [fault for fault, fine in sound.items() if not fine]:
            raise ValueError("; ".join(faults))
        self.model, self.base_url, self.served_as = model, check_url(base_url), served_as
        self.conversation = conversation if self.base_url != OPENAI else None
        self.key_variable, self.timeout, self.retries = key_variable, timeout, retries
        self.image_size, self.fields = image_size, dict(fields or {})
        self.spend_limit, self.usage = spend_limit, Usage(price=price)
        self._exchanges: dict[Any, Exchange] = {}  # what the server was seen to do, by a call's options
        self._key()  # refuses one that is missing now

    def __repr__(self) -> str:
        return f"ServerEngine({self.model!r}, base_url={self.base_url!r})"

    def answer(
        self, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask, wanted: Container[int] | None = None
    ) -> Iterator[list[Answer]]:
        """Ask for every prompt; see `Engine.answer`.

        Prompts are the user's turns alone. Seeds are sent where there is a temperature; servers promise little about
        them. `batch_size` is how many requests are under way at once, and what a stop loses at most.

        Raises:
            ServerError: the server lacks what the options need, or writes another prompt than the judge's own.
            ValueError: unsound options; a score pass without a place for the verdict, or on a scale whose scores take
                several of this server's tokens.
        """
        faults = ask.check()
        rows = [row for row in range(len(prompts)) if wanted is None or row in wanted]
        if ask.scores and not (ask.marker and all(ask.scale(row) for row in rows)):
            faults.append('this template writes its verdict in no fixed place, which mode="score" needs')
        if faults:
            raise ValueError("; ".join(faults))
        if not rows:
            return iter(())
        probes = tuple(dict.fromkeys(probe(turn(prompts[row], ask)) for row in rows))
        scales = tuple(dict.fromkeys(scale_key(ask.scale(row)) for row in rows if ask.scale(row)))
        key = (replace(ask, scales=(), seeds=(), batch_size="auto"), frozenset(probes), frozenset(scales))
        if key not in self._exchanges:
            with closing(self._client(1)) as client:
                self._exchanges[key] = _Inquiry(self, client, ask).exchange(probes, scales)
        return self._answers(rows, prompts, images, replace(self._exchanges[key], ask=ask))

    def plan(self, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask) -> list[Quantity]:
        """What `answer` would send and cost; nothing is sent. Arguments as in `Engine.plan`."""
        lines = super().plan(prompts, images, ask)
        planned, price = {line.quantity: line.planned for line in lines}, self.usage.price or (math.nan, math.nan)
        cost = (planned["prompt tokens"] * price[0] + planned["new tokens"] * price[1]) / 1e6
        why = "every answer at its limit; the test request, repetitions and pictures come on top"
        why = why if self.usage.price else "no price= was given"
        requests = Quantity("requests", len(prompts), "", "and a short test request")
        return [requests, *lines, Quantity("cost", cost, "currency of price=", why)]

    def identity(self) -> dict[str, Any]:
        """See `Engine.identity`."""
        conversation = self.conversation and self.conversation.name
        request = {"conversation": conversation, "image_size": self.image_size, "fields": self.fields}
        address = self.served_as or self.base_url
        return {"engine": self.name, "base_url": address, "model": self.model, "request": request, "versions": {}}

    def _answers(
        self, rows: Sequence[int], prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], exchange: Exchange
    ) -> Iterator[list[Answer]]:
        """Ask for each row, and say at the end what it came to."""
        ask, usage, before = exchange.ask, self.usage, self.usage.requests
        width = ask.batch_size if isinstance(ask.batch_size, int) else AT_ONCE
        client, uris = self._client(width), dict[str, str]()

        def answered(row: int) -> Answer:
            nonlocal uris
            started = time.perf_counter()
            try:
                with client.lock:
                    if self.spend_limit is not None and usage.spend >= self.spend_limit:
                        client.stop(f"the spend limit of {self.spend_limit:g} is reached")
                    if client.stopped:
                        raise Unanswered(f"not asked: {client.stopped}")
                    shown = list(map(picture, images[row]))
                    # The latest prompt's pictures are kept: neighbours share them.
                    uris = {one.key: uris.get(one.key) or data_uri(one.open(), size=self.image_size) for one in shown}
                    body = exchange.request(turn(prompts[row], ask), [uris[one.key] for one in shown], row)
                reply = client.post("chat/completions", body)
                with client.lock:
                    answer = exchange.answer(row, reply, usage, client.key)
            except Unanswered as error:
                return Answer(row, failure=str(error), transient=True)
            except (Rejected, ValueError, OSError) as error:  # the server turned it down; a picture is broken
                return Answer(row, failure=str(error))
            return replace(answer, seconds=time.perf_counter() - started)

        # Threads, since a notebook's event loop is running already.
        pool, remaining, running = ThreadPoolExecutor(width), iter(rows), set[Future[Answer]]()
        silent = missing = 0
        try:
            while True:  # the next one starts only when the caller has come back for more after an answer
                while len(running) < width and (row := next(remaining, None)) is not None:
                    running.add(pool.submit(answered, row))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                answers = [future.result() for future in done]
                for answer in answers:
                    missing += answer.transient
                    silent = silent + 1 if answer.transient else 0
                    if silent == GIVE_UP:
                        client.stop(f"{silent} prompts in a row got no answer, the last for: {answer.failure}")
                yield answers
        finally:
            if usage.requests > before:
                say(f"{self!r}, all told: {usage}")
            if client.stopped is not None:
                warnings.warn(
                    f"{self!r}: {client.stopped}; {missing} prompts have no answer. The same call asks for what is"
                    " missing; give it an `out` folder to keep what is there",
                    RuntimeWarning,
                    stacklevel=2,
                )
            client.close()
            pool.shutdown(wait=False, cancel_futures=True)  # whoever stops waits for no answer

    def _key(self) -> Key:
        """The key as the environment has it now."""
        needed = self.key_variable is not None and (self.base_url == OPENAI or self.key_variable != KEY_VARIABLE)
        return read_key(self.base_url, self.key_variable, needed=needed)

    def _client(self, width: int) -> Client:
        return Client(self.base_url, self._key(), self.usage, self.timeout, self.retries, width)


# --- the wire: a prompt -> a request, a reply -> an answer ------------------------------------------------------------


@dataclass(frozen=True)
class Exchange:
    """What the requests of one call share.

    `sent` are the fields of each request, the user's own (`fields`) over them; `begun` is how an answer begins in a
    score pass. `tokens` has the scales that are read, each with score -> token, empty where the server shows no tokens.
    """

    ask: Ask
    sent: Mapping[str, Any]
    fields: Mapping[str, Any] = field(default_factory=dict)
    begun: str | None = None
    tokens: Mapping[ScaleKey, Mapping[int, int]] = field(default_factory=dict)

    def request(self, prompt: Prompt, uris: Sequence[str], row: int) -> dict[str, Any]:
        """A request for a row, or for what stands in its place."""
        body = {**messages(prompt, uris, self.begun), **self.sent}
        body |= {"seed": self.ask.seed(row) % 2**31} if self.ask.temperature > 0 else {}
        if (tokens := self.tokens.get(scale_key(self.ask.scale(row)))) is not None:
            body |= {"logprobs": True, "top_logprobs": LISTED}
            body |= {"logprob_token_ids": sorted(tokens.values())} if tokens else {}
            body |= {"return_tokens_as_token_ids": True} if self.ask.scores else {}
        return {name: value for name, value in {**body, **self.fields}.items() if value is not None}

    def answer(self, row: int, reply: Mapping[str, Any], usage: Usage, key: Key) -> Answer:
        """What the reply to a row says; Unanswered where it is no completion."""
        answer, written = read_reply(reply, usage, key)
        scale, scores, failure = self.ask.scale(row), None, answer.failure
        if (tokens := self.tokens.get(scale_key(scale))) is not None and failure is None:
            if not self.ask.scores:
                scores = at_verdict(answer.text, written, self.ask.marker, scale)
            elif not written:
                failure = "the server gave no log-probabilities with this answer"
            else:
                odds = written[0][1]
                scores = {score: odds.get(f"token_id:{token}", -math.inf) for score, token in tokens.items()}
                if max(scores.values()) == -math.inf:
                    failure = f"no score of the scale among the most probable tokens; it wrote {answer.text[:40]!r}"
                    scores = None
        usage.oddities.update([OFF_LIST] if scores and -math.inf in scores.values() else [])
        return replace(answer, index=row, score_logprobs=scores, failure=failure)


def scale_key(texts: Mapping[int, str]) -> ScaleKey:
    """A scale's name among a call's."""
    return tuple(sorted(texts.items()))


def turn(prompt: Prompt, ask: Ask) -> Prompt:
    """A prompt without the marker that a score pass's ends in; ValueError where it ends in something else."""
    end = prompt.parts[-1] if prompt.parts else ""
    if not ask.scores:
        return prompt
    if not isinstance(end, str) or not end.endswith(ask.marker):
        raise ValueError(f"the prompt does not end in {ask.marker!r}, after which a score pass reads")
    return replace(prompt, parts=(*prompt.parts[:-1], end.removesuffix(ask.marker)))


def messages(prompt: Prompt, uris: Sequence[str], begun: str | None = None) -> dict[str, Any]:
    """The part of a request that holds a turn, its pictures, and how the answer begins."""
    check_images(prompt, uris)
    turns, pictures = prompt.messages(), ({"type": "image_url", "image_url": {"url": uri}} for uri in uris)
    for message in turns:
        content = [next(pictures) if part["type"] == "image" else part for part in message["content"]]
        alone = len(content) == 1 and "text" in content[0]  # a plain string, which every server takes
        message["content"] = content[0]["text"] if alone else content
    if begun is None:
        return {"messages": turns}
    turns.append({"role": "assistant", "content": begun})
    return {"messages": turns, "add_generation_prompt": False, "continue_final_message": True}


def in_words(prompt: Prompt, conversation: Conversation, begun: str | None) -> Prompt:
    """A turn in the words of a conversation, and the beginning of the answer to it."""
    n_images, texts = prompt.n_images, [part for part in prompt.parts if part is not IMAGE]
    plain = len(texts) == 1 and prompt.parts[-1] is not IMAGE  # its images stand first
    words = conversation.wrap(str(texts[0]), n_images) if plain else conversation.ask(prompt.parts)
    return words if begun is None else words.append(conversation.reply + begun)


def probe(prompt: Prompt) -> Prompt:
    """A short prompt with all that a chat template may write differently: images, system, blanks at the ends."""
    parts = (re.sub(r"(?s)\S.*\S|\S", PROBE, part) if isinstance(part, str) else part for part in prompt.parts)
    return Prompt(tuple(parts), prompt.system)


def read_reply(reply: Mapping[str, Any], usage: Usage, key: Key) -> tuple[Answer, list[Token]]:
    """What a reply says as the answer to row 0, and its tokens; Unanswered where it is no completion."""
    try:
        choice = reply["choices"][0]
        content, refusal = choice["message"]["content"], choice["message"].get("refusal")
        finish = choice["finish_reason"]
        # A model that spent its whole budget on hidden reasoning has no text, and a reason to stop.
        if not (isinstance(content, str) or (content is None and isinstance(finish, str))):
            raise TypeError("choices[0].message.content is no text")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Unanswered(f"the server's answer is no chat completion ({type(error).__name__}: {error})") from None
    report = reply.get("usage")
    report = report if isinstance(report, dict) else {}
    counts: list[Any] = [report.get("prompt_tokens"), report.get("completion_tokens")]
    if not all(whole(count, 0) and count <= MOST_TOKENS for count in counts):
        counts = [0, 0]
        usage.oddities[UNCOUNTED] += 1
    n_prompt, n_new = counts
    usage.answers += 1
    usage.prompt_tokens += n_prompt
    usage.new_tokens += n_new
    content, failure = content or "", None
    if isinstance(refusal, str) and refusal:
        failure, content = "the judge refused", content or refusal
    elif finish == "content_filter":
        failure = "the server's content filter cut the answer"
    text = key.cut(content)
    if (sound := text.encode("utf-8", "backslashreplace").decode()) != text:
        failure, text = "the answer is no text: it holds half of a character (a lone surrogate)", sound
    return Answer(0, text, n_prompt, n_new, stopped=finish != "length", failure=failure), read_tokens(choice)


def read_tokens(choice: Mapping[str, Any]) -> list[Token]:
    """The log-probabilities of an answer's tokens; none where the server sent none, or sent what are none."""
    tokens: list[Token] = []
    try:
        for entry in choice["logprobs"]["content"]:
            odds: dict[str, float] = {}
            for other in (*entry["top_logprobs"], entry):
                token, value = other["token"], other["logprob"]
                # NaN compares as false; a truth value is no number.
                if not isinstance(token, str) or isinstance(value, bool) or not value <= 1e-3:
                    return []
                odds[token] = float(value)
            if sum(map(math.exp, odds.values())) > 1.01:
                return []
            tokens.append((entry["token"], odds))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return []
    return tokens


def at_verdict(text: str, tokens: Sequence[Token], marker: str, texts: Mapping[int, str]) -> dict[int, float] | None:
    """The scores' log-probabilities at the verdict, the scale's first token right after the last marker, if any.

    " 4" and "4" are one score; one that is not listed there has probability 0.
    """
    scores, marker, before = {text.strip(): score for score, text in texts.items()}, marker.casefold(), ""
    markers = text.casefold().count(marker)
    if "".join(token for token, _ in tokens).casefold().count(marker) != markers:
        return None
    for token, odds in tokens:
        head, mark, tail = before.casefold().rpartition(marker)
        last = mark and head.count(marker) == markers - 1
        if last and token.strip() in scores and not any(map(str.isalnum, tail)):
            chances = dict.fromkeys(texts, 0.0)
            for other, logprob in odds.items():
                if (score := scores.get(other.strip())) is not None:
                    chances[score] += math.exp(logprob)
            return {score: math.log(chance) if chance else -math.inf for score, chance in chances.items()}
        before += token
    return None


# --- what a server is seen to do before a call's first prompt ---------------------------------------------------------


class _Inquiry:
    """An inquiry at a server by its `/tokenize` and one short request.

    `context` is its model's, 0 where it shows no tokens; `begun` is how an answer begins in a score pass.
    """

    def __init__(self, engine: ServerEngine, client: Client, ask: Ask) -> None:
        self.engine, self.client, self.ask, self.context = engine, client, ask, 0
        self.begun: str | None = None
        self._ids: dict[str, list[int]] = {"": []}

    def exchange(self, probes: Sequence[Prompt], scales: Sequence[ScaleKey]) -> Exchange:
        """The call as the server can serve it; errors as in `ServerEngine.answer`."""
        ask, engine, checks = self.ask, self.engine, self.ask.scores or self.engine.conversation is not None
        context, why = None, "it has no /tokenize that names max_model_len"
        try:
            context = None if engine.base_url == OPENAI else self.tokenized({"prompt": PROBE}).get("max_model_len")
        except (Rejected, Unanswered) as error:
            why = f"/tokenize: {error}"
        self.context = context if isinstance(context, int) and whole(context, 1) else 0
        if not self.context and ask.scores:
            raise ServerError(
                f"{engine!r} does not show whether it continues an answer that is begun ({why}), and mode="
                '"score" reads right after the marker; use mode="feedback", whose expected scores are read where the'
                " verdict is written, or a server that has /tokenize, such as vLLM's"
            )
        if not self.context and checks:
            say(f"{engine!r} does not show its tokens ({why}): {UNCHECKED}")
        try:
            tokens = {scale: read for scale in scales if (read := self.tokens(dict(scale))) is not None}
            sent = self.sent() | (self.way(probes) if self.context and checks else {})
            # The short request has the first scale.
            exchange = Exchange(replace(ask, scales=[*map(dict, tokens)]), sent, engine.fields, self.begun, tokens)
            reply = self.client.post("chat/completions", exchange.request(probes[-1], _blanks(probes[-1]), 0))
            _, written = read_reply(reply, engine.usage, self.client.key)
        except (Rejected, Unanswered) as error:
            remedy = "fields= adds, replaces or, by None, leaves out fields of a request"
            raise ServerError(f"{engine!r} did not answer a short test request: {error}; {remedy}") from None
        if ask.scores and not written:
            raise ServerError(f'{engine!r} gives no log-probabilities, which score mode needs; use mode="feedback"')
        return exchange

    def sent(self) -> dict[str, Any]:
        """The fields of each request."""
        ask, limit = self.ask, 1 if self.ask.scores else self.ask.max_new_tokens
        sent: dict[str, Any] = {"model": self.engine.model, "temperature": ask.temperature}
        sent |= {"top_p": ask.top_p} if ask.temperature > 0 else {}
        if self.context or ask.repetition_penalty != 1:
            sent["repetition_penalty"] = ask.repetition_penalty
        if self.context:  # where a request is silent, a checkpoint's own settings would hold
            sent |= {"skip_special_tokens": False} | ({"top_k": -1, "min_p": 0.0} if ask.temperature > 0 else {})
        if not self.context or limit < self.context:
            sent["max_completion_tokens" if self.engine.base_url == OPENAI else "max_tokens"] = limit
        return sent

    def tokens(self, texts: Mapping[int, str]) -> Mapping[int, int] | None:
        """Each score's token after the marker; None where a distribution can't be read, and none has to be."""
        if not self.context:  # the first token may not tell "1" from "10"
            own = [text.strip() for text in texts.values()]
            return None if any(b.startswith(a) for a in own for b in own if a != b) else {}
        start, some = f".\n{self.ask.marker}", next(iter(texts.values()))
        ids = {score: self.ids(start + text) for score, text in texts.items()}
        shared = min(len(os.path.commonprefix(list(ids.values()))), *(len(each) - 1 for each in ids.values()))
        tokens = {score: each[shared] for score, each in ids.items()}
        single = len(set(tokens.values())) == len(tokens) <= LISTED
        if not self.ask.scores:
            return tokens if single else None
        # What stands between the marker and those tokens, such as a blank that is a token of its own.
        before = self.ids(start + some)[:shared]
        stems = [some[:end] for end in range(len(some)) if self.ids(start + some[:end]) == before]
        if not (single and stems) or self.begun not in (None, self.ask.marker + stems[0]):
            raise ValueError(f'no single token of this server tells {sorted(texts)} apart; use mode="feedback"')
        self.begun = self.ask.marker + stems[0]
        return tokens

    def way(self, probes: Sequence[Prompt]) -> dict[str, Any]:
        """The fields with which the server writes the judge's own prompts; ServerError where none make it."""
        faults, shown = list[str](), False
        for fields in ({}, {"add_special_tokens": True}):
            try:
                differences = [fault for probe in probes if (fault := self.difference(fields, probe))]
                if not differences:
                    return fields
                faults, shown = [*faults, *differences], True
            except Rejected as error:
                faults.append(str(error))
        reasons = "; ".join(dict.fromkeys(faults))
        if not (self.ask.scores or shown):
            say(f"{self.engine!r} does not show the tokens of messages ({reasons}): {UNCHECKED}")
            return {}
        end = " and the beginning of an answer after it" if self.ask.scores else ""
        raise ServerError(
            f"{self.engine!r} can't be made to write the judge's own prompt{end}: {reasons}. Start it with the judge's"
            " own chat template (--chat-template); conversation=None asks in the server's own words"
        )

    def difference(self, fields: Mapping[str, Any], probe: Prompt) -> str:
        """What is not alike in the server's tokens of a prompt, an image a run of one token, and the judge's own."""
        tokens, at = self.tokenized({**messages(probe, _blanks(probe), self.begun), **fields})["tokens"], 0
        own: list[int | None] = []
        if self.engine.conversation is None:  # what the server writes itself is right
            own += self.tokenized({**messages(probe, _blanks(probe)), **fields})["tokens"] + self.ids(self.begun or "")
        else:
            own += self.tokenized({"prompt": "", "add_special_tokens": True}, least=0)["tokens"]
            for part in in_words(probe, self.engine.conversation, self.begun).parts:
                text = part.text * part.times if isinstance(part, Control) else part
                own += self.ids(text) if isinstance(text, str) else [None]
                if isinstance(part, Control) and len(self.ids(part.text * part.times)) != part.times:
                    return f"the served vocabulary has no control token {part.text!r}, which the judge's has"
        for token in own:
            if token is None:
                at = next((end for end in range(at, len(tokens)) if tokens[end] != tokens[at]), len(tokens))
            elif tokens[at : at + 1] == [token]:
                at += 1
            else:
                return f"its tokens are not the judge's own from token {at + 1} of {len(tokens)} on"
        return f"it writes {len(tokens) - at} more tokens after the end of the judge's own" if at < len(tokens) else ""

    def ids(self, text: str) -> list[int]:
        """The tokens of a text, without those that the tokenizer adds by itself."""
        if text not in self._ids:
            self._ids[text] = self.tokenized({"prompt": text, "add_special_tokens": False})["tokens"]
        return self._ids[text]

    def tokenized(self, request: Mapping[str, Any], *, least: int = 1) -> dict[str, Any]:
        """What the server says of a request's prompt, its "tokens" among it; Rejected where there are none."""
        reply = self.client.post("/tokenize", {"model": self.engine.model, **request}, answers=False)
        ids = reply.get("tokens")
        if not isinstance(ids, list) or len(ids) < least or not all(whole(id, 0) for id in ids):
            raise Rejected("the server's /tokenize gives no tokens")
        return reply


def _blanks(probe: Prompt) -> list[str]:
    """A small blank picture for each image of a prompt."""
    return [data_uri(Image.new("RGB", (64, 64), "white"))] * probe.n_images
