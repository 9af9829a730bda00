"""Families: every registered judge is found by its id, its folder or its config, and one's own takes five lines."""

import doctest
from pathlib import Path

import pytest

from vjudge import prompts
from vjudge.prompts import TEMPLATES, families
from vjudge.prompts.families import family_of, recorded, register


@pytest.fixture(autouse=True)
def unchanged(monkeypatch):
    """Leave the registry as it was."""
    monkeypatch.setattr(families, "FAMILIES", dict(families.FAMILIES))


NAMES = """
name => expected
kaist-ai/prometheus-vision-7b-v1.0 => prometheus-vision
openai:LMMS-Lab/LLaVA-Critic-7B => llava-critic
./prometheus-7b-v1.0/ => prometheus
lmms-lab/LLaVA-Critic-R1-7B => llava-critic-r1
me/llava-critic-r1-7b-plus-mimo-awq => llava-critic-r1
CodeGoat24/UnifiedReward-7b => unified-reward
CodeGoat24/UnifiedReward-qwen-7b => unified-reward-qwen
CodeGoat24/UnifiedReward-2.0-qwen-3b => unified-reward-qwen
CodeGoat24/UnifiedReward-2.0-qwen3vl-8b => unified-reward-2.0-qwen3
CodeGoat24/UnifiedReward-2.0-qwen35-9b => unified-reward-2.0-qwen3
CodeGoat24/UnifiedReward-Flex-qwen3vl-8b => unified-reward-flex
CodeGoat24/UnifiedReward-Edit-qwen-7b => unified-reward-edit
CodeGoat24/UnifiedReward-Edit-qwen3vl-32b => unified-reward-edit
EditScore/EditScore-7B => editscore
EditScore/EditScore-Qwen3-VL-4B-Instruct => editscore-qwen3-vl
OmniGen2/OmniGen2-EditScore7B-v1.1 => None
CodeGoat24/UnifiedReward-Think-qwen35-9b => unified-reward-think-qwen3vl
CodeGoat24/UnifiedReward-Think-7b => unified-reward-think
CodeGoat24/UnifiedReward-Think-qwen-7b => unified-reward-think-qwen
CodeGoat24/UnifiedReward-Think-qwen3vl-8b => unified-reward-think-qwen3vl
yifanzhang114/R1-Reward => r1-reward
Skywork/Skywork-VL-Reward-7B => skywork-vl-reward
prometheus/some-judge => None
llava-hf/llava-1.5-7b-hf => None
llava-hf/llava-onevision-qwen2-7b-ov-hf => None"""


@pytest.mark.parametrize("row", NAMES.split("\n")[1:])
def test_found_by_name(row):
    name, _, expected = row.partition(" => ")
    assert family_of(name) is families.FAMILIES.get(expected)


def test_a_folder_may_name_its_family_itself(tmp_path):
    (tmp_path / "judge.json").write_text('{"family": "llava-critic"}')
    assert family_of(tmp_path) is families.FAMILIES["llava-critic"] and recorded(tmp_path) is None


def test_the_rooms_readme_adds_a_judge_in_ten_lines():
    readme = Path(prompts.__file__).parent / "README.md"
    assert doctest.testfile(str(readme), module_relative=False).attempted == 5


def test_a_family_of_a_taken_name_or_an_unknown_wording_is_refused():
    with pytest.raises(ValueError, match="family 'chat' exists"):
        register("chat", template="chat")
    with pytest.raises(ValueError, match="template 'nope' is unknown"):
        register("mine", template="nope")


@pytest.mark.parametrize(
    ("body", "options", "said"),
    [
        ("{response}", {"format": "xml"}, "format 'xml' gives no score; one of prometheus, "),
        (
            "{response} {criterion}",
            {},
            "can't be filled .KeyError.'criterion'.*; write a brace that is no field as {{ or }}",
        ),
        ("{response} {", {}, "its body can't be filled"),
        ("{response_a}", {}, "its body lacks {response_b}"),
    ],
)
def test_a_wording_of_ones_own_that_can_not_be_filled(body, options, said):
    with pytest.raises(ValueError, match=said):
        prompts.Template("mine", "my paper", prompts.VICUNA_V1, body, **options)


@pytest.mark.parametrize("record", ["{", "[1]", "3", "[" * 100_000, "\udcff"])
def test_a_record_that_can_not_be_read_is_named(tmp_path, record):
    (tmp_path / "judge.json").write_bytes(record.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=r"judge.json .*give load_judge a template="):
        recorded(tmp_path)
    (tmp_path / "judge.json").write_text('{"template": "prometheus-2"}')
    assert recorded(tmp_path) is TEMPLATES["prometheus-2"] and recorded(tmp_path / "none") is None
