"""What the embedded judge learns from: batches for each stage of its training, made from scenes of the train split.

A batch depends on the seed and the step alone, so that it can be made ahead, in another process, and again after a
kill.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from transformers import PreTrainedTokenizerFast
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from assets.tokenizer import TEMPLATE, image_token
from vjudge import prompts
from vjudge.data import scenes
from vjudge.data.scenes import NUMBERS, Claim
from vjudge.engines.tokens import Encoder
from vjudge.prompts import IMAGE, Prompt
from vjudge.records import Item

IMAGE_SIZE, PATCH_SIZE, N_PATCHES = 96, 16, 36
POOL = 12_000  # pictures of the train split that training draws on
IGNORED = -100  # label of a token or patch without loss
EMPTY = "empty"
# The template's own headers, for prompts without the rest.
RESPONSE = "\n\n###Response to evaluate:\n"
REFERENCE = "\n\n###Reference Answer (Score 5):\n"
RUBRIC = "\n\n###Score Rubrics:\n"
FEEDBACK = f"\n\n###Feedback:{TEMPLATE.conversation.closing}"
VALUES = {"shape": scenes.SHAPES, "colour": tuple(scenes.COLOURS), "size": tuple(scenes.SIZES)}
KINDS = {
    "shape": 0.22,
    "colour": 0.14,
    "size": 0.12,
    "count": 0.26,
    "presence": 0.26,
}  # statements to check, by share
HEADS = {
    "shape": len(scenes.SHAPES) + 1,  # the last class is "nothing"
    "colour": len(scenes.COLOURS) + 1,
    "size": len(scenes.SIZES) + 1,
    "cell": len(scenes.PLACES),
    "colour_count": len(NUMBERS),
    "shape_count": len(NUMBERS),
    "claim": 1
    + 2
    * scenes.N_CLAIMS,  # of a text token: in no claim, in one of the response, of the reference answer
}


def make_image_processor() -> CLIPImageProcessorPil:
    """Make CLIP's preprocessing at 96 x 96 pixels."""
    side = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    return CLIPImageProcessorPil(size={"shortest_edge": IMAGE_SIZE}, crop_size=side)


class Lessons:
    """Batches for each stage; a batch depends on the seed and the step alone.

    Args:
        tokenizer: the judge's.
        seed: of scenes and texts.
        n_images: how many pictures batches draw on.
        split: of Scenes; "train" to learn from.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        seed: int,
        *,
        n_images: int = POOL,
        split: str = "train",
    ) -> None:
        self.tokenizer, self.seed, self.split = tokenizer, seed, split
        self.encoder = Encoder(
            tokenizer, image_token_id=image_token(tokenizer), tokens_per_image=N_PATCHES
        )
        self.n_images = n_images
        processor = make_image_processor()
        self.mean = torch.tensor(processor.image_mean).view(1, 3, 1, 1)
        self.std = torch.tensor(processor.image_std).view(1, 3, 1, 1)
        first = {
            text: self.encoder.text_ids(text)[0] for text in (RESPONSE, REFERENCE, RUBRIC, FEEDBACK)
        }
        self._sections = {
            first[RESPONSE]: 0,
            first[REFERENCE]: scenes.N_CLAIMS,
            first[RUBRIC]: None,
            first[FEEDBACK]: 0,
        }
        marks = {f"{space}({i})": i for i in range(1, scenes.N_CLAIMS + 1) for space in ("", " ")}
        self._numbers = {self.encoder.text_ids(text)[0]: i for text, i in marks.items()}
        self._cached = lru_cache(maxsize=None)(self._draw)
        self.scene = lru_cache(maxsize=None)(self._sample)

    def rng(self, stage: int, step: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, 100 + stage, step])

    def _sample(self, index: int) -> scenes.Scene:
        return scenes.sample(
            self.split, self.seed + 1, index
        )  # seed 0 is the collection that users load

    def _draw(self, index: int) -> np.ndarray:
        return _small(scenes.paint(self.scene(index)))

    def pixels(self, images: Sequence[np.ndarray]) -> torch.Tensor:
        """Normalise pictures as the image processor does: (batch, 3, 96, 96), float32."""
        batch = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
        return (batch - self.mean) / self.std

    def tower(self, step: int, size: int = 64) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Pictures and, for each patch, the classes of its cell. A third of the pictures are in random colours."""
        rng = self.rng(0, step)
        names = (*VALUES, "cell", "shape_count", "colour_count")
        images, labels = [], {name: np.full((size, N_PATCHES), IGNORED) for name in names}
        cells = [(row // 2) * 3 + column // 2 for row in range(6) for column in range(6)]
        for i in range(size):
            index = int(rng.integers(self.n_images))
            scene = self.scene(index)
            recoloured = rng.random() < 1 / 3
            if recoloured:
                palette = {
                    place: tuple(int(v) for v in rng.integers(0, 225, size=3))
                    for place in scenes.PLACES
                }
                things = []
                for thing in scene.things:
                    colour = "#{:02x}{:02x}{:02x}".format(*palette[thing.place])
                    things.append(thing._replace(colour=colour))
                images.append(_small(scenes.paint(scene._replace(things=tuple(things)))))
            else:
                images.append(self._cached(index))
            things = [scene.at(place) for place in scenes.PLACES]
            for name, values in (
                ("shape", scenes.SHAPES),
                ("colour", tuple(scenes.COLOURS)),
                ("size", tuple(scenes.SIZES)),
            ):
                classes = [values.index(getattr(t, name)) if t else len(values) for t in things]
                if not (recoloured and name == "colour"):
                    labels[name][i] = [classes[cell] for cell in cells]
            labels["cell"][i] = cells
            for kind in ("shape", "colour"):
                if not (recoloured and kind == "colour"):
                    alike = [
                        NUMBERS.index(scene.shows("count", getattr(t, kind))) if t else IGNORED
                        for t in things
                    ]
                    labels[f"{kind}_count"][i] = [alike[cell] for cell in cells]
        return self.pixels(images), {
            name: torch.from_numpy(values) for name, values in labels.items()
        }

    def claims(self, scene: scenes.Scene, rng: np.random.Generator, n: int) -> list[Claim]:
        """Sample statements of all kinds about a scene, half of them right."""
        made = []
        for kind in rng.choice(
            ["shape", "colour", "size", "count", "presence"],
            size=n,
            p=[0.22, 0.14, 0.12, 0.26, 0.26],
        ):
            if kind == "count":
                if rng.random() < 0.75:
                    key = scene.counted[rng.integers(len(scene.counted))]
                else:
                    attribute = "colour" if rng.random() < 0.5 else "shape"
                    key = str(
                        rng.choice(list(scenes.COLOURS) if attribute == "colour" else scenes.SHAPES)
                    )
                seen, values = scene.shows("count", key), NUMBERS[: scenes.MAX_COUNT + 1]
            elif kind == "presence":
                claim = scenes.truths(scene, "presence", rng)[0][0]
                key, seen, values = claim.key, claim.actual, ("present", "absent")
            else:
                key = str(rng.choice(scenes.PLACES))
                seen, values = scene.shows(str(kind), key), VALUES[str(kind)]
            said = (
                seen
                if rng.random() < 0.5 and seen != EMPTY
                else str(rng.choice([v for v in values if v != seen]))
            )
            made.append(Claim(key, said, seen))
        return made

    def describe(
        self, step: int, size: int = 16, n_checks: int = 4
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Pictures followed by feedback on random statements; loss on what is seen and on verdicts alone."""
        rng = self.rng(1, step)
        question = Prompt(
            (TEMPLATE.conversation.opening, IMAGE, "\n", TEMPLATE.conversation.closing)
        )
        rows, images = [], []
        for _ in range(size):
            index = int(rng.integers(self.n_images))
            scene = self.scene(index)
            images.append(self._cached(index))
            ids = self.encoder.ids(question)
            labels = [IGNORED] * len(ids)
            for _ in range(n_checks):
                more, marks = self.checked(self.claims(scene, rng, scenes.N_CLAIMS))
                ids, labels = ids + more, labels + marks
            rows.append((ids, labels))
        return (*self.pad(rows), self.pixels(images))

    def drill(self, step: int, size: int = 64) -> tuple[torch.Tensor, torch.Tensor, None]:
        """Feedback on random statements without a picture; loss on verdicts alone: comparing and counting."""
        rng = self.rng(2, step)
        rows = []
        for _ in range(size):
            scene = self.scene(int(rng.integers(self.n_images)))
            ids, labels = self.checked(self.claims(scene, rng, scenes.N_CLAIMS), seen=False)
            rows.append((ids, labels))
        return (*self.pad(rows), None)

    def read(
        self, step: int, size: int = 48, n_questions: int = 8
    ) -> tuple[torch.Tensor | None, ...]:
        """Responses, half of them with a reference answer, and what their claims say in random order; no pictures.

        The loss is on what is said and where: a judge has to find claim (3) of the response, not of the reference.
        """
        rng = self.rng(4, step)
        rows = []
        for _ in range(size):
            scene = self.scene(int(rng.integers(self.n_images)))
            aspect = scenes.ASPECTS[str(rng.choice(list(scenes.ASPECTS)))]
            mine, others = scenes.truths(scene, aspect.name, rng)
            claims = [
                scenes.falsify(scene, aspect.name, c, rng) if rng.random() < 0.5 else c
                for c in mine
            ]
            text = RESPONSE + scenes.statement(
                aspect, claims, int(rng.integers(len(aspect.wordings)))
            )
            if rng.random() < scenes.REFERENCE_RATE:
                wording = int(rng.integers(len(aspect.wordings)))
                text += REFERENCE + scenes.statement(aspect, others, wording)
            ids = [self.tokenizer.bos_token_id, *self.encoder.text_ids(text + FEEDBACK)]
            labels = [IGNORED] * len(ids)
            for i in rng.integers(len(claims), size=n_questions):
                said, key = f" {claims[i].claimed}", f" {claims[i].key}"
                more, marks = self.pieces(
                    (f" ({i + 1}) said", False),
                    (said, True),
                    (",", False),
                    (key, True),
                    (".", False),
                )
                ids, labels = ids + more, labels + marks
            rows.append((ids, labels))
        padded, targets = self.pad(rows)
        return padded, targets, None, self.places(padded)

    def places(self, ids: torch.Tensor) -> torch.Tensor:
        """For each token (batch, length), the number of the claim it belongs to: 0 none, 1-4 response and feedback,
        5-8 reference answer; padding has no label."""
        labels = torch.zeros_like(ids)
        for row, marks in zip(ids.tolist(), labels, strict=True):
            offset, number = None, 0
            for j, token in enumerate(row):
                if token in self._sections:
                    offset, number = self._sections[token], 0
                elif token in self._numbers and offset is not None:
                    number = offset + self._numbers[token]
                if number:
                    marks[j] = number
        labels[ids == self.tokenizer.pad_token_id] = IGNORED
        return labels

    def checked(self, claims: list[Claim], seen: bool = True) -> tuple[list[int], list[int]]:
        """Encode feedback on claims as ids and labels; labelled are what is seen (if `seen`) and every verdict."""
        made: list[tuple[str, bool]] = []
        for i, claim in enumerate(claims, start=1):
            made += [
                (f" ({i}) said {claim.claimed}, {claim.key}", False),
                (f" {claim.actual}", seen),
                (",", False),
            ]
            made += [(" wrong" if scenes.n_wrong([claim]) else " correct", True), (".", False)]
        wrong = scenes.n_wrong(claims)
        made += [
            (f" {scenes.WRONG_COUNTS[wrong]}", True),
            (" wrong. So the overall score is", False),
        ]
        made += [(f" {5 - wrong}", True), (f".\n{TEMPLATE.marker}", False), (f" {5 - wrong}", True)]
        return self.pieces(*made)

    def pieces(self, *texts: tuple[str, bool]) -> tuple[list[int], list[int]]:
        """Encode pieces of text, each labelled or not, as ids and labels."""
        ids: list[int] = []
        labels: list[int] = []
        for text, labelled in texts:
            new = self.encoder.text_ids(text)
            ids += new
            labels += new if labelled else [IGNORED] * len(new)
        return ids, labels

    def judge(self, step: int, size: int = 16) -> tuple[torch.Tensor, ...]:
        """Items of the train split in the judge's template; loss on feedback, score and end alone."""
        rng = self.rng(3, step)
        rows, images = [], []
        for _ in range(size):
            index = int(rng.integers(self.n_images))
            scene = self.scene(index)
            row = scenes.case(scene, str(rng.choice(list(scenes.ASPECTS))), rng)[0]
            images.append(self._cached(index))
            item = Item.from_row({"id": "train", "images": ["picture"], **row})
            ids = self.encoder.ids(TEMPLATE.render(item))
            answer = self.encoder.text_ids(" " + prompts.target(row["feedback"], int(row["gold"])))
            answer.append(self.tokenizer.eos_token_id)
            rows.append((ids + answer, [IGNORED] * len(ids) + answer))
        padded, targets = self.pad(rows)
        return padded, targets, self.pixels(images), self.places(padded)

    def pad(self, rows: Sequence[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Pad on the right: ids and labels, (batch, longest)."""
        longest = max(len(ids) for ids, _ in rows)
        ids = torch.full((len(rows), longest), self.tokenizer.pad_token_id)
        labels = torch.full((len(rows), longest), IGNORED)
        for i, (row, marks) in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            labels[i, : len(marks)] = torch.tensor(marks)
        return ids, labels


def _small(image: Image.Image) -> np.ndarray:
    """Reduce a picture to the tower's size as the image processor does."""
    return np.asarray(image.resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BICUBIC))
