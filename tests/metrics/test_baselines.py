"""Judges to beat: hand-derived scores, the libraries' own, and what is refused."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

from vjudge.metrics import lengths, overlap_baselines, published

RESPONSES = ["a cat sat on the mat", "the cat is on the mat there", "no"]
REFERENCES = ["the cat sat on the mat", "a cat is on a mat", "yes"]


def test_by_hand_and_equal_to_the_libraries():
    table = overlap_baselines(RESPONSES, REFERENCES)
    # "cat sat on the mat" is common: precision 5/6, recall 5/6. "cat is on mat": 4/7 and 4/6.
    assert table["rouge_l"].tolist() == pytest.approx([5 / 6, 8 / 13, 0])
    scorer, pairs = RougeScorer(["rougeL"]), list(zip(RESPONSES, REFERENCES, strict=True))
    assert table["rouge_l"].tolist() == pytest.approx(
        [scorer.score(b, a)["rougeL"].fmeasure for a, b in pairs]
    )
    assert table["bleu"].tolist() == [sacrebleu.sentence_bleu(a, [b]).score / 100 for a, b in pairs]
    assert table["chrf"].tolist() == [sacrebleu.sentence_chrf(a, [b]).score / 100 for a, b in pairs]


def test_missing_texts_are_nan_and_empty_ones_are_zero():
    responses = pd.Series(["one two", "", None, "three"], index=list("abcd"))
    table = overlap_baselines(responses, pd.Series([None, "x", "y", np.nan], index=list("abcd")))
    assert table["rouge_l"].isna().tolist() == [True, False, True, True] and table.loc[
        "b"
    ].tolist() == [0, 0, 0, 0]


def test_scripts_without_spaces_are_cut_by_sacrebleus_own_tokenizers():
    """Between spaces these are one word each: ROUGE-L and BLEU were 0 and length 1, and any judge beat them."""
    pairs = [
        ("一只黑猫坐在红色的垫子上", "黑猫坐在垫子上睡觉"),
        ("黒い猫がマットの上に座っています", "猫がマットの上で寝ています"),
        ("แมวดำนั่งอยู่บนเสื่อ", "แมวนอนอยู่บนเสื่อ"),
        ("a cat on 北京 street", "a dog on 北京 street"),
    ]
    responses, references = zip(*pairs, strict=True)
    table = overlap_baselines(responses, references)
    tokenizers = [
        "zh",
        "char" if importlib.util.find_spec("MeCab") is None else "ja-mecab",
        "char",
        "13a",
    ]
    for row, tokenizer in enumerate(tokenizers):
        theirs = sacrebleu.metrics.BLEU(effective_order=True, tokenize=tokenizer)
        score = theirs.sentence_score(responses[row], [references[row]]).score / 100
        assert table.loc[row, "bleu"] == score > 0.1 and table.loc[row, "rouge_l"] > 0.4
    assert table.loc[0, "rouge_l"] == pytest.approx(
        2 * 7 / (12 + 9)
    )  # 黑猫坐在垫子上 of 12 and of 9
    assert {f"bleu, {name}" for name in tokenizers} < set(table.attrs["method"])
    assert table["length"].tolist()[0] == 12 and table.attrs["method"]["length"] == "words"


def test_the_unit_of_length_is_words_or_tokens_and_said():
    english = lengths(["one two three", "", None])
    assert english.tolist()[:2] == [3, 0] and english.attrs["unit"] == "words"
    mixed = lengths(pd.Series(["one two three", "一只黑猫"], index=["p", "q"]))
    assert mixed.to_dict() == {"p": 3, "q": 4} and mixed.attrs["unit"] == "words"
    judges = lengths(["foo boo"], tokenizer=SimpleNamespace(encode=lambda text: text.split("o")))
    assert judges.tolist() == [5] and judges.attrs["unit"] == "tokens"
    with pytest.raises(TypeError, match="texts .*position 0: 1, position 2: 2.5"):
        lengths([1, "a", 2.5])


def test_spot_checks_against_the_papers():
    table = published()
    assert table["source"].str.contains("arXiv").all() and len(table) == 184
    cells = table.set_index(["table", "evaluator", "benchmark", "statistic"])["value"]
    assert (
        cells["instruction following", "Prometheus-Vision 13B", "Perception-Bench", "pearson"]
        == 0.832
    )
