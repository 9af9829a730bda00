"""Summaries of a collection, on rows whose answers are counted by hand and against SciPy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import samples
from PIL import Image
from rouge_score import rouge_scorer
from samples import png
from scipy import stats
from sklearn.metrics import roc_auc_score

from vjudge import data
from vjudge.data import CollectionError
from vjudge.data.summary import rouge_l, words_of
from vjudge.records import Item

LEVELS = ["bad", "fair", "good"]


def row(number, **changes):
    changes = {"criteria": "Right?", "descriptions": LEVELS, "gold": 1.0, "group": f"g{number}", **changes}
    return samples.row(f"i{number}", images=changes.pop("images", []), **changes)


def test_cases_are_the_responses_to_one_question():
    changes = [{"gold": 3.0}, {"gold": 1.0}, {"gold": None}, {"reference_answer": "a dog"}, {"group": "b"}]
    changes.append({"descriptions": ["bad", "fair", "best"]})
    cases = data.cases([row(n, **{"group": "a", **change}) for n, change in enumerate(changes)])
    assert cases["rows"].tolist() == [[0, 1, 2], [3], [4], [5]] and cases["n"].tolist() == [3, 1, 1, 1]
    assert cases["scores"].tolist() == [[1.0, 3.0], [1.0], [1.0], [1.0]]
    assert cases["reference"].tolist() == [False, True, False, False]


def test_counts_show_every_level_and_what_is_missing():
    rows = [row(0, gold=1), row(1, gold="3"), row(2, criteria="Short?", gold=3), row(3, criteria="Short?", gold=None)]
    counts = data.counts(rows)
    assert counts.columns.tolist() == [1, 2, 3, "missing", "total"]
    assert counts.loc[["Right?", "Short?"]].to_numpy().tolist() == [[1, 0, 1, 0, 2], [0, 0, 1, 1, 2]]
    assert "missing" not in data.counts(rows[:3]).columns
    named = data.counts(rows, by={"Right?": "truth", "Short?": "length"})
    assert named["total"].to_dict() == {"truth": 2, "length": 2, "all": 4}
    with pytest.raises(CollectionError, match=r"\['Short\?'\]"):
        data.counts(rows, by={"Right?": "truth"})
    others = data.counts([row(0, lowest=0, gold=0), row(1, lowest=0, gold=1.5)])
    assert others.columns.tolist() == [0, 1, 1.5, 2, "total"]
    assert data.levels([row(0), row(1, lowest=0), row(2, descriptions=None)]) == [0, 1, 2, 3]


def texts(lengths, golds, groups=None):
    groups = range(len(golds)) if groups is None else groups
    return [
        row(i, response=" ".join("w" * int(n)), gold=gold, group=str(group))
        for i, (n, gold, group) in enumerate(zip(lengths, golds, groups, strict=True))
    ]


def test_auc_by_hand():
    # Pairs of different score: (1, 2) 1 < 3 won, (1, 3) 1 < 2 won, (2, 3) 3 > 2 lost, and the second 1 (of length 2):
    # against 2 won, against 3 a tie. 3.5 of 5.
    rows = texts([1, 2, 3, 2], [1, 1, 2, 3])
    assert data.lengths(rows)[["words", "characters"]].iloc[:2].to_numpy().tolist() == [[1, 1], [2, 3]]
    table = data.length_test(rows, n_resamples=0)
    assert table.at["words", "auc"] == pytest.approx(3.5 / 5) and np.isnan(table.at["words", "low"])


def test_length_test_equals_scipy_and_scikit_learn():
    rng = np.random.default_rng(3)
    golds = rng.integers(1, 4, 80).astype(float)
    lengths = rng.integers(1, 12, 80) + golds
    words = data.length_test(texts(lengths, golds), n_resamples=200).loc["words"]
    test = stats.kruskal(*(lengths[golds == score] for score in (1, 2, 3)))
    cuts = [roc_auc_score(golds >= score, lengths) for score in (2, 3)]
    assert words["kruskal_h"] == pytest.approx(test.statistic) and words["kruskal_p"] == pytest.approx(test.pvalue)
    assert (words["cut_min"], words["cut_max"]) == pytest.approx((min(cuts), max(cuts)))
    assert words["low"] < words["auc"] < words["high"]


def test_interval_is_of_the_groups_and_covers():
    rng = np.random.default_rng(0)
    golds, lengths = np.tile([1.0, 2.0], 60), rng.integers(5, 30, 120)
    alone = data.length_test(texts(lengths, golds), n_resamples=400).loc["words"]
    four = texts(np.repeat(lengths, 4), np.repeat(golds, 4), np.repeat(np.arange(120), 4))
    copied = data.length_test(four, n_resamples=400).loc["words"]
    # Four copies of every item in its own group are no more evidence than one.
    assert copied["auc"] == pytest.approx(alone["auc"]) and alone["low"] < 0.5 < alone["high"]
    assert copied["high"] - copied["low"] == pytest.approx(alone["high"] - alone["low"], rel=0.15)


def test_planted_length_is_found_and_equal_lengths_are_certain():
    golds = np.tile([1.0, 2.0, 3.0], 10)
    longer = data.length_test(texts(golds * 4, golds), n_resamples=100).loc["words"]
    assert longer["auc"] == longer["low"] == longer["high"] == 1.0 and longer["kruskal_p"] < 1e-5
    same = data.length_test(texts(np.full(30, 5), golds), n_resamples=100).loc["words"]
    assert same["auc"] == same["low"] == same["high"] == 0.5
    table = data.length_test([row(0), row(1, gold=None), row(2, response=None)])
    assert table["n"].tolist() == [1, 1] and table["missing"].tolist() == [2, 2] and table["auc"].isna().all()


def test_rubric_overlap_by_hand():
    rows = [row(0, criteria="a b c"), row(1, criteria="a x c"), row(2, criteria="a b c"), row(3, criteria="q")]
    table = data.rubric_overlap(rows)
    assert table.attrs == {"n_rubrics": 3, "n_pairs": 3}
    assert list(zip(table["a"], table["b"], strict=True)) == [("a b c", "a x c"), ("a b c", "q"), ("a x c", "q")]
    assert table["rouge_l_criteria"].tolist() == pytest.approx([2 / 3, 0, 0])
    assert table["rouge_l"].tolist() == pytest.approx([5 / 6, 2 * 3 / 10, 2 * 3 / 10])
    part = data.rubric_overlap([row(i, criteria=f"criterion {i}") for i in range(40)], max_pairs=100, seed=1)
    assert part.attrs["n_pairs"] == 780 and len(part) == 100 and not part[["a", "b"]].duplicated().any()
    unspaced = [{"id": str(n), "criteria": text} for n, text in enumerate(["描述准确吗", "描述完整吗", "ภาพชัด"])]
    assert data.rubric_overlap(unspaced)["rouge_l_criteria"].tolist() == pytest.approx([3 / 5, 0, 0])


def test_rouge_l_equals_the_package_and_reads_other_scripts():
    answer, reference = "The red, round ball is on top.", "A red ball lies on the top of it"
    expected = rouge_scorer.RougeScorer(["rougeL"]).score(reference, answer)["rougeL"].fmeasure
    assert rouge_l(words_of(reference), words_of(answer)) == pytest.approx(expected) and rouge_l("", "") == 0
    assert rouge_l(words_of("мяч"), words_of("красный мяч")) == pytest.approx(2 / 3)


def test_image_sizes_list_distinct_images_with_faults(tmp_path):
    Image.new("L", (30, 20)).save(tmp_path / "gray.jpg")
    red, path = png(), str(tmp_path / "gray.jpg")
    cells = [[{"bytes": red, "path": None}, path], [red], [{"bytes": b"no image", "path": None}]]
    cells += [[Image.new("RGB", (5, 4))], [np.zeros((3, 2), np.uint8)], None]
    table = data.image_sizes([row(n, images=cell) for n, cell in enumerate(cells)])
    assert table["n_items"].tolist() == [2, 1, 1, 1, 1]
    assert table[["row", "place"]].to_numpy().tolist() == [[0, 0], [0, 1], [2, 0], [3, 0], [4, 0]]
    assert table[["width", "height"]].iloc[[0, 1, 3, 4]].to_numpy().tolist() == [[4, 4], [30, 20], [5, 4], [2, 3]]
    assert table["fault"].isna().tolist() == [True, True, False, True, True] and "not an image" in table["fault"][2]


@pytest.mark.parametrize("name", ["cases", "counts", "lengths", "rubric_overlap", "image_sizes"])
def test_a_dataset_rows_and_items_give_the_same_and_nothing_gives_an_empty_frame(name):
    rows = [row(i, images=[{"bytes": png((i, 0, 0)), "path": None}], reference_answer="a cat") for i in range(3)]
    function = getattr(data, name)
    pd.testing.assert_frame_equal(function(data.canonical(rows)), function(rows))
    pd.testing.assert_frame_equal(function([Item.from_row(made) for made in rows]), function(rows))
    assert len(function([]).drop(index="all", errors="ignore")) == 0
    bare = [{"id": str(n), "instruction": "What?", "response": "A cat.", "gold": 80 + n} for n in range(2)]
    assert len(function(bare)) == {"rubric_overlap": 0, "image_sizes": 0}.get(name, 2)  # without rubrics, too
