"""Judges to beat: hand-derived scores, the libraries' own, and what is refused."""

from __future__ import annotations

import importlib.util
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vjudge.metrics import correlate, lengths, overlap_baselines, published
from vjudge.metrics.baselines import BASELINES

RESPONSES = ["a cat sat on the mat", "the cat is on the mat there", "no"]
REFERENCES = ["the cat sat on the mat", "a cat is on a mat", "yes"]


def test_rouge_l_by_hand():
    # "cat sat on the mat" is common: precision 5/6, recall 5/6. "cat is on mat": 4/7 and 4/6.
    assert overlap_baselines(RESPONSES, REFERENCES)["rouge_l"].tolist() == pytest.approx([5 / 6, 8 / 13, 0])


def test_equal_to_the_libraries():
    import sacrebleu
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"])
    pairs = list(zip(RESPONSES, REFERENCES, strict=True))
    found = overlap_baselines(RESPONSES, REFERENCES)
    assert found["rouge_l"].tolist() == pytest.approx([scorer.score(b, a)["rougeL"].fmeasure for a, b in pairs])
    assert found["bleu"].tolist() == [sacrebleu.sentence_bleu(a, [b]).score / 100 for a, b in pairs]
    assert found["chrf"].tolist() == [sacrebleu.sentence_chrf(a, [b]).score / 100 for a, b in pairs]


def test_missing_texts_are_nan_and_counted_and_empty_ones_are_zero():
    responses = pd.Series(["one two", "", None, "three"], index=list("abcd"))
    found = overlap_baselines(responses, pd.Series([None, "x", "y", np.nan], index=list("abcd")))
    assert found.columns.tolist() == list(BASELINES) and found.index.tolist() == list("abcd")
    assert found["rouge_l"].isna().tolist() == [True, False, True, True]
    assert found.loc["b"].tolist() == [0, 0, 0, 0]
    assert found["length"].tolist()[:2] == [2, 0] and np.isnan(found["length"]["c"])
    assert found.attrs["missing_responses"] == 1 and found.attrs["missing_references"] == 2
    signature = found.attrs["method"]["bleu, 13a"]
    assert signature.startswith("sacrebleu") and "eff:yes" in signature and found.attrs["tokenizers"] == {"13a": 1}


def test_words_of_any_script_count():
    found = overlap_baselines(["кот сидит", "猫"], ["кот спит", "猫"])
    assert found["rouge_l"].tolist() == pytest.approx([0.5, 1])


def test_scripts_without_spaces_are_cut_by_sacrebleus_own_tokenizers():
    """Between spaces these are one word each: ROUGE-L and BLEU were 0 and length 1, and any judge beat them."""
    import sacrebleu

    pairs = [
        ("一只黑猫坐在红色的垫子上", "黑猫坐在垫子上睡觉"),
        ("黒い猫がマットの上に座っています", "猫がマットの上で寝ています"),
        ("แมวดำนั่งอยู่บนเสื่อ", "แมวนอนอยู่บนเสื่อ"),
        ("a cat on 北京 street", "a dog on 北京 street"),
    ]
    responses, references = zip(*pairs, strict=True)
    found = overlap_baselines(responses, references)
    japanese = "char" if importlib.util.find_spec("MeCab") is None else "ja-mecab"
    for row, tokenizer in enumerate(["zh", japanese, "char", "13a"]):
        theirs = sacrebleu.metrics.BLEU(effective_order=True, tokenize=tokenizer)
        score = theirs.sentence_score(responses[row], [references[row]]).score / 100
        assert found.loc[row, "bleu"] == score > 0.1 and found.loc[row, "rouge_l"] > 0.4
    assert found.loc[0, "rouge_l"] == pytest.approx(2 * 7 / (12 + 9))  # 黑猫坐在垫子上 of 12 and of 9
    assert found.attrs["tokenizers"] == dict(Counter(["zh", japanese, "char", "13a"]))
    assert found["length"].tolist()[0] == 12 and found.attrs["unit"] == "characters"


def test_the_unit_of_length_is_chosen_by_script_and_said():
    english = lengths(["one two three", "", None])
    assert english.tolist()[:2] == [3, 0] and english.attrs["unit"] == "words" and english.attrs["missing"] == 1
    mixed = lengths(pd.Series(["one two three", "一只黑猫"], index=["p", "q"]))
    assert mixed.to_dict() == {"p": 13, "q": 4} and mixed.attrs["unit"] == "characters"
    assert "Chinese" in mixed.attrs["reason"]
    assert lengths(["one two"], unit="characters").tolist() == [7]
    assert lengths(["one two"], tokenizer=lambda text: list(text)).attrs["unit"] == "tokens"

    class Tokenizer:
        def encode(self, text):
            return text.split("o")

    assert lengths(["foo boo"], unit="tokens", tokenizer=Tokenizer()).tolist() == [5]
    with pytest.raises(ValueError, match="needs tokenizer="):
        lengths(["a"], unit="tokens")
    with pytest.raises(ValueError, match="use one of words, characters, tokens"):
        lengths(["a"], unit="lines")


def test_a_baseline_is_a_judge_like_any_other():
    found = overlap_baselines(RESPONSES, REFERENCES)
    assert correlate(found["rouge_l"], [5, 4, 1], n_resamples=0)["estimate"]["spearman"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("responses", "references", "error", "message"),
    [
        ([1, "a", 2.5], ["a"] * 3, TypeError, "responses .*position 0: 1, position 2: 2.5"),
        (["a"], [["b"]], TypeError, "references .*position 0"),
        (["a"], ["b", "c"], ValueError, "1 responses and 2"),
        ("a", ["b"], TypeError, "not str"),
        (pd.Series(["a"]), pd.Series(["b"], index=[3]), ValueError, "different indexes"),
    ],
)
def test_bad_input_is_named(responses, references, error, message):
    with pytest.raises(error, match=message):
        overlap_baselines(responses, references)


def test_length_refuses_what_is_no_text():
    with pytest.raises(TypeError, match="position 1"):
        lengths(["a", 2])


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=40)), st.one_of(st.none(), st.text(max_size=40)))))
def test_any_text_has_a_score_between_0_and_1(rows):
    found = overlap_baselines([row[0] for row in rows], [row[1] for row in rows])[["rouge_l", "bleu", "chrf"]]
    scored = np.array([None not in row for row in rows], dtype=bool)
    assert found[~scored].isna().all(axis=None)
    assert ((found[scored] >= 0) & (found[scored] <= 1 + 1e-9)).all(axis=None)


def test_spot_checks_against_the_papers():
    table = published("prometheus-vision", table="instruction following")
    cells = table.set_index(["evaluator", "benchmark", "statistic"])["value"]
    assert len(cells) == 13 * 3 * 3
    assert cells["Prometheus-Vision 13B", "Perception-Bench", "pearson"] == 0.832
    assert cells["Fuyu 8B", "Perception-Bench", "spearman"] == 4.29e-06
    assert cells["LLaVA-1.5 13B", "LLaVA-Bench", "pearson"] == -0.005
    humans = published("prometheus-vision", table="human evaluators").set_index(["evaluator", "benchmark"])["value"]
    assert humans["Prometheus-Vision 13B", "total"] == 0.674
    critics = published("llava-critic", table="pointwise").set_index(["evaluator", "benchmark"])["value"]
    assert critics["LLaVA-Critic 72B", "average"] == 0.754
    assert (
        published("llava-critic", table="pairwise", statistic="kendall").set_index("evaluator")["value"]["GPT-4o"]
        == 0.819
    )


def test_every_number_names_its_source_and_stands_once():
    for paper in ("prometheus-vision", "llava-critic"):
        table = published(paper)
        assert table["source"].str.contains("arXiv").all()
        assert not table.duplicated(["table", "evaluator", "benchmark", "statistic"]).any()
        assert table["value"].between(-1, 1).all()


def test_an_unknown_paper_lists_what_is_stored():
    with pytest.raises(ValueError, match="'prometheus'.*llava-critic.*prometheus-vision"):
        published("prometheus")
