"""Scenes and photos: right by construction, balanced, and impossible to score without looking at the picture."""

from __future__ import annotations

import json
import re
from collections import Counter
from hashlib import sha256
from types import SimpleNamespace

import datasets
import numpy as np
import pandas as pd
import pytest
from rouge_score import rouge_scorer
from scipy import stats
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import RidgeCV
from sklearn.metrics import roc_auc_score

import vjudge as vj
from vjudge import data, images, metrics
from vjudge.data import photos, scenes
from vjudge.data.scenes import ASPECTS

PHOTOS = {photo["name"]: photo for photo in photos.lines("photos.jsonl")}
CHECK = re.compile(r"\((\d)\) said ([\w-]+), (.+?) ([\w-]+), (correct|wrong)\.")


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict]]:
    """Rows without pictures: what the text alone says."""
    return {
        split: [row for index in range(n) for row in scenes.rows_of(split, index)[1]]
        for split, n in {"train": 300, "test": 120}.items()
    }


def test_every_statement_of_feedback_is_read_off_the_drawn_scene():
    """The feedback's "seen" is compared with the scene itself, by a reading of its own, for all aspects."""
    checked = Counter()
    for index in range(60):
        scene, made = scenes.rows_of("test", index)
        for row in made:
            aspect = scenes.ASPECT_OF[row["criteria"]]
            verdicts = CHECK.findall(row["feedback"])
            for number, said, key, seen, verdict in verdicts:
                words = [word for thing in scene.things for word in (thing.colour, thing.shape)]
                if aspect == "count":
                    truth = scenes.NUMBERS[words.count(key)]
                elif aspect == "presence":
                    truth = "present" if key in words else "absent"
                else:
                    thing = {thing.place: thing for thing in scene.things}.get(key)
                    truth = (
                        getattr(thing, "shape" if aspect == "position" else aspect)
                        if thing
                        else "empty"
                    )
                assert seen == truth and (verdict == "correct") == (said == truth)
                clause = re.search(rf"\({number}\) (.*?)\.(?: |$)", row["response"])[
                    1
                ]  # the response says so, too
                assert all(
                    re.search(rf"\b{word}\b", clause)
                    for word in (key, said)[: 1 + (aspect != "presence")]
                )
            assert len(verdicts) == 4 and row["gold"] == 5 - sum(v[-1] == "wrong" for v in verdicts)
            checked[aspect] += 1
            if row["reference_answer"] and aspect == "colour":  # a reference answer is perfect
                for clause in re.findall(r"\(\d\) (.*?)\.", row["reference_answer"]):
                    place = re.search(
                        r"(top|bottom)-(left|right)|top|bottom|left|right|middle", clause
                    )[0]
                    assert scene.at(place).colour in clause
                    checked["reference"] += 1
    assert set(checked) == {*ASPECTS, "reference"} and checked["reference"] > 50


def test_length_tells_nothing_about_the_score(rows):
    gold = np.array([row["gold"] for row in rows["test"]])
    assert all(
        sorted(gold[place : place + 5]) == [1, 2, 3, 4, 5] for place in range(0, len(gold), 5)
    )
    for measure in (len, lambda text: len(text.split())):
        lengths = np.array([measure(row["response"]) for row in rows["test"]])
        assert stats.kruskal(*(lengths[gold == score] for score in range(1, 6))).pvalue > 0.05
        assert all(
            0.48 <= roc_auc_score(gold >= threshold, lengths) <= 0.52 for threshold in range(2, 6)
        )


def test_the_text_alone_does_not_give_the_score(rows):
    """ROUGE-L, and a ridge regression on n-grams with agreement and repetition features, stay below Pearson 0.35."""
    gold = {split: np.array([row["gold"] for row in made]) for split, made in rows.items()}
    scorer, nan = rouge_scorer.RougeScorer(["rougeL"]), float("nan")
    pairs = [(row["reference_answer"], row["response"]) for row in rows["test"]]
    overlap = np.array(
        [scorer.score(*pair)["rougeL"].fmeasure if pair[0] else nan for pair in pairs]
    )
    present = ~np.isnan(overlap)
    assert 0.35 < present.mean() < 0.65
    assert abs(stats.pearsonr(overlap[present], gold["test"][present])[0]) <= 0.35

    def features(row: dict) -> list[float]:
        mine, reference = (
            re.findall(r"\(\d\) (.*?)\.", row[name] or "")
            for name in ("response", "reference_answer")
        )
        words = [set(clause.replace("an ", "a ").split()) for clause in reference]
        agreement = [
            max((len(set(c.split()) & w) / len(w) for w in words), default=0) for c in mine
        ]
        last = [clause.split()[-1] for clause in mine]
        return [
            max(agreement),
            float(np.mean(agreement)),
            len(set(last)),
            len(set(" ".join(mine).split())),
        ]

    texts = {
        s: [f"{r['response']} REF {r['reference_answer']} {r['criteria']}" for r in rows[s]]
        for s in rows
    }
    counter = CountVectorizer(ngram_range=(1, 2), min_df=5, token_pattern=r"[\w-]+").fit(
        texts["train"]
    )
    x = {
        s: np.hstack(
            [counter.transform(texts[s]).toarray(), np.array(list(map(features, rows[s])))]
        )
        for s in rows
    }
    predicted = (
        RidgeCV(alphas=[1, 10, 100, 1000, 10_000]).fit(x["train"], gold["train"]).predict(x["test"])
    )
    assert abs(stats.pearsonr(predicted, gold["test"])[0]) <= 0.35


def test_neither_counts_nor_combinations_nor_wrong_values_give_a_split_or_a_score_away(rows):
    """Counted words are uniform on 1-4; half of a held-out scene is unseen; wrong values look like right ones."""
    made = {
        split: [scenes.sample(split, 0, index) for index in range(400)] for split in scenes.SPLITS
    }
    counts = Counter(
        scene.shows("count", word) for scene in made["train"] for word, _ in scene.counted
    )
    assert (
        set(counts) == {"one", "two", "three", "four"}
        and stats.chisquare(list(counts.values())).pvalue > 1e-3
    )
    combinations = {
        s: [{(t.shape, t.colour, t.place) for t in scene.things} for scene in made[s]] for s in made
    }
    train = set().union(*combinations["train"])
    assert all(
        2 * len(things - train) >= len(things)
        for s in ("validation", "test")
        for things in combinations[s]
    )
    for aspect in ASPECTS:
        said = {5.0: Counter(), 1.0: Counter()}
        for row in rows["train"]:
            if row["gold"] in said and scenes.ASPECT_OF[row["criteria"]] == aspect:
                said[row["gold"]].update(re.findall(r"said ([\w-]+)", row["feedback"]))
        words = sorted(said[5.0] | said[1.0])
        assert (
            stats.chi2_contingency([[c[word] for word in words] for c in said.values()]).pvalue
            > 1e-3
        ), aspect


def test_its_texts_stay_those_that_the_embedded_judge_was_trained_on(rows):
    digests = {
        split: sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:12]
        for split, made in rows.items()
    }
    assert digests == {"train": "a69ae4a5077e", "test": "1e182264178f"}


def test_a_seed_is_a_collection():
    first, again, other = (
        vj.load_collection("scenes", split="test", limit=20, seed=s) for s in (0, 0, 1)
    )
    assert data.fingerprint(first) == data.fingerprint(again) != data.fingerprint(other)
    data.validate(first)
    assert len(set(first["id"])) == 20 and len(set(first["group"])) == 2  # ten rows a picture
    with pytest.raises(ValueError, match="'dev'.*train, validation, test"):
        scenes.rows("dev")


def test_a_picture_shows_its_things():
    """Each thing's own colour fills part of its cell; empty cells hold the ground alone."""
    for index in range(20):
        scene = scenes.sample("test", 3, index)
        pixels = np.asarray(scenes.draw(scene), dtype=int)
        for i, place in enumerate(scenes.PLACES):
            row, column = divmod(i, 3)
            cell = pixels[row * 64 + 1 : row * 64 + 63, column * 64 + 1 : column * 64 + 63]
            if thing := scene.at(place):
                near = np.abs(cell - np.array(scenes.COLOURS[thing.colour])).max(axis=-1) <= 12
                assert 0.02 < near.mean() < 0.9
            else:
                assert np.abs(cell - pixels[0, 0]).max() == 0


# -- photos


@pytest.fixture(scope="module")
def items() -> datasets.Dataset:
    return vj.load_collection("photos")


@pytest.fixture(scope="module")
def table(items) -> pd.DataFrame:
    return items.remove_columns("images").to_pandas()


def test_photos_are_valid_and_complete_and_half_of_the_faults_show_in_the_picture_alone(
    items, table
):
    data.validate(items)
    assert list(data.FEATURES) + list(photos.COLUMNS) == items.column_names
    cases = data.cases(items)
    assert table["group"].nunique() == len(PHOTOS) >= 9 and len(cases) == 3 * len(PHOTOS)
    assert all(scores == [1, 2, 3, 4, 5] for scores in cases["scores"]) and cases["reference"].all()
    assert table["criteria"].nunique() == 3 * len(PHOTOS) and table["aspect"].nunique() >= 20
    tally = Counter(table["fault_shows_in"])
    assert (
        set(tally) == {"picture", "text", "none"}
        and ((table["fault_shows_in"] == "none") == (table["gold"] == 5)).all()
    )
    assert tally["picture"] >= (tally["picture"] + tally["text"]) / 2
    assert dict(zip(table["group"], table["credit"], strict=True)) == {
        f"photos-{name}": photo["credit"] for name, photo in PHOTOS.items()
    }


def test_neither_length_nor_overlap_gives_the_score_of_photos(items, table):
    for _, row in metrics.length_test(items, n_resamples=2_000).iterrows():
        assert row["low"] <= 0.5 <= row["high"] and 0.45 <= row["auc"] <= 0.55
    scorer = rouge_scorer.RougeScorer(["rougeL"])
    texts = zip(table["reference_answer"], table["response"], strict=True)
    shared = pd.Series([scorer.score(*pair)["rougeL"].fmeasure for pair in texts], table.index)
    assert abs(shared.corr(table["gold"])) <= 0.35


def test_a_changed_or_absent_photograph_is_refused_and_a_reencoded_one_is_not(
    monkeypatch, tmp_path
):
    photo = PHOTOS["coins"]
    decoded_otherwise = photo | {
        "pixels": "0" * len(photo["pixels"])
    }  # as another decoder's JPEG would be
    assert photos.file_of(decoded_otherwise) == photos.file_of(photo)
    file, original = tmp_path / "skimage" / "data" / "coins.png", photos.file_of(photo)
    file.parent.mkdir(parents=True)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / photo["module"])])
    monkeypatch.setattr(photos.util, "find_spec", lambda name: spec)
    with images.Image.open(original) as picture:
        picture.save(file, compress_level=1)
        assert photos.file_of(photo) == file
        picture.rotate(180).save(file)
    with pytest.raises(
        images.ImageError, match="coins.png: this version of skimage shows another picture"
    ):
        photos.file_of(photo)
    monkeypatch.setattr(photos.util, "find_spec", lambda name: None)
    with pytest.raises(
        images.ImageError, match="astronaut.png is not there: pip install scikit-image"
    ):
        vj.load_collection("photos")
