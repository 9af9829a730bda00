"""Judges to beat: scores that never look at the image, from words shared with the reference answer or from length.

A judge of any worth must correlate better with people than these. METEOR is left out: its libraries need WordNet,
which is a download.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from vjudge.data.summary import rouge_l as _rouge_l
from vjudge.metrics._tables import listed, same_index

Texts: TypeAlias = Sequence[str | None] | np.ndarray | pd.Series

BASELINES = ("rouge_l", "bleu", "chrf", "length")
_WORD = re.compile(r"\S+")


def rouge_l(responses: Texts, references: Texts) -> pd.Series:
    """Score responses by ROUGE-L: F1 of the longest common subsequence of words, in [0, 1].

    Args:
        responses, references: n texts each; None and NaN are missing. An empty response scores 0.

    Returns:
        n scores, NaN where a text is missing; `attrs` has missing_responses and missing_references, and method.

    Raises:
        TypeError: a text is no string; every such position is named.
        ValueError: lengths or indexes differ.

    Source: Lin, ROUGE (2004), as in the rouge-score package without stemming. Words of any script count; the package's
    own tokenizer knows a-z and 0-9 only and would give 0 to all others.
    """
    return _score(responses, references, lambda a, b: _rouge_l(b, a), name="rouge_l", method="ROUGE-L F1, rouge-score")


def bleu(responses: Texts, references: Texts) -> pd.Series:
    """Score responses by sentence BLEU in [0, 1] (sacrebleu's, divided by 100; effective order, exponential smoothing).

    Args, returns, raises: as `rouge_l`.

    Source: Papineni et al., ACL 2002; Post, A Call for Clarity in Reporting BLEU Scores (2018), for sacrebleu.
    """
    scorer, signature = _sacrebleu("BLEU", effective_order=True)
    return _score(responses, references, scorer, name="bleu", method=signature)


def chrf(responses: Texts, references: Texts) -> pd.Series:
    """Score responses by chrF in [0, 1] (sacrebleu's chrF2, divided by 100): F-score of character n-grams up to 6.

    Args, returns, raises: as `rouge_l`.

    Source: Popović, WMT 2015.
    """
    scorer, signature = _sacrebleu("CHRF")
    return _score(responses, references, scorer, name="chrf", method=signature)


def length(responses: Texts) -> pd.Series:
    """Score responses by their number of words alone, whitespace apart.

    Args:
        responses: n texts; None and NaN are missing.

    Returns:
        n counts as float, NaN where the response is missing; `attrs` as `rouge_l`. A rank correlation with it says what
        length alone predicts, in whichever direction its sign points.

    Raises:
        TypeError: a response is no string; every such position is named.
    """
    texts = _texts(responses, name="responses")
    counts = [np.nan if text is None else float(len(_WORD.findall(text))) for text in texts]
    series = pd.Series(counts, index=_index(responses), name="length", dtype=float)
    series.attrs = {"method": "words", "missing_responses": int(series.isna().sum()), "missing_references": 0}
    return series


def overlap_baselines(responses: Texts, references: Texts) -> pd.DataFrame:
    """Score responses by all of `BASELINES`, a column each, as so many judges.

    Args, raises: as `rouge_l`.

    Returns:
        n rows, columns rouge_l, bleu, chrf (NaN without a reference answer) and length. `attrs` has methods by column
        and missing_responses and missing_references.
    """
    columns = [rouge_l(responses, references), bleu(responses, references), chrf(responses, references)]
    columns.append(length(responses))
    frame = pd.concat(columns, axis=1)
    frame.attrs = {**columns[0].attrs, "method": {str(column.name): column.attrs["method"] for column in columns}}
    return frame


def _score(
    responses: Texts, references: Texts, scorer: Callable[[str, str], float], *, name: str, method: str
) -> pd.Series:
    same_index(responses=responses, references=references)
    candidates, targets = _texts(responses, name="responses"), _texts(references, name="references")
    if len(candidates) != len(targets):
        raise ValueError(f"there are {len(candidates)} responses and {len(targets)} references: one of each per item")
    values = [
        np.nan if candidate is None or target is None else float(scorer(candidate, target))
        for candidate, target in zip(candidates, targets, strict=True)
    ]
    series = pd.Series(values, index=_index(responses), name=name, dtype=float)
    series.attrs = {
        "method": method,
        "missing_responses": sum(text is None for text in candidates),
        "missing_references": sum(text is None for text in targets),
    }
    return series


def _texts(values: Texts, *, name: str) -> list[str | None]:
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"{name} must be a sequence of texts, not {type(values).__name__}")
    cells: list[Any] = list(values)
    found = [
        None if cell is None or cell is pd.NA or (isinstance(cell, float) and np.isnan(cell)) else cell
        for cell in cells
    ]
    bad = [i for i, cell in enumerate(found) if cell is not None and not isinstance(cell, str)]
    if bad:
        raise TypeError(f"{name} has values that are not texts: {listed(bad, cells)}; convert them or set them to None")
    return found


def _index(values: Texts) -> pd.Index:
    return values.index if isinstance(values, pd.Series) else pd.RangeIndex(len(values))


@functools.cache
def _sacrebleu(metric: str, **options: Any) -> tuple[Callable[[str, str], float], str]:
    from sacrebleu import metrics  # only when it is needed

    scorer = getattr(metrics, metric)(**options)
    scorer.sentence_score("a", ["a"])  # a signature needs the number of references, known after the first text
    signature = f"sacrebleu {scorer.get_signature()}"
    return lambda candidate, target: scorer.sentence_score(candidate, [target]).score / 100, signature
