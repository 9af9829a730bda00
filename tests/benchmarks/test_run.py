"""A benchmark runs as it was published, on its genuine rows, through a server on loopback."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import pytest
from PIL import Image

import vjudge as vj
from samples import ROWS, judge_of
from servers import ChatServer, Reply, Request, completion
from vjudge.benchmarks import PROTOCOLS, audit, protocols
from vjudge.prompts import TEMPLATES

needs_rows = pytest.mark.skipif(not ROWS.is_dir(), reason="the published rows are not at hand")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.* rows have no interval"),
    pytest.mark.filterwarnings("ignore:.*has no row of"),
]


def genuine(limit: int = 35) -> list[dict[str, Any]]:
    """VL-RewardBench's rows with a picture of ours, since theirs are not at hand."""
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), "teal").save(buffer, "PNG")
    rows = vj.data.rows_of(vj.load_collection(ROWS / "vl_rewardbench.jsonl"))
    return [{**row, "images": [buffer.getvalue()]} for row in list(rows)[:limit]]


@needs_rows
def test_vl_rewardbench_as_published() -> None:
    """Ten draws an item in random order, its prompt to the letter, its reader, its decoding."""
    rows = genuine()
    shown = {}  # the text of a pair in one order -> whether the preferred response stands first
    for row in rows:
        texts = [row["response_a"], row["response_b"]]
        for order in (texts, texts[::-1]):
            pair = (row["instruction"], *order)
            shown[pair] = (order == texts) == (row["preference"] == "a")
    orders: Counter[bool] = Counter()

    def answer(request: Request) -> Reply:
        if request.is_test:
            return Reply(completion("yes"))
        _, _, rest = request.text.partition("\n\nQuestion: ")
        question, _, rest = rest.partition("\n\nAnswer 1: ")
        one, _, rest = rest.partition("\n\nAnswer 2: ")
        first = shown[question, one, rest.partition("\n\nPlease evaluate")[0]]
        orders[first] += 1
        return Reply(completion(f"**Overall Judgment:** Answer {1 if first else 2} is\nbetter."))

    with ChatServer(answer) as server:
        judge = vj.load_judge("openai:any", base_url=server.url, key_variable=None)
        table = vj.run_benchmark(judge, "vl-rewardbench", data=rows, progress=False)
        short = vj.run_benchmark(judge, "vl-rewardbench", data=rows[:5], samples=1, progress=False)
    asked = [request for request in server.asked if "Overall Judgment" in request.text][:350]
    bodies = [request.body for request in asked]
    assert {(body["temperature"], body["top_p"], body["max_tokens"]) for body in bodies} == {
        (0.2, 0.2, 2048)
    }
    assert abs(orders[True] - orders[False]) < 60  # of 350 + 5, each order by chance
    text = TEMPLATES["vl-rewardbench"].body.format(
        instruction=rows[0]["instruction"],
        response_a=rows[0]["response_a"],
        response_b=rows[0]["response_b"],
    )
    assert text in {request.text for request in asked}
    assert table.attrs["official"] and table.attrs["deviations"] == []
    assert table["official"].any() and table.attrs["items"] == "35 of 1250"
    assert table.loc[("overall", "accuracy", "left out"), "estimate"] == 1
    assert not short.attrs["official"] and not short["official"].any()
    assert short.attrs["deviations"] == ["samples is 1, published is 10"]


@needs_rows
def test_a_judges_own_protocol_is_no_deviation() -> None:
    judge = judge_of("Answer 1 is better.", pairs="unified-reward-answers")
    judge.family = vj.prompts.families.FAMILIES["unified-reward"]
    table = vj.run_benchmark(judge, "vl-rewardbench", data=genuine(6), progress=False)
    assert table.attrs["protocol"] == "vl-rewardbench by unified-reward" and table.attrs["official"]
    other = vj.run_benchmark(
        judge, "vl-rewardbench", data=genuine(6), template="llava-critic-pair", progress=False
    )
    assert other.attrs["deviations"] == [
        "the wording is 'llava-critic-pair', published is 'unified-reward-answers'"
    ]
    open_wording = vj.run_benchmark(
        judge, "multimodal-rewardbench", data=genuine(6), progress=False
    )
    assert "the judge's wording 'unified-reward-answers'" in open_wording.attrs["deviations"][0]
    with pytest.raises(ValueError, match="no protocol for 'vl-reward'.*vl-rewardbench"):
        vj.run_benchmark(judge, "vl-reward", data=[])
    with pytest.raises(ValueError, match="give its rows as data="):
        vj.run_benchmark(judge, "mllm-judge-pair")


@pytest.mark.parametrize(
    "text, preferred, verdict",
    [
        ("**Overall Judgment:**\nAnswer 2 is better.", "a", "b"),
        ("Therefore, I think - Answer 1 is the slightly better one", "a", "a"),
        ("overall judgment answer 2 is slightly better", "b", "b"),
        ("Answer 2 is better.", "b", None),  # without its words
        ("Overall Judgment: Answer 7 is better.", "b", "b"),  # upstream: not the rejected one
        ("", "a", None),
    ],
)
def test_vl_rewardbenchs_reader_to_the_letter(text: str, preferred: str, verdict: Any) -> None:
    assert protocols.read_overall_judgment(text, preferred) == verdict


def test_half_of_the_draws_are_no_majority() -> None:
    draws = [{"order": "ab", "raw": f"Overall Judgment: Answer {n} is better."} for n in (1, 1)]
    draws += [{"order": "ba", "raw": f"Overall Judgment: Answer {n} is better."} for n in (1, 1)]
    run = vj.benchmarks.run.pd.DataFrame({"preference": ["a", "a"], "draws": [draws, draws[:3]]})
    found = vj.benchmarks.reread(run, protocols.read_overall_judgment)
    assert found["verdict"].tolist() == [None, "a"]


def test_every_protocol_names_a_wording_and_a_benchmark_that_there_are() -> None:
    for rule in PROTOCOLS.values():
        assert rule.template is None or rule.template in TEMPLATES
        assert rule.benchmark in vj.metrics.official.BENCHMARKS and rule.source


def test_a_published_number_is_audited_from_its_parts() -> None:
    parts = {"general": (0.781, 183), "hallucination": (0.727, 749), "reasoning": (0.660, 318)}
    table = audit(parts, reported=0.7179)
    assert table["estimate"].round(4).tolist() == [0.7179, 0.7227]
    assert table.attrs["nearest"] == "over items"
    with pytest.raises(ValueError, match="shares, not per cent"):
        audit({"all": (78.1, 183)})
