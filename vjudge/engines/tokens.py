"""Text to token ids: data text is never markup; and which tokens carry a score."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken

from vjudge.engines.engine import Ask
from vjudge.prompts import Control, Conversation, Prompt

TAIL = 24  # characters at a prompt's end that can merge with what follows


@dataclass(frozen=True)
class Scale:
    """How a tokenizer writes the scores after the marker, such as "[RESULT]".

    `texts` is score -> what follows the marker, such as {1: " 1"}; `paths` score -> its tokens from the first on in
    which the scores differ. On a scale of 1 to 10 those of 1 may begin those of 10.
    """

    marker: str
    texts: dict[int, str]
    paths: dict[int, tuple[int, ...]]

    @functools.cached_property
    def tokens(self) -> dict[int, int]:
        """Score -> the token that tells it from the others; empty where one token can't carry the scores."""
        firsts = {score: path[0] for score, path in self.paths.items()}
        return firsts if len(set(firsts.values())) == len(firsts) else {}

    @property
    def stems(self) -> tuple[tuple[int, ...], ...]:
        """What to read a distribution after: nothing, and whatever begins several scores, such as the "1" of 10."""
        if self.tokens:
            return ((),)
        return tuple(sorted({path[:end] for path in self.paths.values() for end in range(len(path))}, key=len))

    def reads(self, stem: tuple[int, ...]) -> list[int]:
        """The tokens whose log-probabilities are wanted after a stem."""
        size = len(stem)
        return sorted({path[size] for path in self.paths.values() if len(path) > size and path[:size] == stem})

    def logprobs(self, after: Mapping[tuple[int, ...], Mapping[int, float]]) -> dict[int, float]:
        """The log-probability of each score's text, from stem -> token -> log-probability of the tokens in `reads`.

        A score that begins another one's text has what the longer ones leave of it.
        """
        if self.tokens:
            return {score: after[()][token] for score, token in self.tokens.items()}
        left: dict[tuple[int, ...], float] = {}
        for path in sorted(self.paths.values(), key=len, reverse=True):
            chance = math.exp(sum(after[path[:place]][token] for place, token in enumerate(path)))
            left[path] = chance - sum(share for other, share in left.items() if other[: len(path)] == path)
        return {score: math.log(left[path]) if left[path] > 0 else -math.inf for score, path in self.paths.items()}


class Encoder:
    """Turn prompts into token ids.

    Text is tokenised in chunks split at images, with special tokens disabled: "<image>" or "</s>" inside a response is
    spelled out like any other text. The beginning-of-sequence token stands once, if the tokenizer's settings add one.
    `image_token_id` holds an image's `tokens_per_image` places, None for a judge without images. ValueError: the
    tokenizer reads a control token in plain text even so.

    Source: chunks split at images, one BOS: `tokenizer_image_token` in llava/mm_utils.py of kaistAI/prometheus-vision.
    """

    def __init__(self, tokenizer: Any, *, image_token_id: int | None, tokens_per_image: int) -> None:
        self.tokenizer = tokenizer
        self.image_ids = [] if image_token_id is None else [image_token_id] * tokens_per_image
        start = tokenizer("").input_ids[:1]
        self.start = start if start == [tokenizer.bos_token_id] else []
        # The unknown token is no control: it is how some vocabularies spell a character they lack.
        special = {token for token, entry in tokenizer.added_tokens_decoder.items() if entry.special}
        controls = {image_token_id, *special, *tokenizer.all_special_ids} - {tokenizer.unk_token_id, None}
        if image_token_id in self.text_ids(self._spell(controls)):
            # Some checkpoints store the image token as an ordinary added token, which would match in any text.
            image_token = AddedToken(tokenizer.convert_ids_to_tokens(image_token_id), special=True, normalized=False)
            tokenizer.add_tokens([image_token], special_tokens=True)
        self._continues: dict[tuple[str, ...], bool] = {}
        self._scales: dict[tuple[Any, ...], Scale] = {}
        self._added: dict[str, int] = tokenizer.get_added_vocab()
        read = controls & set(self.text_ids(self._spell(controls)))
        if read:
            raise ValueError(f"this tokenizer reads {self._spell(read)!r} in plain text as control tokens")

    def text_ids(self, text: str) -> list[int]:
        """The ids of one chunk of plain text."""
        # Not verbose: of a text that is too long the row's own failure says what to do.
        options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        ids: list[int] = self.tokenizer.encode(text, **options)
        return ids

    def ids(self, prompt: Prompt, *, suffix: str = "", image_tokens: Sequence[int] | None = None) -> list[int]:
        """The ids of a prompt followed by `suffix`; neighbouring texts are one chunk.

        `image_tokens` is how many places each image takes, in order; None for the same number each. ValueError: the
        conversation is written with a control token that this vocabulary lacks.
        """
        ids, text, n_images = list(self.start), "", 0
        for part in prompt.parts:
            if isinstance(part, str):
                text += part
                continue
            ids += self.text_ids(text) if text else []
            text = ""
            if isinstance(part, Control):
                ids += [self._control(part)] * part.times
            else:
                ids += self.image_ids if image_tokens is None else self.image_ids[:1] * image_tokens[n_images]
                n_images += 1
        text += suffix
        return ids + self.text_ids(text) if text else ids

    def scale(self, marker: str, score_texts: Mapping[int, str]) -> Scale:
        """The tokens by which each score is read after the marker, from the first in which the scores differ on.

        A sentencepiece vocabulary may write " 4" as "▁" and "4". ValueError: two scores are written alike.
        """
        key = (marker, *score_texts.items())
        if key not in self._scales:
            written = {score: self.text_ids(f".\n{marker}{text}") for score, text in score_texts.items()}
            columns = zip(*written.values(), strict=False)
            shared = sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))
            shared = min([shared, *(len(ids) - 1 for ids in written.values())])  # " 1" begins " 10"
            paths = {score: tuple(ids[shared:]) for score, ids in written.items()}
            if len(set(paths.values())) < len(paths):
                raise ValueError(f"this judge's vocabulary writes two scores of {sorted(paths)} alike after {marker!r}")
            self._scales[key] = Scale(marker, dict(score_texts), paths)
        return self._scales[key]

    def answered(
        self, prompt: Prompt, answers: Sequence[str], *, image_tokens: Sequence[int] | None = None
    ) -> tuple[list[int], list[list[int]]]:
        """The ids of a prompt as a model is asked, and of each answer after it, for training; see `ids`.

        Where a vocabulary merges the two at their border, which generation can't do, the answer is encoded by itself.
        """
        question, replies = self.ids(prompt, image_tokens=image_tokens), []
        for answer in answers:
            whole = self.ids(prompt, suffix=answer, image_tokens=image_tokens)
            replies.append(whole[len(question) :] if whole[: len(question)] == question else self.text_ids(answer))
        return question, replies

    def end(self, conversation: Conversation) -> int:
        """The token that ends an answer: what ends a turn in the conversation, else the vocabulary's own end."""
        for control in conversation.controls:
            if conversation.closing.startswith(control):
                return self._control(Control(control))
        if self.tokenizer.eos_token_id is None:
            raise ValueError("this tokenizer has no token that ends an answer")
        return int(self.tokenizer.eos_token_id)

    def asked(
        self, prompt: Prompt, ask: Ask, index: int, *, image_tokens: Sequence[int] | None = None
    ) -> tuple[list[int], Scale | None, Sequence[tuple[int, ...]]]:
        """The ids of a call's prompt, the scale of its verdict, and the stems after which a score pass reads it.

        An answer that is written has one stem, the empty one. `image_tokens` as in `ids`.
        """
        texts = ask.scale(index)
        scale = self.scale(ask.marker, texts) if texts else None
        if not ask.scores:
            return self.ids(prompt, image_tokens=image_tokens), scale, ((),)
        if scale is None:
            raise ValueError("a score pass needs a scale: this prompt has none")
        return self.forced_ids(prompt, scale, image_tokens=image_tokens), scale, scale.stems

    def forced_ids(self, prompt: Prompt, scale: Scale, *, image_tokens: Sequence[int] | None = None) -> list[int]:
        """The ids of a prompt that ends in the marker, up to the token that tells the scores apart.

        ValueError: after this prompt the scores are written with other tokens than after the bare marker.
        """
        first, last = min(scale.texts), max(scale.texts)
        end = str(prompt.parts[-1])[-TAIL:] if prompt.parts and isinstance(prompt.parts[-1], str) else ""
        key = (end, *scale.texts.values())
        if key not in self._continues:
            pairs = [(self.text_ids(end + scale.texts[score]), scale.paths[score]) for score in (first, last)]
            self._continues[key] = all(tuple(ids[-len(path) :]) == path for ids, path in pairs)
        ids, path = self.ids(prompt, suffix=scale.texts[first], image_tokens=image_tokens), scale.paths[first]
        if not self._continues[key] or tuple(ids[-len(path) :]) != path:
            raise ValueError("the end of the prompt merges with the score into tokens that are not the scale's")
        return ids[: -len(path)]

    def text(self, ids: Sequence[int]) -> str:
        """The text of generated ids, special tokens spelled out: what the model wrote is shown, not tidied."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def verdict_step(self, ids: Sequence[int], steps: Sequence[int], marker: str) -> int | None:
        """The step of `steps` that wrote the verdict: a score's token after the last marker before any word."""
        marker = marker.casefold()  # as the parser reads it
        markers = self.text(ids).casefold().count(marker)
        for step in steps:
            before = self.text(ids[:step]).casefold()
            if markers and before.count(marker) == markers and not any(map(str.isalnum, before.rpartition(marker)[2])):
                return step
        return None

    def _control(self, control: Control) -> int:
        """The id of a control token."""
        token = self._added.get(control.text)
        if token is None:
            raise ValueError(
                f"the conversation is written with {control.text!r}, which is no control token of this judge's"
                " vocabulary; use a template with the judge's own conversation"
            )
        return int(token)

    def _spell(self, ids: set[int]) -> str:
        return "".join(self.tokenizer.convert_ids_to_tokens(sorted(ids)))


def ends_of(model: Any) -> frozenset[int]:
    """The tokens that end an answer of a loaded model."""
    ends = model.model.generation_config.eos_token_id
    ends = model.tokenizer.eos_token_id if ends is None else ends
    return frozenset(ends if isinstance(ends, list) else [ends])
