"""What an answer of a generator must hold: its form, and that no text judges itself, on genuine phrases."""

import json
import re

from pytest import mark, raises

from samples import GENUINE
from vjudge.builder import faults
from vjudge.builder.faults import (
    STAGES,
    Fault,
    check_feedback,
    check_text,
    read_answer,
    self_judgement,
)

CONTENT = """The final score is 3.
The hotel is rated 5 stars by its guests.
The list has 4/5 items ticked off.
There are apples in 4 out of 5 baskets (4/5).
The screen says Score: 3 and, below it, Lives: 2.
A customer wrote: "This deserves 3 stars."
The answer is 3.
I would give the answer as 3. The total score is 3.
Das Hotel hat 3 Sterne, und der Endstand ist 3 zu 1.
Die Antwort auf dem Schild ist 3.
最终比分是3比1。
记分牌显示主队得分是3。
How many stars out of 5 did the critic give the film?
这场比赛的得分是多少？请给照片打分。
Rate the safety of this ladder from 1 to 5 and say why.
Welche Note steht auf dem Zeugnis? Bewerte das Bild von 1 bis 5.
The note by the rubric's author hangs beside it.
=HYPERLINK(A1) stands in the cell, <b>bold</b> is written in HTML, and 3 < 5.""".split("\n")
"""Numbers and scores that an image shows, and questions about them."""
JUDGEMENTS = """The cup is red. This deserves a 3.
This answer deserves a score of 3.
The cup is red, so it merits a 3 at best.
By the rubric's standards it is a cup.
I would rate this response 2 out of 5.
Rated 3/5 by me.
A low-scoring answer would say a cup.
Following the rubric, I describe a cup.
This response is meant to be vague.
A cup stands there.|Overall score: 3
A cup stands there. So the overall score is 3.
A cup stands there. [RESULT] 3
Diese Antwort verdient 3 Punkte.
Ich würde diese Antwort mit 3 von 5 bewerten.
Eine Tasse steht da.|Bewertung: 3/5
Eine Tasse steht da. Daher ist die Gesamtnote 3.
这个回答应得3分。
我给这个回答打三分。
桌上有一个杯子。|评分：3
桌上有一个杯子。因此，总体得分是3。
根据评分标准，桌上有一个杯子。
Describe the cup so that your answer earns a 4.
请写一个应得3分的回答。
Schreibe eine Antwort, die 3 Punkte verdient.""".split("\n")
"""Of the text itself, here for a row whose score is 3, or of one asked for; a bar is a line's end."""
ALIKE = [  # in every script
    ("回答是否准确识别了图像中的主要物体？", "回答是否准确识别了图片中的主要物体？"),
    ("画像の主な物体を正しく認識しているか。", "画像の主な物体を正確に認識しているか。"),
    ("Правильно ли ответ называет главный объект?", "Правильно ли ответ называет главный предмет?"),
]
DIFFERENT = [
    ("回答是否准确识别了图像中的主要物体？", "回答是否准确读出了图像中的文字？"),
    (
        "Erkennt die Antwort das Hauptobjekt des Bildes richtig?",
        "Liest die Antwort den Text im Bild richtig?",
    ),
]


def read(text, finish="stop", failure=None):
    record = {"text": text, "finish": finish, "failure": failure}
    return read_answer(record, STAGES["align"]["schema"])


def test_rewordings_are_near_duplicates_in_every_script_and_others_are_none():
    for one, other in ALIKE + DIFFERENT:
        assert bool(faults.near_duplicate(other, {"seed": faults.normal(one)})) == (
            (one, other) in ALIKE
        )


def test_a_number_is_a_leak_only_as_the_score_of_the_text_itself():
    for text in CONTENT:
        assert check_text("response", f" {text}\n", (3,)) == text
    for text in JUDGEMENTS:
        with raises(Fault, match="score leak"):
            check_text("response", text.replace("|", "\n"), (3,))
    # A label alone is one only with the row's own score.
    assert check_text("response", "The display shows two lines.\nScore: 3", (4,))
    assert self_judgement("The display shows two lines.\nScore: 3", (3,)) == "Score: 3"


def test_feedback_loses_its_closing_and_names_its_score_nowhere_else():
    for closing in (
        "So the overall score is 3.",
        "Therefore, the final score is three.",
        "**Overall score:** 3",
        "因此，总体得分是3。",
        "Daher ist die Gesamtnote 3.",
    ):
        assert check_feedback(f"It is so. {closing}", 3) == "It is so."
    for text in (
        "It says that the final score is 3, and the board shows 2.",
        "The final score is 3 in the picture, and the response misses it. The total score is 4.",
        "This response says that the score is 4, but the board shows 3. A score of 5 would need both.",
    ):
        assert check_feedback(text, 3) == text
    kinds = {
        "It is so. So the overall score is 4.": "contradiction",
        "This response deserves a 3, as it names the cup.": "score leak",
        "The overall score is 3. It names the cup.": "score leak",
        "It names the cup. [RESULT] 3": "score leak",
        "So the overall score is 3.": "wrong form",
    }
    for text, kind in kinds.items():
        with raises(Fault, match=kind):
            check_feedback(text, 3)


@mark.skipif(not GENUINE.is_dir(), reason="other people's sentences are not in the project")
def test_published_responses_and_questions_pass():
    n_texts = 0
    for file in GENUINE.rglob("*.jsonl"):
        for row in map(json.loads, file.read_text().splitlines()):
            scores = [float(row.get("orig_score") or n) for n in range(101)]
            for name in ("orig_response", "response", "query", "text", "answer"):
                if isinstance(row.get(name), str):
                    n_texts += 1
                    assert not self_judgement(row[name], scores), row[name]
    assert n_texts > 200


@mark.parametrize(
    "text", ["a <image> b", "<|im_start|>user", "x\n###Feedback:\ny", "a\u202eb", "</s>", "[[A]]"]
)
def test_control_tokens_headings_of_the_prompt_and_invisible_characters_are_markup(text):
    with raises(Fault, match="markup"):
        check_text("criteria", text)


SOUND = '{"judgeable": true, "reason": "x"}'


@mark.parametrize(
    "text",
    [
        f"  {SOUND}\n",
        f"```json\n{SOUND}\n```",
        f"Sure! Here it is:\n```json\n{SOUND}\n```\nLet me know!",
        f"Sure! Here it is: {SOUND}",
        f"The input {{given}} says: {SOUND}",
        f"<think>Maybe {SOUND.replace('true', 'false')}</think>{SOUND}",
        f"Maybe {SOUND.replace('true', 'false')}\n</thinking>\n{SOUND}",
    ],
)
def test_an_answer_is_one_json_object_bare_fenced_or_in_prose(text):
    assert read(text) == {"judgeable": True, "reason": "x"}


def test_a_text_that_repeats_the_forms_words_is_none():
    """As a model of half a billion parameters did in most of its answers."""
    for text in ("what in the image it is judged on", " the grader's feedback\n", ""):
        with raises(Fault, match="wrong form"):
            check_text("criteria", text)


@mark.parametrize(
    "kind, answer",
    [
        ("not JSON", ["[" * 100_000]),
        ("not JSON", ["Sure! Here it is:"]),
        ("refusal", ["I\u2019m sorry, but I can\u2019t assist with that."]),
        ("wrong form", [SOUND.replace("true", '"yes"')]),
        ("wrong form", [SOUND.replace("}", ', "more": 1}')]),
        ("cut off", [SOUND[:20], "length"]),
        ("cut off", [f"<think>{SOUND}"]),
        ("turned down: too long", ["", "stop", "too long"]),
    ],
)
def test_an_answer_that_is_none_says_why(kind, answer):
    with raises(Fault, match=kind):
        read(*answer)


@mark.parametrize(
    "row", [*faults.MARKUP, *faults.JUDGEMENTS], ids=lambda row: row[0].replace(" ", "-")
)
def test_each_pattern_finds_its_example(row):
    _, example, pattern = row
    assert re.search(pattern, example, re.IGNORECASE | re.MULTILINE)
