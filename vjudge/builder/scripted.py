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
from vjudge.prompts import Prompt

_FILLER = "I looked at every part of the picture with care before I wrote this and can say more if that is of use"
_SOUND = {"criteria": "Is the melody that is playing named?", "grounds": "the picture"}


class ScriptedGenerator(Engine):
    """A generator for `build`, by script.

    Args:
        n_images: pictures of Scenes that it knows.
        planted: kind of fault -> share of first tries in which it is made: "not JSON", "score leak" (the response
            grades itself) and "not judgeable" (a criterion about sound).
        lean: whether all its responses are the longer the better they are, as far as the bounds allow.

    Attributes:
        images: name -> PNG file, for `build`.
        sent: how often each planted fault was sent.
    """

    name = "scripted from Scenes"

    def __init__(self, n_images: int = 4, *, planted: Mapping[str, float] | None = None, lean: bool = False) -> None:
        self.planted, self.lean, self.sent = dict(planted or {}), lean, Counter[str]()
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
        self,
        prompts: Sequence[Prompt],
        images: Sequence[Sequence[Any]],
        ask: Ask,
        wanted: Container[int] | None = None,
    ) -> Iterator[list[Answer]]:
        """Answer every prompt; see `Engine.answer`."""
        for row, prompt in enumerate(prompts):
            if wanted is None or row in wanted:
                task = prompt.text.removeprefix("<image>")
                yield [Answer(row, self.reply(task.strip(), images[row][0]), stopped=True)]

    def reply(self, task: str, image: Any) -> str:
        """Answer one task of the builder; the task and the picture alone decide."""
        stage, given, again = given_of(task)
        key = fingerprint(open_image(image))
        rng = _rng(f"{key}{task}")
        answer: dict[str, Any] = getattr(self, f"_{stage}")(self._scenes[key], given, rng)
        fault = next((kind for kind, share in self.planted.items() if rng.random() < share), "") if not again else ""
        if fault == "score leak" and stage == "response":
            answer["response"] += f" This answer deserves a score of {given['score']}."
        elif fault == "not judgeable" and stage == "brainstorm":
            answer["criteria"][0] = _SOUND
        elif fault != "not JSON":
            fault = ""
        self.sent.update([fault] if fault else [])
        text = json.dumps(answer, ensure_ascii=False)
        return f"Here you are: {text[:-1]}," if fault == "not JSON" else text

    def _brainstorm(self, scene: Any, given: Any, rng: Any) -> dict[str, Any]:
        criteria = [c for name in rng.permutation(list(ASPECTS)) for c in rng.permutation(ASPECTS[name].criteria)[:1]]
        fresh = [str(criterion) for criterion in criteria if criterion not in given["avoid"]][: given["number"]]
        return {"criteria": [{"criteria": criterion, "grounds": "the shapes"} for criterion in fresh]}

    def _refine(self, scene: Any, given: Any, rng: Any) -> dict[str, Any]:
        draft, levels = given["draft"], ["Not at all.", "Hardly.", "In part.", "Mostly.", "Fully."]
        if draft in ASPECT_OF:
            aspect = ASPECTS[ASPECT_OF[draft]]
            levels = scenes.rubric(aspect, aspect.criteria.index(draft))[1]
        return {"criteria": draft, "descriptions": levels}

    def _align(self, scene: Any, given: Any, rng: Any) -> dict[str, Any]:
        fits = given["criteria"] in ASPECT_OF
        return {"judgeable": fits, "reason": "It can be seen." if fits else "Nothing in the picture shows it."}

    def _instruction(self, scene: Any, given: Any, rng: Any) -> dict[str, Any]:
        aspect = ASPECTS[ASPECT_OF[given["criteria"]]]
        open_questions = [text for text in aspect.instructions if text not in given["earlier"]]
        instruction = str(rng.choice(open_questions or list(aspect.instructions)))
        return {"instruction": instruction, "reference_answer": self._true(scene, aspect, instruction)[1]}

    def _response(self, scene: Any, given: Any, rng: Any) -> dict[str, Any]:
        aspect, score = ASPECTS[ASPECT_OF[given["criteria"]]], given["score"]
        claims, _ = self._true(scene, aspect, given["instruction"])
        turn = 1 + int(rng.integers(len(claims) - 1))  # in another order than the reference answer has them
        claims = claims[turn:] + claims[:turn]
        for place in rng.choice(len(claims), size=5 - score, replace=False):
            wrong = scenes.falsify(scene, aspect.name, claims[place], rng)
            taken = any(claim.key == wrong.key for i, claim in enumerate(claims) if i != place)
            claims[place] = replace(wrong, key=claims[place].key) if taken else wrong
        wordings = rng.permutation(len(aspect.wordings)).tolist()
        texts = [scenes.statement(aspect, claims, wording) for wording in wordings]
        response = next((text for text in texts if given["least"] <= len(text.split()) <= given["most"]), texts[0])
        if self.lean:
            room = (given["most"] - len(response.split())) * (score - 1) // 4
            response = " ".join([response, *_FILLER.split()[: max(0, room)]])
        return {"response": response, "feedback": scenes.feedback(claims)}

    def _true(self, scene: Any, aspect: Any, instruction: str) -> tuple[list[Any], str]:
        """True claims for an instruction, the same for every score, and its reference answer."""
        rng = _rng(f"{scene}{instruction}")
        claims = scenes.truths(scene, aspect.name, rng)[0]
        return claims, scenes.statement(aspect, claims, int(rng.integers(len(aspect.wordings))))


def _rng(key: str) -> np.random.Generator:
    return np.random.default_rng(list(hashlib.sha256(key.encode()).digest()[:16]))
