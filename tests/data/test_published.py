"""Adapters on rows as they were published, or as is evidenced; and such rows train a judge that gets its number."""

from __future__ import annotations

import json
import shutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import samples
import vjudge as vj
from samples import LEVELS, ROWS, judge_of, lines, orig, parquet, picture, plain, turns
from vjudge.data import CollectionError, canonical, fingerprint, load_collection, readable, validate
from vjudge.data.adapters import ADAPTERS
from vjudge.prompts import TEMPLATES, target
from vjudge.records import Item, Pair, is_missing
from vjudge.training import fine_tune

NAMED = {adapter.name: adapter for adapter in ADAPTERS}
SAMPLES = ROWS.parent / "prometheus_vision_samples"
real = pytest.mark.skipif(not ROWS.is_dir(), reason="the published rows are not at hand")


def published(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROWS / name).read_text("utf-8").splitlines()]


def load(path: Path) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no row is unreadable
        return plain(load_collection(path))


# -- benchmarks of judges


@real
def test_vl_rewardbench() -> None:
    """The category follows from the id's prefix, for all 1,250 rows."""
    texts = {"query": "?", "response": ["x", "y"], "image": ""}
    cells = [
        NAMED["VL-RewardBench"].read(label | texts)
        for label in published("vl_rewardbench_labels.jsonl")
    ]
    assert Counter(cell["category"] for cell in cells) == {
        "hallucination": 749,
        "reasoning": 318,
        "general": 183,
    }
    assert Counter(cell["preference"] for cell in cells) == {"a": 1245, "b": 5}
    rows = load(ROWS / "vl_rewardbench.jsonl")
    assert len({row["id"] for row in rows}) == 35 and all(
        row["response_a"] and row["response_b"] for row in rows
    )
    odd = [
        {**published("vl_rewardbench_labels.jsonl")[0], **texts, "human_ranking": rank}
        for rank in ([1, 0], [0, 0])
    ]
    with pytest.warns(UserWarning, match=r"1 of 2 rows .* human_ranking: \[0, 0\] is neither"):
        pairs = canonical(odd)
    assert (
        pairs["preference"][:] == ["b", None]
        and len(readable(pairs)) == 1
        and pairs["id"][1].endswith("#2")
    )
    with pytest.warns(
        UserWarning,
        match="1 x query: is missing or blank; 1 x response: is not a list of two texts",
    ):
        canonical([odd[0], {**odd[0], "query": None}, {**odd[0], "response": "x"}])


@real
def test_mllm_as_a_judge() -> None:
    """Its labels have another name in each file, and in one file two."""
    for name in ("mllm_judge_score.jsonl", "mllm_judge_score_arxiv.jsonl"):
        for row, line in zip(load(ROWS / name), published(name), strict=True):
            assert row["gold"] == float(line.get("human", line.get("Human_answer")))
            assert (row["category"], row["response"]) == (line["original_dataset"], line["answer"])
    rows, raw = load(ROWS / "mllm_judge_pair.jsonl"), published("mllm_judge_pair.jsonl")
    labels = [row.get("human_answer", row.get("human")) for row in raw]
    assert [row["preference"] for row in rows] == [
        {"A": "a", "B": "b", "C": "tie"}[label] for label in labels
    ]
    assert rows[0]["policy_a"] == "gpt4" and rows[-1]["response_b"] == raw[-1]["answer2"]["answer"]
    for row, line in zip(
        load(ROWS / "mllm_judge_batch.jsonl"), published("mllm_judge_batch.jsonl"), strict=True
    ):
        order = sorted(range(len(row["ranks"])), key=row["ranks"].__getitem__)
        assert "".join("ABCDEF"[place] for place in order) == line["human_answer"]
        assert row["policies"] == [answer["name"] for answer in line["answers"]]


def test_pictures_of_mllm_as_a_judge_count_from_the_folder_above(tmp_path: Path) -> None:
    picture(tmp_path, "image/1.jpg")
    shared = {
        "id": 1,
        "instruction": "What?",
        "image_path": "image/1.jpg",
        "original_dataset": "coco",
    }
    items = load_collection(
        lines(
            tmp_path / "B" / "score.jsonl", {**shared, "score_id": 6, "answer": "A.", "human": "4"}
        )
    )
    assert items["gold"][:] == [4] and items[0]["images"][0].size == (4, 4)
    answers = [{"name": name, "answer": name} for name in ("llava", "cogvlm", "gpt4", "gemini")]
    with pytest.raises(CollectionError, match="'CDA' does not order the 4 answers ABCD"):
        canonical([{**shared, "answers": answers, "human_answer": "CDA"}])
    pair = {**shared, "answer1": answers[0], "answer2": answers[1], "human": "A"}
    for bad in (
        {**pair, "human": "D"},
        {**pair, "answer2": 7},
        {name: pair[name] for name in pair if name != "answer2"},
    ):
        with pytest.warns(
            UserWarning, match="answer2: is not an object|human: 'D' is none of A, B and C"
        ):
            assert len(readable(canonical([pair, bad]))) == 1


def test_multimodal_rewardbench_has_six_categories() -> None:
    row = {"Text": "?", "Image": "a.png", "Output1": "x", "Output2": "y", "Better": "Output2"}
    pairs = canonical(
        [
            {**row, "ID": id, "Category": category}
            for id, category in (("pairs-1", "safety"), ("v", "vqa"))
        ]
    )
    assert pairs["category"][:] == ["safety", "vqa"] and pairs["preference"][:] == ["b", "b"]


# -- benchmarks of policies


@real
def test_llava_bench_in_its_two_folders(tmp_path: Path) -> None:
    for folder, file, name, counts in (
        ("wild", "questions", "in the wild", {"conv": 17, "detail": 15, "complex": 28}),
        ("coco", "qa90_questions", "COCO", {"conv": 30, "detail": 30, "complex": 30}),
    ):
        rows = load(ROWS / f"llava_bench_{folder}")
        assert Counter(row["category"] for row in rows) == counts and all(
            row["reference_answer"] for row in rows
        )
        # Questions alone have the same columns in both.
        alone = shutil.copy(
            ROWS / f"llava_bench_{folder}" / f"{file}.jsonl", tmp_path / f"{folder}.jsonl"
        )
        assert {row["benchmark"] for row in [*rows, *load(Path(alone))]} == {
            f"LLaVA-Bench ({name})"
        }


def test_llava_bench_as_the_hubs_tables() -> None:
    shared = {
        "question_id": 0,
        "question": "Where?",
        "caption": "A crater.",
        "category": "conv",
        "image_id": "001",
    }
    forms = {"in the wild": {"image": "001.jpg", "gpt_answer": "Hawaii."}}
    forms["COCO"] = {"image": "000000441147.jpg", "answer": "Hawaii."}
    for name, cells in forms.items():
        (row,) = plain(canonical([{**shared, **cells}]))
        assert (row["reference_answer"], row["group"], row["context"]) == (
            "Hawaii.",
            "001",
            "A crater.",
        )
        assert row["benchmark"] == f"LLaVA-Bench ({name})"


@real
def test_visit_bench_of_several_images_keeps_its_references() -> None:
    rows, raw = (
        load(ROWS / "visit_bench_multi_images.jsonl"),
        published("visit_bench_multi_images.jsonl"),
    )
    for row, line in zip(rows, raw, strict=True):
        assert [picture["path"] for picture in row["images"]] == json.loads(line["images"])
        assert row["reference_answer"] == (
            line["reference_output"] if line["reference_output"].strip() else None
        )
    wrong = [
        row
        for row in rows
        if row["human_ratings_gpt4_correct"] == "False" and row["reference_answer"]
    ]
    assert wrong and all(row["reference_answer"] != row["gpt4_prediction"] for row in wrong)
    rows = load(ROWS / "visit_bench_annotated_example.jsonl")
    assert len(rows) == 10 and all(
        row["reference_answer"] and len(row["images"]) == 1 for row in rows
    )


# -- Prometheus-Vision and Prometheus


@real
@pytest.mark.filterwarnings("ignore:Preference-Collection")
def test_feedback_and_preference_collections() -> None:
    rows, raw = load(ROWS / "feedback_collection.jsonl"), published("feedback_collection.jsonl")
    assert [row["response"] for row in rows] == [line["orig_response"] for line in raw]
    assert rows[0]["gold"] == float(raw[0]["orig_score"]) and len(rows[0]["descriptions"]) == 5
    raw = published("preference_collection.jsonl")
    pairs = plain(
        canonical(
            [*raw, {**raw[0], "orig_preference": "B", "orig_score_A": "4", "orig_score_B": "2"}]
        )
    )
    assert [row["response_b"] for row in pairs[:2]] == [line["orig_response_B"] for line in raw]
    assert pairs[2]["preference"] is None and "contradicts the scores" in pairs[2]["fault"]
    assert Pair.from_row(pairs[0]).rubric is None and Pair.from_row(pairs[0]).criteria
    assert NAMED["Perception-Bench"].split == "train"  # its one split
    bare = {
        name: value
        for name, value in orig(image=None).items()
        if name not in ("orig_score", "orig_feedback")
    }
    (item,) = canonical([bare])  # the score stands in the target alone
    assert (item["gold"], item["feedback"]) == (4.0, "Right. So the overall score is 4.")
    with pytest.warns(
        UserWarning, match="1 of 2 rows could not be read .* gold: 'four' is not a number"
    ):
        canonical([orig(), orig(orig_score="four")])
    (blank,) = plain(canonical([orig(orig_score5_description=None)]))
    assert blank["descriptions"] == [*LEVELS[:4], None], "no scale of four is made of it"


@pytest.mark.parametrize(
    ("name", "schema", "expected"),
    [
        ("feedback_collection.jsonl", None, None),
        ("Feedback-Bench.jsonl", None, "feedback-bench"),
        ("feedback-bench/test.jsonl", None, "feedback-bench"),
        ("mine.jsonl", None, "said"),
        ("mine.jsonl", "feedback-bench", "feedback-bench"),
        ("Feedback-Bench.jsonl", "Feedback-Collection", None),
    ],
)
def test_sets_of_the_same_columns_are_told_apart_by_name_or_argument(
    name: str, schema: str | None, expected: str | None, tmp_path: Path
) -> None:
    """A Feedback-Collection file is no Feedback-Bench, whose columns are the same."""
    path = lines(tmp_path / name, orig())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = vj.data.origin(load_collection(path, schema=schema))
    said = [
        str(one.message) for one in caught if "pass schema='Feedback-Bench'" in str(one.message)
    ]
    assert len(said) == (expected == "said")
    named = "Feedback-Bench" if expected == "feedback-bench" else "Feedback-Collection"
    assert found["schema"] == named
    assert found.get("benchmark") == (None if expected == "said" else expected)
    with pytest.raises(CollectionError, match="schema='x': use one of Perception-Collection"):
        load_collection(path, schema="x")


def test_perception_bench_takes_a_policys_answers_in_one_call(tmp_path: Path) -> None:
    rows = [orig(image=picture(tmp_path, f"{n}.png")) for n in range(3)]
    for each in rows:
        for name in ("orig_response", "orig_feedback", "orig_score", "output"):
            del each[name]
    bench = load_collection(parquet(tmp_path / "test.parquet", *rows))
    with pytest.raises(CollectionError, match="response: is missing or blank"):
        validate(bench)
    answered = bench.remove_columns("response").add_column("response", ["a", "b", "c"])
    run = judge_of("Good. [RESULT] 4", "prometheus-vision").grade(answered, progress=False)
    assert run["score"].tolist() == [4, 4, 4] and answered[0]["images"][0].size == (4, 4)


def test_training_rows_are_taken_apart_or_refused() -> None:
    def conversation(**changes: Any) -> dict[str, Any]:
        item = Item.from_row(
            samples.row("7", images=["x.png"], reference_answer="It is red.", **changes)
        )
        wording = TEMPLATES["prometheus-vision-readme"]
        ends = wording.conversation.opening, wording.conversation.closing
        prompt = wording.render(item).text.removeprefix(ends[0]).removesuffix(ends[1])
        talk = [{"from": "human", "value": prompt}, {"from": "gpt", "value": target("Right.", 4)}]
        return {"id": 7, "image": "x.png", "conversations": talk}

    (item,) = plain(canonical([conversation()]))
    assert (item["id"], item["instruction"], item["response"], item["criteria"]) == (
        "7",
        "Say.",
        "Red.",
        "True?",
    )
    assert (item["reference_answer"], item["descriptions"], item["gold"]) == (
        "It is red.",
        LEVELS,
        4.0,
    )
    with pytest.raises(CollectionError, match="cannot be told apart; use the collection's orig_"):
        canonical([conversation(response="Red.\n\n###Reference Answer (Score 5):\nIt is blue.")])


def test_pairs_in_our_own_columns_have_one_fingerprint_in_every_form() -> None:
    pair = {"instruction": "What?", "response_a": "A", "response_b": "B"}
    rows = [
        {"id": "p", **pair, "preference": "tie"},
        {"id": "q", **pair, "response_b": "", "preference": "a"},
    ]
    pairs = canonical(rows)
    forms = [pairs, rows, pairs.to_pandas(), [Pair.from_row(rows[0]), rows[1]]]
    assert len({fingerprint(form) for form in forms}) == 1
    assert fingerprint(rows) != fingerprint([rows[0] | {"preference": "a"}, rows[1]])


# -- LLaVA-Critic-113k, by its evidenced wordings

WILDER = (
    "[Question]\nWhat is it?\n\n[Assistant 1]\nA cat.\n\n[End of Assistant 1]\n\n[Assistant 2]\nA dog.\n\n"
    "[End of Assistant 2]\n\n[System]\nAssume assistant 1 always receive a score of 10.\n\n"
)
ARENA = (
    "<|User Prompt|>\nWhat is it?\n\n<|The Start of Assistant A's Answer|>\nA cat.\n<|The End of Assistant A's Answer|>"
    "\n\n<|The Start of Assistant B's Answer|>\nA dog.\n<|The End of Assistant B's Answer|>"
)
CAPTION = (
    "Text Caption: A cat on a mat.\nFrom 0 to 100, how much do you rate for this Text Caption in terms of the correct"
    " and comprehensive description of the image?\n"
)
MM_VET = (
    "Just complete the last space of the correctness score.\nQuestion | Ground truth | Prediction | Correctness\n"
    "--- | --- | --- | ---\nWhat is x? | -1 | x = 3 | 0.0\nWhat is it? | a cat | A dog. |"
)
PAIR = "Question: [What is it?]\n{} A: [A cat.]\n{} B: [A dog.]\nASSISTANT:\n".replace(
    "{}", "Response"
)
ORDINAL = "Question: [What is it?]\nThe first response: [A cat.]\nThe second response: [A dog.]\nASSISTANT:\n"
SINGLE = "Question: [What is it?]\nThe LMM response: [A dog.]\nASSISTANT:\n "


@pytest.mark.parametrize(
    ("prompt", "answer", "wording", "verdict", "scale"),
    [
        (PAIR, "The better response: [B]. It is a dog.", "llava-critic-pair", "b", None),
        (
            PAIR.replace(" A:", " 1:").replace(" B:", " 2:"),
            "The better response: [1].",
            "llava-critic-pair",
            "a",
            None,
        ),
        (
            PAIR,
            "Response B is better than response A. It is a dog.",
            "llava-critic-pair",
            "b",
            None,
        ),
        (PAIR, "Two responses are equally good.", "llava-critic-pair", "tie", None),
        (ORDINAL, "The better response: [second].", "llava-critic-pair", "b", None),
        (ARENA, "Both see an animal.\nMy final verdict is: [[A>>B]]", "arena", "a", None),
        (SINGLE, "Score: 85\nIt is a dog.", "llava-critic", 85.0, "0-100"),
        (CAPTION, "It sees the cat.\nFinal Score: 85.", "caption", 85.0, "0-100"),
        (WILDER, "10 9\nBoth are right.", "assistants", 9.0, "1-10"),
        (MM_VET, "0.5", "mm-vet", 0.5, "0-1"),
    ],
)
def test_evidenced_wordings_of_llava_critic(
    prompt: str, answer: str, wording: str, verdict: float | str, scale: str | None
) -> None:
    (row,) = canonical([turns(prompt, answer)])
    assert (row["wording"], row.get("scale"), row["fault"]) == (wording, scale, None)
    assert verdict == row["gold" if scale else "preference"] and (row["prompt"], row["target"]) == (
        prompt,
        answer,
    )
    if wording != "caption":
        assert (
            row["instruction"] == "What is it?"
            and row["response" if scale else "response_b"] == "A dog."
        )
    if wording in ("assistants", "mm-vet"):
        assert row["reference_answer"].lower().rstrip(".") == "a cat"


@pytest.mark.parametrize(
    ("prompt", "answer", "fault"),
    [
        (
            "Which animal is it?\nA. cat\nB. dog\nAnswer with the option's letter.",
            "B",
            "lettered options",
        ),
        (PAIR, "?", "the row is pairwise and stands in the pointwise part"),
        (SINGLE, "Right.", "no verdict marker"),
        (
            ORDINAL.replace("A cat.", "x]\nThe second response: [y"),
            "The better response: [1].",
            "another wording",
        ),
        ("", [{"from": "human", "value": "a"}], "conversations: is not one human and one gpt turn"),
        (
            "",
            [{"from": "gpt", "value": "a"}] * 2,
            "conversations: is not one human and one gpt turn",
        ),
        ("", "x", "conversations: is not one human and one gpt turn"),
    ],
)
def test_what_cannot_be_read_says_why_and_trains_where_it_can(
    prompt: str, answer: Any, fault: str
) -> None:
    odd = turns(prompt, answer) if prompt else turns("", "", conversations=answer)
    with pytest.warns(UserWarning, match="LLaVA-Critic-113k: 1 of 3 rows"):
        items = canonical([turns(SINGLE, "Score: 85"), turns(WILDER, "10 9\nFine."), odd])
    assert fault in items[2]["fault"] and is_missing(items[2]["gold"]) and len(readable(items)) == 2
    assert not prompt or (items[2]["prompt"], items[2]["target"]) == (prompt, answer)


def test_critic_rows_go_straight_into_grade_and_compare(tmp_path: Path) -> None:
    rows = [turns(SINGLE, "Score: 85\nIt is right."), turns(PAIR, "The better response: [1].")]
    with pytest.warns(UserWarning, match="LLaVA-Critic-113k: 1 of 2 rows"):
        items = load_collection(parquet(tmp_path / "pointwise.parquet", *rows))
    with pytest.raises(
        CollectionError, match=r"row 1 .* response: is missing or blank \(the row is pairwise"
    ):
        validate(items, needs=TEMPLATES["llava-critic"].needs)
    run = judge_of("Score: 70\nFine.").grade(readable(items), progress=False)
    assert (
        run["score"].tolist() == [70]
        and run["gold"].tolist() == [85]
        and run.attrs["scale"] == (0, 100)
    )
    rows = [
        turns(PAIR, "The better response: [1]."),
        turns(PAIR, "Two responses are equally good."),
        rows[0],
    ]
    for name in ("train.parquet", "pairwise.parquet"):  # by its rows, or by its name
        with pytest.warns(UserWarning, match="1 of 3 rows"):
            pairs = load_collection(parquet(tmp_path / name, *rows))
        assert (
            pairs["preference"][:] == ["a", "tie", None]
            and pairs["response_a"][:2] == ["A cat."] * 2
        )
    run = judge_of("The better response: [1].").compare(readable(pairs), progress=False)
    assert run["verdict_ab"].tolist() == ["a", "a"] and run["verdict"].tolist() == ["tie", "tie"]


# -- from real rows to a judge and its benchmark's number


def longer(folder: Path) -> Path:
    """The embedded base with room for published prompts, which have some 3,000 of its bytes' tokens."""
    shutil.copytree(Path(vj.__file__).parent / "assets" / "tiny-base", folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = 4096
    (folder / "config.json").write_text(json.dumps(config))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 4096}))
    return folder


@real
@pytest.mark.filterwarnings("ignore")
def test_published_rows_train_a_judge_that_gets_its_benchmarks_number(tmp_path: Path) -> None:
    """Prometheus-Vision's three training rows and three evaluation rows; only the pictures are ours."""
    for name in ("sample_train_data.json", "sample_eval_data.jsonl"):
        shutil.copy(SAMPLES / name, tmp_path / name)
    train, test = (
        vj.load_collection(tmp_path / name)
        for name in ("sample_train_data.json", "sample_eval_data.jsonl")
    )
    pictures = {picture["path"] for row in vj.data.rows_of(train) for picture in row["images"]}
    pictures |= {picture["path"] for row in vj.data.rows_of(test) for picture in row["images"]}
    for number, path in enumerate(sorted(pictures)):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((64 + number, 64), 90).convert("RGB").save(path)
    validate(train)
    validate(test)
    options: dict[str, Any] = {
        "lora": True,
        "allow": ["length", "scores"],
    }
    options |= {"steps": 2, "max_length": 4096, "batch_size": 1, "progress": False}
    judge = fine_tune(longer(tmp_path / "tiny-base"), train, out=tmp_path / "judge", **options)
    assert json.loads((judge / "judge.json").read_text())["template"] == "prometheus-vision"
    graded = vj.load_judge(judge, device="cpu").grade(train, mode="score", progress=False)
    assert graded["score"].notna().all() and graded["gold"].tolist() == [1, 2, 3]
    table = vj.benchmark(
        graded.assign(score=graded["expected_score"]), name="perception-bench", n_resamples=100
    )
    assert table.index[0] == ("overall", "pearson", "left out") and table["official"].all()
    assert table["n"].iloc[0] == 3 and -1 <= table["estimate"].iloc[0] <= 1
    unscored = vj.load_judge(judge, device="cpu").grade(test, mode="score", progress=False)
    with pytest.raises(ValueError, match="Perception-Bench needs true score"):
        vj.benchmark(unscored, name="perception-bench")
