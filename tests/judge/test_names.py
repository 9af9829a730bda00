"""`import vjudge` is light, every public name is there, and a judge is loaded by its name."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys

import pytest

import vjudge
from chatmodels import make
from samples import pair


def test_an_import_loads_nothing_heavy():
    code = """
import sys
import vjudge

dir(vjudge)
heavy = {"torch", "transformers", "datasets", "pandas", "numpy", "matplotlib", "PIL", "scipy"}
print(*heavy & set(sys.modules))
from vjudge import data, metrics, prompts, records, runs
print(*{"torch"} & set(sys.modules))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == ""


ROOMS = """
benchmarks builder data engines judge metrics models panels plots preference probes prompts reports
review training
""".split()


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_dir_shows_what_is_public_and_only_that(room):
    module = importlib.import_module(f"vjudge.{room}".rstrip("."))
    shown = set(dir(module))
    assert shown and all(hasattr(module, name) for name in shown)
    assert set(module.__all__) <= shown
    inner = shown - set(module.__all__)
    if room:
        assert not inner
    else:
        assert {"metrics", "plots", "data", "probes"} <= inner
        assert not {"judge", "lazy", "Any"} & inner


NAMES = """
judge.load_judge judge.Judge.grade judge.Judge.compare judge.Judge.rank judge.Judge.render judge.plan judge.combine
benchmarks.benchmark benchmarks.run_benchmark benchmarks.audit panels.panel
prompts.parse.parse prompts.families.register prompts.families.find prompts.target
data.load_collection data.rows_of data.validate data.fingerprint data.truth records.as_score records.Item.from_row
runs.Run metrics.correlate metrics.compare_judges metrics.agreement metrics.human_ceiling metrics.win_rate
metrics.bradley_terry metrics.calibration_curve
probes.position probes.padded
plots.save_table review.Review review.show
training.prompt_and_target training.check_leakage preference.respond reports.report
""".split()
"""What people use most: each has an example in its docstring; `tests/test_examples.py` runs them."""


@pytest.mark.parametrize("name", NAMES)
def test_the_names_used_most_have_examples(name):
    room, *path = name.split(".")
    thing = importlib.import_module(f"vjudge.{room}")
    for part in path:
        if hasattr(thing, part):
            thing = getattr(thing, part)
        else:
            thing = importlib.import_module(f"{thing.__name__}.{part}")
    assert ">>> " in (thing.__doc__ or ""), f"{name} has no example"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tiny", {"base_url": "x"}, "argument 'base_url': engine 'hf' takes .*quantization"),
        ("openai:m", {"foo": 1}, "argument 'foo': engine 'server' takes base_url"),
        ("tiny", {"template": 5}, "template 5 is unknown"),
        (" ", {}, "a judge has a name such as 'tiny', or the path of a folder; ' ' is neither"),
        ("tiny", {"threads": 1.5}, "threads=1.5: use"),
    ],
)
def test_an_unsound_option_of_a_judge_is_named(name, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        vjudge.load_judge(name, **options)


def test_a_judge_that_merely_looks_like_a_published_one_is_asked_as_a_chat_model(
    random_judge, tmp_path, capsys
):
    known = vjudge.load_judge(random_judge, device="cpu")
    assert not capsys.readouterr().err and known.template.name == "prometheus-vision"
    unknown = vjudge.load_judge(shutil.copytree(random_judge, tmp_path / "mine"), device="cpu")
    assert "no judge of this name is known" in capsys.readouterr().err
    assert "template='chat', pairs='chat-relative', engine='hf'" in repr(unknown)
    assert unknown.template.conversation.name == known.template.conversation.name


def test_a_text_only_judge_takes_a_wording_for_pairs(tmp_path):
    folder = make("llama", tmp_path / "mine")
    judge = vjudge.load_judge(folder, device="cpu", template="prometheus-2-relative")
    run = judge.compare([pair("1")], mode="score", progress=False)
    assert judge.pairs is not None and run["verdict_ab"].notna().all()
