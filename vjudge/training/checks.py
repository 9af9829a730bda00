"""Checks of a collection before a judge is trained on it.

Every row must be one that can be trained on, nothing but the content of a response may predict its
score, and no training row may share an image or texts with a test row.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from vjudge import data
from vjudge.data import CollectionError, Problem
from vjudge.data.schema import Items, Row, has_own_texts, pictures_in
from vjudge.data.summary import ratings
from vjudge.images import ImageError, Pictures, pixel_digest
from vjudge.metrics import length_test
from vjudge.records import is_missing
from vjudge.training.collate import IGNORED, Examples

LENGTH_LIMIT = 0.10  # how far from 0.5 the AUC of length for score may lie
SCORE_LIMIT = 3.0  # how many times as frequent as the rarest score the most frequent may be


def survey(items: Items, examples: Examples) -> tuple[list[int], int]:
    """Encode every row and decode every image once, before anything is trained.

    Args:
        items: the collection, as `validate` takes it.
        examples: of the same rows.

    Returns:
        The number of tokens of each row, and of the longest answer.

    Raises:
        CollectionError: every row that cannot be trained on, or whose image cannot be decoded.
    """
    # Encode the rows that `validate` accepts, and report all others with those that fail here.
    problems = _invalid_rows(items, examples)
    faulty = {problem.index for problem in problems}
    pictures = Pictures()
    decoded = set()  # keys of images
    lengths = []
    longest_answer = 0
    for index, row in enumerate(examples.rows):
        if index in faulty:
            continue
        try:
            example = examples.encode(row)
            for image in map(pictures, example.images):
                if image.key not in decoded:
                    image.open()
                decoded.add(image.key)
        except (ValueError, KeyError) as error:
            # The messages of `encode` are "COLUMN: REASON; REMEDY".
            message = f"images: {error}" if isinstance(error, ImageError) else str(error)
            field, _, detail = message.partition(": ")
            reason, _, remedy = detail.partition("; ")
            problems.append(Problem(index, str(row.get("id")), field, reason, remedy))
        else:
            lengths.append(len(example.ids))
            answer = len(example.ids) - example.labels.count(IGNORED)
            longest_answer = max(longest_answer, answer)
    if problems:
        problems.sort(key=lambda problem: problem.index)
        raise CollectionError.of_rows(problems, len(examples.rows))
    return lengths, longest_answer


def with_truth(
    items: Items, validation: Items | None, truth: str
) -> tuple[Any, Any, dict[str, Any]]:
    """Write the chosen truth into the column `gold` of training and validation rows.

    Args:
        items, validation: the rows; validation may be None.
        truth: "gold" leaves all rows as they are. "people" takes the mean of `human_scores`:
            rounded to a whole score, halves up, for training, and unrounded for validation.

    Returns:
        items, validation, and entries for the manifest: "truth" (a description) and "rounded" (how
        many means were rounded); no entries for "gold".

    Raises:
        ValueError: an unknown truth.
        CollectionError: every row that nobody scored.
    """
    if truth == "gold":
        return items, validation, {}
    if truth != "people":
        raise ValueError(f'truth={truth!r}: use "gold" or "people"')
    targets = _people_means(items)
    n_rounded = 0
    for row in targets:
        rounded = float(math.floor(row["gold"] + 0.5))  # halves up: 2.5 -> 3
        n_rounded += rounded != row["gold"]
        row["gold"] = rounded
    if validation is not None:
        validation = _people_means(validation)
    return targets, validation, {"truth": "the mean of people, rounded", "rounded": n_rounded}


def _people_means(items: Items) -> list[dict]:
    """Return the rows with the mean of people's scores in `gold`.

    Raises:
        CollectionError: every row that nobody scored.
    """
    rows = list(data.rows_of(items))
    means = ratings(row.get("human_scores") for row in rows).mean(axis=1)
    problems = []
    for index in means.index[means.isna()]:
        remedy = 'leave the row out, or train on truth="gold"'
        id = str(rows[index].get("id"))
        problems.append(Problem(index, id, "human_scores", "has no score", remedy))
    if problems:
        raise CollectionError.of_rows(problems, len(rows))
    return [{**row, "gold": mean} for row, mean in zip(rows, means, strict=True)]


def _invalid_rows(items: Items, examples: Examples) -> list[Problem]:
    """List the problems that `validate` finds.

    Of rows with their own prompt and target only problems with id and images count.

    Raises:
        CollectionError: an error of the whole collection, such as a missing column of images.
    """
    problems = []
    try:
        data.validate(items, needs=examples.template.needs, sees_images=examples.sees_images)
    except CollectionError as error:
        if not error.problems:  # an error of the whole collection
            raise
        for problem in error.problems:
            # Fields are columns such as "id", or an image of one, such as "images[0]".
            always_needed = problem.field.partition("[")[0] in ("id", "images")
            if always_needed or not has_own_texts(examples.rows[problem.index]):
                problems.append(problem)
    return problems


def check_balance(items: Items, *, allow: Collection[str] = ()) -> dict[str, float]:
    """Refuse a collection where length, or one frequent score, predicts the score.

    Args:
        items: rows with gold scores, or pairs with a preference.
        allow: "length", "scores" or both, to allow what they name.

    Returns:
        auc: the probability that the better of two responses is the longer one (0.5: length
            predicts nothing).
        ratio: the count of the most frequent score, or preference, divided by the rarest one's;
            infinite where all rows have the same one, NaN where none has one.

    Raises:
        CollectionError: a figure is beyond its limit and not allowed.
    """
    # Pairs are compared within themselves, as two items with gold 1 and 0.
    rows: Any = data.rows_of(items)
    column, measure = "gold", "auc"
    if "response_a" in rows.columns:
        column, measure = "preference", "within"
        rows = _sides(rows)
    auc = float(length_test(rows, n_resamples=0).at["words", measure])
    tally = pd.Series([row.get(column) for row in rows], dtype=object).value_counts().sort_index()
    ratio = math.inf  # of a single score
    if len(tally) != 1:  # NaN for an empty tally
        ratio = float(tally.max() / tally.min())
    if "length" not in allow and abs(auc - 0.5) > LENGTH_LIMIT:
        raise CollectionError(
            f"length: the better response is the longer one with probability {auc:.2f} (limit 0.5"
            f" +- {LENGTH_LIMIT}): match the lengths, see vjudge.metrics.length_test, or go on with"
            " allow=['length']"
        )
    if "scores" not in allow and ratio > SCORE_LIMIT:
        raise CollectionError(
            f"scores: the most frequent score is {ratio:.1f} times as frequent as the rarest"
            f" ({tally.to_dict()}; the limit is {SCORE_LIMIT:.0f}): draw as many of each, or go on"
            " with allow=['scores']"
        )
    return {"auc": auc, "ratio": ratio}


def _sides(pairs: Iterable[Row]) -> list[dict]:
    """Turn each pair into two items: the preferred response has gold 1, the other one 0.

    Ties and pairs without a preference are left out.
    """
    sides = []
    for row in pairs:
        if row.get("preference") in ("a", "b"):
            for side in "ab":
                gold = float(row["preference"] == side)
                sides.append({**row, "response": row[f"response_{side}"], "gold": gold})
    return sides


def check_leakage(train: Items, test: Items, *, allow: Collection[str] = ()) -> int:
    """Refuse training rows that share pixels or texts with test rows.

    Args:
        train, test: collections.
        allow: "leakage" to count such rows instead.

    Returns:
        How many training rows share an image, or instruction and response, with a test row.

    Raises:
        CollectionError: all such rows, unless they are allowed; rows with an image that cannot be
            opened.

    >>> import vjudge as vj
    >>> train = vj.load_collection("scenes", split="train", limit=5)
    >>> check_leakage(train, vj.load_collection("scenes", split="test", limit=5))
    0
    """
    owners: dict = {}  # content of a test row -> the row's id
    for id, contents in _contents_of(test):
        owners |= {content: id for _, content in contents}
    problems = []  # one per training row, for the first content that it shares
    for index, (id, contents) in enumerate(_contents_of(train)):
        for field, content in contents:
            if content in owners:
                overlap = f"is that of test row {owners[content]!r}"
                problems.append(Problem(index, id, field, overlap, "leave it out"))
                break
    if problems and "leakage" not in allow:
        overlap = f"{len(problems)} training rows share an image or texts with the test rows"
        raise CollectionError(f"{overlap} (allow=['leakage'] goes on):", problems)
    return len(problems)


def _contents_of(items: Items) -> list[tuple[str, list]]:
    """Return each row's id, and its contents as `_contents` yields them.

    Raises:
        CollectionError: every row with an image that cannot be opened.
    """
    pictures = Pictures()
    digests: dict[str, str] = {}  # key of an image's file -> digest of its pixels
    rows = []
    problems = []
    for index, row in enumerate(data.rows_of(items)):
        id = str(row["id"])
        try:
            rows.append((id, list(_contents(row, pictures, digests))))
        except ImageError as error:  # its message is "REASON; REMEDY"
            reason, _, remedy = str(error).rpartition("; ")
            problems.append(Problem(index, id, "images", reason, remedy))
    if problems:
        raise CollectionError.of_rows(problems, len(rows) + len(problems))
    return rows


def _contents(row: Mapping, pictures: Pictures, digests: dict[str, str]) -> Iterator[tuple]:
    """Yield (column, digest of the pixels) for each image of a row, then ("response", its texts).

    White space in texts is normalised. `digests` is filled, so that later rows of the same image
    need not decode it again.
    """
    for column, _, source in pictures_in(row):
        image = pictures(source)
        if image.key not in digests:
            digests[image.key] = pixel_digest(image.open())
        yield column, digests[image.key]
    names = ("response", "response_a", "response_b")
    answers = [row[name] for name in names if not is_missing(row.get(name))]
    if answers:
        texts = [" ".join(str(text).split()) for text in (row.get("instruction"), *answers)]
        yield "response", tuple(texts)
