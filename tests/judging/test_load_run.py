"""A run is read back without its judge, and goes on wherever its judge and its folder are moved."""

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest

import vjudge as vj
from samples import Scripted, pair, scripted
from vjudge.judging.paths import file_name, file_names
from vjudge.judging.record import Log
from vjudge.judging.runs import Run, RunError
from vjudge.models.find import ASSETS

OWN = {"system": "gpt", "tokens": 7, "asked_on": None, "tags": ["a", "b"], "score": 0.5}


def items(n, **more):
    shared = {
        "images": [],
        "instruction": "Say.",
        "criteria": "Said?",
        "descriptions": list("abcde"),
    }
    return [
        {"id": f"i{k}", "response": "x" * k, "gold": 3.0, **shared, **OWN, **more}
        for k in range(1, n)
    ]


def lengthy():
    """A judge whose score is the response's length."""
    return scripted(lambda prompt, ask, place: f"So. [RESULT] {1 + place % 5}")


def test_a_loaded_run_is_the_run(tmp_path):
    rows = items(6, human_scores=[4.0, None, 2.0])
    run = lengthy().grade(rows, out=tmp_path)
    assert run["item_score"].eq(0.5).all() and run["tokens"].tolist() == [7] * 5
    assert run["tags"].tolist() == [["a", "b"]] * 5 and run["system"].eq("gpt").all()
    assert run[["lowest", "highest"]].values.tolist() == [[1.0, 5.0]] * 5
    pd.testing.assert_frame_equal(vj.load_run(tmp_path), run)
    # a part of the rows leaves the others; further ones, or others in their place, take their place
    lengthy().grade(rows[1:3], out=tmp_path)
    pd.testing.assert_frame_equal(vj.load_run(tmp_path), run)
    rows = [*items(8)[::-1]]
    run = lengthy().grade(rows, out=tmp_path)
    pd.testing.assert_frame_equal(vj.load_run(tmp_path), run)
    code = "import sys, vjudge as vj; print(len(vj.load_run(sys.argv[1])), 'torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert shown.stdout.split() == ["7", "False"], shown.stderr


@pytest.mark.parametrize(
    "options", [{}, {"orders": "one"}, {"orders": "random", "samples": 4, "temperature": 1.0}]
)
def test_a_loaded_comparison_is_the_comparison(options, tmp_path):
    pairs = [pair(str(n), preference="a", mine=n) for n in range(4)]
    run = scripted(lambda prompt, ask, place: f"[RESULT] {'AB'[place % 2]}").compare(
        pairs, out=tmp_path, **options
    )
    pd.testing.assert_frame_equal(vj.load_run(tmp_path), run)
    assert run["mine"].tolist() == [0, 1, 2, 3]


def test_what_is_not_there_yet_is_counted(tmp_path, capsys):
    judge = lengthy()
    judge.grade(items(6), out=tmp_path)
    record = tmp_path / "verdicts.jsonl"
    record.write_bytes(b"".join(record.read_bytes().splitlines(keepends=True)[:2]))
    capsys.readouterr()
    assert vj.load_run(tmp_path)["id"].tolist() == ["i1", "i2"]
    assert "3 of 5 rows wait for verdicts" in capsys.readouterr().err
    (tmp_path / "rows.jsonl").unlink()
    with pytest.raises(RunError, match="has no rows with verdicts: repeat the call"):
        vj.load_run(tmp_path)
    judge.grade(items(6), out=tmp_path)
    assert len(vj.load_run(tmp_path)) == 5
    with pytest.raises(RunError, match="can't be read"):
        vj.load_run(tmp_path / "nowhere")


def test_the_folder_of_a_panel_names_the_runs_of_its_members(tmp_path):
    judges = [replace(scripted(lambda *_: "[RESULT] 4"), name=name) for name in ("a/b", "c")]
    inner = vj.panel(judges, name="inner")
    run = vj.panel([inner, replace(judges[0], name="d")]).grade(items(2), out=tmp_path)
    listed = [f"{name!r}: load_run({str(tmp_path / path)!r})" for name, path in
              (("d", "d"), ("a-b", "inner/a-b"), ("c", "inner/c"))]  # fmt: skip
    with pytest.raises(RunError, match="several runs, such as those of a panel's members") as error:
        vj.load_run(tmp_path)
    assert f"runs = {{{', '.join(listed)}}}" in str(error.value)
    assert vj.load_run(tmp_path / "d")["score"].tolist() == run["score"].tolist()


def test_cells_that_no_record_holds_are_said(capsys):
    run = lengthy().grade(items(3, audio=b"wav", seen=pd.Timestamp("2026-11-28")))
    assert "audio" not in run and run["seen"][0] == "2026-11-28T00:00:00"
    said = capsys.readouterr().err
    assert "score as item_score" in said and "audio can't be written as JSON" in said


def test_a_column_that_is_left_out_is_not_said_to_be_renamed(capsys):
    first, second = items(3)
    run = lengthy().grade([{**first, "score": "3"}, {**second, "score": b"3"}])
    said = capsys.readouterr().err
    assert "score can't be written as JSON and are left out" in said and "item_score" not in said
    assert "item_score" not in run


class Moved(Scripted):
    """An engine with an identity of the test's."""

    def identity(self):
        return self.facts


def moved(name="mine", **facts):
    judge = replace(lengthy(), name=name)
    engine = Moved(write=judge.engine.write)
    engine.facts = {"engine": "scripted", "checkpoint": "abc", "base_url": "http://localhost:1/v1"}
    engine.facts |= {"dtype": "float32", "versions": {"torch": "2.9"}, **facts}
    return replace(judge, engine=engine)


@pytest.mark.parametrize(
    ("other", "changed"),
    [
        ({"name": "/elsewhere/mine"}, "judge: 'mine' -> '/elsewhere/mine'"),
        ({"base_url": "http://127.0.0.1:8000/v1"}, "base_url: 'http://localhost:1/v1' -> "),
        ({"versions": {"torch": "2.11"}}, "versions: {'torch': '2.9'} -> {'torch': '2.11'}"),
        ({"base_url": "http://gpu2:1/v1"}, None),
        ({"base_url": "https://localhost:1/v1"}, None),
        ({"checkpoint": "abd", "name": "/elsewhere/mine"}, None),
        ({"dtype": "bfloat16"}, None),
    ],
)
def test_what_decides_no_verdict_may_change(other, changed, tmp_path, capsys):
    run = moved().grade(items(4), out=tmp_path)
    judge = moved(**other)
    if changed is None:
        with pytest.raises(RunError, match="differs from this call"):
            judge.grade(items(4), out=tmp_path)
        moved().grade(items(4), out=tmp_path)
        return
    for _ in range(2):
        capsys.readouterr()
        again = judge.grade(items(4), out=tmp_path)
        assert changed in capsys.readouterr().err and judge.engine.asked == 0
    assert again.drop(columns="judge").equals(run.drop(columns="judge"))
    (record,) = Run(tmp_path).manifest["continued"]
    assert set(record) <= {"judge", "base_url", "versions"}
    moved().grade(items(5), out=tmp_path)  # and back, with the lines of both
    assert len(Run(tmp_path).verdicts()) == 4


def test_equal_weights_at_another_path_continue(tmp_path):
    rows = list(vj.load_collection("scenes", split="test", limit=2))
    run = vj.load_judge("tiny", device="cpu").grade(rows, out=tmp_path / "run")
    folder = shutil.copytree(ASSETS / "tiny", tmp_path / "copy")
    judge = vj.load_judge(folder, device="cpu", template="prometheus-vision")
    again = judge.grade(rows, out=tmp_path / "run")
    assert again["seconds"].equals(run["seconds"]), "nothing was asked again"


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    lengthy().grade(items(3), out="~/run")
    assert (tmp_path / "run" / "manifest.json").is_file() and not (tmp_path / "~").exists()
    assert len(vj.load_run("~/run")) == 2


def test_the_manifest_is_read_behind_the_lock(tmp_path, monkeypatch):
    """Two first calls at once: the later one finds the earlier one's run."""
    from filelock import FileLock

    acquire = FileLock.acquire

    def begun_meanwhile(lock, *options, **more):
        acquired = acquire(lock, *options, **more)
        text = json.dumps({"format": 3, "judge": "other"})
        (tmp_path / "manifest.json").write_text(text)
        return acquired

    monkeypatch.setattr(FileLock, "acquire", begun_meanwhile)
    with pytest.raises(RunError, match="'other' -> 'mine'"):
        Run(tmp_path).open({"judge": "mine"})
    monkeypatch.undo()
    Run(tmp_path).open({"judge": "other"}).close()  # the refusal let go of the lock


def test_an_interrupted_bar_leaves_nothing_behind(monkeypatch, capsys):
    """As in a notebook, where Ctrl-C falls between a bar's registering and its container."""
    import vjudge.engines.progress as progress

    class Bar(progress.tqdm):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            raise KeyboardInterrupt

        def clear(self, *args, **options):
            raise AttributeError("container")

    monkeypatch.setattr(progress, "tqdm", Bar)
    with pytest.raises(KeyboardInterrupt) as kept:
        lengthy().grade(items(3))
    progress.say("goes on")
    assert "goes on" in capsys.readouterr().err and kept


def test_names_become_names_of_files():
    assert file_name("/home/me/my judge/") == "home-me-my-judge"
    assert file_name("../../x") == "x" and file_name("模型.v2") == "模型.v2"
    odd = [file_name(name) for name in ("..", "", "///", "é" * 400, "é" * 401)]
    assert len(set(odd)) == 5 - 2 + 2 and all(0 < len(name.encode()) <= 120 for name in odd)
    with pytest.raises(ValueError, match="'a b' and 'A/b' need names of their own"):
        file_names(["a b", "A/b"])


def test_a_log_says_which_lines_are_damaged(tmp_path):
    log = Log(tmp_path / "log", identity=5)
    log.append([{"n": n} for n in range(4)])
    content = (tmp_path / "log").read_bytes()
    for place in range(0, len(content) - 1):  # a bit of any byte
        flipped = bytearray(content)
        flipped[place] ^= 1
        (tmp_path / "log").write_bytes(flipped)
        assert len(log.read()) < 4 and log.damaged, place
    (tmp_path / "log").write_bytes(content)
    assert [entry["n"] for entry in log.read()] == [0, 1, 2, 3] and log.damaged == []
    assert Log(tmp_path / "log").read() == [], "of another identity"


@pytest.mark.parametrize(
    ("combine", "scores"), [("mean", [3.0, 2.5]), ("median", [4.0, 2.5]), ("majority", [4.0, 2.5])]
)
def test_samples_are_combined(combine, scores):
    verdicts = iter("441" + "41?")
    judge = scripted(lambda prompt, ask, place: f"[RESULT] {next(verdicts)}")
    run = judge.grade(items(3), samples=3, temperature=1.0)
    frame = vj.combine_samples(run, combine=combine)
    assert frame["id"].tolist() == ["i1", "i2"] and frame["score"].tolist() == scores
    assert frame[["n", "missing"]].values.tolist() == [[3, 0], [2, 1]]
    assert frame["gold"].eq(3.0).all() and frame["failure"].isna().all()
    with pytest.raises(ValueError, match="combine='max'"):
        vj.combine_samples(run, combine="max")


def test_samples_that_all_failed_keep_every_reason():
    run = pd.DataFrame({"id": list("aaabbb"), "judge": "mine"})
    run["score"] = [math.nan] * 3 + [4.0, math.nan, math.nan]
    run["failure"] = ["refusal", "cut off", "refusal", None, "cut off", None]
    run = run.assign(closed=False, lowest=1.0)
    assert vj.combine_samples(run)["failure"].tolist() == ["refusal; cut off", None]


def test_scores_within_the_numeric_noise_share_a_rank():
    """Expected scores 1e-8 apart are ties, .01 apart are not."""
    import math

    shares = {"a": 0.5, "b": 0.5 + 1e-9, "c": 0.51}

    def write(prompt, ask, place):
        two = shares[prompt.text.split("###Response to evaluate:\n")[1][0]]
        return {"text": "[RESULT] 2", "score_logprobs": {1: math.log(1 - two), 2: math.log(two)}}

    row = {**items(2)[0], "descriptions": ["no", "yes"], "gold": None, "responses": list("abc")}
    frame = scripted(write).rank([row], by="scores")
    assert frame["rank"].tolist() == [2.0, 2.0, 1.0] and frame["best"].tolist() == [
        False,
        False,
        True,
    ]
    rewards = vj.preference.reward(scripted(write), [row])
    assert rewards["reward"].nunique() == 2 and rewards["noise"].eq(1e-6).all()
    pairs = vj.preference.make_pairs([row], rewards, every=True)
    assert len(pairs) == 2 and pairs.attrs["left_out"] == {"pair: a tie": 1}
    near = rewards.drop(columns="noise").assign(reward=[1.0, 1.0 + 1e-8, 1.5])
    assert vj.preference.make_pairs([row], near, every=True).attrs["left_out"] == {"pair: a tie": 1}
