"""The picture always arrives beyond grading: probes, policies, pairs and training see it under any of its names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from conftest import make_rows
from vjudge import load_judge, preference, probes, review
from vjudge.judge import Judge
from vjudge.preference.rewards import checked
from vjudge.training import prompt_and_target


@pytest.fixture(scope="module")
def judge(random_judge: Path) -> Judge:
    return load_judge(random_judge, device="cpu")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for number in range(6):
        Image.effect_noise((40 + number, 40), 90).convert("RGB").save(folder / f"{number}.png")
    return folder


def items_of(files: Path, column: str) -> list[dict[str, Any]]:
    """Rows whose picture stands in a column as a list under the canonical name, else as a path."""
    rows = make_rows(6)
    for number, row in enumerate(rows):
        path = str(files / f"{number % 6}.png")
        del row["images"]
        row |= {column: [path] if column == "images" else path, "group": f"g{number % 6}"}
        row |= {"feedback": "It is so.", "gold": float(number % 5 + 1)}
    return rows


def test_a_picture_under_another_name_gives_what_images_gives(judge: Judge, files: Path) -> None:
    results = []
    for name in ("images", "image", "image_path", "img"):
        rows = pd.DataFrame(items_of(files, name))
        row = dict(rows.iloc[0])
        probe = judge.grade(
            probes.perturb(rows, "image_swapped", seed=1), mode="score", progress=False
        )
        run = preference.respond(judge, rows, max_new_tokens=3, progress=False)
        pairs = checked(rows.assign(chosen="it is red", rejected="it is dark"))
        result = [
            probe["expected_score"].tolist(),
            run["response"].tolist(),
            run["n_prompt_tokens"].tolist(),
        ]
        result += [
            preference.prompt_of(judge, row).text,
            [pair["images"] for pair in pairs],
            judge.render(row),
        ]
        results.append(
            [*result, review.show(row)._repr_html_(), prompt_and_target(row, judge.template)]
        )
    assert results[1:] == results[:1] * 3
