"""Photos: complete, balanced, tied to the very photographs, and not to be scored from the text alone."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict
from sklearn.pipeline import make_pipeline

import vjudge as vj
from vjudge import data, images, metrics
from vjudge.data import photos

CARD = (Path(vj.__file__).parent / "assets" / "photos" / "README.md").read_text(encoding="utf-8")
PHOTOS = {photo["name"]: photo for photo in photos.lines("photos.jsonl")}


@pytest.fixture(scope="module")
def items():
    return vj.load_collection("photos")


@pytest.fixture(scope="module")
def table(items) -> pd.DataFrame:
    return items.remove_columns("images").to_pandas()


def test_the_collection_is_valid_and_complete_and_half_of_its_faults_show_in_the_picture_alone(items, table):
    data.validate(items)
    assert list(data.FEATURES) + list(photos.EXTRAS) == items.column_names
    cases = data.cases(items)
    assert table["group"].nunique() == len(PHOTOS) >= 9 and len(cases) == 3 * len(PHOTOS)
    assert all(scores == [1, 2, 3, 4, 5] for scores in cases["scores"]) and cases["reference"].all()
    assert table["criteria"].nunique() == 3 * len(PHOTOS) and table["aspect"].nunique() >= 20
    tally = Counter(table["fault"])
    assert set(tally) == {"picture", "text", "none"} and ((table["fault"] == "none") == (table["gold"] == 5)).all()
    assert tally["picture"] >= (tally["picture"] + tally["text"]) / 2
    assert f'"picture" ({tally["picture"]} of the 120' in CARD and f'"text" ({tally["text"]})' in CARD


def test_neither_length_nor_text_gives_the_score(items, table):
    """ROUGE-L with the reference, and words and word pairs learnt on the other photographs, stay below Pearson 0.35."""
    for _, row in data.length_test(items, n_resamples=2_000).iterrows():
        assert row["kruskal_p"] > 0.05 and row["low"] <= 0.5 <= row["high"] and 0.45 <= row["auc"] <= 0.55
    shared = metrics.overlap_baselines(table["response"], table["reference_answer"])["rouge_l"]
    assert abs(shared.corr(table["gold"])) <= 0.35
    texts = table["response"], table["response"] + " REF " + table["reference_answer"] + " " + table["criteria"]
    for text in texts:
        counter = CountVectorizer(ngram_range=(1, 2), token_pattern=r"[\w-]+")
        model = make_pipeline(counter, RidgeCV(alphas=[1, 10, 100, 1000, 10_000]))
        made = cross_val_predict(model, text, table["gold"], groups=table["group"], cv=LeaveOneGroupOut())
        assert abs(np.corrcoef(made, table["gold"])[0, 1]) <= 0.35


def test_photographs_are_the_pinned_ones_and_have_their_credit(items, table):
    for name, photo in PHOTOS.items():
        path = photos.find(photo)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == photo["file"], name
        assert set(table.loc[table["group"] == f"photos-{name}", "credit"]) == {photo["credit"]}
        line = next(line for line in CARD.splitlines() if line.startswith(f"| {name} |"))
        assert any(word in line for word in ("CC0", "CC BY 2.0", "public domain", "no known copyright", "no licence"))
        assert photo["url"] in line or photo["url"] == "https://scikit-image.org" or "issues" in photo["url"]
    assert items[0]["images"][0].size == (512, 512)


def test_a_changed_or_absent_photograph_is_refused_and_a_reencoded_one_is_not(monkeypatch, tmp_path):
    photo = PHOTOS["coins"]
    file, original = tmp_path / "skimage" / "data" / "coins.png", photos.find(photo)
    file.parent.mkdir(parents=True)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / photo["module"])])
    monkeypatch.setattr(photos.util, "find_spec", lambda name: spec)
    with images.Image.open(original) as picture:
        picture.save(file, compress_level=1)
        assert photos.find(photo) == file
        picture.rotate(180).save(file)
    with pytest.raises(images.ImageError, match="coins.png: this version of skimage shows another picture"):
        photos.find(photo)
    monkeypatch.setattr(photos.util, "find_spec", lambda name: None)
    with pytest.raises(images.ImageError, match="astronaut.png is not there: pip install scikit-image"):
        vj.load_collection("photos")
