"""Nothing but the picture tells the score of Scenes and photos: not length, overlap, n-grams, values or counts.

The texts are pinned by tests/data/test_scenes.py. Run: PYTHONPATH=. python tools/validity/scenes_blind.py
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
from rouge_score import rouge_scorer
from scipy import stats
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import RidgeCV
from sklearn.metrics import roc_auc_score

from vjudge.data import photos, scenes
from vjudge.data.scenes import ASPECTS


def texts_of() -> dict[str, list[dict]]:
    """Rows without pictures: what the text alone says."""
    return {
        split: [row for index in range(n) for row in scenes.scene_rows(split, index)[1]]
        for split, n in {"train": 300, "test": 120}.items()
    }


def length_tells_nothing_about_the_score(rows):
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


def the_text_alone_does_not_give_the_score(rows):
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


def neither_counts_nor_combinations_nor_wrong_values_give_a_split_or_a_score_away(rows):
    """Counted words are uniform on 1-4; half of a held-out scene is unseen; wrong values look like right ones."""
    made = {
        split: [scenes.sample(split, 0, index) for index in range(400)] for split in scenes.SPLITS
    }
    counts = Counter(
        scene.shows("count", word) for scene in made["train"] for word in scene.counted
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


def overlap_does_not_give_the_score_of_photos() -> None:
    rows = photos.rows()
    scorer = rouge_scorer.RougeScorer(["rougeL"])
    pairs = [(row["reference_answer"], row["response"]) for row in rows]
    shared = [scorer.score(*pair)["rougeL"].fmeasure for pair in pairs]
    assert abs(stats.pearsonr(shared, [row["gold"] for row in rows])[0]) <= 0.35


if __name__ == "__main__":
    made = texts_of()
    length_tells_nothing_about_the_score(made)
    the_text_alone_does_not_give_the_score(made)
    neither_counts_nor_combinations_nor_wrong_values_give_a_split_or_a_score_away(made)
    overlap_does_not_give_the_score_of_photos()
    print("all hold")
