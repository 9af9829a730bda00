"""Adapters on rows in the layouts of published data sets, and on the published rows where they are at hand.

The rows in `tests/rows` have sentences of our own; see its README.
"""

import csv
import gzip
import json
import math
import shutil
import warnings
from collections import Counter

from pytest import mark, param, raises, warns

import vjudge as vj
from samples import GENUINE, LEVELS, ROWS, lines, orig, parquet, picture, plain
from vjudge.data import CollectionError, canonical, load_collection, validate
from vjudge.data.adapters import ADAPTERS
from vjudge.prompts import TEMPLATES
from vjudge.records import Item
from vjudge.training import prompt_and_target

NAMED = {adapter.name: adapter for adapter in ADAPTERS}
genuine = mark.skipif(
    not GENUINE.is_dir(), reason="other people's sentences are not in the project"
)


def published(name, folder=ROWS):
    return [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]


def load(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no row is unreadable
        return plain(load_collection(path))


def label(line):
    return line.get("human", line.get("human_answer", line.get("Human_answer")))


# file -> our cells, from a line
EXPECTED = {
    "feedback_collection.jsonl": lambda line: {
        "response": line["orig_response"],
        "gold": float(line.get("orig_score", 0)),
        "descriptions": [line[f"orig_score{score}_description"] for score in range(1, 6)],
    },
    "preference_collection.jsonl": lambda line: {
        "response_a": line["orig_response_A"],
        "response_b": line["orig_response_B"],
        "preference": "a" if "orig_preference" in line else None,
    },
    "vl_rewardbench.jsonl": lambda line: {
        "response_a": line["response"][0],
        "response_b": line["response"][1],
        "preference": "a" if line["human_ranking"] == [0, 1] else "b",
    },
    "mllm_judge_score.jsonl": lambda line: {
        "gold": float(label(line)),
        "response": line["answer"],
        "category": line["original_dataset"],
    },
    "mllm_judge_pair.jsonl": lambda line: {
        "preference": {"A": "a", "B": "b", "C": "tie"}[label(line)],
        "response_b": line["answer2"]["answer"],
    },
    "mllm_judge_batch.jsonl": lambda line: {
        "ranks": [label(line).index(letter) + 1 for letter in "ABCDEF"[: len(line["answers"])]],
        "responses": [answer["answer"] for answer in line["answers"]],
    },
    "visit_bench_multi_images.jsonl": lambda line: {
        "images": [{"bytes": None, "path": path} for path in json.loads(line["images"])],
        "gpt4_prediction": line["gpt4_prediction"],
    },
    "visit_bench_annotated_example.jsonl": lambda line: {
        "images": [{"bytes": None, "path": line["image_url"]}],
        "reference_answer": line["output_human_annotated"],
    },
}
EXPECTED["mllm_judge_score_arxiv.jsonl"] = EXPECTED["mllm_judge_score.jsonl"]


def check_file(name, folder):
    for row, line in zip(load(folder / name), published(name, folder), strict=True):
        for cell, expected in EXPECTED[name](line).items():
            assert row[cell] == expected or math.isnan(row[cell]) and not expected


@mark.parametrize("name", EXPECTED)
def test_rows_of_a_published_layout_become_ours(name):
    check_file(name, ROWS)


@genuine
def test_published_rows_become_ours():
    for name in EXPECTED:
        check_file(name, GENUINE)


def layout(rows):
    """Each column with the type of its cells."""
    return {(column, type(cell).__name__) for row in rows for column, cell in row.items()}


@genuine
def test_our_rows_have_the_layout_of_the_published_ones():
    for name in EXPECTED:
        assert layout(published(name)) == layout(published(name, GENUINE)), name


def test_the_category_of_vl_rewardbench_follows_from_the_ids_prefix():
    """Of its 1,250 ids: tests/rows/README.md has their source."""
    texts = {"query": "?", "response": ["x", "y"], "image": "", "human_ranking": [0, 1]}
    with gzip.open(ROWS / "vl_rewardbench_labels.csv.gz", "rt", encoding="utf-8") as file:
        ids = [row["id"] for row in csv.DictReader(file)]
    cells = [NAMED["VL-RewardBench"].read({"id": id} | texts)[0] for id in ids]
    counts = {"hallucination": 749, "reasoning": 318, "general": 183}
    assert Counter(cell["category"] for cell in cells) == counts


SHARED = {"id": 1, "instruction": "What?", "image_path": "1.jpg", "original_dataset": "coco"}
ANSWERS = [{"name": name, "answer": name} for name in ("llava", "cogvlm", "gpt4", "gemini")]
DUEL = SHARED | {"answer1": ANSWERS[0], "answer2": ANSWERS[1], "human": "A"}
BATCH = SHARED | {"answers": ANSWERS, "human_answer": "DCBA"}
VL = {"id": "mmmu_1", "query": "?", "response": ["x", "y"], "human_ranking": [1, 0]}
PREFERRED = {"orig_instruction": "?", "orig_response_A": "x", "orig_response_B": "y"}
PREFERRED |= {"orig_preference": "B"}


@mark.parametrize(
    "row, change, what",
    [
        (VL, {"human_ranking": [0, 0]}, r"human_ranking: \[0, 0\] is neither"),
        (VL, {"response": "x"}, "not enough values to unpack"),
        (DUEL, {"human": "D"}, "human: 'D' is none of A, B, C"),
        (BATCH, {"human_answer": "CDA"}, "'CDA' does not order the 4 answers ABCD"),
        (PREFERRED, {"orig_preference": "C"}, "orig_preference: 'C' is none of A, B"),
    ],
)
def test_a_row_that_cannot_be_read_is_kept_with_the_reason(row, change, what):
    with warns(UserWarning, match=f"1 of 2 rows could not be read .*{what}"):
        items = canonical([row, row | change])
    assert items["fault"][0] is None and items["instruction"][1] is None
    with raises(CollectionError, match=f"1 of 1 rows cannot be used(.|\n)*{what}"):
        canonical([row | change])


@mark.parametrize("place", ["image/1.jpg", "set/1.jpg", "set/images/1.jpg"])
def test_pictures_of_published_sets_stand_in_the_folders_where_they_are_published(place, tmp_path):
    picture(tmp_path, place)
    row = SHARED | {"score_id": 6, "answer": "A.", "human": "4"}
    items = load_collection(lines(tmp_path / "set" / "score.jsonl", row))
    assert items["gold"][:] == [4] and items[0]["images"][0].size == (4, 4)


@mark.parametrize(
    "folder, file, counts",
    [
        ("wild", "questions", {"conv": 17, "detail": 15, "complex": 28}),
        ("coco", "qa90_questions", {"conv": 30, "detail": 30, "complex": 30}),
    ],
)
@mark.parametrize("rows", [ROWS, param(GENUINE, marks=genuine)], ids=["ours", "published"])
def test_llava_bench_in_its_two_folders(rows, folder, file, counts, tmp_path):
    items = load_collection(rows / f"llava_bench_{folder}")
    assert Counter(items["category"]) == counts and all(items["reference_answer"])
    boxes = "\n\n" in items["context"][0]
    assert all(items["context"]) and boxes == (folder == "coco")
    # Questions alone have the same columns in both: the file's name says which.
    name = f"llava_bench_{folder}"
    alone = shutil.copy(rows / name / f"{file}.jsonl", tmp_path / f"{name}.jsonl")
    for loaded in (items, load_collection(alone)):
        assert vj.data.origin(loaded)["benchmark"] == f"llava-bench-{folder}"


# -- Prometheus-Vision and Prometheus


PUBLISHED_SAMPLES = GENUINE.parent / "prometheus_vision_samples"


@mark.parametrize(
    "folder",
    [ROWS / "prometheus_vision", param(PUBLISHED_SAMPLES, marks=genuine)],
    ids=["ours", "published"],
)
def test_the_samples(folder):
    template = TEMPLATES["prometheus-vision"]
    evaluation, training = folder / "sample_eval_data.jsonl", folder / "sample_train_data.json"
    raw = published("sample_eval_data.jsonl", folder)
    for item, source in zip(plain(load_collection(evaluation)), raw, strict=True):
        text = template.render(Item.from_row(item)).text
        assert text.endswith(f"<image>\n{source['instruction']} ASSISTANT:")
        assert math.isnan(item["gold"]) and item["group"] == source["image"]
        assert item["images"] == [{"bytes": None, "path": str(folder / source["image"])}]
    raw = json.loads(training.read_text("utf-8"))
    for item, source in zip(plain(load_collection(training)), raw, strict=True):
        prompt, answer = (turn["value"] for turn in source["conversations"])
        asked, said = prompt_and_target(item, template)
        assert asked.text.endswith(f"USER: {prompt} ASSISTANT:") and said == answer


COLLECTION, BENCH = "Feedback-Collection", "Feedback-Bench"


@mark.parametrize(
    "name, schema, expected",
    [
        ("feedback_collection.jsonl", None, COLLECTION),
        ("Feedback-Bench.jsonl", None, BENCH),
        ("feedback-bench/test.jsonl", None, BENCH),
        ("feedback_collection/feedback_bench.jsonl", None, BENCH),
        ("mine.jsonl", "feedback-bench", BENCH),
        ("Feedback-Bench.jsonl", COLLECTION, COLLECTION),
        ("mine.jsonl", None, "said"),
    ],
)
def test_sets_of_the_same_columns_are_told_apart_by_name_or_argument(
    name, schema, expected, tmp_path
):
    """A Feedback-Collection file is no Feedback-Bench, whose columns are the same."""
    path = lines(tmp_path / name, *published("feedback_collection.jsonl"))
    if expected == "said":
        with warns(UserWarning, match="pass schema='Feedback-Bench' for the other"):
            load_collection(path)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = vj.data.origin(load_collection(path, schema=schema))
    assert found["schema"] == expected
    assert found["benchmark"] == ("feedback-bench" if expected == BENCH else "")
    with raises(CollectionError, match="schema='x': use one of Perception-Collection"):
        load_collection(path, schema="x")


def test_perception_bench_takes_a_policys_answers_in_one_call(tmp_path):
    row = orig(image=picture(tmp_path, "0.png"))
    for name in ("orig_response", "orig_feedback", "orig_score", "output"):
        del row[name]
    bench = load_collection(parquet(tmp_path / "test.parquet", row))
    with raises(CollectionError, match="response: is missing or blank"):
        validate(bench)
    validate(bench.remove_columns("response").add_column("response", ["a"]), sees_images=True)
    blank = plain(canonical([orig(orig_score5_description=None)]))[0]["descriptions"]
    assert blank == [*LEVELS[:4], None]  # no scale of four is made of it
