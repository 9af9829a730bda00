"""The builder against scripted servers on loopback: every planted fault is counted and none reaches the collection."""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import ChatServer, Reply, Request

import vjudge as vj
from vjudge import builder, data
from vjudge.builder import Plan, ScriptedServer, checks
from vjudge.builder.checks import Fault, check_feedback, check_rubric, check_text, read_object
from vjudge.builder.overlap import Near
from vjudge.builder.prompts import STAGES, given_of
from vjudge.data.summary import rouge_l
from vjudge.engines import transport
from vjudge.prompts.parse import parse
from vjudge.records import Item
from vjudge.runs import RunError

SMALL = Plan(rubrics_per_image=2, instructions_per_rubric=1)
ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """No key or proxy from outside, and pauses of a hundredth of their length."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name == "OPENAI_API_KEY":
            monkeypatch.delenv(name)
    monkeypatch.setattr(transport, "FIRST_BACKOFF", 0.01)


def generator(server, **options):
    options = {"timeout": 5.0, "retries": 1, "served_as": "scripted"} | options
    return vj.load_judge("openai:scripted-from-scenes", base_url=server.url, **options)


def make(server, out, *, plan=SMALL, images=None, **options):
    asked = {name: options.pop(name) for name in ("timeout", "retries") if name in options}
    images = server.images if images is None else images
    return builder.build(images, generator(server, **asked), plan=plan, out=out, progress=False, **options)


def stage_of(request: Request) -> str:
    """The stage that a request is of; none for the short request before a call."""
    parts = request.body["messages"][-1]["content"]
    text = parts if isinstance(parts, str) else "".join(part.get("text", "") for part in parts)
    return given_of(text)[0] if text.startswith("Task: ") else ""


@pytest.fixture(scope="module")
def faultless(tmp_path_factory):
    with ScriptedServer(2, planted={}) as server:
        return make(server, tmp_path_factory.mktemp("build") / "out", plan=Plan())


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A build with all faults at higher rates than by default, and what the server sent."""
    os.environ.pop("OPENAI_API_KEY", None)
    shares = {name: 0.03 if kind != "near duplicate" else 0.4 for name, (kind, _) in builder.PLANTED.items()}
    shares |= {"unfit criterion": 0.4, "time-out": 0.01}
    with ScriptedServer(4, planted=shares, delay=3.0) as server:
        # A planted time-out meets the first request for a prompt alone, and without repetitions it is the builder's.
        return make(
            server, tmp_path_factory.mktemp("planted") / "out", plan=Plan(), timeout=2.0, retries=0
        ), server.sent


# Seeds


def test_there_are_fifty_seeds_of_many_areas_and_no_two_alike():
    seeds = builder.load_seeds()
    assert len(seeds) == 50 and len({seed.id for seed in seeds}) == 50
    areas = Counter(seed.area for seed in seeds)
    wanted = "recognition counting spatial inference safety style hallucination culture charts"
    assert {*wanted.split(), "reading text"} <= set(areas)
    near, whole = Near(0.7), Near(0.6)
    for seed in seeds:
        text = "\n".join((seed.rubric.criteria, *seed.rubric.descriptions))
        assert len(seed.rubric.descriptions) == 5
        assert near.find(seed.rubric.criteria) is None and whole.find(text) is None, seed.id
        near.add(seed.id, seed.rubric.criteria)
        whole.add(seed.id, text)


def test_another_field_is_another_seed_file(tmp_path):
    assert builder.embedded() == ["charts", "general"]
    charts = builder.load_seeds("charts")
    assert len(charts) == 8 and charts[0].id == "axis-reading"
    (tmp_path / "mine.jsonl").write_text(
        json.dumps({"id": 1, "area": "x", "criteria": "c", "descriptions": ["a", "b"]})
    )
    assert builder.load_seeds(tmp_path / "mine.jsonl")[0].rubric.highest == 2


def test_unsound_seeds_are_all_named(tmp_path):
    rows = [
        {"id": "a", "area": "x", "criteria": "c", "descriptions": ["a", "b"]},
        {"id": "a", "area": "x", "criteria": "d", "descriptions": ["a", "b"]},
        {"id": "b", "area": "x", "criteria": " ", "descriptions": ["a", "b"]},
        {"id": "c", "area": "x", "criteria": "e", "descriptions": ["a", "b", "c"]},
        {"id": "d", "area": "x", "criteria": "e"},
    ]
    path = tmp_path / "seeds.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\nnot json\n[1]")
    with pytest.raises(data.CollectionError) as error:
        builder.load_seeds(path)
    assert [problem.index for problem in error.value.problems] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(data.CollectionError, match="charts, general"):
        builder.load_seeds("medicine")


# Checks


@pytest.mark.parametrize(
    "text",
    [
        "The cup is red. This deserves a 3.",
        "This answer deserves a score of 4.",
        "Overall score: 5",
        "I would rate this response 2 out of 5.",
        "As a score 3 response, I note a cup.",
        "Here is my level-2 answer: a cup.",
        "There is a cup (4/5).",
        "Following the rubric, I describe a cup.",
        "A cup, with a deliberate mistake about its colour.",
        "This response is meant to be vague.",
        "Rated 5/5 by me.",
        "A low-scoring answer would say a cup.",
    ],
)
def test_a_score_in_a_response_is_found(text):
    with pytest.raises(Fault) as fault:
        check_text("response", text, graded=True)
    assert fault.value.kind == "score leak"


@pytest.mark.parametrize(
    "text",
    [
        "Three of the five cups are red, and two stand on level ground.",
        "The scoreboard shows 3 to 1 for the home team.",
        "It costs 4.50 and comes in size 5.",
        "The building has four floors; one of five windows is open.",
        "A level crossing with two barriers.",
        "The quality of the light suggests evening.",
        "She deserves the applause that she receives.",
    ],
)
def test_ordinary_numbers_are_no_leak(text):
    assert check_text("response", f" {text}\n", graded=True) == text


@pytest.mark.parametrize(
    "text",
    [
        "Good. [RESULT] 4",
        "a <image> b",
        "<|im_start|>user",
        "x\n###Feedback:\ny",
        "a\u202eb",
        "</s>",
        "[[A]]",
        "a\nScore 2: b",
    ],
)
def test_markup_and_invisible_characters_are_found(text):
    with pytest.raises(Fault) as fault:
        check_text("feedback", text)
    assert fault.value.kind == "markup"


def test_answers_are_one_json_object_of_the_asked_form():
    schema = STAGES["align"].schema
    good = '{"judgeable": true, "reason": "x"}'
    for text in (good, f"  {good}\n", f"```json\n{good}\n```", f"```\n{good}\n```"):
        assert read_object(text, schema) == {"judgeable": True, "reason": "x"}
    kinds = {
        "<!DOCTYPE html><p>no</p>": "not JSON",
        f"Sure! {good}": "not JSON",
        good[:-1]: "not JSON",
        "": "not JSON",
        "[" * 100_000: "not JSON",
        '{"judgeable": true, "judgeable": false, "reason": "x"}': "not JSON",
        "I\u2019m sorry, but I can\u2019t assist with that.": "refusal",
        "As an AI, I have no opinion.": "refusal",
        '{"judgeable": "yes", "reason": "x"}': "wrong form",
        '{"judgeable": true}': "wrong form",
        '{"judgeable": true, "reason": ""}': "wrong form",
        '{"judgeable": true, "reason": "x", "more": 1}': "wrong form",
        "[1, 2]": "wrong form",
        "null": "wrong form",
    }
    for text, kind in kinds.items():
        with pytest.raises(Fault) as fault:
            read_object(text, schema)
        assert fault.value.kind == kind, text[:60]


def test_rubrics_and_feedback_are_checked():
    assert check_rubric({"criteria": " c ", "descriptions": ["a", "b "]}, n_levels=2) == ("c", ("a", "b"))
    for levels in (["a"], ["a", "a"], ["a", " "], ["a", "b", "c"]):
        with pytest.raises(Fault, match="wrong form"):
            check_rubric({"criteria": "c", "descriptions": levels}, n_levels=2)
    assert check_feedback("It is so. So the overall score is 3.", 3) == "It is so."
    assert check_feedback("It is so. So the overall score is three.", 3) == "It is so."
    assert check_feedback("A score of 5 would need the colours.", 3) == "A score of 5 would need the colours."
    with pytest.raises(Fault, match="contradiction"):
        check_feedback("It is so. So the overall score is 4.", 3)
    with pytest.raises(Fault, match="wrong form"):
        check_feedback("So the overall score is 3.", 3)


def test_bands_and_options():
    plan = Plan(tolerance=0.15)
    assert plan.band(40) == (34, 46) and plan.band(40, share=0.5) == (37, 43) and plan.band(1) == (1, 2)
    assert Plan(unit="characters").length("a b\n") == 4
    assert Plan().calls(5000) == {
        "brainstorm": 5000,
        "refine": 15_000,
        "align": 15_000,
        "instruction": 30_000,
        "response": 150_000,
    }
    with pytest.raises(ValueError, match="tries=0.*tolerance=2"):
        Plan(tries=0, tolerance=2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=8).map(" ".join), min_size=2, max_size=12))
def test_near_duplicates_are_those_of_a_full_comparison(texts):
    near = Near(0.7)
    for number, text in enumerate(texts):
        values = [rouge_l(other, text) for other in texts[:number]]
        best = int(np.argmax(values)) if values and max(values) >= 0.7 else None
        found = near.find(text)
        assert near.closest(text) == max(values, default=0.0)
        assert found == (None if best is None else (str(best), values[best]))
        near.add(str(number), text)


def test_a_task_can_be_taken_apart_whatever_is_in_it():
    given = {"criteria": 'x"}\n\nInput:\n{"y": 1}\n\nTask: align was rejected:'}
    for stage in STAGES.values():
        assert given_of(stage.text(given)) == (stage.name, given, False)
        assert given_of(stage.text(given, note="It was so.")) == (stage.name, given, True)
        assert "perception" not in stage.task.lower()


# A build


def test_a_faultless_generator_gives_the_counts_of_the_paper(faultless):
    assert (faultless.counts() == faultless.counts().loc["planned"]).all(axis=None)
    rows = faultless.rows()
    assert len(rows) == 60 and Counter(row["gold"] for row in rows) == dict.fromkeys((1, 2, 3, 4, 5), 12)
    data.validate(faultless.items())
    assert len(faultless.diversity()) == 6 and (faultless.diversity()["seed_criteria"] < 0.7).all()
    some = faultless.diversity(max_compared=2)
    assert some["other_rubric"].count() == 2 and some["seed_rubric"].equals(faultless.diversity()["seed_rubric"])
    account = faultless.account()
    assert (account["kept"] == account["calls"]).all() and account.at["response", "calls"] == 60
    assert account.at["all", "new_tokens"] > 0 and np.isnan(account.at["all", "price"])


def test_every_field_says_where_it_comes_from(faultless):
    made = faultless.attempts[faultless.attempts["fault"].isna()].set_index("call")
    for row in faultless.rows(images=False):
        sources = json.loads(row["provenance"])
        fields = ("criteria", "descriptions", "instruction", "reference_answer", "response", "feedback")
        assert tuple(sources) == fields
        for call in {call for calls in sources.values() for call in calls}:
            entry = made.loc[call]
            assert entry["image"] == row["group"] and entry["model"] == "openai:scripted-from-scenes"
            assert entry["prompt"] == STAGES[entry["stage"]].version and entry["seed"] >= 0 and entry["time"]


def test_each_planted_fault_is_counted_and_none_reaches_the_collection(planted):
    built, sent = planted
    assert {name for name, n in sent.items() if n} == set(builder.PLANTED), f"not all were planted: {sent}"
    faults = built.faults()["all"]
    by_kind = Counter()
    for name, n in sent.items():
        by_kind[builder.PLANTED[name][0]] += n
    for kind in ("refusal", "cut off", "not JSON", "wrong form", "markup", "score leak", "contradiction"):
        assert faults[kind] == by_kind[kind], kind
    # The generator also repeats itself and misses lengths unplanned; an unfit criterion may be removed as a repetition;
    # a busy machine may be late.
    for kind in ("no answer", "length", "repetition", "near duplicate"):
        assert faults[kind] >= by_kind[kind], kind
    assert 0 < faults["not judgeable"] <= by_kind["not judgeable"]
    rows = built.rows()
    data.validate(rows)
    assert len(rows) == 5 * len(built.cases) and len(rows) >= 0.9 * built.counts().loc["planned", "responses"] * 4
    for row in rows:
        for field in ("response", "reference_answer", "instruction"):
            assert not checks._LEAK.search(row[field]) and not checks._MARKUP.search(row[field])
        assert "[RESULT]" not in row["feedback"] and "overall score" not in row["feedback"]
        target = len(row["reference_answer"].split())
        least, most = built.plan.band(target)
        assert least <= len(row["response"].split()) <= most
    assert len({row["response"] for row in rows}) == len(rows)
    criteria = {row["criteria"] for row in rows}
    assert not criteria & {seed.rubric.criteria for seed in built.seeds}
    assert criteria <= set(vj.scenes.ASPECT_OF), "an unfit criterion was kept"
    assert all(value < built.plan.near_criteria for value in built.diversity()["other_criteria"])


def test_the_truth_survives_the_faults(planted):
    """What reaches the collection is what the script wrote for that score: feedback counts 5 - score wrong claims."""
    built, _ = planted
    wrong = {5: "None", 4: "One", 3: "Two", 2: "Three", 1: "Four"}
    assert all(row["feedback"].endswith(f"{wrong[row['gold']]} wrong.") for row in built.rows(images=False))


def test_a_build_cut_off_anywhere_ends_in_the_same_collection(tmp_path):
    with ScriptedServer(2, planted={"broken JSON": 0.1, "HTML page": 0.1, "seed copied": 0.5}) as server:
        whole = make(server, tmp_path / "whole")
        record = (tmp_path / "whole" / "verdicts.jsonl").read_bytes()
        manifest = (tmp_path / "whole" / "manifest.json").read_bytes()
        for number, cut in enumerate(np.random.default_rng(0).integers(0, len(record), size=4)):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / "manifest.json").write_bytes(manifest)
            (folder / "verdicts.jsonl").write_bytes(record[:cut])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # a torn line is mentioned
                again = make(server, folder)
            assert again.rows() == whole.rows()
            kept = (folder / "verdicts.jsonl").read_bytes()
            assert kept.startswith(record[: record.rfind(b"\n", 0, cut) + 1]), "nothing that was paid for is lost"
        before = sum(server._seen.values())
        replayed = make(server, tmp_path / "whole")
        assert sum(server._seen.values()) == before and replayed.rows() == whole.rows()
        assert replayed.faults().equals(whole.faults()) and replayed.account().equals(whole.account())
        with pytest.raises(RunError, match="plan.tolerance"):
            make(server, tmp_path / "whole", plan=Plan(**{**vars(SMALL), "tolerance": 0.2}))


def test_seeds_of_a_field_are_what_the_generator_is_shown(tmp_path):
    with ScriptedServer(1, planted={}) as scripted:

        def answer(request: Request) -> Reply:
            kind, body = scripted.reply(request.body)
            return Reply(body, headers={"Content-Type": kind})

        with ChatServer(answer) as server:
            built = make(server, tmp_path / "out", images=scripted.images, seeds="charts")
            (asked,) = [request for request in server.requests if stage_of(request) == "brainstorm"]
            with pytest.raises(RunError, match="seeds"):
                make(server, tmp_path / "out", images=scripted.images)
    shown = given_of(asked.body["messages"][-1]["content"][-1]["text"])[1]["examples"]
    charts = {seed.rubric.criteria for seed in builder.load_seeds("charts")}
    assert len(shown) == 3 and {example["criteria"] for example in shown} <= charts
    assert len(asked.pictures) == 1 and len(built.cases) == 2 and built.seeds[0].area == "reading off"


def test_a_process_that_dies_in_mid_run_loses_nothing(tmp_path):
    with ScriptedServer(1, planted={}) as server:
        judge = generator(server)
        ask = judge.engine.answer

        def dies(prompts, *args, **options):
            for number, batch in enumerate(ask(prompts, *args, **options)):
                yield batch
                if len(prompts) > 5 and number == 1:  # ten prompts, eight at once: two batches at least
                    raise KeyboardInterrupt

        judge.engine.answer = dies
        with pytest.raises(KeyboardInterrupt):
            builder.build(server.images, judge, plan=SMALL, out=tmp_path / "out", progress=False)
        saved = len((tmp_path / "out" / "verdicts.jsonl").read_text().splitlines())
        assert saved >= 1 + 2 + 2 + 2 + 2
        built = make(server, tmp_path / "out")
        assert built.counts().eq(built.counts().loc["planned"]).all(axis=None)
    with ScriptedServer(1, planted={}) as server:
        assert make(server, tmp_path / "unbroken").rows() == built.rows()


def test_a_generator_that_writes_more_for_better_is_refused(tmp_path):
    with ScriptedServer(2, planted={}, lean=True) as server:
        built = make(server, tmp_path / "out", plan=Plan(instructions_per_rubric=1))
    assert len(built.mended) == built.plan.rounds and built.mended["auc"].iloc[0] > 0.55
    assert built.faults().at["leaning length", "response"] > 0
    assert "AUC" in built.imbalance
    with pytest.raises(data.CollectionError, match="could score by length"):
        built.export(tmp_path / "no")
    assert not (tmp_path / "no").exists()
    built.export(tmp_path / "yes", allow_imbalance=True)
    assert "exported on request" in (tmp_path / "yes" / "README.md").read_text()


def test_a_lean_that_a_tighter_band_can_mend_is_mended(tmp_path, monkeypatch):
    answer = ScriptedServer._response

    def leans_at_first(self, name, scene, given, rng, fault):
        """Long for good scores, as far as the first band allows; well-behaved in the narrower one."""
        self.lean = given["most"] - given["least"] >= 2 * int(0.15 * given["length"])
        return answer(self, name, scene, given, rng, fault)

    monkeypatch.setattr(ScriptedServer, "_response", leans_at_first)
    with ScriptedServer(2, planted={}, lean=True) as server:
        built = make(server, tmp_path / "out", plan=Plan(instructions_per_rubric=1))
    assert built.mended["auc"].iloc[0] > 0.55 and built.imbalance == ""
    assert abs(built.length_test(n_resamples=0).at["words", "auc"] - 0.5) <= built.plan.lean


def test_a_generator_that_never_answers_stops_the_build_and_is_continued(tmp_path):
    silent = True
    with ScriptedServer(1, planted={}) as scripted:

        def answer(request: Request) -> Reply:
            if silent and stage_of(request) == "align":
                return Reply(b"<html>bad gateway</html>", headers={"Content-Type": "text/html"})
            kind, body = scripted.reply(request.body)
            return Reply(body, headers={"Content-Type": kind})

        with ChatServer(answer) as server:
            with pytest.raises(builder.BuildError, match="2 calls got no answer in 3 rounds.*not JSON"):
                make(server, tmp_path / "out", images=scripted.images)
            skipped = make(server, tmp_path / "skipped", images=scripted.images, skip_unanswered=True)
            assert not skipped.cases and skipped.faults().at["no answer", "align"] > 6
            with pytest.raises(data.CollectionError, match="nothing to export"):
                skipped.export(tmp_path / "none")
            silent = False
            built = make(server, tmp_path / "out", images=scripted.images)
        assert len(built.cases) == 2 and built.faults().at["no answer", "align"] == 6


def test_a_dead_server_stops_the_build_at_once(tmp_path):
    dead = False
    with ScriptedServer(2, planted={}) as scripted:

        def answer(request: Request) -> Reply:
            if dead or stage_of(request) == "response":
                return Reply({"error": {"message": "no such key"}}, status=401)
            kind, body = scripted.reply(request.body)
            return Reply(body, headers={"Content-Type": kind})

        with ChatServer(answer) as server, pytest.warns(RuntimeWarning, match="no such key"):
            with pytest.raises(builder.BuildError, match="stopped answering.*repeat the call"):
                make(server, tmp_path / "out", images=scripted.images)
        assert make(scripted, tmp_path / "out").faults().at["no answer", "response"] >= 1


def test_engine_repetitions_stand_in_the_account(tmp_path):
    failed = set()
    with ScriptedServer(1, planted={}) as scripted:

        def answer(request: Request) -> Reply:
            if request.text not in failed and stage_of(request) == "refine":
                failed.add(request.text)
                return Reply({"error": "busy"}, status=503)
            kind, body = scripted.reply(request.body)
            return Reply(body, headers={"Content-Type": kind})

        with ChatServer(answer) as server:
            built = make(server, tmp_path / "out", images=scripted.images)
            again = make(server, tmp_path / "out", images=scripted.images)
    assert built.repetitions == again.repetitions == {"HTTP 503": 2}
    assert "2 x HTTP 503" in builder.card(built, name="x")


def test_a_refusal_of_the_server_s_own_is_counted_as_one(tmp_path):
    declined = set()
    with ScriptedServer(1, planted={}) as scripted:

        def answer(request: Request) -> Reply:
            kind, body = scripted.reply(request.body)
            if stage_of(request) == "align" and request.body["seed"] not in declined and len(declined) < 2:
                declined.add(request.body["seed"])
                reply = json.loads(body)
                choice = reply["choices"][0]
                if len(declined) == 1:
                    choice["message"] = {"role": "assistant", "content": None, "refusal": "I won't."}
                else:
                    choice["finish_reason"] = "content_filter"
                return Reply(reply)
            return Reply(body, headers={"Content-Type": kind})

        with ChatServer(answer) as server:
            built = make(server, tmp_path / "out", images=scripted.images)
    assert built.faults().at["refusal", "align"] == 2 and built.faults()["all"].sum() == 2 and len(built.cases) == 2


def test_a_generator_that_never_gets_it_right_ends_within_its_budget(tmp_path):
    with ScriptedServer(1, planted={}) as scripted:

        def answer(request: Request) -> Reply:
            kind, body = scripted.reply(request.body)
            if stage_of(request) == "instruction":
                body = body.replace(b"instruction", b"question")
            return Reply(body, headers={"Content-Type": kind})

        with ChatServer(answer) as server:
            built = make(server, tmp_path / "out", images=scripted.images)
    account = built.account()
    assert account.at["instruction", "tries"] == 2 * SMALL.tries and account.at["instruction", "given_up"] == 2
    assert built.faults().at["wrong form", "instruction"] == 6 and not built.cases


def test_a_local_model_is_a_generator_too(tmp_path):
    """The embedded judge has never seen such a task: whatever it writes is counted, and nothing of it is kept."""
    if not (ROOT / "vjudge/assets/tiny/model.safetensors").exists():
        pytest.skip("the embedded judge's weights are not in this checkout")
    plan = Plan(rubrics_per_image=1, instructions_per_rubric=1, rounds=0, tries=2, examples=1, max_new_tokens=4)
    images, judge = ScriptedServer(1).images, vj.load_judge("tiny")
    built = builder.build(images, judge, plan=plan, out=tmp_path / "out", progress=False)
    assert len(built.attempts) == built.faults()["all"].sum() == 2 and not built.cases
    again = builder.build(images, judge, plan=plan, out=tmp_path / "out", progress=False)
    assert again.attempts.equals(built.attempts)


def test_bad_images_and_generators_are_refused_before_anything_is_asked(tmp_path, faultless):
    images = dict(faultless.images)
    first = next(iter(images.values()))
    with pytest.raises(data.CollectionError) as error:
        with ScriptedServer(1) as server:
            make(server, tmp_path / "o", images={"a": first, "b": first, "c": b"no image", "d d": images["scene-001"]})
    assert [problem.id for problem in error.value.problems] == ["b", "c", "d d"]
    with pytest.raises(ValueError, match="give a Judge"):
        builder.build(images, object(), out=tmp_path / "o")
    assert not (tmp_path / "o").exists()


# The folder for the hub


def test_the_folder_loads_as_what_was_built(faultless, tmp_path):
    folder = faultless.export(tmp_path / "c", name="Scenes, scripted", license="cc0-1.0")
    items = vj.load_collection(folder)
    data.validate(items)
    assert data.fingerprint(items) == data.fingerprint(faultless.items())
    assert set(data.FEATURES) <= set(items.column_names) and items[0]["images"][0].size == (192, 192)
    text = (folder / "README.md").read_text()
    import yaml

    head = yaml.safe_load(text.split("---")[1])
    assert head["configs"][0]["data_files"] == [{"split": "train", "path": "data/train-*.parquet"}]
    assert head["license"] == "cc0-1.0" and head["size_categories"] == ["n<1K"]
    for line in ("2 images, 6 rubrics, 12 instructions", "| responses | 30 | 30 | 30 | 30 |", "| score leak |", "auc"):
        assert line in text
    calls = [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]
    assert len(calls) == len(faultless.attempts) and {"call", "model", "prompt", "seed", "time", "fault"} <= set(
        calls[0]
    )
    with pytest.raises(data.CollectionError, match="holds something already"):
        faultless.export(folder)


def test_the_published_columns_load_as_perception_collection(faultless, tmp_path):
    folder = faultless.export(tmp_path / "p", columns="published")
    items = vj.load_collection(folder)
    data.validate(items)
    assert data.fingerprint(items.remove_columns("provenance")) == data.fingerprint(faultless.items())
    import datasets

    rows = datasets.Dataset.from_parquet(str(folder / "data" / "train-00000-of-00001.parquet"))
    levels = [f"orig_score{n}_description" for n in range(1, 6)]
    wanted = ["image", "instruction", "output", "orig_instruction", "orig_response", "orig_reference_answer"]
    wanted += ["orig_criteria", *levels, "orig_feedback", "orig_score"]
    assert rows.column_names[: len(wanted)] == wanted
    for row in rows:
        assert (folder / row["image"]).is_file()
        verdict = parse(row["output"], scores=(1, 2, 3, 4, 5))
        assert verdict.score == row["orig_score"]
        assert (
            row["output"]
            == f"{row['orig_feedback']} So the overall score is {row['orig_score']}.\n[RESULT] {row['orig_score']}"
        )


@pytest.mark.parametrize("source", ["published", "built"])
def test_a_built_row_passes_what_a_published_one_passes(source, faultless):
    """Prompt and target are those of the published training rows, and can be taken apart again byte for byte."""
    from vjudge.data.prometheus import TRAINING_ROWS, read_training

    if source == "published":
        path = ROOT.parent / "shared/data/prometheus_vision_samples/sample_train_data.json"
        if not path.exists():
            pytest.skip("the published samples are not here")
        rows = json.loads(path.read_text())
    else:
        made = [builder.published_row(row, f"{row['group']}.png") for row in faultless.rows(images=False)]
        turns = [(f"<image>\n{row['instruction']}", row["output"]) for row in made]
        rows = [
            {
                "id": row["id"],
                "image": row["image"],
                "conversations": [{"from": "human", "value": asked}, {"from": "gpt", "value": said}],
            }
            for row, (asked, said) in zip(made, turns, strict=True)
        ]
    assert TRAINING_ROWS.fits(rows[0])
    for row in rows:
        read = read_training(row)
        item = Item.from_row({**read, "id": row["id"], "images": [row["image"]]})
        assert item.rubric and len(item.rubric.descriptions) == 5 and item.gold in item.rubric.scores
        assert vj.prompts.target(item.feedback, int(item.gold)) == row["conversations"][1]["value"]
        assert (
            vj.prompts.TEMPLATES["prometheus-vision"]
            .render(item)
            .text.endswith(row["conversations"][0]["value"] + " ASSISTANT:")
        )


def test_training_takes_what_was_built(faultless):
    """The trainer's own checks pass, and what it trains on is what the published columns hold, to the letter."""
    checked = pytest.importorskip("vjudge.training.checks")
    targets = pytest.importorskip("vjudge.training.targets")
    assert abs(checked.check_balance(faultless.items())["auc"] - 0.5) < 0.1
    for row in faultless.rows(images=False):
        made = builder.published_row(row, "x.png")
        template = vj.prompts.TEMPLATES["prometheus-vision"]
        prompt, target = targets.prompt_and_target(Item.from_row(row | {"images": ["x.png"]}), template)
        assert target == made["output"] and made["instruction"] in prompt.text


def test_a_judge_trains_on_the_exported_folder(faultless, tmp_path):
    """Two steps from the embedded judge, on the folder in the published columns as a user would load it."""
    pytest.importorskip("torch")
    from vjudge import models
    from vjudge.training import fine_tune

    folder = faultless.export(tmp_path / "published", columns="published", name="Built", license="apache-2.0")
    items = vj.load_collection(folder)
    options = {"steps": 2, "batch_size": 5, "device": "cpu", "log_every": 1, "progress": False}
    made = fine_tune("tiny", items.select(range(10)), out=tmp_path / "judge", **options)
    losses = [json.loads(line)["loss"] for line in (made.parent / "training_log.jsonl").read_text().splitlines()]
    assert len(losses) == 2 and np.isfinite(losses).all()
    assert models.weights_fingerprint(made) != models.weights_fingerprint(models.locate("tiny"))
    (verdict,) = vj.load_judge(made).grade(items.select([0]), progress=False).to_dict("records")
    assert verdict["raw"]


def test_the_notebook_runs(tmp_path):
    """Small: the sanity cell holds all the same."""
    import papermill

    path = ROOT / "notebooks" / "07_build_collection.ipynb"
    options = {"N_IMAGES": 2, "outputs": str(tmp_path / "outputs"), "figures": str(tmp_path / "figures")}
    papermill.execute_notebook(
        path, tmp_path / path.name, options, kernel_name="python3", cwd=path.parent, progress_bar=False
    )
    assert {"build_faults.pdf", "build_length.pdf", "build_diversity.pdf"} <= {
        found.name for found in (tmp_path / "figures").iterdir()
    }


def test_the_cost_is_known_before():
    table = builder.cost(10, plan=SMALL, price=(1.0, 2.0))
    assert table.at["response", "calls"] == 100 and table.at["all", "calls"] == 10 + 20 + 20 + 20 + 100
    spent = (table["prompt_tokens"] + 2 * table["new_tokens"]) / 1e6
    assert np.allclose(table["price"], spent) and (table["most_price"] > table["price"]).all()
