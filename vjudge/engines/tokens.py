"""Turn text into token ids, and find the tokens of a scale.

Text from data never becomes a control token.
"""

from __future__ import annotations

import functools
import math
import os.path
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vjudge.engines.engine import Ask, Texts
from vjudge.prompts import Control, Prompt

if TYPE_CHECKING:
    from vjudge.models import VisionLanguageModel

Stem = tuple[int, ...]  # the tokens with which the texts of some scores begin


@dataclass(frozen=True)
class ScoreTokens:
    """The tokens in which a tokenizer writes each score after a marker.

    Attributes:
        marker: the text before every score.
        paths: score -> its tokens, without the tokens that all scores begin with. The path of one
            score may begin that of another, as the tokens of "1" begin those of "10".
        common_start: the tokens of the marker, and those that all scores begin with.
    """

    marker: str
    paths: dict[int, Stem]
    common_start: Stem = ()

    @classmethod
    def read(cls, marker: str, texts: Texts, encode: Callable[[str], list[int]]) -> ScoreTokens:
        """Tokenize a scale after its marker.

        Args:
            marker: the text before every score.
            texts: score -> its text after the marker, such as {4: " 4"}.
            encode: a text -> its token ids.

        Raises:
            ValueError: two scores are the same tokens.
        """
        # The marker stands on a new line, as in an answer: its tokens may depend on that.
        tokens = {score: tuple(encode(f".\n{marker}{text}")) for score, text in texts.items()}
        if len(set(tokens.values())) < len(tokens):
            raise ValueError(f"two scores are written alike after {marker!r} by this vocabulary")
        # In Llama's vocabulary " 4" is "▁" and "4": the "▁" belongs to all scores. At least one
        # token of each score remains, because " 1" may be all that " 10" begins with.
        shortest = min(map(len, tokens.values()))
        common: Any = os.path.commonprefix(list(tokens.values()))[: shortest - 1]
        paths = {score: ids[len(common) :] for score, ids in tokens.items()}
        return cls(marker, paths, common)

    @property
    def first_token_decides(self) -> bool:
        """Whether the first tokens alone tell the scores apart."""
        return len({path[0] for path in self.paths.values()}) == len(self.paths)

    @functools.cached_property
    def next_tokens(self) -> dict[Stem, list[int]]:
        """After which tokens the distribution is read, and over which: stem -> its next tokens.

        A stem is the tokens with which some scores begin, and its next tokens go on to a score. The
        only stem is () where the first token decides. Of the scores 1 to 10, in a vocabulary with a
        token for each digit:

            ()      1 2 3 4 5 6 7 8 9
            (1,)    0
        """
        next_tokens: dict[Stem, list[int]] = {}
        for path in self.paths.values():
            path_to_read = path[:1] if self.first_token_decides else path
            for n_before, token in enumerate(path_to_read):
                tokens = next_tokens.setdefault(path[:n_before], [])
                if token not in tokens:
                    tokens.append(token)
        return next_tokens

    def logprobs(self, after: Mapping[Stem, Mapping[int, float]]) -> dict[int, float]:
        """Return the log-probability of each score's text.

        P(a score) = P(its tokens) - P(the longer scores that begin with them). With the scores 1 to
        10, where the token "1" has probability .6, and "0" after it .5:

            P("10") = .6 * .5   = .3
            P("1")  = .6 - .3   = .3

        Args:
            after: stem -> token -> its log-probability after the stem, for all in `next_tokens`.
        """
        if self.first_token_decides:
            return {score: after[()][path[0]] for score, path in self.paths.items()}
        probabilities: dict[Stem, float] = {}
        for path in sorted(self.paths.values(), key=len, reverse=True):  # longer ones first
            # 1) the product of its tokens' probabilities (chain rule)
            logprob = 0.0
            for n_before, token in enumerate(path):
                logprob += after[path[:n_before]][token]
            # 2) without the longer scores that begin with these tokens
            probability = math.exp(logprob)
            for longer, probability_of_longer in probabilities.items():
                if longer[: len(path)] == path:
                    probability -= probability_of_longer
            probabilities[path] = probability
        # 3) rounding can leave a probability at or below 0
        logprobs = dict.fromkeys(self.paths, -math.inf)
        for score, path in self.paths.items():
            if probabilities[path] > 0:
                logprobs[score] = math.log(probabilities[path])
        return logprobs


class Encoder:
    """Turn prompts into token ids; a special token's spelling in their texts is plain text.

    "<image>" or "</s>" in a response is spelled out, letter by letter.

    Args:
        tokenizer: of transformers.
        image_token_id: the token that stands at an image's places; None for a text-only judge.
        tokens_per_image: how many places an image takes, unless `ids` gets `image_tokens`.

    Raises:
        ValueError: the tokenizer still reads a special token's spelling as that token.

    Source: chunks split at images, one beginning-of-text token: `tokenizer_image_token` in
    llava/mm_utils.py of kaistAI/prometheus-vision.
    """

    def __init__(
        self, tokenizer: Any, *, image_token_id: int | None, tokens_per_image: int
    ) -> None:
        self.tokenizer = tokenizer
        self.image_ids = [] if image_token_id is None else [image_token_id] * tokens_per_image
        first_ids = tokenizer("").input_ids[:1]  # what the tokenizer puts before any text
        self.start = first_ids if first_ids == [tokenizer.bos_token_id] else []
        self._scales: dict[tuple[Hashable, ...], ScoreTokens] = {}
        self._added: dict[str, int] = tokenizer.get_added_vocab()
        # Encode the spellings of all control tokens as plain text: none of their ids may come out.
        # The unknown token is no control: it is how some vocabularies spell a character.
        controls = {image_token_id, *tokenizer.all_special_ids} - {tokenizer.unk_token_id, None}
        names = tokenizer.convert_ids_to_tokens(sorted(controls))
        if controls.intersection(self.text_ids("".join(names))):
            raise ValueError(
                f"this tokenizer reads one of {names} in plain text as a control token"
            )

    def text_ids(self, text: str) -> list[int]:
        """Return the ids of one chunk of plain text."""
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
        """Return the ids of a prompt followed by `suffix`; neighbouring texts are one chunk.

        Args:
            prompt: texts, control tokens and images.
            suffix: plain text.
            image_tokens: how many places each image takes, in order; None for `tokens_per_image`
                each.

        Raises:
            ValueError: the vocabulary lacks one of the prompt's control tokens.
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
            elif image_tokens is None:  # an image
                ids += self.image_ids
            else:
                ids += self.image_ids[:1] * next(places)
        return ids

    def scale(self, marker: str, texts: Texts) -> ScoreTokens:
        """Return the tokens of a scale after a marker; arguments and errors as `ScoreTokens`."""
        key = (marker, *texts.items())
        if key not in self._scales:
            self._scales[key] = ScoreTokens.read(marker, texts, self.text_ids)
        return self._scales[key]

    def row_ids(
        self,
        prompt: Prompt,
        ask: Ask,
        row: int,
        *,
        image_tokens: Sequence[int] | None = None,
    ) -> tuple[list[int], ScoreTokens | None]:
        """Return the ids of a row's prompt, and the scale of its verdict if it has one.

        In a score pass the ids end right before the scores' own tokens.

        Args:
            prompt: the row's prompt.
            ask: the options of the call.
            row: the position of the prompt in the call.
            image_tokens: as for `ids`.

        Raises:
            ValueError: as for `ids` and `scale`; or prompt and score merge into other tokens.
        """
        texts = ask.scale(row)
        scale = self.scale(ask.marker, texts) if texts else None
        if scale is None or not ask.is_score_pass:
            return self.ids(prompt, image_tokens=image_tokens), scale
        # The last tokens of the prompt may depend on the text that follows it. So the prompt is
        # encoded together with a score (the lowest), whose own tokens are then removed.
        ids = self.ids(prompt, suffix=texts[min(texts)], image_tokens=image_tokens)
        return _without_lowest(ids, scale), scale

    def closing_ids(self, marker: str, texts: Texts) -> tuple[list[int], ScoreTokens]:
        """Return the ids of a marker, up to the scores' own tokens, and the tokens of the scale.

        Args:
            marker: the text that is put after an answer.
            texts: score -> its text after the marker.

        Raises:
            ValueError: as for `row_ids`.
        """
        scale = self.scale(marker, texts)
        # Some vocabularies begin each chunk of text with a blank. The marker is encoded after a
        # letter, whose tokens are removed, so that the blank comes before that letter.
        n_before = len(self.text_ids("x"))
        ids = self.text_ids(f"x{marker}{texts[min(texts)]}")
        return _without_lowest(ids, scale)[n_before:], scale

    def text(self, ids: Sequence[int]) -> str:
        """Decode generated ids; special tokens are spelled out, because they were written."""
        return str(self.tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def verdict_step(self, ids: Sequence[int], scale: ScoreTokens) -> int | None:
        """Return the position of the token with which an answer's verdict begins.

        It is the first token of the scale after the last marker, with no word in between:

            Good. [RESULT] 2 was raised. [RESULT] 4       the position of 4
            Good. [RESULT] It is 4                        None

        Args:
            ids: the tokens of the answer.
            scale: the tokens of its scale.
        """
        marker = scale.marker.casefold()  # the parser of answers ignores capitals, too
        n_markers = self.text(ids).casefold().count(marker)
        for step, token in enumerate(ids):
            if token in scale.next_tokens[()]:
                # the text before this token: the pieces before markers, and what follows the last
                *earlier, between = self.text(ids[:step]).casefold().split(marker)
                is_after_last = len(earlier) == n_markers > 0
                if is_after_last and not any(map(str.isalnum, between)):
                    return step
        return None


def _without_lowest(ids: list[int], scale: ScoreTokens) -> list[int]:
    """Return ids that end in the lowest score of a scale, without the tokens of that score.

    Raises:
        ValueError: they end in other tokens.
    """
    path = scale.paths[min(scale.paths)]
    if tuple(ids[-len(path) :]) != path:
        raise ValueError(
            "the end of the prompt merges with the score into tokens that are not the scale's"
        )
    return ids[: -len(path)]


def ends_of(model: VisionLanguageModel) -> frozenset[int]:
    """Return the tokens that end an answer of a loaded model."""
    ids = model.model.generation_config.eos_token_id
    if ids is None:
        ids = model.tokenizer.eos_token_id
    return frozenset(ids if isinstance(ids, list) else [ids])
