"""The wire format of chat completions, both ways: a prompt -> messages, a reply -> an `Answer`.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from vjudge.engines.engine import Answer
from vjudge.engines.transport import Unanswered, Usage
from vjudge.images import data_uri, open_image
from vjudge.prompts import IMAGE, Prompt

CHOICES = ("structured_outputs", "guided_choice", "regex")


def messages(
    prompt: Prompt,
    sources: Sequence[Any],
    *,
    marker: str | None = None,
    image_size: int | None = None,
    image_detail: str | None = None,
) -> list[dict[str, Any]]:
    """A prompt as chat messages; a turn of text alone is a plain string, which every server takes.

    Args:
        prompt: rendered without a conversation (`Template.as_messages`).
        sources: what `open_image` opens, one for each `IMAGE`.
        marker: in a score pass what the prompt ends in; it becomes the beginning of the judge's answer.
        image_size, image_detail: as in `ServerEngine`.

    Raises:
        ValueError: images and places for them differ in number; an image can't be opened; the prompt is a whole
            conversation with control tokens, or does not end in the marker.
    """
    if prompt.n_images != len(sources):
        raise ValueError(f"the prompt has {prompt.n_images} image place(s) and the item {len(sources)} image(s)")
    pictures = iter(sources)
    turn: list[dict[str, Any]] = []
    for part in prompt.parts:
        if part is IMAGE:
            turn.append(image_part(open_image(next(pictures)), size=image_size, detail=image_detail))
        elif isinstance(part, str):
            turn.append({"type": "text", "text": part})
        else:
            raise ValueError("the prompt holds control tokens, and a server writes those itself: use as_messages()")
    if marker is not None:
        text = turn[-1].get("text", "") if turn else ""
        if not text.endswith(marker):
            raise ValueError(f"the prompt does not end in {marker!r}, after which a score pass reads")
        turn[-1] = {"type": "text", "text": text.removesuffix(marker)}
    turn = [part for part in turn if part.get("text") != ""]
    said: list[dict[str, Any]] = [{"role": "system", "content": prompt.system}] if prompt.system else []
    said.append({"role": "user", "content": turn[0]["text"] if len(turn) == 1 and "text" in turn[0] else turn})
    return said if marker is None else [*said, {"role": "assistant", "content": marker}]


def image_part(image: Image.Image, *, size: int | None = None, detail: str | None = None) -> dict[str, Any]:
    """A picture inside a message, as a PNG data URI."""
    return {
        "type": "image_url",
        "image_url": {"url": data_uri(image, size=size), **({"detail": detail} if detail else {})},
    }


@dataclass(frozen=True)
class Token:
    """One written token.

    Args:
        text: its text.
        alternatives: text -> log-probability, of this token and of the most probable others in its place.
    """

    text: str
    alternatives: dict[str, float]


@dataclass(frozen=True)
class Reader:
    """How a call reads replies.

    Args:
        marker: the text before every verdict.
        scores: a score's text, without spaces -> the score.
        forced: whether the answer goes on after the marker (a score pass).
        logprobs: whether log-probabilities were asked for.
    """

    marker: str
    scores: dict[str, int]
    forced: bool
    logprobs: bool

    def answer(self, index: int, reply: Mapping[str, Any], seconds: float, usage: Usage) -> Answer:
        """Read one reply and count it.

        Raises:
            Unanswered: it lacks what every chat completion has.
        """
        try:
            choice = reply["choices"][0]
            message, finish = choice["message"], choice["finish_reason"]
            text, refusal = message.get("content"), message.get("refusal")
            # A model that spent its whole budget on hidden reasoning has no text, and a reason to stop.
            if not (isinstance(text, str) or (text is None and isinstance(finish, str))):
                raise TypeError("choices[0].message.content is no text")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise Unanswered(f"the server's answer is no chat completion ({type(error).__name__}: {error})") from None
        text = text or ""
        n_prompt, n_new = _count(reply, usage)
        failure = None
        if isinstance(refusal, str) and refusal:
            failure, text = "the judge refused", text or refusal
        elif finish == "content_filter":
            failure = "the server's content filter cut the answer"
        scores = None
        if self.logprobs and failure is None:
            tokens = read_tokens(choice)
            if tokens is None:
                usage.without_logprobs += 1
                failure = "the server gave no log-probabilities with this answer" if self.forced else None
            else:
                scores = self._scores(text, tokens)
                if scores is None and self.forced:
                    failure = f"no score of the scale among the most probable tokens; the judge wrote {text[:40]!r}"
            usage.off_list += scores is not None and -math.inf in scores.values()
        return Answer(
            index,
            text=text,
            n_prompt_tokens=n_prompt,
            n_new_tokens=n_new,
            score_logprobs=scores,
            stopped=finish != "length",
            seconds=seconds,
            failure=failure,
        )

    def _scores(self, text: str, tokens: list[Token]) -> dict[int, float] | None:
        """The scores' log-probabilities at the token that wrote the verdict, or None where no token did alone.

        It is the first token of the scale after the last marker, before any other word. " 4" and "4" are one score.
        """
        marker, before = self.marker.casefold(), self.marker if self.forced else ""
        written = (before + "".join(token.text for token in tokens)).casefold()
        markers = written.count(marker)
        if not markers or (not self.forced and markers != text.casefold().count(marker)):
            return None
        for token in tokens:
            head, mark, tail = before.casefold().rpartition(marker)
            if token.text.strip() in self.scores and mark and head.count(marker) == markers - 1:
                if not any(map(str.isalnum, tail)):
                    return self._distribution(token)
            before += token.text
        # What a score pass reads stands first, also where the judge then wrote something else.
        return self._distribution(tokens[0]) if self.forced and markers == 1 else None

    def _distribution(self, token: Token) -> dict[int, float] | None:
        """The scores' log-probabilities in one token's place; None where none of them is listed."""
        chances = dict.fromkeys(self.scores.values(), 0.0)
        for text, logprob in token.alternatives.items():
            if (score := self.scores.get(text.strip())) is not None:
                chances[score] += math.exp(logprob)
        if not any(chances.values()):
            return None
        return {score: math.log(chance) if chance else -math.inf for score, chance in chances.items()}


@dataclass(frozen=True)
class Call:
    """What the requests of one call share: the fields that are sent, how replies are read, how many at once."""

    sent: dict[str, Any]
    reader: Reader
    width: int

    @property
    def marker(self) -> str | None:
        """What the prompts end in; None where they don't."""
        return self.reader.marker if self.reader.forced else None

    def without_logprobs(self) -> Call:
        """The same call to a server that gives none."""
        return replace(self, reader=replace(self.reader, logprobs=False))


def read_tokens(choice: Mapping[str, Any]) -> list[Token] | None:
    """The log-probabilities of a reply's tokens; None where there are none, or not in the published form."""
    try:
        tokens = []
        for entry in choice["logprobs"]["content"]:
            alternatives = {other["token"]: float(other["logprob"]) for other in entry["top_logprobs"]}
            alternatives[entry["token"]] = float(entry["logprob"])
            if not all(value <= 1e-3 for value in alternatives.values()):  # also no NaN
                return None
            tokens.append(Token(entry["token"], alternatives))
            if not all(isinstance(text, str) for text in alternatives):
                return None
        return tokens or None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _count(reply: Mapping[str, Any], usage: Usage) -> tuple[int, int]:
    """The prompt's and the answer's tokens as the server counts them, added to `usage`; 0 where it does not."""
    told = reply.get("usage")
    counts = [told.get(name) if isinstance(told, dict) else None for name in ("prompt_tokens", "completion_tokens")]
    known = all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts)
    n_prompt, n_new = (int(count or 0) for count in counts) if known else (0, 0)
    usage.answers += 1
    usage.unreported += not known
    usage.prompt_tokens += n_prompt
    usage.new_tokens += n_new
    if isinstance(reply.get("model"), str):
        usage.models[reply["model"][:200]] += 1
    return n_prompt, n_new


def bare(score_texts: Mapping[int, str]) -> dict[str, int]:
    """A score's text without spaces -> the score."""
    return {text.strip(): score for score, text in score_texts.items()}


def clashes(score_texts: Mapping[int, str]) -> str:
    """Why one token can't tell some scores apart, "1" and "10" for example; empty where it can."""
    texts = bare(score_texts)
    begun = [text for text in texts if any(other != text and other.startswith(text) for other in texts)]
    if not begun:
        return ""
    return (
        f"log-probabilities can't tell the scores apart: {', '.join(begun[:5])} may be the beginning of another score;"
        " use rubrics whose scores are single digits"
    )


def restriction(field: str | None, score_texts: Mapping[int, str]) -> dict[str, Any]:
    """The field of a request that restricts its answer to the scores' texts, with a space before them or without.

    Args:
        field: one of `CHOICES`, or None for no restriction.
        score_texts: score -> what follows the marker.

    Source: vLLM's documentation of structured outputs (`structured_outputs`, before it `guided_choice`); SGLang's of
    sampling parameters (`regex`).
    """
    if field is None:
        return {}
    texts = list(dict.fromkeys(each for text in score_texts.values() for each in (text, text.strip())))
    if field == "regex":
        return {field: "|".join(map(re.escape, texts))}
    return {field: {"choice": texts} if field == "structured_outputs" else texts}
