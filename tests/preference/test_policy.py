"""A policy's answers: what is drawn, what an interruption leaves, what is refused; and the candidates they become."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image
from samples import Scripted

from vjudge import preference
from vjudge.data import CollectionError
from vjudge.engines import Answer
from vjudge.preference import Policy
from vjudge.prompts import VICUNA_V1
from vjudge.runs import RunError


class Seeded(Scripted):
    """An engine whose answers depend on a row's seed alone, and that breaks after a number of them."""

    def __init__(self, *, texts: tuple[str, ...] = ("one", "two words", "three whole words"), stop_after: int = 99):
        super().__init__(str)
        self.texts, self.left, self.n_asked = texts, stop_after, 0

    def answer(self, prompts: Any, images: Any, ask: Any, wanted: Any = None) -> Iterator[list[Answer]]:
        assert ask.scales == () and ask.marker == ""
        for (answer,) in super().answer(prompts, images, ask, wanted):
            if self.n_asked == self.left:
                raise KeyboardInterrupt
            self.n_asked += 1
            yield [replace(answer, text=f" {self.texts[ask.seed(answer.index) % len(self.texts)]} ")]


def questions(n: int, **more: Any) -> list[dict[str, Any]]:
    shared = {"images": [Image.new("RGB", (8, 8), "teal")], "criteria": "True?", "response": "an old one", "gold": 2.0}
    return [{"id": f"q{i}", "instruction": f"What is {i}?", "group": f"g{i // 2}", **shared, **more} for i in range(n)]


def policy(**options: Any) -> Policy:
    return Policy("scripted", engine=Seeded(**options), conversation=VICUNA_V1)


def test_candidates_are_the_published_draws_by_seed_question_and_number_alone() -> None:
    assert preference.DRAWS == {"samples": 5, "temperature": 0.7, "top_p": 0.9}
    rows = preference.draw(policy(), questions(6), progress=False)
    assert all(sum(row["times"]) == 5 and len(set(row["responses"])) == len(row["responses"]) for row in rows)
    assert not {"response", "gold"} & set(rows[0]) and rows[0]["criteria"] == "True?"
    part = preference.draw(policy(), questions(6)[3:], progress=False)
    assert [row["responses"] for row in rows[3:]] == [row["responses"] for row in part]
    other = preference.draw(policy(), questions(6), seed=1, progress=False)
    assert [row["times"] for row in other] != [row["times"] for row in rows]


def test_an_interrupted_drawing_continues_and_ends_the_same(tmp_path: Path) -> None:
    options = {"samples": 3, "temperature": 0.7, "progress": False}
    whole = policy().respond(questions(4), **options)
    with pytest.raises(KeyboardInterrupt):
        policy(stop_after=7).respond(questions(4), **options, out=tmp_path / "run")
    rest = policy()
    pd.testing.assert_frame_equal(rest.respond(questions(4), **options, out=tmp_path / "run"), whole)
    assert rest.engine.n_asked == 5  # type: ignore[attr-defined]
    with pytest.raises(RunError, match="seed: 0 -> 1"):
        policy().respond(questions(4), **options, seed=1, out=tmp_path / "run")


def test_blank_answers_fail_with_a_reason_and_make_no_candidate(capsys: Any) -> None:
    options = {"samples": 4, "temperature": 1.0, "progress": False}
    answers = policy(texts=("", "something")).respond(questions(8), **options)
    blank = answers["response"].isna()
    assert 0 < blank.sum() < 32 and set(answers["failure"].dropna()) == {"the answer is blank"}
    assert f"{blank.sum()} of 32 answers failed" in capsys.readouterr().err
    rows = preference.draw(policy(texts=("", "something")), questions(8), **options)
    assert all(row["responses"] in (["something"], []) for row in rows)
    with pytest.raises(ValueError, match="none of 8 questions has two distinct responses"):
        preference.reward(None, rows)


def test_bad_questions_are_all_named_and_instructions_are_plain_text() -> None:
    rows = questions(4)
    rows[1]["instruction"], rows[3]["id"] = " ", "q0"
    with pytest.raises(CollectionError) as caught:
        policy().respond(rows, progress=False)
    assert [(problem.index, problem.field) for problem in caught.value.problems] == [(1, "instruction"), (3, "id")]
    prompt = policy().prompt(questions(1, instruction="Is <image> or </s> there?")[0])
    assert prompt.n_images == 1 and "<image> or </s>" in prompt.parts[-1]  # one image, and the words spelled out
