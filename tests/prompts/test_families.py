"""Families: every registered judge is found by its id, its folder or its config, and one's own takes five lines."""

import doctest
import shutil
from pathlib import Path

import pytest

from vjudge import load_judge, prompts
from vjudge.prompts import TEMPLATES, families
from vjudge.prompts.families import find, recorded, register


@pytest.fixture(autouse=True)
def unchanged(monkeypatch):
    """Leave the registry as it was."""
    monkeypatch.setattr(families, "FAMILIES", dict(families.FAMILIES))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kaist-ai/prometheus-vision-7b-v1.0", "prometheus-vision"),
        ("openai:LMMS-Lab/LLaVA-Critic-7B", "llava-critic"),
        ("./prometheus-7b-v1.0/", "prometheus"),
        ("hub/models--lmms-lab--llava-critic-7b/snapshots/0abc", "llava-critic"),
        ("lmms-lab/LLaVA-Critic-R1-7B", "llava-critic-r1"),
        ("me/llava-critic-r1-7b-plus-mimo-awq", "llava-critic-r1"),
        ("CodeGoat24/UnifiedReward-7b", "unified-reward"),
        ("CodeGoat24/UnifiedReward-qwen-7b", "unified-reward-qwen"),
        ("CodeGoat24/UnifiedReward-Think-7b", "unified-reward-think"),
        ("CodeGoat24/UnifiedReward-Think-qwen-7b", "unified-reward-think-qwen"),
        ("CodeGoat24/UnifiedReward-Think-qwen3vl-8b", "unified-reward-think-qwen3vl"),
        ("yifanzhang114/R1-Reward", "r1-reward"),
        ("Skywork/Skywork-VL-Reward-7B", "skywork-vl-reward"),
        ("prometheus/some-judge", None),
        ("llava-hf/llava-1.5-7b-hf", None),
        ("llava-hf/llava-onevision-qwen2-7b-ov-hf", None),
    ],
)
def test_found_by_name(name, expected):
    family = find(name)
    assert (family.name if family else None) == expected


def test_a_folder_may_name_its_family_itself(tmp_path):
    (tmp_path / "judge.json").write_text('{"family": "llava-critic"}')
    assert find(tmp_path) is families.FAMILIES["llava-critic"] and recorded(tmp_path) is None


def test_the_rooms_readme_adds_a_judge_in_ten_lines():
    readme = Path(prompts.__file__).parent / "README.md"
    assert doctest.testfile(str(readme), module_relative=False).attempted == 5


def test_an_architecture_alone_makes_no_judge(random_judge, tmp_path):
    judge = load_judge(shutil.copytree(random_judge, tmp_path / "some-llava"), device="cpu")
    assert (judge.template.name, judge.pairs and judge.pairs.name) == ("chat", "chat-relative")
    assert judge.template.conversation is prompts.VICUNA_V1, "it brings no chat template"


def test_ones_own_family_in_five_lines(random_judge, tmp_path, rows):
    body = "Q: {instruction}\nA: {response}\n{criteria}\n{levels}\nGive feedback, then [RESULT] and a score."
    register(
        "mine",
        ids=["me/my-judge-7b"],
        template=prompts.Template("mine", "my paper", prompts.VICUNA_V1, body),
    )
    judge = load_judge(shutil.copytree(random_judge, tmp_path / "my-judge-7b"), device="cpu")
    assert judge.family is families.FAMILIES["mine"] and judge.pairs is None
    assert judge.render(rows[0]).startswith(
        f"{prompts.VICUNA_V1.opening}<image>\nQ: {rows[0]['instruction']}\nA: "
    )


def test_a_family_that_does_not_fit_is_refused_with_all_that_is_wrong():
    with pytest.raises(ValueError) as caught:
        register("chat", template="chat-relative", pairs="chat", ids=["lmms-lab/LLaVA-critic-7b"])
    for part in (
        "family 'chat' exists",
        "id 'lmms-lab/LLaVA-critic-7b' belongs to family 'llava-critic'",
        "'chat-relative' compares two responses: give it as pairs=",
        "pairs='chat' judges one response: give it as template=",
    ):
        assert part in str(caught.value)
    with pytest.raises(ValueError, match="template 'nope' is unknown"):
        register("mine", template="nope")
    assert "mine" not in families.FAMILIES
    assert register("chat", template="chat", replace=True).pairs is None


def test_load_judge_takes_the_familys_wordings(random_judge):
    judge = load_judge(random_judge, device="cpu")  # its folder is named so
    assert judge.family is families.FAMILIES["prometheus-vision"]
    assert judge.template is TEMPLATES["prometheus-vision"]
    judge = load_judge(random_judge, device="cpu", template="prometheus-2-relative")
    assert (judge.template.name, judge.pairs and judge.pairs.name) == (
        "prometheus-vision",
        "prometheus-2-relative",
    )


@pytest.mark.parametrize(
    ("body", "options", "said"),
    [
        ("{response}", {"format": "xml"}, "format 'xml' gives no score; one of prometheus, "),
        (
            "{response} {criterion}",
            {},
            "unknown field {criterion}; write a brace that is no field as {{ or }}",
        ),
        ("{response} {", {}, "its body can't be read"),
        ("{response} {response_a}", {}, "unknown field {response}; .*its body lacks {response_b}"),
    ],
)
def test_a_wording_of_ones_own_that_can_not_be_filled(body, options, said):
    with pytest.raises(ValueError, match=said):
        prompts.Template("mine", "my paper", prompts.VICUNA_V1, body, **options)


@pytest.mark.parametrize("record", ["{", "[" * 100_000, '{"template": "nope"}', "\udcff"])
def test_a_record_that_can_not_be_read_is_named(tmp_path, record):
    (tmp_path / "judge.json").write_bytes(record.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=r"judge.json .*give load_judge a template="):
        recorded(tmp_path)
    (tmp_path / "judge.json").write_text('{"template": "prometheus-2"}')
    assert recorded(tmp_path) is TEMPLATES["prometheus-2"] and recorded(tmp_path / "none") is None
