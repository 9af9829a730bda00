"""What must hold of a collection before a judge is trained on it: no cue but the content, and no test item in it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from vjudge.data import CollectionError, Problem, length_test, n_words, rows_of
from vjudge.images import fingerprint, picture
from vjudge.records import as_score, is_missing

LENGTH_LIMIT = 0.10  # how far from 0.5 the AUC of length for score may lie
SCORE_LIMIT = 3.0  # how many times as frequent as the rarest score the most frequent may be


def check_balance(items: Any, *, allow: Collection[str] = ()) -> dict[str, float]:
    """Refuse by a CollectionError, with the figures, a collection where length or one frequent score tells the score.

    Args:
        items: canonical rows with gold scores, or pairs with a preference.
        allow: "length" or "scores" to go on all the same.

    Returns:
        auc: the probability that the better of two responses is the longer one (0.5 tells nothing), or NaN;
        ratio: how many times as frequent as the rarest score the most frequent is.
    """
    tally, scored, longer = Counter[Any](), list[dict[str, Any]](), list[float]()
    for index, row in enumerate(rows_of(items)):
        gold = row.get("preference") if "response_a" in row else as_score(row.get("gold"))
        if gold in ("a", "b"):
            a, b = (n_words(str(row[name])) for name in ("response_a", "response_b"))
            longer.append(0.5 if a == b else float((a > b) == (gold == "a")))
        elif isinstance(gold, float) and not math.isnan(gold):
            scored.append({"id": str(index), "gold": gold, "response": row.get("response")})
        else:
            continue
        tally[gold] += 1
    auc = float(np.mean(longer)) if longer else math.nan
    if scored and len(tally) > 1:
        auc = float(length_test(scored, n_resamples=0).loc["words", "auc"])
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
    """Refuse by a CollectionError, with all of them, training rows that share pixels or texts with the test rows.

    Returns:
        How many training rows share an image, or instruction and response; 0 unless "leakage" is allowed.

    >>> import vjudge as vj
    >>> train = vj.load_collection("scenes", split="train", limit=5)
    >>> check_leakage(train, vj.load_collection("scenes", split="test", limit=5))
    0
    """
    digests: dict[str, str] = {}  # of each file's pixels, so that it is decoded once
    owners = {content: row["id"] for row in rows_of(test) for _, content in _contents(row, digests)}
    problems = []
    for index, row in enumerate(rows_of(train)):
        for field, content in _contents(row, digests):
            if content in owners:
                what = f"{'shows the image' if field == 'images' else 'has the texts'} of test row {owners[content]!r}"
                problems.append(Problem(index, str(row["id"]), field, what, "leave it out"))
                break
    if problems and "leakage" not in allow:
        raise CollectionError(
            f"{len(problems)} training rows share an image or texts with the test rows (allow=['leakage'] goes on):",
            problems,
        )
    return len(problems)


def _contents(row: Mapping[str, Any], digests: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """The pixels of each image of a row that can be opened, then its own texts, blanks made one."""
    for source in row.get("images") or ():
        with suppress(ValueError, OSError):
            image = picture(source)
            if image.key not in digests:
                digests[image.key] = fingerprint(image.open())
            yield "images", digests[image.key]
    answers = [row.get(name) for name in ("response", "response_a", "response_b") if not is_missing(row.get(name))]
    if answers:
        yield "response", tuple(" ".join(str(text).split()) for text in (row.get("instruction"), *answers))
