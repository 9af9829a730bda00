"""A benchmark runs as it was published, on rows of its layout, through a server on loopback."""

from collections import Counter
from dataclasses import replace

import pandas as pd
import pytest

import vjudge as vj
from samples import ROWS, judge_of, pair, png
from servers import ChatServer, Reply, completion
from vjudge.benchmarks import BENCHMARKS, PROTOCOLS, audit, protocols, reread
from vjudge.benchmarks.rows import published_rows
from vjudge.data import CollectionError, rows_of
from vjudge.prompts import TEMPLATES, VICUNA_V1, families

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* rows have no interval"),
    pytest.mark.filterwarnings("ignore:.*has no row of"),
]


def rows_with_picture(file, limit=35, **more):
    """Rows of a published layout with a picture of ours."""
    rows = rows_of(vj.load_collection(ROWS / file))
    return [{**row, "images": [png()], **more} for row in list(rows)[:limit]]


def test_vl_rewardbench_as_published():
    """Ten draws an item in random order, its prompt to the letter, its reader, its decoding."""
    rows = rows_with_picture("vl_rewardbench.jsonl")
    body = TEMPLATES["vl-rewardbench"].body
    shown = {}  # the text of a pair in one order -> whether the preferred response stands first
    for row in rows:
        for a, b in ("ab", "ba"):
            texts = {"response_a": row[f"response_{a}"], "response_b": row[f"response_{b}"]}
            text = body.format(instruction=row["instruction"], **texts)
            shown[text] = a == row["preference"]
    orders = Counter()

    def answer(request):
        if request.is_test:
            return Reply(completion("yes"))
        first = shown[request.text]  # to the letter
        orders[first] += 1
        return Reply(completion(f"**Overall Judgment:** Answer {1 if first else 2} is\nbetter."))

    with ChatServer(answer) as server:
        judge = vj.load_judge("openai:any", base_url=server.url, key_variable=None)
        result = vj.run_benchmark(judge, "vl-rewardbench", data=rows, progress=False)
        bodies = [request.body for request in server.asked]
        short = vj.run_benchmark(judge, "vl-rewardbench", data=rows[:5], samples=1, progress=False)
    decoding = {(body["temperature"], body["top_p"], body["max_tokens"]) for body in bodies}
    assert len(bodies) == 350 and decoding == {(0.2, 0.2, 2048)}
    assert abs(orders[True] - orders[False]) < 60  # each order by chance
    assert result.deviations == [("subset", "35 of the benchmark's 1,250 rows")]  # and no other
    assert not result.official and not result.table["official"].any()
    assert result.facts["items"] == 35 and "35 of the benchmark's" in result.reading
    assert result.table.loc[("overall", "accuracy", "left out"), "estimate"] == 1
    assert ("option", "samples is 1, published is 10") in short.deviations


VL = "vl_rewardbench.jsonl"
POLICIES = {"policy_a": "x", "policy_b": "y"}
RESPONSE = {"response": "A shore."}
MT = {
    "question_id": 81,
    "model_a": "x",
    "model_b": "y",
    "judge": "expert_0",
    "turn": 2,
    "winner": "model_b",
}
TURNS = [{"content": text} for text in ("Q1", "A1", "Q2", "A2")]
MT |= {"conversation_a": TURNS, "conversation_b": TURNS}
GENAI = {"prompt": "A cat.", "left_image": png(), "right_image": png(), "vote_type": "rightvote"}


OWN = "asked in the judge's wording 'prometheus-2-relative': the bench"
VISION = ["asked in the judge's", "each response is graded by itself", "5 of 5 rows have no"]
CASES = [  # benchmark, its rows, the judge's wordings, its answer, the start of each deviation
    # the published judges of a benchmark by their own protocols
    ("vl-rewardbench", VL, "unified-reward", "Answer 1 is better.", []),
    ("vl-rewardbench", VL, "unified-reward-think-qwen3vl", "Answer 1 is better.", []),
    ("vl-rewardbench", VL, "r1-reward", "<answer>1</answer>", ["the order is drawn"]),
    ("vl-rewardbench", VL, "skywork-vl-reward", "", ["a value head is asked"]),
    # a judge whose wording shows criteria, on rows that have none; one that compares nothing
    ("multimodal-rewardbench", VL, "prometheus-2", "[RESULT] A", [OWN, "5 of 5 rows have"]),
    ("mllm-judge-pair", "mllm_judge_pair.jsonl", "prometheus-vision", "[RESULT] 3", VISION),
    ("mllm-judge-score", "mllm_judge_score.jsonl", "chat", "4", ["asked", "5 of 5"]),
    ("mllm-judge-batch", "mllm_judge_batch.jsonl", "llava-critic", "", ["asked"]),
    ("visit-bench", VL, "llava-critic", "", ["asked"]),
    ("mt-bench", [MT], "mt", "The better response: [2].", ["asked"]),
    ("feedback-bench", "feedback_collection.jsonl", "prometheus", "[RESULT] 3", []),
    ("feedback-bench", "feedback_collection.jsonl", "chat", "3", ["asked"]),
    ("preference-bench", "preference_collection.jsonl", "prometheus-2", "[RESULT] A", []),
    # with the number
    ("llava-bench-wild", "llava_bench_wild", "chat", "8 4\nFine.", [], 50),
    ("llava-bench-coco", "llava_bench_coco", "chat", "8 4\nFine.", [], 50),
    ("wildvision", VL, "chat", "My final verdict is: [[B>>A]]", [], 1),
    ("wildvision", VL, "chat", "I can't say.", [], 0),  # a tie
    ("genai-bench", [GENAI], "llava-critic", "Model B is better: [[B>A]]", [], 1),
]
WORDED = "the wording is 'llava-critic-pair', published is 'unified-reward-answers'"
OTHER = replace(
    families.wording("vl-rewardbench"), body="Which is better? {response_a} {response_b}"
)
OPTIONS = [  # that are published, that no protocol decides, and that differ
    ("chat", {"batch_size": 4, "seed": 7, "temperature": 0.2}, []),
    ("chat", {"orders": "both"}, ["orders is 'both', published is 'random'"]),
    ("unified-reward", {"template": "llava-critic-pair"}, [WORDED]),
    ("unified-reward", {"unread": "missing"}, []),
    ("chat", {"protocol": "wildvision"}, ["the protocol is that of 'wildvision'"]),
    (
        "chat",
        {"protocol": "vl-rewardbench by r1-reward"},
        ["the order", "the protocol is that of the"],
    ),
    ("chat", {"template": OTHER}, ["the wording is another than the published 'vl-rewardbench'"]),
]


def numbers(name, rows, judge, answer, deviations, **options):
    """The table of a benchmark, whose deviations are checked."""
    if isinstance(rows, str):
        rows = rows_with_picture(rows, 5, **(RESPONSE if "llava-bench" in name else POLICIES))
    family = families.FAMILIES["llava-critic" if judge == "mt" else judge]
    judge = judge_of(answer, family.template.name)
    if judge.gives_values:  # in a checkpoint's own words
        judge.template = replace(judge.template, conversation=VICUNA_V1)
    judge.pairs = family.pairs
    judge.family = family
    result = vj.run_benchmark(judge, name, data=rows, progress=False, **options)
    assert result.official == (not result.deviations) and result.reading
    found = [text for kind, text in result.deviations if kind != "subset"]
    assert len(found) == len(deviations), found
    for text, expected in zip(found, deviations, strict=True):
        assert text.startswith(expected)
    return result


@pytest.mark.parametrize("case", CASES, ids=str)
def test_protocols_on_rows_of_their_layout(case):
    table = numbers(*case[:5]).table
    assert table["estimate"].iloc[0] in case[5:] or not case[5:]


def test_a_vote_is_one_of_the_four_that_were_published():
    votes = {"leftvote": "a", "rightvote": "b", "tievote": "tie", "bothbad_vote": "tie"}
    rows = [{**GENAI, "vote_type": vote} for vote in votes]
    read = published_rows("genai-bench", "", rows)
    assert [row["preference"] for row in read] == list(votes.values())
    with pytest.raises(CollectionError, match="row 1: vote_type is 'left_vote': use one of leftv"):
        published_rows("genai-bench", "", [GENAI, {**GENAI, "vote_type": "left_vote"}])


@pytest.mark.parametrize(("judge", "options", "deviations"), OPTIONS)
def test_options_that_differ_are_deviations(judge, options, deviations):
    facts = numbers("vl-rewardbench", VL, judge, "?", deviations, **options).facts
    assert judge != "chat" or facts["unread_draws"] > 0 or options.get("protocol")


def test_what_no_server_answered_is_missing_and_no_wrong_answer():
    table = numbers(
        "vl-rewardbench", VL, "unified-reward", "", ["5 answers are empty, or a server"]
    ).table
    assert table["n"].iloc[0] == 0 or table["missing"].iloc[0] == 5, table
    without = rows_with_picture(VL, 5)
    for row in without:
        row["images"] = []
    numbers(
        "vl-rewardbench", without, "unified-reward", "Answer 1 is better", ["5 answers were judged"]
    )


def test_closed_answers_are_a_deviation():
    judge = judge_of("I can't tell.", pairs="chat-relative")
    judge.engine.write = lambda prompt, ask, place: {
        "text": "Both have merits.",
        "closed": 0,
        "score_logprobs": {0: -0.1, 1: -3.0},
    }
    rows = [pair(str(n), preference="a", images=[]) for n in range(4)]
    result = vj.run_benchmark(judge, "mllm-judge-pair", data=rows, progress=False)
    expected = "4 answers without a verdict were closed, which is not published"
    assert ("closed", expected) in result.deviations and not result.table["official"].any()
    assert result.table.attrs["method"].endswith("; 4 of 4 verdicts were closed")


def test_wrong_use():
    judge = judge_of("Answer 1 is better.")
    for name, options, message in (
        ("vl-reward", {"data": []}, "no benchmark 'vl-reward'.*vl-rewardbench"),
        ("mllm-judge-pair", {}, "give its rows as data="),
        ("vl-rewardbench", {"protocol": "by me", "data": []}, "no protocol 'by me'"),
    ):
        with pytest.raises(ValueError, match=message):
            vj.run_benchmark(judge, name, **options)


@pytest.mark.parametrize(
    ("reader", "text", "preferred", "verdict"),
    [
        (protocols.read_overall_judgment, "**Overall Judgment:**\nAnswer 2 is better.", "a", "b"),
        (protocols.read_overall_judgment, "Therefore - Answer 1 is the slightly better", "a", "a"),
        (protocols.read_overall_judgment, "Answer 2 is better.", "b", None),  # without its words
        (protocols.read_overall_judgment, "Overall Judgment: Answer 7 is better.", "b", "b"),
        (protocols.read_right_phrase, "Answer 2 is better. Answer 1 is better", "a", "a"),
        (protocols.read_right_phrase, "", "b", "a"),
        (protocols.read_answer_tag, "<answer>\n1\n</answer><answer>2</answer>", "b", "a"),
        (protocols.read_answer_tag, "1 or 2", "a", "b"),
        (protocols.read_answer_tag, "<answer>first</answer>", "a", "b"),  # counts as wrong
        (protocols.read_answer_tag, "", "b", "a"),
        (protocols.read_four, "So [[A>>B]]", None, "a"),
        (protocols.read_four, "[[A=B]]", None, "tie"),
        (protocols.read_four, "[[A=B=Bad]]\n[[A>B]]", None, "both bad"),  # the first line's
        (protocols.read_four, "[[A=B=bad]]", None, None),
        (protocols.read_arena, "[[A>>B]] so [[A>>B]]", None, "a"),
        (protocols.read_arena, "[[A=B]]", None, "tie"),
        (protocols.read_arena, "[[A>>B]] or [[B>A]]", None, "a"),  # of both, the first it looks for
    ],
)
def test_published_readers_to_the_letter(reader, text, preferred, verdict):
    assert reader(text, preferred) == verdict


def test_half_of_the_draws_are_no_majority():
    draws = [{"order": "ab", "raw": "Overall Judgment: Answer 1 is better."}] * 2
    draws += [{"order": "ba", "raw": "Overall Judgment: Answer 1 is better."}] * 2
    run = pd.DataFrame({"preference": ["a", "a"], "draws": [draws, draws[:3]]})
    found = reread(run, protocols.read_overall_judgment)
    assert found["verdict"].tolist() == [None, "a"]


def test_every_protocol_names_a_wording_and_a_benchmark_that_there_are():
    for name, rule in PROTOCOLS.items():
        wordings = {rule.template, rule.quality, *rule.wordings.values()} - {None, ""}
        assert wordings <= set(TEMPLATES) and (wordings or rule.unofficial)
        assert name.split(" by ")[0] in BENCHMARKS and rule.source
    assert set(BENCHMARKS) <= set(PROTOCOLS)


@pytest.mark.parametrize(
    ("reported", "nearest"), [(0.7179, "over items"), (0.7223, "over groups"), (None, None)]
)
def test_a_published_number_is_audited_from_its_parts(reported, nearest):
    parts = {"general": (0.781, 183), "hallucination": (0.727, 749), "reasoning": (0.660, 318)}
    table = audit(parts, reported=reported)
    assert table["estimate"].round(4).tolist() == [0.7179, 0.7227]
    assert table["n"].tolist() == [1250, 1250]
    assert nearest is None or table["distance"].idxmin() == nearest
    with pytest.raises(ValueError, match="shares, not per cent"):
        audit({"all": (78.1, 183)})


def test_single_responses_become_pairs_and_the_file_of_a_set_is_taken_as_it_is(tmp_path):
    items = vj.load_collection("scenes", split="test", limit=20)
    judge = vj.load_judge("tiny", device="cpu")
    result = vj.run_benchmark(judge, "mllm-judge-pair", data=items, mode="score", progress=False)
    assert ("rows", "20 pairs are made of 20 single responses") in result.deviations
    assert result.table.loc["overall", "n"].eq(20).all()
    assert result.plot(column="full") and "overall; n = 20" in result.reading
    file = vj.run_benchmark(judge, "vl-rewardbench", data=rows_with_picture(VL, 1), progress=False)
    assert {kind for kind, _ in file.deviations} == {"subset"} and file.computed


def test_a_panel_is_run_and_its_members_deviations_are_named():
    judges = [judge_of(f"Answer {number} is better.", pairs="chat-relative") for number in (1, 2)]
    for number, judge in enumerate(judges):
        judge.name = f"judge {number}"
    rows = [pair(str(n), preference="a") for n in range(4)]
    result = vj.run_benchmark(vj.panel(judges), "mllm-judge-pair", data=rows, progress=False)
    assert result.deviations[0] == ("panel", "the verdicts of 2 judges are combined")
    assert any(text.startswith("judge 1: asked in") for _, text in result.deviations)
