"""Criteria that are asked apart, each by a question of its own; their scores become one row.

Criteria that are asked together share one answer, which `vjudge.prompts.parse` reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from vjudge.judging.counts import work_of
from vjudge.judging.record import Record, Records, json_value
from vjudge.records import NAN, Rubric, is_missing, mean_on_scale

TEXTS = ("failure", "feedback", "raw", "reasoning", "unclosed")  # joined, one criterion per line
Bounds = tuple[float, float]  # lowest and highest score of a scale


def rubrics_of(rubric: Rubric | None, asked: str) -> Iterator[tuple[Record | None, Rubric | None]]:
    """Split a rubric of several named criteria into one rubric per criterion, if asked apart.

    Args:
        rubric: of a row.
        asked: "together" or "apart".

    Yields:
        A criterion and its rubric. The criterion is a dict of name, weight and bounds (of its
        scale), which its record keeps so that the scores can be combined. A rubric that is not
        split is yielded alone, with None for the criterion.
    """
    if asked == "together" or rubric is None or not rubric.named:
        yield None, rubric
        return
    for criterion in rubric.named:
        alone = rubric.by_name[criterion.name]
        cells = {"name": criterion.name, "weight": criterion.weight, "bounds": alone.bounds}
        yield json_value(cells), alone


def join_criteria(records: Records, bounds: Bounds) -> list[Record]:
    """Merge the records of a row's criteria into one record per sample.

    Args:
        records: all records of one row.
        bounds: the scale of the row, on which the weighted mean of the scores becomes the score.

    Returns:
        One record per sample; the same records where the row's criteria were not asked apart.
    """
    if "criterion" not in records[0]:
        return list(records)
    # records of two criteria and two samples: a0 a1 b0 b1 -> {0: [a0, b0], 1: [a1, b1]}
    samples: dict[int, list[Record]] = {}
    for record in records:
        samples.setdefault(record["sample"], []).append(record)
    return [_as_one(sample, bounds) for sample in samples.values()]


def _as_one(records: Records, bounds: Bounds) -> Record:
    """Merge the records of one sample, one per criterion.

    A text holds one line per criterion, `scores` the score of each criterion by its name, and
    `score` their weighted mean.
    """
    row: Record = {name: records[0][name] for name in ("id", "sample", "order")}
    for name in ("score", "expected_score"):
        row[name] = _weighted_mean(records, name, bounds)
    by_name = {record["criterion"]["name"]: record for record in records}
    for name in TEXTS:
        texts = [f"{criterion}: {each[name]}" for criterion, each in by_name.items() if each[name]]
        row[name] = "\n".join(texts) or records[0][name]  # None or "" where no criterion has one
    abstained = any(record["choice"] == "abstain" for record in records)
    return row | {
        "choice": "abstain" if abstained else None,
        "scores": {criterion: record["score"] for criterion, record in by_name.items()},
        "probabilities": None,
        "probability_mass": NAN,
        "closed": any(record["closed"] for record in records),
        # None unless `work_of` has them
        "served_model": None,
        "remarks": None,
        **work_of(records),
    }


def _weighted_mean(records: Records, name: str, bounds: Bounds) -> float:
    """Average an entry of the records over the criteria; NaN where a criterion lacks it.

    Args:
        records: one per criterion.
        name: "score" or "expected_score".
        bounds: the scale of the mean.
    """
    terms = []  # (score, weight, bounds of its scale) of each criterion
    for record in records:
        criterion = record["criterion"]
        if is_missing(record[name]):
            return NAN
        terms.append((record[name], criterion["weight"], criterion["bounds"]))
    return mean_on_scale(terms, bounds)
