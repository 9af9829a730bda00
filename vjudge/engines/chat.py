"""The wire format of OpenAI's protocol, both ways: a prompt -> requests, replies -> an `Answer`.

Source: https://platform.openai.com/docs/api-reference/chat; docs.vllm.ai, "OpenAI-Compatible Server", for the fields
that continue an answer and name the tokens whose log-probabilities are wanted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vjudge.engines.engine import Answer, Ask, check_images, whole
from vjudge.engines.tokens import Scale
from vjudge.engines.transport import Key, Unanswered, Usage
from vjudge.prompts import IMAGE, Control, Conversation, Prompt

CONTINUE = {"add_generation_prompt": False, "continue_final_message": True}
# Line feeds and blanks: what templates change shows.
PROBE = "Answer with the word yes.\n\n###Ünit:  1 + 1\n\n###Feedback:"
MOST_TOKENS = 2**31 - 1  # a larger count is no count
LISTED = 20  # tokens at each place whose log-probabilities are requested; many servers allow no more
UNCOUNTED = "without a token count, which are missing from the counts and the price"
SILENT = "without the log-probabilities that were asked for"
OFF_LIST = "with a score outside the most probable tokens, counted as 0"
ECHO = "that repeated the key, which was cut out"

Token = tuple[str, dict[str, float]]  # text, or "token_id:5" where asked for -> log-probabilities, its own among them


@dataclass(frozen=True)
class Way:
    """How a server is made to read a prompt: as messages, which its template writes, or whole in our own words."""

    fields: Mapping[str, Any] = field(default_factory=dict)  # of each request
    conversation: Conversation | None = None  # of a whole prompt, which goes to the completions endpoint

    @property
    def endpoint(self) -> str:
        """Where requests go, after the base URL."""
        return "completions" if self.conversation else "chat/completions"

    def request(self, prompt: Prompt, pictures: Sequence[Any], begun: str | None = None) -> dict[str, Any]:
        """The part of a request that holds a turn, a `picture_part` for each IMAGE, and how the answer begins."""
        check_images(prompt, pictures)
        if any(isinstance(part, Control) for part in prompt.parts):
            raise ValueError("the prompt holds control tokens, and a server writes those itself: use as_messages()")
        if self.conversation is not None:
            return {"prompt": spelled(conversation_of(prompt, self.conversation, begun).parts), **self.fields}
        messages: list[dict[str, Any]] = [{"role": "system", "content": prompt.system}] if prompt.system else []
        remaining = iter(pictures)
        parts: list[Any] = [
            next(remaining) if part is IMAGE else {"type": "text", "text": part} for part in prompt.parts
        ]
        alone = len(parts) == 1 and parts[0]["type"] == "text"  # a plain string, which every server takes
        messages.append({"role": "user", "content": parts[0]["text"] if alone else parts})
        if begun is None:
            return {"messages": messages, **self.fields}
        return {"messages": [*messages, {"role": "assistant", "content": begun}], **self.fields, **CONTINUE}


def conversation_of(prompt: Prompt, conversation: Conversation, begun: str | None) -> Prompt:
    """A turn in the words of a conversation, and the beginning of the answer to it."""
    n_images, rest = prompt.n_images, [part for part in prompt.parts if part is not IMAGE]
    plain = prompt.parts[:n_images].count(IMAGE) == n_images and len(rest) == 1
    whole = conversation.wrap(str(rest[0]), n_images) if plain else conversation.ask(prompt.parts)
    return whole if begun is None else whole.append(conversation.reply + begun)


def spelled(parts: Iterable[Any]) -> str:
    """The texts and control tokens among parts, as a server's tokenizer reads them."""
    return "".join(part if isinstance(part, str) else part.text * part.times for part in parts if part is not IMAGE)


def picture_part(uri: str) -> dict[str, Any]:
    """A picture inside a message."""
    return {"type": "image_url", "image_url": {"url": uri}}


def probe(prompt: Prompt) -> Prompt:
    """A short prompt with all that a chat template may write differently: images, system, blanks at the ends."""
    parts = (re.sub(r"(?s)\S.*\S|\S", PROBE, part) if isinstance(part, str) else part for part in prompt.parts)
    return Prompt(tuple(parts), prompt.system)


def cut(prompt: Prompt, marker: str) -> Prompt:
    """A score pass's prompt without the marker that it ends in; ValueError where it ends in something else."""
    end = prompt.parts[-1] if prompt.parts else ""
    if not isinstance(end, str) or not end.endswith(marker):
        raise ValueError(f"the prompt does not end in {marker!r}, after which a score pass reads")
    return replace(prompt, parts=(*prompt.parts[:-1], end.removesuffix(marker)))


def read_reply(reply: Mapping[str, Any], usage: Usage, key: Key) -> tuple[Answer, list[Token] | None]:
    """What one reply says as the answer to row 0, and its tokens; Unanswered where it is no completion."""
    try:
        choice = reply["choices"][0]
        message, finish = choice if "text" in choice else choice["message"], choice["finish_reason"]
        content, refusal = message.get("text" if "text" in choice else "content"), message.get("refusal")
        # A model that spent its whole budget on hidden reasoning has no text, and a reason to stop.
        if not (isinstance(content, str) or (content is None and isinstance(finish, str))):
            raise TypeError("choices[0].message.content is no text")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Unanswered(f"the server's answer is no chat completion ({type(error).__name__}: {error})") from None
    report = reply.get("usage")
    report = report if isinstance(report, dict) else {}
    counts: list[Any] = [report.get(name) for name in ("prompt_tokens", "completion_tokens")]
    if not all(whole(count, 0) and count <= MOST_TOKENS for count in counts):
        counts = [0, 0]
        usage.oddities[UNCOUNTED] += 1
    usage.answers += 1
    usage.prompt_tokens += counts[0]
    usage.new_tokens += counts[1]
    content, failure = content or "", None
    if isinstance(refusal, str) and refusal:
        failure, content = "the judge refused", content or refusal
    elif finish == "content_filter":
        failure = "the server's content filter cut the answer"
    text = key.cut(content)
    if text != content:
        usage.oddities[ECHO] += 1
    if (sound := text.encode("utf-8", "backslashreplace").decode()) != text:
        failure, text = "the answer is no text: it holds half of a character (a lone surrogate)", sound
    n_prompt, n_new = counts
    return Answer(0, text, n_prompt, n_new, stopped=finish != "length", failure=failure), read_tokens(choice)


def read_tokens(choice: Mapping[str, Any]) -> list[Token] | None:
    """The log-probabilities of an answer's tokens; None where there are none, or no list of texts with finite ones."""
    try:
        logprobs, tokens = choice["logprobs"], []
        if "content" in logprobs:
            listed = [(entry["token"], [*entry["top_logprobs"], entry]) for entry in logprobs["content"]]
            pairs = [(text, [(other["token"], other["logprob"]) for other in others]) for text, others in listed]
        else:  # of a completion that is no chat
            columns = (logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"])
            pairs = [(text, [*(top or {}).items(), (text, own)]) for text, own, top in zip(*columns, strict=True)]
        for text, others in pairs:
            for other, value in others:
                # NaN compares as false; a truth value is no number.
                if not isinstance(other, str) or isinstance(value, bool) or not value <= 1e-3:
                    return None
            alternatives = {other: float(value) for other, value in others}
            if sum(map(math.exp, alternatives.values())) > 1.01:
                return None
            tokens.append((text, alternatives))
        return tokens or None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def at_verdict(text: str, tokens: Sequence[Token], *, marker: str, texts: Mapping[int, str]) -> dict[int, float] | None:
    """The scores' log-probabilities at the verdict, the scale's first token right after the last marker, if any.

    " 4" and "4" are one score; one that is not listed there has probability 0.
    """
    marker, scores = marker.casefold(), {text.strip(): score for score, text in texts.items()}
    markers, before = text.casefold().count(marker), ""
    if "".join(token for token, _ in tokens).casefold().count(marker) != markers:
        return None
    for token, alternatives in tokens:
        head, mark, tail = before.casefold().rpartition(marker)
        verdict = token.strip() in scores and mark and head.count(marker) == markers - 1
        if verdict and not any(map(str.isalnum, tail)):
            chances = dict.fromkeys(scores.values(), 0.0)
            for other, logprob in alternatives.items():
                if (score := scores.get(other.strip())) is not None:
                    chances[score] += math.exp(logprob)
            return {score: math.log(chance) if chance else -math.inf for score, chance in chances.items()}
        before += token
    return None


@dataclass(frozen=True)
class Reading:
    """How the verdicts on one scale are read: what is written, the same in the server's tokens, if it shows them, and
    in a score pass what to read a distribution after -> the text that begins the answer there, after the marker.
    """

    texts: Mapping[int, str]
    scale: Scale | None = None
    stems: Mapping[tuple[int, ...], str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """What the requests of one call share: the fields `sent`, the user's own over them, and scale -> reading."""

    ask: Ask
    sent: Mapping[str, Any]
    fields: Mapping[str, Any] = field(default_factory=dict)
    way: Way = field(default_factory=Way)
    scales: Mapping[tuple[Any, ...], Reading] = field(default_factory=dict)

    def on(self, row: int) -> Reading | None:
        """How a row's verdict is read; None where no distribution is wanted, or none can be had."""
        return self.scales.get(scale_key(self.ask.scale(row)))

    def requests(
        self, prompt: Prompt, pictures: Sequence[Any], reading: Reading | None, seed: int
    ) -> list[dict[str, Any]]:
        """A prompt's requests: one, or in a score pass one for each beginning of the scores' texts."""
        beginnings: dict[tuple[int, ...], str | None] = {(): None}
        if self.ask.scores and reading is not None:
            prompt, marker = cut(prompt, self.ask.marker), self.ask.marker
            beginnings = {stem: marker + text for stem, text in reading.stems.items()}
        bodies = []
        for stem, begun in beginnings.items():
            body = {**self.way.request(prompt, pictures, begun), **self.sent}
            body |= {"seed": seed % 2**31} if self.ask.temperature > 0 else {}
            if reading is not None:
                body |= {"logprobs": LISTED} if "prompt" in body else {"logprobs": True, "top_logprobs": LISTED}
            if reading is not None and reading.scale is not None:
                ids = reading.scale.reads(stem)
                body |= {"logprob_token_ids": ids} if len(ids) <= LISTED else {}
                body |= {"return_tokens_as_token_ids": True} if self.ask.scores else {}
            bodies.append({name: value for name, value in {**body, **self.fields}.items() if value is not None})
        return bodies

    def answer(self, row: int, replies: Sequence[tuple[Answer, list[Token] | None]], usage: Usage) -> Answer:
        """What a row's replies come to."""
        answers, tokens = [answer for answer, _ in replies], [each for _, each in replies if each is not None]
        failure = next((answer.failure for answer in answers if answer.failure), None)
        reading, scores = self.on(row), None
        if reading is not None and failure is None:
            if len(tokens) < len(replies):
                usage.oddities[SILENT] += 1
                failure = "the server gave no log-probabilities with this answer" if self.ask.scores else None
            elif not self.ask.scores:
                scores = at_verdict(answers[0].text, tokens[0], marker=self.ask.marker, texts=reading.texts)
            elif reading.scale is not None:
                after = {}
                for stem, ((_, odds), *_) in zip(reading.stems, tokens, strict=True):
                    after[stem] = {id: odds.get(f"token_id:{id}", -math.inf) for id in reading.scale.reads(stem)}
                scores = reading.scale.logprobs(after)
                if all(value == -math.inf for value in scores.values()):
                    scores = None
                    failure = f"no score of the scale among the most probable tokens; it wrote {answers[0].text[:40]!r}"
            if scores is not None and -math.inf in scores.values():
                usage.oddities[OFF_LIST] += 1
        n_new = sum(answer.n_new_tokens for answer in answers)
        return replace(answers[0], index=row, n_new_tokens=n_new, score_logprobs=scores, failure=failure)


def scale_key(texts: Mapping[int, str]) -> tuple[Any, ...]:
    """A scale's name among a call's."""
    return tuple(sorted(texts.items()))
