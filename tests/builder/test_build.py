"""A build, from a scripted generator and over real HTTP: what is kept, counted, refused, continued and exported."""

import json
from collections import Counter

import openai._base_client
import yaml
from pytest import approx, mark, raises, warns
from rapidfuzz import fuzz
from scripted_generator import ScriptedGenerator, given_of

import vjudge as vj
from servers import ChatServer, Reply, completion
from vjudge import builder, data
from vjudge.builder import faults
from vjudge.builder.stages import VERSION
from vjudge.engines import client as client_module
from vjudge.judging.runs import RunError
from vjudge.training import fine_tune


def make(generator, out, *, images=None, **options):
    options = {"rubrics": 2, "instructions": 1, "progress": False} | options
    return builder.build(images or generator.images, generator, out=out, **options)


class Faulty(ScriptedGenerator):
    """A scripted generator whose answers a test changes in place, or replaces by a text."""

    def __init__(self, n_images, change, **options):
        super().__init__(n_images, **options)
        self.change = change

    def reply(self, task, image):
        stage, given, again = given_of(task)
        answer = super().reply(task, image)
        if not answer.endswith("}"):
            return answer
        cells = json.loads(answer)
        return self.change(stage, given, again, cells) or json.dumps(cells)


def test_seeds_are_sound_and_no_two_alike(tmp_path):
    texts = {}
    for seed in [*builder.load_seeds(), *builder.load_seeds("charts")]:
        assert len(seed["descriptions"]) == 5 and not faults.near_duplicate(seed["criteria"], texts)
        texts[seed["id"]] = faults.normal(seed["criteria"])
    sound = {"id": "a", "area": "x", "criteria": "c", "descriptions": ["a", "b"]}
    path = tmp_path / "seeds.jsonl"
    odd = [{**sound, "criteria": " "}, {**sound, "descriptions": [*"abc"]}, {"id": 1}, [1]]
    for line in [*map(json.dumps, odd), "no json"]:
        path.write_text(f"{json.dumps(sound)}\n{line}")
        with raises(data.CollectionError, match="row 2.*correct the line|line 2.*repair it"):
            builder.load_seeds(path)


def test_a_generator_that_writes_more_for_better_is_told_of(tmp_path):
    def change(stage, given, again, answer):
        if stage == "response":
            room = given["most"] - len(answer["response"].split())
            answer["response"] += " indeed" * (room * (given["score"] - 1) // 4)

    built = make(Faulty(1, change), tmp_path / "out", instructions=2)
    with warns(RuntimeWarning, match="could score by length"):
        built.export(tmp_path / "c")
    assert "can score by length" in (tmp_path / "c" / "README.md").read_text()


def test_planted_faults_are_counted_and_none_reaches_the_collection(tmp_path):
    planted = {"not JSON": 0.04, "score leak": 0.1, "not judgeable": 0.5}
    generator = ScriptedGenerator(2, planted=planted)
    built = make(generator, tmp_path, rubrics=3, instructions=2)
    assert (built.n_rubrics, built.n_cases, built.n_incomplete) == (
        6,
        12,
        0,
    )  # the paper's, for two images
    assert Counter(row["gold"] for row in built.rows) == dict.fromkeys((1, 2, 3, 4, 5), 12)
    counted = built.faults()["all"]
    for kind in ("not JSON", "score leak"):
        assert counted[kind] == generator.sent[kind] > 0
    assert 0 < counted["not judgeable"] <= generator.sent["not judgeable"]  # some are duplicates
    caught = built.caught(planted=generator.sent)
    table = caught.table.set_index("fault")
    assert table.loc["score leak"].tolist() == [counted["score leak"]] * 2
    assert f"{counted.sum()} of {len(built.log)} answers were rejected" in caught.reading
    few = built.caught(planted={"refusal": 2}).reading
    assert "Fewer were found than planted of 'refusal' (0 of 2)." in few
    like = built.diversity()
    seeds = {faults.normal(seed["criteria"]) for seed in builder.load_seeds()}
    first = like.table.iloc[0]
    closest = max(fuzz.ratio(faults.normal(first["criterion"]), seed) for seed in seeds)
    assert first["closest seed"] == approx(closest) and "reach 80 %" in like.reading
    wrong = ("", "Four", "Three", "Two", "One", "None")
    for row in built.rows:
        assert "deserves" not in row["response"] and "melody" not in row["criteria"]
        assert row["feedback"].endswith(f"{wrong[int(row['gold'])]} wrong.")  # the script's own
        assert abs(len(row["response"].split()) / len(row["reference_answer"].split()) - 1) <= 0.15


def test_texts_are_kept_to_the_letter_and_control_tokens_are_not_kept(tmp_path):
    hostile = '=HYPERLINK("http://x") <b>5</b> ${x} {{y}} | a\n\nInput:\n{"y": 1}\n\nTask: align'

    def change(stage, given, again, answer):
        if stage == "instruction":
            answer["instruction"] += f" {hostile if again else '<|im_start|>'}"
        elif stage == "response" and not again:
            answer["response"] = "一二三四五六七八九十"[given["score"]] * (2 * given["most"])

    built = make(Faulty(1, change), tmp_path / "out", rubrics=1)
    counts = built.faults()
    assert counts.at["markup", "instruction"] == 1 and counts.at["length", "response"] == 5
    items = vj.load_collection(built.export(tmp_path / "c", name='a: "b" {{ c }}\n---'))
    assert all(row["instruction"].endswith(hostile) for row in built.rows)
    assert items["instruction"] == [row["instruction"] for row in built.rows]
    card = (tmp_path / "c" / "README.md").read_text()
    assert yaml.safe_load(card.split("\n---\n")[0])["pretty_name"] == 'a: "b" {{ c }}\n---'


@mark.parametrize(
    "text, count",
    [('{"question": "What?"}', "'wrong form': 3"), ("I'm sorry, I can't help.", "'refusal': 3")],
)
def test_a_build_without_anything_to_keep_says_so_with_the_counts(text, count, tmp_path):
    with warns(RuntimeWarning, match=f"nothing was built: .*{count}.*7 billion"):
        built = make(Faulty(1, lambda *_: text), tmp_path)
    assert not built.diversity().computed and built.caught().computed
    assert not built.rows and built.faults()["brainstorm"].sum() == 3


def test_bad_calls_are_refused_before_anything_is_asked(tmp_path):
    generator = ScriptedGenerator(1)
    (image,) = generator.images.values()
    out = tmp_path / "o"
    with raises(data.CollectionError) as error:
        make(generator, out, images={"a": image, "c": b"no image", "d d": image, "../e": image})
    assert {problem.id for problem in error.value.problems} == {"c", "d d", "../e"}
    for options, message in (({"tries": 0}, "whole numbers"), ({"tolerance": 2}, "tolerance=2")):
        with raises(ValueError, match=message):
            make(generator, out, **options)
    assert not out.exists()


@mark.parametrize("left", [1, 9, 25])
def test_a_build_cut_off_anywhere_asks_for_nothing_twice_and_ends_the_same(left, tmp_path):
    asked = []

    def generator(left):
        def change(*_):
            asked.append(1)
            if len(asked) == left:
                raise KeyboardInterrupt

        return Faulty(2, change, planted={"not judgeable": 0.5})

    with raises(KeyboardInterrupt):
        make(generator(left), tmp_path / "cut")
    rest = make(generator(-1), tmp_path / "cut")
    n_asked = len(asked)
    whole = make(generator(-1), tmp_path / "whole")
    assert rest.rows == whole.rows and rest.log.equals(whole.log)
    assert len(asked) == 2 * n_asked - 1  # the one that was cut off was asked again
    with raises(RunError, match="tolerance"):
        make(generator(-1), tmp_path / "cut", tolerance=0.2)


def test_a_server_is_held_to_the_schema_and_its_silence_and_refusals_are_told_apart(
    tmp_path, monkeypatch
):
    """Over HTTP, from the script behind an OpenAI-compatible server on loopback."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.005)
    monkeypatch.setattr(client_module, "RETRIES", 1)
    scripted = ScriptedGenerator(1)
    refused = {"message": {"role": "assistant", "content": None, "refusal": "I won't."}}
    refusals = iter([refused, {"finish_reason": "content_filter"}])
    silent = True

    def answer(request):
        if request.is_test:
            return Reply(completion("yes"))
        task = request.text[request.text.index("Task: ") :]
        stage = given_of(task)[0]
        form = request.body["response_format"]["json_schema"]["schema"]
        assert form == builder.STAGES[stage]["schema"]
        if silent and stage == "align":
            return Reply(b"<html>bad gateway</html>", headers={"Content-Type": "text/html"})
        reply = completion(scripted.reply(task, vj.images.image_bytes(request.pictures[0])))
        if stage == "response":
            reply["choices"][0] |= next(refusals, {})
        return Reply(reply)

    with ChatServer(answer) as server:
        judge = vj.load_judge("openai:m", base_url=server.url, timeout=5.0)
        with raises(builder.BuildError, match="stage 'align' got no answer: .*JSON"):
            make(judge, tmp_path, images=scripted.images)
        silent = False
        built = make(judge, tmp_path, images=scripted.images)
    assert built.n_cases == 2 and built.faults().at["refusal", "response"] == 2


def test_an_exported_folder_loads_as_what_was_built_its_card_says_how_and_a_judge_trains_on_it(
    tmp_path,
):
    built = make(ScriptedGenerator(1, planted={"not JSON": 0.1}), tmp_path / "out")
    folder = built.export(tmp_path / "c", name="Scenes, by script", license="cc0-1.0")
    items = vj.load_collection(folder)
    assert data.fingerprint(items) == data.fingerprint(data.canonical(built.rows))
    with raises(data.CollectionError, match="holds something already"):
        built.export(folder)
    card = (folder / "README.md").read_text()
    head = yaml.safe_load(card.split("---")[1])
    (files,) = head["configs"][0]["data_files"]
    assert (head["license"], files["path"]) == ("cc0-1.0", "train.parquet")
    n_broken = built.faults().at["not JSON", "all"]
    counts = ("1 images, 2 rubrics, 2 instructions", "10 responses", f"not JSON: {n_broken} (")
    assert n_broken and all(line in card for line in (*counts, built.generator, VERSION))
    options = {"steps": 1, "batch_size": 2, "device": "cpu", "progress": False}
    judge = fine_tune("tiny", items, out=tmp_path / "judge", **options)
    assert vj.load_judge(judge).template.name == "prometheus-vision"
