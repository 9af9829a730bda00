"""A policy's answers: what is drawn, what is blank, what is refused."""

from PIL import Image
from pytest import raises

from samples import Scripted
from vjudge import preference
from vjudge.data import CollectionError
from vjudge.judging.judge import Judge
from vjudge.preference import respond
from vjudge.prompts import TEMPLATES

DRAWS = {"samples": 4, "temperature": 0.7, "progress": False}


def policy(*texts):
    """A policy whose answers depend on a row's seed alone."""
    texts = texts or ("one", "two words", "three whole words")

    def write(prompt, ask, place):
        assert ask.scales == () and ask.marker == ""
        return f" {texts[ask.seed(place) % len(texts)]} "

    engine = Scripted(write=write)
    return Judge("scripted", template=TEMPLATES["prometheus-vision"], engine=engine)


def questions(n, **more):
    shared = {"images": [Image.new("RGB", (8, 8), "teal")], "criteria": "True?"}
    shared |= {"response": "an old one", "gold": 2.0, **more}
    return [{"id": f"q{i}", "instruction": f"What is {i}?", **shared} for i in range(n)]


def test_candidates_are_the_published_draws_by_seed_question_and_number_alone(tmp_path):
    assert preference.DRAWS == {"samples": 5, "temperature": 0.7, "top_p": 0.9}
    asked = questions(6, true_scores=[1.0, 5.0])
    rows = preference.draw(policy(), asked, progress=False, out=tmp_path / "run")
    assert rows == preference.draw(
        policy("x"), asked, progress=False, out=tmp_path / "run"
    )  # nothing is asked twice
    for row in rows:
        assert sum(row["times"]) == 5 and len(set(row["responses"])) == len(row["responses"])
    assert not {"response", "gold", "true_scores"} & set(rows[0]) and rows[0]["criteria"] == "True?"
    part = preference.draw(policy(), asked[3:], progress=False)
    assert [row["responses"] for row in rows[3:]] == [row["responses"] for row in part]
    other = preference.draw(policy(), asked, seed=1, progress=False)
    assert [row["times"] for row in other] != [row["times"] for row in rows]


def test_blank_answers_fail_with_a_reason_and_make_no_candidate(capsys):
    answers = respond(policy("", "something"), questions(8), **DRAWS)
    blank = answers["response"].isna()
    assert 0 < blank.sum() < 32 and set(answers["failure"].dropna()) == {"the answer is blank"}
    assert f"{blank.sum()} x the answer is blank" in capsys.readouterr().err
    rows = preference.draw(policy("", "something"), questions(8), **DRAWS)
    assert all(row["responses"] in (["something"], []) for row in rows)
    with raises(ValueError, match="none of 8 questions has two distinct responses"):
        preference.reward(None, rows)


def test_bad_questions_are_all_named_and_instructions_are_plain_text():
    rows = questions(4)
    rows[1]["instruction"] = " "
    rows[3]["id"] = "q0"
    with raises(CollectionError) as caught:
        respond(policy(), rows, progress=False)
    found = [(problem.index, problem.field) for problem in caught.value.problems]
    assert found == [(1, "instruction"), (3, "id")]
    with raises(ValueError, match="samples=2 of greedy decoding"):
        respond(policy(), questions(1), samples=2)
    (row,) = questions(1, instruction="Is <image> or </s> there?")
    prompt = preference.prompt_of(policy(), row)
    assert prompt.n_images == 1 and "<image> or </s>" in prompt.parts[-1]
