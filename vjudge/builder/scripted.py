"""A scripted generator, to show and test a build without a model: it knows each picture of Scenes by its pixels."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vjudge.builder.prompts import given_of
from vjudge.data import scenes
from vjudge.data.scenes import ASPECT_OF, ASPECTS
from vjudge.engines import Answer, Ask, Engine
from vjudge.images import data_uri, fingerprint, image_bytes, open_image
from vjudge.prompts import TEMPLATES, Prompt

_FILLER = "I looked at every part of the picture with care before I wrote this and can say more if that is of use"


class ScriptedGenerator(Engine):
    """A generator for `build`, by script, that knows `n_images` pictures of Scenes.

    `planted` gives kinds of faults and the share of first tries in which each is made: "not JSON", "score leak" (the
    response grades itself) and "not judgeable" (a criterion about sound). With `lean` all its responses are the longer
    the better they are, as far as the bounds allow. `images` are PNG files by name, for `build`; `sent` counts the
    planted faults that were made.
    """

    name = "scripted from Scenes"
    template = TEMPLATES["prometheus-vision"].as_messages()

    def __init__(self, n_images: int = 4, *, planted: Mapping[str, float] | None = None, lean: bool = False) -> None:
        self.engine, self.planted, self.lean, self.sent = self, dict(planted or {}), lean, Counter[str]()
        self.images: dict[str, bytes] = {}
        self._scenes: dict[str, Any] = {}
        for index in range(n_images):
            scene = scenes.sample("train", 0, index)
            image = scenes.draw(scene, size=scenes.IMAGE_SIZE)
            self.images[f"scene-{index:03d}"] = image_bytes(data_uri(image))
            self._scenes[fingerprint(image)] = scene

    def identity(self) -> dict[str, Any]:
        return {"engine": self.name, "versions": {}, "planted": self.planted, "lean": self.lean}

    def answer(
        self, prompts: Sequence[Prompt], images: Sequence[Sequence[Any]], ask: Ask, wanted: Container[int] | None = None
    ) -> Iterator[list[Answer]]:
        """Answer every prompt; see `Engine.answer`."""
        for row, prompt in enumerate(prompts):
            if wanted is None or row in wanted:
                task = prompt.text.removeprefix("<image>").strip()
                yield [Answer(row, self.reply(task, images[row][0]), stopped=True)]

    def reply(self, task: str, image: Any) -> str:
        """Answer one task of the builder; the task and the picture alone decide."""
        stage, given, again = given_of(task)
        key = fingerprint(open_image(image))
        rng = _rng(f"{key}{task}")
        answer = self._sound(stage, given, self._scenes[key], rng)
        fault = next((kind for kind, share in self.planted.items() if rng.random() < share), "") if not again else ""
        if fault == "score leak" and stage == "response":
            answer["response"] += f" This answer deserves a score of {given['score']}."
        elif fault == "not judgeable" and stage == "brainstorm":
            answer["criteria"][0] = {"criteria": "Is the melody that is playing named?", "grounds": "the picture"}
        elif fault != "not JSON":
            fault = ""
        self.sent.update([fault] if fault else [])
        text = json.dumps(answer, ensure_ascii=False)
        return f"Here you are: {text[:-1]}," if fault == "not JSON" else text

    def _sound(self, stage: str, given: dict[str, Any], scene: Any, rng: np.random.Generator) -> dict[str, Any]:
        """An answer without a fault."""
        if stage == "brainstorm":
            drawn = [str(rng.permutation(ASPECTS[name].criteria)[0]) for name in rng.permutation(list(ASPECTS))]
            fresh = [criteria for criteria in drawn if criteria not in given["avoid"]]
            return {"criteria": [{"criteria": text, "grounds": "the shapes"} for text in fresh[: given["number"]]]}
        criteria = given["draft"] if stage == "refine" else given["criteria"]
        aspect: Any = ASPECTS.get(ASPECT_OF.get(criteria, ""))
        if stage == "refine":
            levels = ["Not at all.", "Hardly.", "In part.", "Mostly.", "Fully."]
            levels = scenes.rubric(aspect, aspect.criteria.index(criteria))[1] if aspect else levels
            return {"criteria": criteria, "descriptions": levels}
        if stage == "align":
            return {
                "judgeable": bool(aspect),
                "reason": "It can be seen." if aspect else "Nothing in the picture shows it.",
            }
        if stage == "instruction":
            fresh = [text for text in aspect.instructions if text not in given["earlier"]]
            instruction = str(rng.choice(fresh or aspect.instructions))
            return {"instruction": instruction, "reference_answer": _truth(scene, aspect, instruction)[1]}
        claims, _ = _truth(scene, aspect, given["instruction"])
        turn = 1 + int(rng.integers(len(claims) - 1))  # in another order than the reference answer has them
        claims = claims[turn:] + claims[:turn]
        for place in rng.choice(len(claims), size=5 - given["score"], replace=False):
            wrong = scenes.falsify(scene, aspect.name, claims[place], rng)
            taken = any(claim.key == wrong.key for i, claim in enumerate(claims) if i != place)
            claims[place] = replace(wrong, key=claims[place].key) if taken else wrong
        texts = [scenes.statement(aspect, claims, n) for n in rng.permutation(len(aspect.wordings)).tolist()]
        response = next((text for text in texts if given["least"] <= len(text.split()) <= given["most"]), texts[0])
        if self.lean:
            room = (given["most"] - len(response.split())) * (given["score"] - 1) // 4
            response = " ".join([response, *_FILLER.split()[: max(0, room)]])
        return {"response": response, "feedback": scenes.feedback(claims)}


def _truth(scene: Any, aspect: Any, instruction: str) -> tuple[list[Any], str]:
    """True claims for an instruction, the same for every score, and its reference answer."""
    rng = _rng(f"{scene}{instruction}")
    claims = scenes.truths(scene, aspect.name, rng)[0]
    return claims, scenes.statement(aspect, claims, int(rng.integers(len(aspect.wordings))))


def _rng(key: str) -> np.random.Generator:
    return np.random.default_rng(list(hashlib.sha256(key.encode()).digest()[:16]))
