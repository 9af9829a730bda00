"""Text to token ids: text from data is never a control token; and which tokens carry a score."""

from __future__ import annotations

import functools
import math
import os.path
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vjudge.engines.engine import Ask, Texts
from vjudge.prompts import Control, Prompt

if TYPE_CHECKING:
    from vjudge.models import VisionLanguageModel

Stem = tuple[int, ...]


@dataclass(frozen=True)
class ScoreTokens:
    """How a tokenizer writes the scores after a marker.

    `paths` maps each score to its tokens, without those that all scores begin with. The path of
    one score may begin that of another, as "1" begins "10".
    """

    marker: str
    paths: dict[int, Stem]
    before: Stem = ()  # the tokens that all scores begin with, behind ".", a new line, the marker

    @classmethod
    def read(cls, marker: str, texts: Texts, encode: Callable[[str], list[int]]) -> ScoreTokens:
        """Tokenize a scale; ValueError where two scores are the same tokens."""
        written = {score: tuple(encode(f".\n{marker}{text}")) for score, text in texts.items()}
        if len(set(written.values())) < len(written):
            raise ValueError(f"two scores are written alike after {marker!r} by this vocabulary")
        # The "▁" of "▁" and "4" belongs to all scores; of " 1" and " 10" the last token stays.
        shortest = min(map(len, written.values()))
        before: Any = os.path.commonprefix(list(written.values()))[: shortest - 1]
        paths = {score: ids[len(before) :] for score, ids in written.items()}
        return cls(marker, paths, before)

    @property
    def single(self) -> bool:
        """Whether the first tokens tell the scores apart."""
        return len({path[0] for path in self.paths.values()}) == len(self.paths)

    @functools.cached_property
    def steps(self) -> dict[Stem, list[int]]:
        """What is read: stem -> the tokens that go on to a score after it.

        The stems are (), and all beginnings of several scores where one token does not suffice.
        """
        steps: dict[Stem, list[int]] = {}
        for path in self.paths.values():
            read = path[:1] if self.single else path
            for n_before, token in enumerate(read):
                after = steps.setdefault(path[:n_before], [])
                if token not in after:
                    after.append(token)
        return steps

    def logprobs(self, after: Mapping[Stem, Mapping[int, float]]) -> dict[int, float]:
        """The log-probability of each score's text.

        Args:
            after: stem -> token -> log-probability, for the tokens in `steps`.

        P(a score) = P(its tokens) - P(the longer scores that begin with them). From 1 to 10:

            "1"   .6 = P("1")                 P(1)  = .6 - .3 = .3
            "10"  .3 = P("1") P("0" | "1")    P(10) = .3
        """
        if self.single:
            return {score: after[()][path[0]] for score, path in self.paths.items()}
        probabilities: dict[Stem, float] = {}
        for path in sorted(self.paths.values(), key=len, reverse=True):  # longer ones first
            # 1) the product of its tokens' probabilities
            logprob = 0.0
            for n_before, token in enumerate(path):
                logprob += after[path[:n_before]][token]
            # 2) without that of the longer scores
            probability = math.exp(logprob)
            for longer, share in probabilities.items():
                if longer[: len(path)] == path:
                    probability -= share
            probabilities[path] = probability
        logprobs = dict.fromkeys(self.paths, -math.inf)
        for score, path in self.paths.items():
            if probabilities[path] > 0:
                logprobs[score] = math.log(probabilities[path])
        return logprobs


class Encoder:
    """Turn prompts into token ids, with special tokens disabled in their texts.

    "<image>" or "</s>" in a response is spelled out. `image_token_id` takes `tokens_per_image`
    places for an image; it is None for judges without images. ValueError: the tokenizer reads a
    control token in plain text even so.

    Source: chunks split at images, one BOS: `tokenizer_image_token` in llava/mm_utils.py of
    kaistAI/prometheus-vision.
    """

    def __init__(
        self, tokenizer: Any, *, image_token_id: int | None, tokens_per_image: int
    ) -> None:
        self.tokenizer = tokenizer
        self.image_ids = [] if image_token_id is None else [image_token_id] * tokens_per_image
        start = tokenizer("").input_ids[:1]
        self.start = start if start == [tokenizer.bos_token_id] else []
        self._scales: dict[tuple[Hashable, ...], ScoreTokens] = {}
        self._added: dict[str, int] = tokenizer.get_added_vocab()
        # The unknown token is no control: it is how some vocabularies spell a character.
        controls = {image_token_id, *tokenizer.all_special_ids} - {tokenizer.unk_token_id, None}
        names = tokenizer.convert_ids_to_tokens(sorted(controls))
        if controls.intersection(self.text_ids("".join(names))):
            raise ValueError(
                f"this tokenizer reads one of {names} in plain text as a control token"
            )

    def text_ids(self, text: str) -> list[int]:
        """The ids of one chunk of plain text."""
        ids = self.tokenizer.encode(
            text, add_special_tokens=False, split_special_tokens=True, verbose=False
        )
        return list(ids)

    def ids(
        self,
        prompt: Prompt,
        *,
        suffix: str = "",
        image_tokens: Sequence[int] | None = None,
    ) -> list[int]:
        """The ids of a prompt followed by `suffix`.

        Neighbouring texts are one chunk. `image_tokens` says how many places each image takes,
        None for the same number each. ValueError: a control token that this vocabulary lacks.
        """
        ids = list(self.start)
        places = iter(image_tokens or ())
        for piece in prompt.append(suffix).parts:
            if isinstance(piece, str):
                ids += self.text_ids(piece)
            elif isinstance(piece, Control):
                if piece.text not in self._added:
                    raise ValueError(
                        f"the conversation is written with {piece.text!r}, which is no control"
                        " token of this judge's vocabulary; use a template with the judge's own"
                        " conversation"
                    )
                ids.append(self._added[piece.text])
            elif image_tokens is None:
                ids += self.image_ids
            else:
                ids += self.image_ids[:1] * next(places)
        return ids

    def scale(self, marker: str, texts: Texts) -> ScoreTokens:
        """The tokens by which each score is read after the marker (`ScoreTokens.read`)."""
        key = (marker, *texts.items())
        if key not in self._scales:
            self._scales[key] = ScoreTokens.read(marker, texts, self.text_ids)
        return self._scales[key]

    def asked(
        self,
        prompt: Prompt,
        ask: Ask,
        index: int,
        *,
        image_tokens: Sequence[int] | None = None,
    ) -> tuple[list[int], ScoreTokens | None]:
        """The ids of a call's prompt, and the scale of its verdict.

        The ids of a score pass end before the scores' own tokens.
        """
        texts = ask.scale(index)
        scale: Any = self.scale(ask.marker, texts) if texts else None
        if not ask.scores:
            return self.ids(prompt, image_tokens=image_tokens), scale
        ids = self.ids(prompt, suffix=texts[min(texts)], image_tokens=image_tokens)
        return _up_to(ids, scale), scale

    def closing(self, marker: str, texts: Texts) -> tuple[list[int], ScoreTokens]:
        """What is put behind an answer to close it, up to the scores' own tokens; the scale."""
        scale = self.scale(marker, texts)
        # Behind a letter: a chunk of its own would begin with a blank in some vocabularies.
        start = len(self.text_ids("x"))
        ids = self.text_ids(f"x{marker}{texts[min(texts)]}")
        return _up_to(ids, scale)[start:], scale

    def text(self, ids: Sequence[int]) -> str:
        """The text of generated ids, special tokens spelled out: what was written is shown."""
        return str(self.tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def verdict_step(self, ids: Sequence[int], scale: ScoreTokens) -> int | None:
        """The step at which an answer's verdict was written; None where it holds none."""
        steps = []
        for step, token in enumerate(ids):
            if token in scale.steps[()]:
                steps.append((step, self.text(ids[:step])))
        return verdict_step(self.text(ids), scale.marker, steps)


def _up_to(ids: list[int], scale: ScoreTokens) -> list[int]:
    """Ids that end in the lowest score, without its tokens."""
    path = scale.paths[min(scale.paths)]
    if tuple(ids[-len(path) :]) != path:
        raise ValueError(
            "the end of the prompt merges with the score into tokens that are not the scale's"
        )
    return ids[: -len(path)]


def verdict_step(text: str, marker: str, steps: Iterable[tuple[int, str]]) -> int | None:
    """The step that wrote the verdict: the first after the last marker and before any word.

    `steps` are those that wrote a score, each with the text before it.
    """
    marker = marker.casefold()  # as the parser reads it
    n_markers = text.casefold().count(marker)
    for step, before in steps:
        *earlier, between = before.casefold().split(marker)
        if len(earlier) == n_markers > 0 and not any(map(str.isalnum, between)):
            return step
    return None


def ends_of(model: VisionLanguageModel) -> frozenset[int]:
    """The tokens that end an answer of a loaded model."""
    ids = model.model.generation_config.eos_token_id
    if ids is None:
        ids = model.tokenizer.eos_token_id
    return frozenset(ids if isinstance(ids, list) else [ids])
