"""What must hold of a collection before a judge is trained on it: no cue but the content, and no test item in it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from vjudge.data import CollectionError, Problem, length_test, rows_of
from vjudge.data.schema import plain
from vjudge.images import fingerprint, picture
from vjudge.records import as_score, is_missing

LENGTH_LIMIT = 0.10  # how far from 0.5 the AUC of length for score may lie
SCORE_LIMIT = 3.0  # how many times as frequent as the rarest score the most frequent may be
SAMPLE = 10_000  # rows that the length test looks at


def check_balance(items: Any, *, allow: Collection[str] = (), seed: int = 0) -> dict[str, float]:
    """Refuse a collection in which a response's length or one frequent score tells the score.

    Args:
        items: canonical rows with gold scores; rows without any (pairs) are compared by preference: the longer one.
        allow: "length" or "scores" to go on all the same.
        seed: of the sample of rows, where there are more than 10,000.

    Returns:
        auc: the probability that the better of two responses is the longer one (0.5 tells nothing), NaN where it is
        undefined; ratio: how many times as frequent as the rarest score the most frequent is.

    Raises:
        CollectionError: with the figures and their limits.
    """
    tally: Counter[float] = Counter()
    light: list[dict[str, Any]] = []
    rng = np.random.default_rng(seed)
    won = []
    for index, row in enumerate(rows_of(items)):
        if "response_a" in row:
            if row.get("preference") in ("a", "b"):
                tally[row["preference"]] += 1
                a, b = len(str(row["response_a"]).split()), len(str(row["response_b"]).split())
                won.append(0.5 if a == b else float((a > b) == (row["preference"] == "a")))
            continue
        gold = as_score(row.get("gold"))
        if math.isnan(gold):
            continue
        tally[gold] += 1
        kept = {"id": str(index), "group": row.get("group"), "gold": gold, "response": row.get("response")}
        if len(light) < SAMPLE:
            light.append(kept)
        elif (place := int(rng.integers(index + 1))) < SAMPLE:
            light[place] = kept
    if won:
        auc = float(np.mean(won))
    else:
        auc = float(length_test(light, n_resamples=0).loc["words", "auc"]) if len(tally) > 1 else math.nan
    ratio = max(tally.values()) / min(tally.values()) if len(tally) > 1 else math.inf if tally else math.nan
    faults = []
    if "length" not in allow and abs(auc - 0.5) > LENGTH_LIMIT:
        faults.append(
            f"length: the better of two responses is the longer one with probability {auc:.2f} (words; 0.5 tells"
            f" nothing, the limit is 0.5 +- {LENGTH_LIMIT:.2f}): a judge would learn to count words."
            " vjudge.data.length_test shows it; match the lengths, or go on with allow=['length']"
        )
    if "scores" not in allow and ratio > SCORE_LIMIT:
        counts = ", ".join(f"{score}: {tally[score]}" for score in sorted(tally, key=str))
        faults.append(
            f"scores: the most frequent score is {ratio:.1f} times as frequent as the rarest ({counts}; the limit is"
            f" {SCORE_LIMIT:.0f}): a judge would learn to guess it. Draw as many of each, or pass allow=['scores']"
        )
    if faults:
        raise CollectionError("the collection is unfit for training:\n  " + "\n  ".join(faults))
    return {"auc": auc, "ratio": ratio}


def check_leakage(train: Any, test: Any, *, allow: Collection[str] = ()) -> int:
    """Refuse training rows that show an image of the test rows, or hold the same instruction and response.

    Images are compared by their decoded pixels, whatever file they came in.

    Returns:
        How many training rows share something with the test rows; 0 unless "leakage" is allowed.

    Raises:
        CollectionError: those rows, all of them.

    >>> import vjudge as vj
    >>> train = vj.load_collection("scenes", split="train", limit=5)
    >>> check_leakage(train, vj.load_collection("scenes", split="test", limit=5))
    0
    """
    prints = _Prints()
    pictures: dict[str, str] = {}
    texts: dict[tuple[str, ...], str] = {}
    for row in rows_of(test):
        for image in plain(row.get("images")) or ():
            if found := prints(image):
                pictures.setdefault(found, str(row.get("id")))
        if text := _words(row):
            texts.setdefault(text, str(row.get("id")))
    problems = []
    for index, row in enumerate(rows_of(train)):
        id = str(row.get("id"))
        shared = [pictures[found] for image in plain(row.get("images")) or () if (found := prints(image)) in pictures]
        if shared:
            problems.append(Problem(index, id, "images", f"shows the image of test row {shared[0]!r}", "leave it out"))
        elif (same := texts.get(_words(row))) is not None:
            problems.append(Problem(index, id, "response", f"has the texts of test row {same!r}", "leave it out"))
    if problems and "leakage" not in allow:
        raise CollectionError(
            f"{len(problems)} training rows share an image or texts with the test rows (allow=['leakage'] goes on):",
            problems,
        )
    return len(problems)


class _Prints:
    """Fingerprints of images, each file decoded once; "" where it can't be opened."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}  # an image's key -> its pixels' digest

    def __call__(self, image: Any) -> str:
        try:
            shown = picture(image)
            if shown.key not in self._known:
                self._known[shown.key] = fingerprint(shown.open())
            return self._known[shown.key]
        except (ValueError, OSError):
            return ""


def _words(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A row's own texts, blanks made one; empty where there is no response."""
    answers = [row.get(name) for name in ("response", "response_a", "response_b") if not is_missing(row.get(name))]
    if not answers:
        return ()
    return tuple(" ".join(str(text).split()) for text in (row.get("instruction"), *answers))
