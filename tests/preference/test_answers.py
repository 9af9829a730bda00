"""A policy's answers: what is drawn, what an interruption leaves, what is refused; the candidates they become, and the
true score of answers about scenes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from samples import Scripted
from vjudge import load_judge, preference
from vjudge.data import CollectionError
from vjudge.engines import Answer
from vjudge.judge import Judge
from vjudge.preference import respond, true_score
from vjudge.prompts import TEMPLATES
from vjudge.runs import RunError


class Seeded(Scripted):
    """An engine whose answers depend on a row's seed alone, and that breaks after a number of them."""

    def __init__(
        self,
        *,
        texts: tuple[str, ...] = ("one", "two words", "three whole words"),
        stop_after: int = 99,
    ):
        super().__init__(str)
        self.texts, self.left, self.n_asked = texts, stop_after, 0

    def answer(
        self, prompts: Any, images: Any, ask: Any, wanted: Any = None
    ) -> Iterator[list[Answer]]:
        assert ask.scales == () and ask.marker == ""
        for (answer,) in super().answer(prompts, images, ask, wanted):
            if self.n_asked == self.left:
                raise KeyboardInterrupt
            self.n_asked += 1
            yield [
                replace(answer, text=f" {self.texts[ask.seed(answer.index) % len(self.texts)]} ")
            ]


def questions(n: int, **more: Any) -> list[dict[str, Any]]:
    shared = {
        "images": [Image.new("RGB", (8, 8), "teal")],
        "criteria": "True?",
        "response": "an old one",
        "gold": 2.0,
    }
    return [
        {"id": f"q{i}", "instruction": f"What is {i}?", "group": f"g{i // 2}", **shared, **more}
        for i in range(n)
    ]


def policy(**options: Any) -> Judge:
    return Judge("scripted", template=TEMPLATES["prometheus-vision"], engine=Seeded(**options))


def test_candidates_are_the_published_draws_by_seed_question_and_number_alone() -> None:
    assert preference.DRAWS == {"samples": 5, "temperature": 0.7, "top_p": 0.9}
    asked = questions(6, true_scores=[1.0, 5.0])
    rows = preference.draw(policy(), asked, progress=False)
    assert all(
        sum(row["times"]) == 5 and len(set(row["responses"])) == len(row["responses"])
        for row in rows
    )
    assert not {"response", "gold", "true_scores"} & set(rows[0]) and rows[0]["criteria"] == "True?"
    part = preference.draw(policy(), asked[3:], progress=False)
    assert [row["responses"] for row in rows[3:]] == [row["responses"] for row in part]
    other = preference.draw(policy(), asked, seed=1, progress=False)
    assert [row["times"] for row in other] != [row["times"] for row in rows]


def test_an_interrupted_drawing_continues_and_ends_the_same(tmp_path: Path) -> None:
    options: dict[str, Any] = {"samples": 3, "temperature": 0.7, "progress": False}
    whole = respond(policy(), questions(4), **options)
    with pytest.raises(KeyboardInterrupt):
        respond(policy(stop_after=7), questions(4), **options, out=tmp_path / "run")
    rest: Any = policy()
    pd.testing.assert_frame_equal(
        respond(rest, questions(4), **options, out=tmp_path / "run"), whole
    )
    assert rest.engine.n_asked == 5
    with pytest.raises(RunError, match="seed: 0 -> 1"):
        respond(policy(), questions(4), **options, seed=1, out=tmp_path / "run")


def test_blank_answers_fail_with_a_reason_and_make_no_candidate(capsys: Any) -> None:
    options: dict[str, Any] = {"samples": 4, "temperature": 1.0, "progress": False}
    answers = respond(policy(texts=("", "something")), questions(8), **options)
    blank = answers["response"].isna()
    assert 0 < blank.sum() < 32 and set(answers["failure"].dropna()) == {"the answer is blank"}
    assert f"{blank.sum()} x the answer is blank" in capsys.readouterr().err
    rows = preference.draw(policy(texts=("", "something")), questions(8), **options)
    assert all(row["responses"] in (["something"], []) for row in rows)
    with pytest.raises(ValueError, match="none of 8 questions has two distinct responses"):
        preference.reward(None, rows)


def test_bad_questions_are_all_named_and_instructions_are_plain_text() -> None:
    rows = questions(4)
    rows[1]["instruction"], rows[3]["id"] = " ", "q0"
    with pytest.raises(CollectionError) as caught:
        respond(policy(), rows, progress=False)
    assert [(problem.index, problem.field) for problem in caught.value.problems] == [
        (1, "instruction"),
        (3, "id"),
    ]
    prompt = preference.prompt_of(
        policy(), questions(1, instruction="Is <image> or </s> there?")[0]
    )
    assert (
        prompt.n_images == 1 and "<image> or </s>" in prompt.parts[-1]
    )  # one image, and the words spelled out


def test_the_true_score_of_an_answer_is_the_collections_own_and_free_answers_lose_for_what_is_off() -> (
    None
):
    for row in (rows := preference.scene_questions("test", limit=24)):
        parts = [true_score(row, text) for text in row["responses"]]
        assert [part["score"] for part in parts] == row["true_scores"] and sorted(
            row["true_scores"]
        ) == [1, 2, 3, 4, 5]
        assert all(part["right"] + part["wrong"] == 4 and not part["unreadable"] for part in parts)
    row, best = rows[0], rows[0]["responses"][rows[0]["true_scores"].index(5)]
    sentences = [
        f"({i + 1}) {text.strip()}" for i, text in enumerate(re.split(r"\(\d+\)", best)[1:])
    ]
    assert true_score(row, " ".join(sentences[:3]))["score"] == 4
    repeated = true_score(row, " ".join([*sentences[:3], sentences[0]]))
    assert repeated["score"] == 4 and repeated["repeated"] == 1
    strange = true_score(row, " ".join([*sentences, "(5) I like it."]))
    assert strange["score"] == 4 and strange["unreadable"] == 1
    assert true_score(row, "")["score"] == 1
    with pytest.raises(ValueError, match="names no scene"):
        true_score({**row, "group": "photo"}, "")


def test_the_policy_for_scenes_answers_in_claims_and_imperfectly() -> None:
    rows, options = (
        preference.scene_questions("validation", limit=40),
        {"max_new_tokens": 90, "progress": False},
    )
    texts = respond(load_judge("tiny-policy"), rows, temperature=1.0, **options)["response"]
    scored = pd.DataFrame([true_score(row, text) for row, text in zip(rows, texts, strict=True)])
    assert scored["unreadable"].mean() < 0.5 and scored["missing"].mean() < 1
    assert 1.7 < scored["score"].mean() < 3 and scored["score"].max() > 3
