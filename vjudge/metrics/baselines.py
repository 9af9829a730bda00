"""Judges to beat, which never look at the image: words shared with the reference answer, and length. Published results.

A judge of any worth must correlate better with people than these. METEOR is left out: its libraries need WordNet,
which is a download.

Chinese, Japanese, Thai and their like are written without spaces, so that "words" between spaces would be whole
sentences. Each text is cut as its script asks: see `SCRIPTS`.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from vjudge.data.summary import rouge_l as rouge_l_of
from vjudge.metrics._tables import listed, same_index
from vjudge.records import is_missing

Texts: TypeAlias = Sequence[str | None] | np.ndarray | pd.Series

BASELINES = ("rouge_l", "bleu", "chrf", "length")
UNITS = ("words", "characters", "tokens")
# Scripts without spaces between words, and sacrebleu's tokenizer for each. Japanese is known by its kana.
SCRIPTS = {
    "Japanese": (re.compile(r"[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f]"), "ja-mecab"),
    "Chinese": (re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"), "zh"),
    "Thai, Lao, Khmer or Burmese": (re.compile(r"[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff]"), "char"),
}
SPACED = "13a"
LEAST_SHARE = 0.2  # of a text's characters: a sign that is quoted in its own script makes no Chinese text


def script_of(text: str) -> str | None:
    """The script without spaces that a text is written in, None for all others."""
    characters = max(1, sum(not one.isspace() for one in text))
    shares = {name: len(pattern.findall(text)) / characters for name, (pattern, _) in SCRIPTS.items()}
    if sum(shares.values()) < LEAST_SHARE:
        return None
    return "Japanese" if shares["Japanese"] > LEAST_SHARE / 2 else max(shares, key=lambda name: shares[name])


def tokenizer_of(*texts: str) -> str:
    """The name of sacrebleu's tokenizer for the script of texts: "13a" where words stand between spaces.

    Japanese is cut by MeCab where it is installed (`pip install "sacrebleu[ja]"`), else into characters.

    >>> from vjudge.metrics.baselines import tokenizer_of
    >>> tokenizer_of("a cat"), tokenizer_of("一只猫")
    ('13a', 'zh')
    """
    script = script_of("".join(texts))
    name = SPACED if script is None else SCRIPTS[script][1]
    return "char" if name == "ja-mecab" and importlib.util.find_spec("MeCab") is None else name


def overlap_baselines(responses: Texts, references: Texts) -> pd.DataFrame:
    """Score responses by what they share with the reference answer, and by length: so many judges to beat.

    Args:
        responses, references: n texts each; None and NaN are missing. An empty response scores 0.

    Returns:
        n rows, columns
        - rouge_l: F1 of the longest common subsequence of words, in [0, 1], without stemming; words of any script, and
          the tokens of sacrebleu's tokenizer where a script has no spaces;
        - bleu: sentence BLEU in [0, 1], sacrebleu's over 100 (effective order, exponential smoothing), with sacrebleu's
          tokenizer for the script;
        - chrf: chrF2 in [0, 1], sacrebleu's over 100: F-score of character n-grams up to 6;
        - length: of the response, see `lengths`. A rank correlation with it says what length alone predicts, in
          whichever direction its sign points.
        NaN where a text is missing. `attrs` has method (by column), tokenizers (how many items each cut), unit (of
        length), missing_responses and missing_references.

    Raises:
        TypeError: a text is no string; every such position is named.
        ValueError: lengths or indexes differ.

    Source: Lin, ROUGE (2004), equal to the rouge-score package, whose own words are a-z and 0-9 alone; Papineni et al.,
    ACL 2002, Popović, WMT 2015, and Post, A Call for Clarity in Reporting BLEU Scores (2018), by sacrebleu.

    >>> from vjudge.metrics import overlap_baselines
    >>> overlap_baselines(["a cat sat on the mat", "一只猫在垫子上"], ["the cat sat on the mat", "猫在垫子上"]).round(2)
       rouge_l  bleu  chrf  length
    0     0.83  0.76  0.81    20.0
    1     0.83  0.61  0.87     7.0
    """
    same_index(responses=responses, references=references)
    candidates, targets = _texts(responses, name="responses"), _texts(references, name="references")
    if len(candidates) != len(targets):
        raise ValueError(f"there are {len(candidates)} responses and {len(targets)} references: one of each per item")
    rows, cuts, methods = [], Counter[str](), {"rouge_l": "ROUGE-L F1"}
    for candidate, target in zip(candidates, targets, strict=True):
        if candidate is None or target is None:
            rows.append([np.nan] * 3)
            continue
        name = tokenizer_of(candidate, target)
        cuts[name] += 1
        bleu, methods[f"bleu, {name}"] = _sacrebleu("BLEU", effective_order=True, tokenize=name)
        chrf, methods["chrf"] = _sacrebleu("CHRF")
        cut = _cutter(name) if name != SPACED else str
        rows.append([rouge_l_of(cut(target), cut(candidate)), bleu(candidate, target), chrf(candidate, target)])
    index = responses.index if isinstance(responses, pd.Series) else pd.RangeIndex(len(candidates))
    frame = pd.DataFrame(rows, index=index, columns=list(BASELINES[:3]), dtype=float)
    length = lengths(responses)
    frame["length"] = length.to_numpy()
    frame.attrs = {
        "method": {**methods, "length": length.attrs["unit"]},
        "tokenizers": dict(cuts),
        "unit": length.attrs["unit"],
        "missing_responses": sum(text is None for text in candidates),
        "missing_references": sum(text is None for text in targets),
    }
    return frame


def lengths(texts: Texts, *, unit: str | None = None, tokenizer: Any = None) -> pd.Series:
    """The length of each text, in words, characters or tokens.

    Args:
        texts: n texts; None and NaN are missing.
        unit: "words" (between spaces), "characters" (without spaces around the text) or "tokens" (of `tokenizer`).
            None chooses: tokens where there is a tokenizer; characters where any text is of a script without spaces,
            since one unit must serve all; else words.
        tokenizer: a function from a text to its tokens, or an object with `encode`, such as the judge's own.

    Returns:
        n counts as float, NaN where the text is missing; `attrs` has unit, reason (why this unit, in words), missing.

    Raises:
        TypeError: a text is no string; every such position is named.
        ValueError: the unit is not known, or tokens have no tokenizer.

    Source: Unicode's blocks for the scripts; spaces as the bounds of words as in AlpacaEval's and WildVision's lengths.

    >>> from vjudge.metrics import lengths
    >>> lengths(["a cat", None]).tolist(), lengths(["a cat", "一只猫"]).attrs["unit"]
    ([2.0, nan], 'characters')
    """
    cells = _texts(texts, name="texts")
    unspaced = sorted({script for text in cells if text and (script := script_of(text))})
    if unit is not None:
        reason = "as asked for"
    elif tokenizer is not None:
        unit, reason = "tokens", "of the tokenizer"
    elif unspaced:
        unit, reason = "characters", f"there are texts in {' and '.join(unspaced)}, which has no spaces between words"
    else:
        unit, reason = "words", "all texts have spaces between words"
    if unit not in UNITS:
        raise ValueError(f"unit={unit!r}: use one of {', '.join(UNITS)}")
    if unit == "tokens" and tokenizer is None:
        raise ValueError('unit "tokens" needs tokenizer=: a function, or an object with encode')
    encode = getattr(tokenizer, "encode", tokenizer)
    count: dict[str, Callable[[str], int]] = {
        "words": lambda text: len(text.split()),
        "characters": lambda text: len(text.strip()),
        "tokens": lambda text: len(encode(text)),
    }
    values = [np.nan if text is None else float(count[unit](text)) for text in cells]
    index = texts.index if isinstance(texts, pd.Series) else pd.RangeIndex(len(values))
    series = pd.Series(values, index=index, name="length", dtype=float)
    series.attrs = {"unit": unit, "reason": reason, "missing": int(series.isna().sum())}
    return series


def published(paper: str, *, table: str | None = None, statistic: str | None = None) -> pd.DataFrame:
    """Published results, one row a number, to show one's own beside them. None was measured here.

    Args:
        paper: "prometheus-vision" or "llava-critic".
        table: "instruction following" (correlation with GPT-4V's scores) or "human evaluators" of the first;
            "pointwise" or "pairwise" of the second; all when None.
        statistic: such as "pearson"; all when None.

    Returns:
        Columns paper, table, evaluator, benchmark, truth (what was correlated with), statistic, value, source.

    Raises:
        ValueError: nothing is stored under these names; the error lists what is.

    Source: each row names its paper and table.

    >>> from vjudge.metrics import published
    >>> published("llava-critic", table="pairwise", statistic="kendall").set_index("evaluator")["value"]["GPT-4o"]
    np.float64(0.819)
    """
    with resources.files("vjudge").joinpath("assets", "published.csv").open(encoding="utf-8") as file:
        rows = pd.read_csv(file)
    for column, name in {"paper": paper, "table": table, "statistic": statistic}.items():
        if name is not None:
            if name not in set(rows[column]):
                raise ValueError(f"{column} {name!r} is not stored; there is {sorted(set(rows[column]))}")
            rows = rows[rows[column] == name]
    return rows.reset_index(drop=True)


def _texts(values: Texts, *, name: str) -> list[str | None]:
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"{name} must be a sequence of texts, not {type(values).__name__}")
    cells: list[Any] = [None if is_missing(cell) else cell for cell in values]
    bad = [i for i, cell in enumerate(cells) if cell is not None and not isinstance(cell, str)]
    if bad:
        raise TypeError(f"{name} has values that are not texts: {listed(bad, cells)}; convert them or set them to None")
    return cells


@functools.cache
def _sacrebleu(metric: str, **options: Any) -> tuple[Callable[[str, str], float], str]:
    from sacrebleu import metrics  # only when it is needed

    scorer = getattr(metrics, metric)(**options)
    scorer.sentence_score("a", ["a"])  # a signature needs the number of references, known after the first text
    signature = f"sacrebleu {scorer.get_signature()}"
    return lambda candidate, target: scorer.sentence_score(candidate, [target]).score / 100, signature


@functools.cache
def _cutter(name: str) -> Callable[[str], str]:
    """A text with spaces between the tokens of one of sacrebleu's tokenizers."""
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize=name).tokenizer
