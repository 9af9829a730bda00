"""Judges to beat, which never look at the image: overlap with the reference answer, and length.

Each text is cut as its script asks: "words" between spaces would be whole sentences in Chinese,
Japanese or Thai. METEOR is left out: its libraries need WordNet, which is a download. And the
results that papers print.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from rapidfuzz.distance import LCSseq

from vjudge.data import summary
from vjudge.metrics.tables import check_columns, listed
from vjudge.records import is_missing

Texts: TypeAlias = Sequence[str | None] | np.ndarray | pd.Series

# sacrebleu's, by the signs of a script
TOKENIZERS = dict(zip(("ja-mecab", "zh", "char"), summary.UNSPACED.values(), strict=True))
LEAST_SHARE = 0.2  # of a text's characters: a quoted sign of its own script makes no Chinese text


def tokenizer_of(text: str) -> str:
    """sacrebleu's tokenizer for a text's script: "13a" where there are spaces.

    MeCab is taken only where it is installed.
    """
    characters = max(1, len("".join(text.split())))
    shares = {}
    for name, signs in TOKENIZERS.items():
        shares[name] = len(re.findall(f"[{signs}]", text)) / characters
    if sum(shares.values()) < LEAST_SHARE:
        return "13a"
    if shares["ja-mecab"] > LEAST_SHARE / 2:
        has_mecab = importlib.util.find_spec("MeCab") is not None
        return "ja-mecab" if has_mecab else "char"
    return max(shares, key=lambda name: shares[name])


def overlap_baselines(responses: Texts, references: Texts) -> pd.DataFrame:
    """Score responses by what they share with the reference answer, and by length.

    Args:
        responses, references: n texts each; None and NaN are missing. An empty response scores 0.

    Returns:
        n rows, NaN where a text is missing: rouge_l (F1 of words, or of sacrebleu's tokens where a
        script has no spaces), bleu, chrf (sacrebleu's sentence BLEU and chrF2 over 100, with its
        tokenizer for the script), all in [0, 1]; length, see `lengths`. `attrs["method"]` says how
        each was computed.

    Source: Lin, ROUGE (2004), equal to the rouge-score package; Papineni et al., ACL 2002, Popović,
    WMT 2015, and Post, A Call for Clarity in Reporting BLEU Scores (2018), by sacrebleu.

    >>> responses = ["a cat sat on the mat", "一只猫在垫子上"]
    >>> references = ["the cat sat on the mat", "猫在垫子上"]
    >>> overlap_baselines(responses, references).round(2)
       rouge_l  bleu  chrf  length
    0     0.83  0.76  0.81     6.0
    1     0.83  0.61  0.87     7.0
    """
    check_columns(responses=responses, references=references)
    candidates = _texts(responses, name="responses")
    targets = _texts(references, name="references")
    length = lengths(responses)
    rows = []
    methods = {"rouge_l": "ROUGE-L F1", "length": length.attrs["unit"]}
    for candidate, target in zip(candidates, targets, strict=True):
        if candidate is None or target is None:
            rows.append([np.nan] * 3)
            continue
        name = tokenizer_of(candidate + target)
        bleu = _scorer("BLEU", effective_order=True, tokenize=name)
        chrf = _scorer("CHRF")
        methods[f"bleu, {name}"] = f"sacrebleu {bleu.get_signature()}"
        methods["chrf"] = f"sacrebleu {chrf.get_signature()}"
        cut = str if name == "13a" else bleu.tokenizer
        words, own = (re.findall(r"[^\W_]+", cut(text).lower()) for text in (target, candidate))
        rouge_l = 2 * LCSseq.similarity(words, own) / max(1, len(words) + len(own))
        scores = [scorer.sentence_score(candidate, [target]).score for scorer in (bleu, chrf)]
        rows.append([rouge_l, scores[0] / 100, scores[1] / 100])
    frame = pd.DataFrame(rows, length.index, ["rouge_l", "bleu", "chrf"], dtype=float)
    frame["length"] = length
    frame.attrs = {"method": methods}
    return frame


@functools.cache
def _scorer(metric: str, **options: Any) -> Any:
    """One of sacrebleu's metrics."""
    from sacrebleu import metrics  # only when it is needed

    scorer = getattr(metrics, metric)(**options)
    scorer.sentence_score("a", ["a"])  # a signature needs the number of references
    return scorer


def _texts(values: Texts, *, name: str) -> list[str | None]:
    check_columns(**{name: values})
    cells: list[Any] = [None if is_missing(cell) else cell for cell in values]
    bad = [place for place, cell in enumerate(cells) if not isinstance(cell, str | None)]
    if bad:
        where = listed(bad, cells)
        raise TypeError(f"{name} has values that are not texts: {where}; convert them or set None")
    return cells


def lengths(texts: Texts, *, tokenizer: Any = None) -> pd.Series:
    """Measure each text in words, or in tokens; NaN where it is missing.

    Args:
        texts: n texts; None and NaN are missing.
        tokenizer: a function from a text to its tokens, or an object with `encode`, such as the
            judge's own. None counts words (`vjudge.data.n_words`: a character of a script without
            spaces is a word).

    Returns:
        One length a text, with the index of a Series; `attrs["unit"]` is "words" or "tokens".

    Source: Unicode's blocks for the scripts; spaces as the bounds of words as in AlpacaEval's
    lengths.

    >>> lengths(["a cat", None, "一只猫"]).tolist()
    [2.0, nan, 3.0]
    """
    count = summary.n_words
    if tokenizer is not None:
        encode = getattr(tokenizer, "encode", tokenizer)
        count = lambda text: len(encode(text))  # noqa: E731
    cells = _texts(texts, name="texts")
    counts = [np.nan if text is None else count(text) for text in cells]
    index = texts.index if isinstance(texts, pd.Series) else None
    series = pd.Series(counts, index=index, name="length", dtype=float)
    series.attrs = {"unit": "words" if tokenizer is None else "tokens"}
    return series


def published() -> pd.DataFrame:
    """List the results that papers print, a number a row. None was measured here.

    Columns paper, table, evaluator, benchmark, truth (what was correlated with), statistic, value,
    source.

    Source: each row names its paper and table.

    >>> rows = published().query("table == 'pairwise' and statistic == 'kendall'")
    >>> float(rows.set_index("evaluator")["value"]["GPT-4o"])
    0.819
    """
    path = resources.files("vjudge").joinpath("assets", "published.csv")
    with path.open(encoding="utf-8") as file:
        return pd.read_csv(file)
