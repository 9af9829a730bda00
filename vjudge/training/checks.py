"""What must hold of a collection before a judge is trained on it: no cue but the content, and no test item in it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from vjudge.data import CollectionError, Problem, length_test, n_words, rows_of
from vjudge.images import fingerprint, picture
from vjudge.records import as_score, is_missing

LENGTH_LIMIT = 0.10  # how far from 0.5 the AUC of length for score may lie
SCORE_LIMIT = 3.0  # how many times as frequent as the rarest score the most frequent may be


def check_balance(items: Any, *, allow: Collection[str] = ()) -> dict[str, float]:
    """Refuse a collection in which a response's length or one frequent score tells the score.

    Args:
        items: canonical rows with gold scores, or pairs with a preference.
        allow: "length" or "scores" to go on all the same.

    Returns:
        auc: the probability that the better of two responses is the longer one (0.5 tells nothing), or NaN;
        ratio: how many times as frequent as the rarest score the most frequent is.

    Raises:
        CollectionError: with the figures and their limits.
    """
    tally: Counter[Any] = Counter()
    texts, longer = [], []
    for index, row in enumerate(rows_of(items)):
        gold = row.get("preference") if "response_a" in row else as_score(row.get("gold"))
        if gold in ("a", "b"):
            a, b = (n_words(str(row[name])) for name in ("response_a", "response_b"))
            longer.append(0.5 if a == b else float((a > b) == (gold == "a")))
        elif isinstance(gold, float) and not math.isnan(gold):
            texts.append({"id": str(index), "group": row.get("group"), "gold": gold, "response": row.get("response")})
        else:
            continue
        tally[gold] += 1
    auc = float(np.mean(longer)) if longer else math.nan
    if texts and len(tally) > 1:
        auc = float(length_test(texts, n_resamples=0).loc["words", "auc"])
    ratio = max(tally.values()) / min(tally.values()) if len(tally) > 1 else math.inf if tally else math.nan
    faults = []
    if "length" not in allow and abs(auc - 0.5) > LENGTH_LIMIT:
        faults.append(
            f"length: the better of two responses is the longer one with probability {auc:.2f} (the limit is 0.5 +-"
            f" {LENGTH_LIMIT:.2f}), see vjudge.data.length_test: match the lengths, or go on with allow=['length']"
        )
    if "scores" not in allow and ratio > SCORE_LIMIT:
        counts = ", ".join(f"{score}: {tally[score]}" for score in sorted(tally, key=str))
        faults.append(
            f"scores: the most frequent score is {ratio:.1f} times as frequent as the rarest ({counts}; the limit is"
            f" {SCORE_LIMIT:.0f}): draw as many of each, or go on with allow=['scores']"
        )
    if faults:
        raise CollectionError("the collection is unfit for training:\n  " + "\n  ".join(faults))
    return {"auc": auc, "ratio": ratio}


def check_leakage(train: Any, test: Any, *, allow: Collection[str] = ()) -> int:
    """Refuse training rows that share an image (its pixels) or instruction and response with the test rows.

    Returns:
        How many training rows share something with the test rows; 0 unless "leakage" is allowed.

    Raises:
        CollectionError: those rows, all of them.

    >>> import vjudge as vj
    >>> train = vj.load_collection("scenes", split="train", limit=5)
    >>> check_leakage(train, vj.load_collection("scenes", split="test", limit=5))
    0
    """
    digests: dict[str, str] = {}  # of each file's pixels, so that it is decoded once
    shown: dict[str, str] = {}
    texts: dict[Any, str] = {}
    for row in rows_of(test):
        shown |= dict.fromkeys(_pixels(row, digests), str(row["id"]))
        texts[_words(row)] = row["id"]
    texts.pop(None, None)
    problems = []
    for index, row in enumerate(rows_of(train)):
        id = str(row["id"])
        if shared := [shown[digest] for digest in _pixels(row, digests) if digest in shown]:
            problems.append(Problem(index, id, "images", f"shows the image of test row {shared[0]!r}", "leave it out"))
        elif (words := _words(row)) in texts:
            what = f"has the texts of test row {texts[words]!r}"
            problems.append(Problem(index, id, "response", what, "leave it out"))
    if problems and "leakage" not in allow:
        raise CollectionError(
            f"{len(problems)} training rows share an image or texts with the test rows (allow=['leakage'] goes on):",
            problems,
        )
    return len(problems)


def _pixels(row: Mapping[str, Any], digests: dict[str, str]) -> list[str]:
    """The fingerprints of a row's images; of one that can't be opened there is none."""
    prints = []
    for source in row.get("images") or ():
        try:
            image = picture(source)
            if image.key not in digests:
                digests[image.key] = fingerprint(image.open())
            prints.append(digests[image.key])
        except (ValueError, OSError):
            continue
    return prints


def _words(row: Mapping[str, Any]) -> tuple[str, ...] | None:
    """A row's own texts, blanks made one; None where there is no response."""
    answers = [row.get(name) for name in ("response", "response_a", "response_b") if not is_missing(row.get(name))]
    return tuple(" ".join(str(text).split()) for text in (row.get("instruction"), *answers)) if answers else None
