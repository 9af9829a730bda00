"""What a table says of its own weaknesses: probability elsewhere, numbers that are none, pictures and texts unlike."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vjudge as vj
from vjudge import runs
from vjudge.calls import LOW_MASS
from vjudge.engines import Answer, Engine
from vjudge.judge import Judge
from vjudge.prompts import TEMPLATES
from vjudge.runs import RunError

QUIET: dict[str, Any] = {"progress": False}


class Forced(Engine):
    """A score pass whose log-probabilities are given; feedback that says 4 with them."""

    name = "forced"

    def __init__(self, logprobs: Any) -> None:
        self.logprobs = logprobs

    def identity(self) -> dict[str, Any]:
        return {"engine": self.name, "weights": "none", "versions": {}}

    def answer(self, prompts: Any, images: Any, ask: Any, wanted: Any = None) -> Iterator[list[Answer]]:
        for index in wanted if wanted is not None else range(len(prompts)):
            logprobs = self.logprobs and {score: self.logprobs(index, score) for score in ask.scale(index)}
            text = "" if ask.scores else "Fine. [RESULT] 4"
            yield [Answer(index, text=text, score_logprobs=logprobs, stopped=True)]


def forced(logprobs: Any) -> Judge:
    pairs = TEMPLATES["chat-relative"].as_messages()
    return Judge("forced", template=TEMPLATES["prometheus-vision"], pairs=pairs, engine=Forced(logprobs))


def pair(id: str) -> dict[str, Any]:
    shared = {"images": [], "instruction": "Say.", "criteria": "Said?"}
    return {"id": id, "response_a": "one", "response_b": "two", **shared}


def test_verdicts_with_little_probability_are_counted_and_said(rows: Any, capsys: Any) -> None:
    """Five scores with a tenth of LOW_MASS each in the first two rows, and with nearly all of it in the others."""
    judge = forced(lambda index, score: math.log(LOW_MASS / 10 if index < 2 else 0.19))
    frame = judge.grade(rows[:5], mode="score", **QUIET)
    assert frame.attrs["low_mass"] == 2 and frame["score"].notna().all()
    assert frame["probability_mass"].round(3).tolist() == [0.25, 0.25, 0.95, 0.95, 0.95]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("2 of 5 verdicts rest on less than 0.5 of the probability")
    judge.grade(rows[2:5], mode="feedback", **QUIET)
    assert judge.grade(rows[:5], **QUIET).attrs["low_mass"] == 0  # the judge wrote this verdict itself
    assert judge.compare([pair("x")], mode="score", **QUIET).attrs["low_mass"] == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_none_are_no_verdict(rows: Any, bad: float) -> None:
    judge = forced(lambda index, score: bad)
    frame = judge.grade(rows[:3], mode="score", **QUIET)
    assert frame["score"].isna().all() and frame["failure"].notna().all() and frame["expected_score"].isna().all()
    compared = judge.compare([pair("x"), pair("y")], mode="score", **QUIET)
    assert compared["verdict"].isna().all() and compared["probability_a"].isna().all()
    assert sum(compared.attrs["failures"].values()) == 4
    candidates = [{**pair("x"), "responses": ["one", "two"]}]
    for by in ("pairs", "scores"):
        singles = [{**rows[0], "responses": ["one", "two"]}] if by == "scores" else candidates
        ranked = judge.rank(singles, by=by, mode="score", **QUIET)
        assert ranked["rank"].isna().all() and not ranked["best"].any() and ranked["missing"].ge(1).all()
    feedback = judge.grade(rows[:3], **QUIET)  # what was written is a verdict, without a distribution
    assert feedback["score"].tolist() == [4.0] * 3 and feedback["expected_score"].isna().all()
    assert feedback.attrs["without_distribution"] == 3


class Writes(Forced):
    """Feedback that is one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def answer(self, prompts: Any, images: Any, ask: Any, wanted: Any = None) -> Iterator[list[Answer]]:
        yield [Answer(index, text=self.text, stopped=True) for index in range(len(prompts))]


@pytest.mark.parametrize(
    ("text", "format"),
    [("**Score:** 3", "score"), ("Good.\nFinal Score: 3", "final-score"), ("It depends.", None)],
)
def test_many_failures_name_the_format_that_reads_them(text: str, format: Any, rows: Any, capsys: Any) -> None:
    judge = Judge("x", template=TEMPLATES["prometheus-vision"], engine=Writes(text))
    frame = judge.grade(rows[:5], **QUIET)
    assert frame["score"].isna().all() and frame.attrs.get("suggested_format") == format
    (line,) = capsys.readouterr().err.splitlines()
    assert (f"format {format!r} would read most of them" in line) == (format is not None)


@pytest.mark.parametrize("option", [{"top_p": 0.9}, {"repetition_penalty": 1.03}, {"samples": 3, "temperature": 1.0}])
def test_a_score_pass_refuses_to_draw(option: Any, rows: Any) -> None:
    with pytest.raises(ValueError, match="draws nothing"):
        forced(lambda index, score: -1.0).grade(rows[:2], mode="score", **option, **QUIET)


@pytest.mark.parametrize("name", ["prometheus-vision", "prometheus", "llava-critic"])
def test_a_score_pass_takes_the_published_decoding_as_a_whole(name: str, rows: Any) -> None:
    judge, family = forced(lambda index, score: -1.0), vj.prompts.families.FAMILIES[name]
    judge.family = family
    plain = judge.grade(rows[:2], mode="score", **QUIET)
    published = judge.grade(rows[:2], mode="score", **family.published, **QUIET)
    assert published.drop(columns="seconds").equals(plain.drop(columns="seconds"))
    others = {name: value for name, value in family.published.items() if name != "samples"}
    judge.compare([pair("x")], mode="score", **others, **QUIET)


@pytest.fixture(scope="module")
def tiny() -> Judge:
    """The embedded judge's name, with an engine that costs nothing."""
    return Judge("tiny", template=TEMPLATES["prometheus-vision"], engine=Forced(None))


def test_photographs_and_foreign_texts_are_said(tiny: Judge, capsys: Any) -> None:
    items = list(vj.load_collection("scenes", split="test", limit=6))
    german = {"instruction": "Wie viele Kreise siehst du?", "response": "Oben links steht ein roter Kreis."}
    frame = tiny.grade([{**row, **german} for row in items], **QUIET)
    assert frame.attrs["unlike"] == {"rows": 6, "pictures": 0, "texts": 6}
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "unlike" in line]
    assert "mean nothing" in line
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    assert tiny.grade([{**row, "images": [noise]} for row in items], **QUIET).attrs["unlike"]["pictures"] == 6
    other = Judge("other", template=tiny.template, engine=tiny.engine)
    assert "unlike" not in other.grade(items, **QUIET).attrs


def test_real_photographs_are_said(tiny: Judge) -> None:
    pytest.importorskip("skimage")
    photos = vj.load_collection("photos")
    unlike = tiny.grade(photos, **QUIET).attrs["unlike"]
    assert unlike["pictures"] == unlike["rows"] == len(photos)


def test_a_record_off_its_scale_is_refused(rows: Any, tmp_path: Path) -> None:
    judge = forced(lambda index, score: -1.0)
    judge.grade(rows[:2], out=tmp_path, **QUIET)
    (line, other) = runs.Run(tmp_path).verdicts()
    for change, message in (
        ({"score": 9.0}, "score 9.0, off its scale"),
        ({"expected_score": 0.2}, "expected_score 0.2, off its scale"),
    ):
        (tmp_path / "verdicts.jsonl").write_bytes(runs._line({**line, **change}) + runs._line(other))
        with pytest.raises(RunError, match=message):
            judge.grade(rows[:2], out=tmp_path, **QUIET)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_flipped_bit_gives_another_table(rows: Any, tmp_path: Path) -> None:
    judge = forced(lambda index, score: -1.0 - score / 10)
    first, copy = tmp_path / "first", tmp_path / "copy"
    table = judge.grade(rows[:8], out=first, **QUIET)
    draw = random.Random(0)
    tables = 0
    for _ in range(30):
        shutil.copytree(first, copy)
        file = copy / draw.choice(["verdicts.jsonl", "manifest.json"])
        data = bytearray(file.read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        file.write_bytes(bytes(data))
        try:
            again = judge.grade(rows[:8], out=copy, **QUIET)
            assert again.drop(columns="seconds").equals(table.drop(columns="seconds"))
            tables += 1
        except RunError as error:
            assert "manifest.json" in str(error) or "differs from this call" in str(error)
        shutil.rmtree(copy)
    assert tables >= 8
