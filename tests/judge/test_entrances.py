"""The picture always arrives: whatever its column is called, every entrance gives what `images` gives, or refuses."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
from conftest import make_rows
from PIL import Image

from vjudge import load_judge, preference, probes
from vjudge.data import CollectionError, load_collection, validate
from vjudge.judge import Judge
from vjudge.preference.policy import Policy
from vjudge.prompts import TEMPLATES
from vjudge.training import fine_tune

QUIET: dict[str, Any] = {"mode": "score", "progress": False}


@pytest.fixture(scope="module")
def judge(random_judge: Path) -> Judge:
    made = load_judge(random_judge, device="cpu")
    made.pairs = replace(TEMPLATES["llava-critic-pair"], conversation=made.template.conversation)
    return made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for number in range(6):
        Image.effect_noise((40 + number, 40), 90).convert("RGB").save(folder / f"{number}.png")
    return folder


def items_of(files: Path, column: str, n: int = 6) -> list[dict[str, Any]]:
    """Rows whose picture stands in a column as a list under the canonical name, else as a path."""
    rows = make_rows(n)
    for number, row in enumerate(rows):
        path = str(files / f"{number % 6}.png")
        del row["images"]
        row |= {column: [path] if column == "images" else path, "group": f"g{number % 6}"}
    return rows


def grade(judge: Judge, rows: Any, folder: Path) -> Any:
    return judge.grade(rows, **QUIET)["expected_score"].tolist()


def compare(judge: Judge, rows: Any, folder: Path) -> Any:
    pairs = [{**row, "response_a": "it is red", "response_b": "it is dark"} for row in rows]
    run = judge.compare(pairs, max_new_tokens=2, progress=False)
    return judge.render(rows[0]), run["n_prompt_tokens"].tolist(), run["raw_ab"].tolist()


def rank(judge: Judge, rows: Any, folder: Path) -> Any:
    candidates = [{**row, "responses": [row["response"], "it is right"]} for row in rows]
    return judge.rank(candidates, by="scores", **QUIET)["value"].tolist()


def probe(judge: Judge, rows: Any, folder: Path) -> Any:
    frames = [probes.perturb(rows, name, seed=1) for name in ("image_swapped", "image_reencoded")]
    return [judge.grade(frame, **QUIET)["expected_score"].tolist() for frame in frames]


def answer(judge: Judge, rows: Any, folder: Path) -> Any:
    policy = Policy("p", engine=judge.engine, conversation=judge.template.conversation)
    return policy.respond(rows, max_new_tokens=3, progress=False)["n_prompt_tokens"].tolist()


def write(judge: Judge, rows: Any, folder: Path) -> Any:
    pairs = [{**row, "chosen": "it is red", "rejected": "it is dark"} for row in rows]
    return [len(row["images"]) for row in preference.to_trl(pairs)]


@pytest.mark.parametrize("column", ["image", "image_path", "img"])
@pytest.mark.parametrize("use", [grade, compare, rank, probe, answer, write])
def test_a_picture_under_another_name_gives_what_images_gives(
    use: Callable[..., Any], column: str, judge: Judge, files: Path, random_judge: Path
) -> None:
    assert use(judge, items_of(files, column), random_judge) == use(judge, items_of(files, "images"), random_judge)


def test_every_kind_of_table_is_graded_alike(judge: Judge, files: Path) -> None:
    rows = items_of(files, "image")
    for row in rows:
        row["image"] = Path(row["image"]).name  # relative to the files' folder
    frame = pd.DataFrame(rows).assign(descriptions=[json.dumps(row["descriptions"]) for row in rows])
    frame.assign(human_scores="3;4").to_csv(files / "a.csv", index=False, sep=";")
    pd.DataFrame(rows).to_json(files / "a.jsonl", orient="records", lines=True)
    pd.DataFrame(rows).to_parquet(files / "a.parquet")
    whole = items_of(files, "image")
    forms = [files / "a.csv", str(files / "a.jsonl"), load_collection(files / "a.parquet"), pd.DataFrame(whole), whole]
    forms.append(datasets.Dataset.from_list(whole).cast_column("image", datasets.Image()))
    runs = [judge.grade(form, **QUIET) for form in forms]
    assert all(run["expected_score"].tolist() == runs[0]["expected_score"].tolist() for run in runs)
    assert all(run.attrs["without_images"] == 0 for run in runs)
    blind = judge.grade([{**row, "images": []} for row in make_rows(6)], **QUIET)
    assert blind["expected_score"].tolist() != runs[0]["expected_score"].tolist()
    assert blind.attrs["without_images"] == 6


def test_training_sees_a_picture_under_another_name(files: Path, random_judge: Path, tmp_path: Path) -> None:
    made = []
    for column in ("images", "image"):
        rows = items_of(files, column)
        for number, row in enumerate(rows):
            row |= {"feedback": "It is so.", "gold": float(number % 5 + 1)}
        options: dict[str, Any] = {"device": "cpu", "allow": ["length", "scores"], "progress": False, "keep": "last"}
        folder = fine_tune(random_judge, rows, out=tmp_path / column, recipe="scenes", steps=1, **options)
        made.append((folder / "model.safetensors").read_bytes())
    assert made[0] == made[1]


def test_rows_without_any_picture_column_are_refused_everywhere(
    judge: Judge, files: Path, tmp_path: Path, random_judge: Path
) -> None:
    rows = [{name: cell for name, cell in row.items() if name != "photo"} for row in items_of(files, "photo")]
    pairs = [{**row, "response_a": "a", "response_b": "b"} for row in rows]
    policy = Policy("p", engine=judge.engine, conversation=judge.template.conversation)
    for call in (
        lambda: judge.grade(rows, **QUIET),
        lambda: judge.compare(pairs, progress=False),
        lambda: judge.rank([{**row, "responses": ["a", "b"]} for row in rows], by="scores", **QUIET),
        lambda: policy.respond(rows, progress=False),
        lambda: validate(rows, sees_images=True),
        lambda: fine_tune(random_judge, rows, out=tmp_path / "t", device="cpu"),
    ):
        with pytest.raises(CollectionError, match=r"no column names one .the columns are "):
            call()


# --- how often a file is opened ---------------------------------------------------------------------------------------

_counts: Counter[str] = Counter()
_watched: list[str] = []


def _count(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _watched and isinstance(arguments[0], (str, os.PathLike)):
        path = os.fspath(arguments[0])
        if isinstance(path, str) and path.startswith(_watched[0]) and path.endswith(".png"):
            _counts[path] += 1


@pytest.fixture
def opens(files: Path) -> Iterator[Counter[str]]:
    """How often each picture file is opened, by whatever means."""
    if not _counts and not _watched:
        sys.addaudithook(_count)  # it stays until the process ends; without a folder it counts nothing
    _counts.clear()
    _watched.append(str(files))
    yield _counts
    _watched.clear()


@pytest.mark.parametrize("mode", ["score", "feedback"])
def test_an_image_file_is_opened_once_a_call(
    mode: str, judge: Judge, files: Path, tmp_path: Path, opens: Counter[str]
) -> None:
    judge.grade(items_of(files, "image", 30), mode=mode, max_new_tokens=3, out=tmp_path / mode, progress=False)
    assert len(opens) == 6 and set(opens.values()) == {1}
