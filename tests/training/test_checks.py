"""What is refused before any work: rows without a target, a cue in length or score, test items in the training."""

from __future__ import annotations

import re
import sys

import pytest
from PIL import Image
from training_cases import SMALL, rows_with_feedback

from vjudge.data import CollectionError
from vjudge.training import RECIPES, checks, fine_tune, finetune


def test_everything_wrong_with_the_rows_is_said_at_once(random_judge, tmp_path):
    rows = rows_with_feedback(10)
    rows[1]["feedback"] = None
    rows[3]["gold"] = None
    rows[4]["descriptions"] = [f"{level} {'words ' * 600}" for level in rows[4]["descriptions"]]
    rows[6]["images"] = [str(tmp_path / "gone.png")]
    broken = tmp_path / "broken.jpg"
    Image.effect_noise((200, 200), 90).convert("RGB").save(broken)
    broken.write_bytes(broken.read_bytes()[:3000])  # its header is sound, its pixels are not
    rows[8]["images"] = [str(broken)]
    rows[7]["feedback"] = "Fine. So the overall score is 1."
    with pytest.raises(CollectionError) as caught:
        fine_tune(random_judge, rows, out=tmp_path / "out", **SMALL)
    by_row = {problem.index: str(problem) for problem in caught.value.problems}
    assert sorted(by_row) == [1, 3, 4, 6, 7, 8]
    for index, part in {
        1: "feedback: is missing",
        3: "whole score",
        6: "gone.png",
        8: "broken.jpg",
    }.items():
        assert part in by_row[index]
    assert re.search(r"have \d+ \+ \d+ tokens, .* limit is \d+; shorten", by_row[4])
    assert not (tmp_path / "out").exists()


def test_an_unbalanced_collection_is_refused_with_the_figure():
    rows = rows_with_feedback(40)
    for row in rows:
        row["response"] = "word " * int(row["gold"])
    with pytest.raises(CollectionError, match=r"with probability 1\.00"):
        checks.check_balance(rows)
    assert checks.check_balance(rows, allow=["length"])["auc"] == 1.0
    few = [row for row in rows_with_feedback(40) if row["gold"] != 2 or int(row["id"][5:]) < 5]
    with pytest.raises(CollectionError, match=r"8\.0 times as frequent as the rarest"):
        checks.check_balance(few)
    assert checks.check_balance(few, allow=["scores"])["ratio"] == 8.0
    texts = [{"response_a": "a b", "preference": "a"}, {"response_a": "a", "preference": "b"}]
    pairs = [{**row, "response_b": "c"} for row in texts] * 4
    with pytest.raises(CollectionError, match="longer one with probability 0.75"):
        checks.check_balance(pairs)


def test_leakage_is_found_by_pixels_and_by_texts(tmp_path):
    rows = rows_with_feedback(4)
    for number, row in enumerate(rows):
        row |= {
            "images": [Image.new("RGB", (8, 8), (number, 0, 0))],
            "response": f"answer {number}",
        }
    rows[1]["images"][0].save(tmp_path / "same.png")
    other = Image.new("RGB", (8, 8), (99, 0, 0))
    test = [
        rows[0] | {"id": "t0", "images": [other]},
        rows[3] | {"id": "t1", "images": [str(tmp_path / "same.png")]},
    ]
    test[1]["response"] = "another"
    with pytest.raises(CollectionError) as caught:
        checks.check_leakage(rows, test)
    assert [(p.index, p.field) for p in caught.value.problems] == [(0, "response"), (1, "images")]
    assert checks.check_leakage(rows, test, allow=["leakage"]) == 2
    assert checks.check_leakage(rows[2:3], test) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(quantization="4bit"), "add lora=True"),
        (dict(recipe="mine"), "recipe 'mine' is unknown"),
        (dict(lr=-1.0), "lr=-1.0: use a number above 0"),
        (dict(freeze=["head"]), "freeze='head': use tower, projector, decoder"),
        (dict(freeze=["tower", "projector", "decoder"]), "nothing to train"),
        (dict(freeze=["decoder"], lora=True), "leave one of them out"),
        (dict(rows_at_once=3), "no multiple"),
    ],
)
def test_unsound_options_are_refused(random_judge, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        fine_tune(
            random_judge,
            rows_with_feedback(5),
            out=tmp_path / "out",
            **{**SMALL, "steps": 1, **options},
        )


def test_who_lacks_the_packages_for_adapters_is_told_which_to_install(
    random_judge, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match=r"pip install 'vjudge\[train\]'"):
        fine_tune(
            random_judge,
            rows_with_feedback(5),
            out=tmp_path / "out",
            lora=True,
            **{**SMALL, "steps": 1},
        )


def test_recipes_are_as_published(tmp_path):
    arguments = finetune._arguments(RECIPES["prometheus-vision"], tmp_path, 1280, "cpu", "float32")
    assert (arguments.max_steps, arguments.get_warmup_steps(10), arguments.save_steps) == (10, 1, 1)
    assert (RECIPES["llava-critic"].lr, RECIPES["llava-critic"].batch_size) == (2e-6, 32)
    assert all(recipe.source for recipe in RECIPES.values())
