"""A build, from a scripted generator and over real HTTP: what is kept, counted, refused, continued and exported."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import openai._base_client
import pandas as pd
import pytest
import yaml
from scripted_generator import ScriptedGenerator, given_of

import vjudge as vj
from servers import ChatServer, Reply, Request
from vjudge import builder, data
from vjudge.builder import faults
from vjudge.builder.build import VERSION
from vjudge.engines import client as client_module
from vjudge.records import Item
from vjudge.runs import RunError


def make(generator, out, *, images=None, **options):
    options = {"rubrics": 2, "instructions": 1, "progress": False} | options
    return builder.build(
        generator.images if images is None else images, generator, out=out, **options
    )


class Faulty(ScriptedGenerator):
    """A scripted generator whose answers a test changes in place, or replaces by a text."""

    def __init__(self, n_images, change):
        super().__init__(n_images)
        self.change = change

    def reply(self, task, image):
        stage, given, again = given_of(task)
        answer = json.loads(super().reply(task, image))
        return self.change(stage, given, again, answer) or json.dumps(answer)


def test_seeds_are_sound_and_no_two_alike(tmp_path):
    texts = {}
    assert len(builder.load_seeds()) == 50
    for seed in [*builder.load_seeds(), *builder.load_seeds("charts")]:
        assert len(seed["descriptions"]) == 5 and not faults.near_duplicate(seed["criteria"], texts)
        texts[seed["id"]] = faults.normal(seed["criteria"])
    sound = {"id": "a", "area": "x", "criteria": "c", "descriptions": ["a", "b"]}
    path = tmp_path / "seeds.jsonl"
    path.write_text(json.dumps(sound))
    assert builder.load_seeds(path) == [sound]
    odd = [
        sound,
        {**sound, "id": "b", "criteria": " "},
        {**sound, "id": "c", "descriptions": [*"abc"]},
        {"id": 1},
        [1],
    ]
    for line in [*map(json.dumps, odd), "no json"]:
        path.write_text(f"{json.dumps(sound)}\n\n{line}")
        with pytest.raises(data.CollectionError, match="row 2.*correct the line"):
            builder.load_seeds(path)


def test_a_generator_that_writes_more_for_better_is_told_of(tmp_path):
    def change(stage, given, again, answer):
        if stage == "response":
            room = given["most"] - len(answer["response"].split())
            answer["response"] += " indeed" * (room * (given["score"] - 1) // 4)

    built = make(Faulty(2, change), tmp_path / "out", rubrics=3, instructions=2)
    with pytest.warns(RuntimeWarning, match="could score by length"):
        built.export(tmp_path / "c")
    assert "can score by length" in (tmp_path / "c" / "README.md").read_text()


def test_planted_faults_are_counted_and_none_reaches_the_collection(tmp_path):
    generator = ScriptedGenerator(
        4, planted={"not JSON": 0.04, "score leak": 0.1, "not judgeable": 0.5}
    )
    built = make(generator, tmp_path, rubrics=3, instructions=2)
    assert (built.n_rubrics, built.n_cases, built.n_incomplete) == (12, 24, 0), (
        "the paper's, for four images"
    )
    assert Counter(row["gold"] for row in built.rows) == dict.fromkeys((1, 2, 3, 4, 5), 24)
    calls = built.log.dropna(subset=["try"]).groupby("stage")["call"].nunique()
    assert (calls[list(builder.STAGES)] >= builder.estimate(4)["calls"].drop("all")).all()
    counted, sent = built.faults()["all"], generator.sent
    assert (
        counted["not JSON"] == sent["not JSON"] > 0
        and counted["score leak"] == sent["score leak"] > 0
    )
    assert 0 < counted["not judgeable"] <= sent["not judgeable"], (
        "some fall as near duplicates before"
    )
    wrong = ("", "Four", "Three", "Two", "One", "None")
    for row in built.rows:
        assert "deserves" not in row["response"] and "melody" not in row["criteria"]
        assert row["feedback"].endswith(f"{wrong[int(row['gold'])]} wrong."), (
            "the script's own truth"
        )
        assert abs(len(row["response"].split()) / len(row["reference_answer"].split()) - 1) <= 0.15


def test_texts_are_kept_to_the_letter_and_control_tokens_are_not_kept(tmp_path):
    hostile = '=HYPERLINK("http://x") <b onclick=a>5</b> ${x} {{y}} | a, "b"\n\nInput:\n{"y": 1}\n\nTask: align'

    def change(stage, given, again, answer):
        if stage == "instruction":
            answer["instruction"] += f" {hostile if again else '<|im_start|>'}"

    built = make(Faulty(1, change), tmp_path / "out", rubrics=1)
    assert built.faults().at["markup", "instruction"] == 1
    items = vj.load_collection(built.export(tmp_path / "c", name='a: "b" {{ c }}\n---'))
    assert all(row["instruction"].endswith(hostile) for row in built.rows)
    assert items["instruction"] == [row["instruction"] for row in built.rows]
    card = (tmp_path / "c" / "README.md").read_text()
    assert yaml.safe_load(card.split("\n---\n")[0])["pretty_name"] == 'a: "b" {{ c }}\n---'


def test_a_build_without_anything_to_keep_is_an_error_with_the_counts(tmp_path):
    def change(stage, given, again, answer):
        return '{"question": "What?"}' if stage == "instruction" else None

    with pytest.raises(
        builder.BuildError, match="ended at 'instruction'.*wrong form 6.*question.*7 billion"
    ):
        make(Faulty(1, change), tmp_path / "a")
    with pytest.raises(builder.BuildError, match="ended at 'brainstorm'.*refusal 9"):
        make(Faulty(1, lambda *_: "I'm sorry, but I can't help with that."), tmp_path / "b")


def test_bad_calls_are_refused_before_anything_is_asked(tmp_path):
    first, second = ScriptedGenerator(2).images.values()
    named = {"a": first, "b": first, "c": b"no image", "d d": second, "../e": second}
    with pytest.raises(data.CollectionError) as error:
        make(ScriptedGenerator(2), tmp_path / "o", images=named)
    assert {problem.id for problem in error.value.problems} == {"b", "c", "d d", "../e"}
    with pytest.raises(ValueError, match="give a Judge"):
        builder.build({"a": first}, object(), out=tmp_path / "o")
    with pytest.raises(ValueError, match="tries=0.*tolerance=2"):
        make(ScriptedGenerator(1), tmp_path / "o", tries=0, tolerance=2)
    assert not (tmp_path / "o").exists()


def test_a_build_cut_off_anywhere_ends_in_the_same_collection(tmp_path):
    def generator():
        return ScriptedGenerator(2, planted={"not JSON": 0.2, "not judgeable": 0.5})

    whole = make(generator(), tmp_path / "whole")
    record, manifest = (
        (tmp_path / "whole" / name).read_bytes() for name in ("verdicts.jsonl", "manifest.json")
    )
    for cut in np.random.default_rng(0).integers(0, len(record), size=3):
        (folder := tmp_path / str(cut)).mkdir()
        (folder / "manifest.json").write_bytes(manifest)
        (folder / "verdicts.jsonl").write_bytes(record[:cut])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a torn line is mentioned
            again = make(generator(), folder)
        assert again.rows == whole.rows and again.log.equals(whole.log)
        written = (folder / "verdicts.jsonl").read_bytes()
        assert written.startswith(record[: record.rfind(b"\n", 0, cut) + 1]), (
            "nothing that was paid for is lost"
        )
    replay = generator()
    replay.reply = None  # nothing is asked
    assert make(replay, tmp_path / "whole").log.equals(whole.log)
    with pytest.raises(RunError, match="tolerance"):
        make(generator(), tmp_path / "whole", tolerance=0.2)


def test_lengths_are_words_and_in_a_script_without_spaces_characters(tmp_path):
    def change(stage, given, again, answer):
        if stage == "instruction":
            answer["reference_answer"] = "桌上有一个红色的杯子和两个蓝色的盘子，旁边放着一把叉子"
        elif stage == "response":
            answer["response"] = "一二三四五六七八九十"[given["score"]] * (20 if again else 10)

    built = make(Faulty(1, change), tmp_path, rubrics=1, tolerance=0.3)
    assert built.faults().at["length", "response"] == 5 and {
        len(row["response"]) for row in built.rows
    } == {20}


def test_a_generator_that_does_not_answer_stops_the_build_and_its_refusals_are_counted(
    tmp_path, monkeypatch
):
    """Over HTTP, from the script behind an OpenAI-compatible server on loopback."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.005)
    monkeypatch.setattr(client_module, "RETRIES", 1)

    def serve(change, out="out", **options):
        scripted = ScriptedGenerator(1)

        def answer(request: Request) -> Reply:
            task = "" if request.is_test else request.text[request.text.index("Task: ") :]
            if task:  # the server is asked to hold the generator to the stage's schema
                form = request.body["response_format"]["json_schema"]["schema"]
                assert form == builder.STAGES[given_of(task)[0]]["schema"]
            text = (
                scripted.reply(task, vj.images.image_bytes(request.pictures[0])) if task else "yes"
            )
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
            reply = {
                "object": "chat.completion",
                "model": "m",
                "choices": [choice],
                "usage": {"prompt_tokens": 9},
            }
            return (task and change(given_of(task)[0], choice)) or Reply(reply)

        with ChatServer(answer) as server:
            judge = vj.load_judge("openai:m", base_url=server.url, timeout=5.0)
            judge.engine.identity = lambda: {"model": "m"}  # the next server has another address
            return make(judge, tmp_path / out, images=scripted.images, **options)

    def silent(stage, choice):
        return (
            Reply(b"<html>bad gateway</html>", headers={"Content-Type": "text/html"})
            if stage == "align"
            else None
        )

    def dead(stage, choice):
        return (
            Reply({"error": {"message": "no such key"}}, status=401)
            if stage == "response"
            else None
        )

    refusals = [{"message": {"role": "assistant", "content": None, "refusal": "I won't."}}]
    refusals = iter([*refusals, {"finish_reason": "content_filter"}])

    def odd(stage, choice):
        choice |= next(refusals, {}) if stage == "response" else {}

    with pytest.raises(
        builder.BuildError, match="2 calls of .* got no answer.*not JSON.*skip_unanswered"
    ):
        serve(silent)
    with pytest.raises(builder.BuildError, match="ended at 'align'.*no answer 6"):
        serve(silent, "skipped", skip_unanswered=True)
    with pytest.warns(RuntimeWarning, match="no such key"):
        with pytest.raises(builder.BuildError, match="no such key.*ask for them again"):
            serve(dead, skip_unanswered=True)
    built = serve(odd)
    assert (
        built.n_cases == 2
        and built.faults()["all"].sum() == built.faults().at["refusal", "response"] == 2
    )


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    place, generator = tmp_path_factory.mktemp("b"), ScriptedGenerator(2, planted={"not JSON": 0.1})
    built = make(generator, place / "out", rubrics=3, instructions=2)
    return built, built.export(place / "c", name="Scenes, by script", license="cc0-1.0")


def test_the_folder_loads_as_what_was_built_and_its_card_says_how(exported, tmp_path):
    built, folder = exported
    assert data.fingerprint(vj.load_collection(folder)) == data.fingerprint(
        data.canonical(built.rows)
    )
    (name, picture), *_ = built.images.items()
    picture.save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(content + b"more")
    filed = replace(built, images=built.images | {name: tmp_path / "a.png"}).export(tmp_path / "c")
    assert (filed / "images" / f"{name}.png").read_bytes() == content + b"more", "a file is copied"
    with pytest.raises(data.CollectionError, match="holds something already"):
        built.export(folder)
    card = (folder / "README.md").read_text()
    head = yaml.safe_load(card.split("---")[1])
    assert (
        head["license"] == "cc0-1.0"
        and head["configs"][0]["data_files"][0]["path"] == "train.parquet"
    )
    n_broken = built.faults().at["not JSON", "all"]
    lines = (
        "2 of 2 images, 6 rubrics, 12 instructions",
        "60 responses",
        f"not JSON: {n_broken} (",
        built.generator,
    )
    assert n_broken and all(line in card for line in (*lines, VERSION))


def test_a_built_row_passes_what_a_published_one_passes(exported):
    """Columns are the published ones, and prompt and target are taken apart like theirs, byte for byte."""
    table = pd.read_parquet(exported[1] / "train.parquet")
    levels = [f"orig_score{n}_description" for n in range(1, 6)]
    names = [
        "image",
        "instruction",
        "output",
        "orig_instruction",
        "orig_response",
        "orig_reference_answer",
    ]
    assert [*table][:13] == [*names, "orig_criteria", *levels, "orig_feedback"]
    for row in table.to_dict("records"):
        closing = f"So the overall score is {row['orig_score']}.\n[RESULT] {row['orig_score']}"
        assert row["output"] == f"{row['orig_feedback']} {closing}"
        turns = [
            {"from": "human", "value": f"<image>\n{row['instruction']}"},
            {"from": "gpt", "value": row["output"]},
        ]
        published = data.canonical(
            [{"id": row["id"], "image": row["image"], "conversations": turns}]
        )
        item = Item.from_row(data.rows_of(published)[0])
        assert item.rubric and len(item.rubric.descriptions) == 5
        assert vj.prompts.target(item.feedback, int(item.gold)) == row["output"]
        text = vj.prompts.TEMPLATES["prometheus-vision"].render(item).text
        assert text.endswith(f"<image>\n{row['instruction']} ASSISTANT:")


def test_a_judge_trains_on_the_exported_folder(exported, tmp_path):
    """One step from the embedded judge, on the folder as a user would load it."""
    pytest.importorskip("torch")
    from vjudge.training import fine_tune

    items = vj.load_collection(exported[1])
    judge = fine_tune(
        "tiny", items, out=tmp_path, steps=1, batch_size=5, device="cpu", progress=False
    )
    assert vj.load_judge(judge).grade(items.select([0]), progress=False)["raw"][0]
