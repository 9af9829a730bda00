"""`import vjudge` is light, every public name is there, and a judge is loaded by its name."""

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
from vjudge import data, metrics, prompts, records
from vjudge.judging import runs
print(*{"torch"} & set(sys.modules))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == ""


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tiny", {"base_url": "x"}, "argument 'base_url'"),
        ("openai:m", {"foo": 1}, "argument 'foo'"),
        ("tiny", {"template": 5}, "template 5 is unknown"),
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
    run = judge.compare([pair("1")], mode="score")
    assert run["verdict_ab"].notna().all()
