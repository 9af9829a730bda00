"""The wire format of OpenAI's protocol, both ways: a prompt -> requests, replies -> an `Answer`.

Source: https://platform.openai.com/docs/api-reference/chat; docs.vllm.ai, "OpenAI-Compatible Server", for the fields
that continue an answer and name the tokens whose log-probabilities are wanted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from vjudge.engines.engine import Answer, Ask
from vjudge.engines.tokens import Scale
from vjudge.engines.transport import Key, Unanswered, Usage
from vjudge.prompts import IMAGE, Control, Conversation, Prompt

CONTINUE = {"add_generation_prompt": False, "continue_final_message": True}
VERBATIM = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
PROBE = (
    "Answer with the word yes.\n\n###Ünit:  1 + 1\n\n###Feedback:"  # line feeds and blanks: what templates change shows
)
MOST_TOKENS = 2**31 - 1  # a larger count is no count


# --- what a request holds ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How a server is made to read a prompt.

    Args:
        endpoint: after the base URL.
        fields: of each request.
        continues: further ones where the answer is begun.
        conversation: the words around a turn where they are sent; None where the server writes them.
    """

    endpoint: str = "chat/completions"
    fields: Mapping[str, Any] = field(default_factory=dict)
    continues: Mapping[str, Any] = field(default_factory=lambda: CONTINUE)
    conversation: Conversation | None = None

    def request(self, prompt: Prompt, pictures: Sequence[Any], begun: str | None = None) -> dict[str, Any]:
        """The part of a request that holds the prompt.

        Args:
            prompt: a turn without a conversation (`Template.as_messages`).
            pictures: a message's part for each `IMAGE`, as `picture_part` makes it.
            begun: how the answer begins; None where it does not.

        Raises:
            ValueError: images and places for them differ in number; the prompt is a whole conversation already.
        """
        if prompt.n_images != len(pictures):
            raise ValueError(f"the prompt has {prompt.n_images} image place(s) and the item {len(pictures)} image(s)")
        if any(isinstance(part, Control) for part in prompt.parts):
            raise ValueError("the prompt holds control tokens, and a server writes those itself: use as_messages()")
        if self.conversation is None:
            system = [{"role": "system", "content": prompt.system}] if prompt.system else []
            answer = [] if begun is None else [{"role": "assistant", "content": begun}]
            continues = {} if begun is None else self.continues
            return {"messages": [*system, _message(prompt.parts, pictures), *answer], **self.fields, **continues}
        parts = list(conversation_of(prompt, self.conversation, begun).parts)
        if self.endpoint == "completions":
            return {"prompt": spelled(parts), **self.fields}
        # What stands before the first image is one message: servers put images at the front of theirs.
        first = next((at for at, part in enumerate(parts) if part is IMAGE), len(parts))
        opening = [{"role": "system", "content": spelled(parts[:first])}] if pictures and first else []
        last = len(parts) - next((at for at, part in enumerate(reversed(parts)) if part is IMAGE), len(parts))
        text = spelled(parts[last:])
        turn = [*parts[first:last:2], text.removeprefix("\n")] if pictures else [text]
        return {"messages": [*opening, _message(turn, pictures)], **self.fields}


def conversation_of(prompt: Prompt, conversation: Conversation, begun: str | None) -> Prompt:
    """A turn in the words of a conversation, and the beginning of the answer to it."""
    n_images, rest = prompt.n_images, [part for part in prompt.parts if part is not IMAGE]
    plain = prompt.parts[:n_images].count(IMAGE) == n_images and len(rest) == 1
    whole = conversation.wrap(str(rest[0]), n_images) if plain else conversation.ask(prompt.parts)
    return whole if begun is None else whole.append(conversation.reply + begun)


def spelled(parts: Sequence[Any]) -> str:
    """Parts without images as a server's tokenizer reads them."""
    return "".join(part if isinstance(part, str) else part.text * part.times for part in parts)


def picture_part(uri: str, detail: str | None = None) -> dict[str, Any]:
    """A picture inside a message."""
    return {"type": "image_url", "image_url": {"url": uri, **({"detail": detail} if detail else {})}}


def _message(parts: Sequence[Any], pictures: Sequence[Any]) -> dict[str, Any]:
    """A user's turn; of text alone it is a plain string, which every server takes."""
    remaining = iter(pictures)
    content = [next(remaining) if part is IMAGE else {"type": "text", "text": part} for part in parts if part != ""]
    if len(content) == 1 and content[0]["type"] == "text":
        return {"role": "user", "content": content[0]["text"]}
    return {"role": "user", "content": content}


# --- what an answer says ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """A completion, as far as it holds what every completion has.

    Args:
        choice: its one choice, as JSON.
        text: what the judge wrote, without the key.
        failure: None, or why there is no answer in it.
        stopped: whether the model ended it, rather than a limit.
        n_prompt, n_new: tokens as the server counts them; 0 where it does not.
    """

    choice: Mapping[str, Any]
    text: str
    failure: str | None
    stopped: bool
    n_prompt: int
    n_new: int


def read_reply(reply: Mapping[str, Any], usage: Usage, key: Key) -> Reply:
    """Read one answer and count it.

    Raises:
        Unanswered: it lacks what every completion has.
    """
    try:
        choice = reply["choices"][0]
        message, finish = choice if "text" in choice else choice["message"], choice["finish_reason"]
        text, refusal = message.get("text" if "text" in choice else "content"), message.get("refusal")
        # A model that spent its whole budget on hidden reasoning has no text, and a reason to stop.
        if not (isinstance(text, str) or (text is None and isinstance(finish, str))):
            raise TypeError("choices[0].message.content is no text")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Unanswered(f"the server's answer is no chat completion ({type(error).__name__}: {error})") from None
    n_prompt, n_new = _count(reply, usage, key)
    written, failure = text or "", None
    if isinstance(refusal, str) and refusal:
        failure, written = "the judge refused", written or refusal
    elif finish == "content_filter":
        failure = "the server's content filter cut the answer"
    text = key.cut(written)
    usage.key_echoes += text != written
    if (sound := text.encode("utf-8", "backslashreplace").decode()) != text:
        failure, text = "the answer is no text: it holds half of a character (a lone surrogate)", sound
    return Reply(choice, text, failure, finish != "length", n_prompt, n_new)


def _count(reply: Mapping[str, Any], usage: Usage, key: Key) -> tuple[int, int]:
    """The prompt's and the answer's tokens as the server counts them, added to `usage`; 0 where it does not."""
    report = reply.get("usage")
    counts = [report.get(name) if isinstance(report, dict) else None for name in ("prompt_tokens", "completion_tokens")]
    sound = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MOST_TOKENS for n in counts)
    n_prompt, n_new = (int(count or 0) for count in counts) if sound else (0, 0)
    usage.answers += 1
    usage.unreported += not sound
    usage.prompt_tokens += n_prompt
    usage.new_tokens += n_new
    if isinstance(model := reply.get("model"), str):
        usage.models[key.cut(model)[:200]] += 1
    return n_prompt, n_new


@dataclass(frozen=True)
class Token:
    """One new token.

    Args:
        text: its text, or its id as "token_id:5" where it was asked for so.
        alternatives: text -> log-probability, of this token and of the most probable others in its place.
    """

    text: str
    alternatives: dict[str, float]


def read_tokens(choice: Mapping[str, Any]) -> list[Token] | None:
    """The log-probabilities of an answer's tokens; None where there are none, or not in a published form.

    Raises nothing: what is no list of texts with finite probabilities that sum to 1 at most is no log-probabilities.
    """
    try:
        logprobs, tokens = choice["logprobs"], []
        if "content" in logprobs:
            listed = [
                (
                    entry["token"],
                    entry["logprob"],
                    [(other["token"], other["logprob"]) for other in entry["top_logprobs"]],
                )
                for entry in logprobs["content"]
            ]
        else:  # of a completion that is no chat
            columns = (logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"])
            listed = [(text, own, list((others or {}).items())) for text, own, others in zip(*columns, strict=True)]
        for text, own, others in listed:
            alternatives: dict[str, float] = {}
            for other, value in [*others, (text, own)]:
                # NaN compares as false; a truth value is no number.
                if not isinstance(other, str) or isinstance(value, bool) or not value <= 1e-3:
                    return None
                alternatives[other] = float(value)
            if sum(map(math.exp, alternatives.values())) > 1.01:
                return None
            tokens.append(Token(text, alternatives))
        return tokens or None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def by_id(token: Token) -> dict[int, float]:
    """Token id -> log-probability, in the place of a token that was asked for by id.

    >>> by_id(Token("token_id:7", {"token_id:7": -0.5, "token_id:9": -1.0}))
    {7: -0.5, 9: -1.0}
    """
    ids = {text.removeprefix("token_id:"): value for text, value in token.alternatives.items() if ":" in text}
    return {int(text): value for text, value in ids.items() if re.fullmatch("[0-9]{1,9}", text)}


def at_verdict(
    text: str, tokens: Sequence[Token], *, marker: str, scores: Mapping[str, int], begun: bool = False
) -> dict[int, float] | None:
    """The scores' log-probabilities at the token that wrote the verdict; None where no token did alone.

    It is the first token of the scale after the last marker, before any other word. " 4" and "4" are one score. A score
    that is not listed there has probability 0.

    Args:
        text: the answer.
        tokens: its tokens.
        marker: the text before every verdict.
        scores: a score's text, without spaces -> the score.
        begun: whether the answer goes on after a marker, in a score pass.
    """
    marker, before = marker.casefold(), marker if begun else ""
    written = (before + "".join(token.text for token in tokens)).casefold()
    markers = written.count(marker)
    if not markers or (not begun and markers != text.casefold().count(marker)):
        return None
    for token in tokens:
        head, mark, tail = before.casefold().rpartition(marker)
        if token.text.strip() in scores and mark and head.count(marker) == markers - 1:
            if not any(map(str.isalnum, tail)):
                return _distribution(token, scores)
        before += token.text
    # What a score pass reads stands first, also where the judge then wrote something else.
    return _distribution(tokens[0], scores) if begun and markers == 1 else None


def _distribution(token: Token, scores: Mapping[str, int]) -> dict[int, float] | None:
    """The scores' log-probabilities in one token's place; None where none of them is listed."""
    chances = dict.fromkeys(scores.values(), 0.0)
    for text, logprob in token.alternatives.items():
        if (score := scores.get(text.strip())) is not None:
            chances[score] += math.exp(logprob)
    if not any(chances.values()):
        return None
    return {score: math.log(chance) if chance else -math.inf for score, chance in chances.items()}


def bare(texts: Mapping[int, str]) -> dict[str, int]:
    """A score's text without spaces -> the score.

    >>> bare({1: " 1", 2: " 2"})
    {'1': 1, '2': 2}
    """
    return {text.strip(): score for score, text in texts.items()}


def clash(texts: Mapping[int, str]) -> str:
    """Why the first token may not tell some scores apart, "1" and "10" for example; empty where it does.

    >>> clash({n: f" {n}" for n in range(1, 6)})
    ''
    """
    own = bare(texts)
    begun = [text for text in own if any(other != text and other.startswith(text) for other in own)]
    if not begun:
        return ""
    return (
        f"log-probabilities can't tell the scores apart: {', '.join(begun[:5])} may be the beginning of another score;"
        " use rubrics whose scores are single digits"
    )


# --- one call ---------------------------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """What of a prompt a chat template may write differently: images, the system message, blanks at the text's ends."""

    n_images: int
    system: str
    start: str
    end: str

    @classmethod
    def of(cls, prompt: Prompt, marker: str) -> Shape:
        """The shape of a prompt, without the marker that it may end in.

        >>> Shape.of(Prompt((IMAGE, "Look: [RESULT]")), "[RESULT]")
        Shape(n_images=1, system='', start='', end=' ')
        """
        text = "".join(part for part in prompt.parts if isinstance(part, str)).removesuffix(marker)
        start, end = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
        return cls(prompt.n_images, prompt.system, start, end if text.strip() else "")

    def probe(self) -> Prompt:
        """A short prompt of this shape."""
        return Prompt((*[IMAGE] * self.n_images, f"{self.start}{PROBE}{self.end}"), self.system)


@dataclass(frozen=True)
class ScoreTexts:
    """How the verdicts on one scale are read.

    Args:
        texts: score -> what the judge writes after the marker.
        scale: the same as tokens of the server; None where it does not show them.
        stems: in a score pass, a prompt's shape -> what to read a distribution after -> the text that the answer is
            begun with for it, after the marker.
    """

    texts: Mapping[int, str]
    scale: Scale | None = None
    stems: Mapping[Shape, Mapping[tuple[int, ...], str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """What the requests of one call share.

    Args:
        ask: as in `Engine.answer`.
        sent: fields of each request.
        fields: those that a user adds to, or takes out of, each of them.
        top_logprobs: how many tokens to list at each place.
        ways: a prompt's shape -> how such a prompt is put.
        verdicts: scale -> how its verdicts are read; without those of which nothing is read.
    """

    ask: Ask
    sent: Mapping[str, Any]
    fields: Mapping[str, Any] = field(default_factory=dict)
    top_logprobs: int = 20
    ways: Mapping[Shape, Way] = field(default_factory=dict)
    verdicts: Mapping[tuple[Any, ...], ScoreTexts] = field(default_factory=dict)

    def on(self, row: int) -> ScoreTexts | None:
        """How a row's verdict is read; None where no distribution is wanted, or none can be had."""
        return self.verdicts.get(scale_key(self.ask.scale(row)))

    def shape(self, prompt: Prompt) -> Shape:
        """A prompt's shape."""
        return Shape.of(prompt, self.ask.marker if self.ask.scores else "")

    def requests(
        self, prompt: Prompt, pictures: Sequence[Any], verdicts: ScoreTexts | None, seed: int
    ) -> list[dict[str, Any]]:
        """A prompt's requests: one, or in a score pass one for each beginning of the scores' texts."""
        shape, marker = self.shape(prompt), self.ask.marker
        way = self.ways[shape]
        drawn = {"seed": seed % 2**31} if self.ask.temperature > 0 else {}
        if not self.ask.scores or verdicts is None:
            put: dict[tuple[int, ...], dict[str, Any]] = {(): way.request(prompt, pictures)}
        else:
            end = prompt.parts[-1] if prompt.parts else ""
            if not isinstance(end, str) or not end.endswith(marker):
                raise ValueError(f"the prompt does not end in {marker!r}, after which a score pass reads")
            cut = replace(prompt, parts=(*prompt.parts[:-1], end.removesuffix(marker)))
            stems = verdicts.stems.get(shape, {(): ""})
            put = {stem: way.request(cut, pictures, marker + text) for stem, text in stems.items()}
        bodies = []
        for stem, body in put.items():
            body |= {**self.sent, **drawn}
            if verdicts is not None:
                plain = "prompt" in body
                body |= {"logprobs": self.top_logprobs if plain else True}
                body |= {} if plain else {"top_logprobs": self.top_logprobs}
                if verdicts.scale is not None:
                    ids = verdicts.scale.reads(stem)
                    body |= {"logprob_token_ids": ids} if len(ids) <= self.top_logprobs else {}
                    body |= {"return_tokens_as_token_ids": True} if self.ask.scores else {}
            bodies.append({name: value for name, value in {**body, **self.fields}.items() if value is not None})
        return bodies

    def answer(self, row: int, replies: Sequence[Reply], usage: Usage) -> Answer:
        """What a row's replies come to."""
        verdicts, first, scores = self.on(row), replies[0], None
        failure = next((reply.failure for reply in replies if reply.failure), None)
        if verdicts is not None and failure is None:
            tokens = [each for reply in replies if (each := read_tokens(reply.choice)) is not None]
            if len(tokens) < len(replies):
                usage.without_logprobs += 1
                failure = "the server gave no log-probabilities with this answer" if self.ask.scores else None
            else:
                scores = self._scores(first.text, tokens, verdicts)
                if scores is None and self.ask.scores:
                    failure = f"no score of the scale among the most probable tokens; it wrote {first.text[:40]!r}"
            usage.off_list += scores is not None and -math.inf in scores.values()
        return Answer(
            row,
            text=first.text,
            n_prompt_tokens=first.n_prompt,
            n_new_tokens=sum(reply.n_new for reply in replies),
            score_logprobs=scores,
            stopped=first.stopped,
            failure=failure,
        )

    def _scores(self, text: str, tokens: Sequence[list[Token]], verdicts: ScoreTexts) -> dict[int, float] | None:
        """The scores' log-probabilities; None where none of them is listed."""
        if verdicts.scale is None or not self.ask.scores:
            scores = bare(verdicts.texts)
            return at_verdict(text, tokens[0], marker=self.ask.marker, scores=scores, begun=self.ask.scores)
        after = {}
        for stem, places in zip(verdicts.scale.stems, tokens, strict=True):
            listed = by_id(places[0])
            after[stem] = {id: listed.get(id, -math.inf) for id in verdicts.scale.reads(stem)}
        logprobs = verdicts.scale.logprobs(after)
        return logprobs if any(value > -math.inf for value in logprobs.values()) else None


def scale_key(texts: Mapping[int, str]) -> tuple[Any, ...]:
    """A scale's name among a call's verdicts."""
    return tuple(sorted(texts.items()))
