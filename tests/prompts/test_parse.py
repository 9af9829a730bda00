"""Parsing: a verdict that stands alone is read in any dress; everything else is missing, with a reason."""

import math
import re
import time
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vjudge.prompts.parse as parsing
from vjudge.engines.closing import Closing
from vjudge.engines.engine import Answer, Ask
from vjudge.prompts import TEMPLATES, phrases, target
from vjudge.prompts.objects import json_objects
from vjudge.prompts.parse import ENDINGS, FORMATS, REASONS, parse
from vjudge.records import Criterion, Rubric

SCALE = (1, 2, 3, 4, 5)
SEVERAL = Rubric(
    "Both",
    tuple("abcde"),
    named=(Criterion("Accuracy", "Is it right?", 3), Criterion("Errors", "Is it whole?", 1)),
)

# How people dress a 4; each is read after every marker of a score on 1 to 5.
DRESSED = r"""4 ¦ **4** ¦ *4* ¦ `4` ¦ (4) ¦ [4] ¦ [[4]] ¦ "4" ¦ \u201c4\u201d ¦ \boxed{4} ¦ $\boxed{4}$ ¦ $4$ ¦ \(4\) ¦ 4/5 ¦ 4 / 5 ¦ **4**/5 ¦ (4/5) ¦
4 out of 5 ¦ 4 out of five ¦ 4 (out of 5) ¦ four ¦ Four ¦ 4. ¦ 4.0 ¦ \uff14 ¦ \u0664 ¦ \u096a ¦ Score: 4 ¦ **Score:** 4/5 ¦ The score is 4. ¦
4 points ¦ 4/5 stars ¦ <score>4</score> ¦ <answer>4</answer> ¦ <b>4</b> ¦ \text{4} ¦ \boxed{\text{4}} ¦ \n4 ¦ \n\n**4**\n ¦ 4</s> ¦
4<|im_end|> ¦ \uff08\uff14\uff09 ¦ \xa04 ¦ \u200b4 ¦ : 4 ¦ = 4 ¦ 4 \u2044 5 ¦ \u30104\u3011 ¦ ```\n4\n```"""

# What is no verdict after any marker of a score on 1 to 5.
UNREADABLE = r"""4-5 ¦ 4\u20135 ¦ 3 to 4 ¦ 3 or 4 ¦ between 3 and 4 ¦ 4.5 ¦ 3.5/5 ¦ 4\xbd ¦ 4 1/2 ¦ 4/10 ¦ 4 out of 10 ¦ 7 ¦ 0 ¦ -4 ¦ 80% ¦ 80/100 ¦ 4 (1-10) ¦
2 errors were found ¦ 5 would be too high ¦ 1. Accuracy: 4 ¦ 5. Correction: 3 ¦ 5. No, 3. ¦ 5 (no, 3) ¦ 4 -> 3 ¦ 4 \u2192 3 ¦ 4, 5 ¦ 4 5 ¦
(4) (5) ¦ 4 and 5 ¦ 4th ¦ IV ¦ ~~5~~ 4 ¦ 5, but 4 is fairer ¦ not 5 ¦ at most 4 ¦ < 4 ¦ > 4 ¦ ~4 ¦ about 4 ¦ 4? ¦ 4+ ¦ 4 of the 5 claims hold ¦ maybe 4 ¦
Max score: 5 ¦ Accuracy: 4 ¦ Fluency score: 4 ¦ 4:5 ¦ 4 percent ¦ 2+2 ¦ 2^2 ¦ 1-5 ¦ (1-5) ¦ out of 5 ¦ Four errors ¦ 4 for accuracy ¦ 4\xb2 ¦ $4 ¦
5\nCorrection: 3 ¦ 5\nWait, 3 ¦ 5\n3 ¦ 5\nActually 3. ¦ 5\n\nOn reflection, 3 is fairer. ¦ 5\nSorry, I meant three. ¦ 5\nScore: 3 ¦
5\nI take it back. ¦ 5\nor 4 ¦ 5\nHmm, two. ¦ 5\nUpdated score: 3 ¦  ¦ ? ¦ good ¦ pending ¦ 4\u200b5 ¦ 4\u202e5 ¦ 4.0.1 ¦ 4,5 ¦ 04:30 ¦ \u2463\u2464"""
MARKERS = {
    "prometheus": "Feedback: Most objects are right. [RESULT] {}",
    "final-score": "It is good.\n**Final Score:** {}",
    "score": "It is good.\nScore: {}",
    "flow-judge": "<feedback>One claim is wrong.</feedback>\n<score>{}</score>",
    "boxed-score": "<think>Or \\boxed{{3}}?</think>\n\\boxed{{{}}}",
}
LABELLED = {"final-score", "score"}  # whose marker is a label already

INSIDE = {"flow-judge", "boxed-score"}  # whose marker holds the value

# By format: answers with the verdict that a careful person reads; "-" for none, or how the reason begins.
ANSWERS = r"""
--- prometheus
[RESULT] 4 (Good) => 4
[RESULT] 4 - Good => 4
[RESULT] 4: mostly right => 4
[RESULT] 4, since 1 object is missing => 4
[RESULT] 4\nConfidence: 0.8 => 4
[RESULT] 5\nNot really. => two verdicts (what follows is no explanation)
The response asks for "[RESULT] 5". => more than a verdict on its line
 => empty answer
Good. So the overall score is 4. => no verdict marker
Good. [RESULT] IV => no verdict marker with a verdict after it
Good. [RESULT] 4/10 => not on the scale of 1 to 5
Good. [RESULT] 4 [RESULT] 2 => two verdicts
So the overall score is 4.\n[RESULT] 2 => two verdicts
The answer is mostly right. So the overall score is 4.\n[RESULT] 4 => 4
Good. [RESULT] 4. It names 3 things. => more than a verdict on its line
top square[RESULT] wrong. Four wrong. So the overall score is 1.\n[RESULT] 1 => 1
Good. [RESULT] Response 2 => more than a verdict on its line
It can't be seen. [RESULT] N/A => abstain
x [RESULT] **cannot judge** => abstain
[RESULT] 4 ... [RESULT] N/A => -
[RESULT] 4 ... [RESULT] => -
Feedback: (write a feedback) [RESULT] (an integer number between 1 and 5)\nGood. [RESULT] 4 => 4
[RESULT] (an integer number between 1 and 5) => no verdict marker
<think>maybe [RESULT] 2</think>\nFine. [RESULT] 4 => 4
maybe [RESULT] 2</think>Fine. [RESULT] 4 => 4
<think>[RESULT] 4 => cut off before the thinking ended
<think>[RESULT] 4</think> => no verdict marker
The answer says "[RESULT] 5". [RESULT] 2 => two verdicts
[RESULT] 4\n\nThe response names all but one. => 4
[RESULT] 4\n\nThe response names 3 of 4 objects. => two verdicts
[RESULT] 1.\n4 is the score => two verdicts
[RESULT] 5\nThat said, it is too generous. => two verdicts
[RESULT] 5\nThis score is wrong. => two verdicts
Good. [RESULT] 4\n\nThank you! => 4
I can't assist with that. => refused
I'm sorry, but I cannot judge this image. => refused
As an AI language model, I cannot see images. => refused
<think>The picture shows a face.</think>\n\nI'm sorry, but I cannot judge this image. => refused
I'm sorry to say the hat is missing. [RESULT] 4 => 4
--- prometheus-relative
[RESULT] A because B is wrong => a
[RESULT] A because B is better => -
[RESULT] A tie => tie
[RESULT] A\nExplanation: Response B outperforms Response A in accuracy, detail and clarity by far. => two verdicts
[RESULT] A is clearly weaker than B => more than a verdict on its line
[RESULT] A is not as good as B => -
[RESULT] A\u00a0B => -
[RESULT] A, although B is better => -
[RESULT] A good answer would name it => -
[RESULT] A or B => -
[RESULT] not A => -
[RESULT] A > B => a
[RESULT] A is better than A => -
[RESULT] Neither => -
[RESULT] Response C => -
x [RESULT] 1 => not on the scale
(write a feedback) [RESULT] (A or B) => no verdict marker
The first is fine. [RESULT] A\nActually B is better. => two verdicts
The first is fine. [RESULT] A\nB => two verdicts
Feedback. [RESULT] B\nThis is the wrong choice. => two verdicts
[RESULT] B\n\nResponse A is the right choice because it names the hat and describes the dog. => two verdicts
[RESULT] Tie => tie
[RESULT] **Response B** => b
[RESULT] \uff22 => b
[RESULT] Response A is better than Response B => a
[RESULT] The second response => b
x [RESULT] cannot decide => abstain
--- final-score
x **Final Score: 4** => 4
Final Score (1-5): 4 => 4
Final Score (out of 10): 4 => not on the scale
**Final Score** (1\u20135)**:** 4 => 4
Final Score: 3 (average of 2 and 4) => -
Fluency final score: 4 => no verdict marker
Max score: 5\nFinal Score: 4 => 4
So the final score is 4. => 4
### Final Score\n4 => 4
--- llava-critic
85\nIt is fine. Overall, this merits a 60. => two verdicts
Final Score (0-100): 72 => 72
85/100\nIt names 3 of 4 objects. => 85
85% => 85
72.5\nok => 72.5
Accuracy Score: 20\nClarity Score: 30 => no verdict marker
Score: 85\nScore: 60 => two verdicts
Final Score: 120 => not on the scale of 0 to 100
Score: 8/10 => not on the scale
85-90\nok => no verdict marker
85\nThe score should be 60. => two verdicts
85\nOn reflection, 60. => two verdicts
85\nScore: 70 => two verdicts
Score: 85\nOverall score: 70 => two verdicts
85 objects are named. => no verdict marker
--- better-response
Answer A names the cat. The better answer is A. => a
The first is short. The better answer is B, because it is longer. => b
I would not say that. The better answer is not A. => more than a verdict on its line
The better response: [2], not [1] => -
The better response: [B]. It is a dog. => b
The better response: [1]. Wait, the second. => two verdicts
The better response: A\nor B => two verdicts
The second names the hat.\n**The better response: [second]** => b
Two responses are equally good. => tie
Which is the better response? The first. => no verdict marker
The first response:\nIt names it. => no verdict marker
The better response: [first]\nOn reflection, the second response is better. => two verdicts
Response 1 is better than Response 2.\nIt names the hat. => a
--- arena
My final verdict is: [[A>B]] => a
My final verdict is not [[A>B]] => more than a verdict on its line
It might be [[A>B]] => -
It is wrong to say [[B>A]] => -
[[A>B]] or [[B>A]] => -
[[A>B]] no, [[A>>B]] => -
[[A=B=Good]] => not on the scale
[[A\uff1eB]] => a
Therefore, my final verdict is:\n\n1. Model A is better: [[A>B]] => a
**Verdict:** [[B>A]]\n\nModel B is slightly better because it at least attempted the edit. Model A made no changes. => b
**Verdict:** [[B>A]]\n\nModel A is slightly better because it at least attempted the edit. => two verdicts
1. [[A>>B]]\n2. [[A>B]]\n3. [[A=B]] => -
--- mt-bench
[[C]] => tie
[[A]] is my verdict, not [[B]] => -
[[A/B]] => not on the scale
Output [[A]] if A is better, [[B]] if B is better. => -
--- mt-bench-score
Rating: [[7]]/100 => not on the scale of 1 to 10
Good.\nRating: [[**7**/10]] => 7
[[6]] or [[7]] => -
Rating: [[11]] => not on the scale of 1 to 10
Rating: [[7]]\nCorrection: 6 => two verdicts
--- two-scores
3 2\n1 => two verdicts
8 6\nThe first is better. => a
7.5, 8\nOk => b
**8/10 6/10** => a
8 6\n7 9 => two verdicts
8 or 6 => no verdict marker
9 points 7 => no verdict marker
11 5 => no verdict marker
--- reference-scores
3 2\n1 => two verdicts
9 6.5\nShort. => 6.5
Scores: 9 6 => no verdict marker
--- unified-reward
Answer 1 is better because it names the hat. => a
Answer 1 is better than Answer 2. => a
Edited image 1 is better. => a
Both images are equally good. => tie
The second names it.\n\nTherefore, Answer 2 is better. => b
Answer 1 is better in style, Answer 2 in facts.\nOverall Judgment: Answer 2 is better. => b
I think Answer 2 is better maybe => no verdict marker
'Answer 1 is better' or 'Answer 2 is better.' => no verdict marker
Answer 1 is better.\nAnswer 2 is better. => two verdicts
--- vl-rewardbench
### Overall Judgment\nBy the criteria above, Answer 1 is superior.\n\n**Overall Judgment: Answer 1 is superior.** => a
Compare.\n**Overall Judgment:** Answer 2 is slightly better. => b
Overall Judgment: Answer 1 is not better. => more than a verdict on its line
Overall Judgment: Answer 1 is better in style, Answer 2 in facts. => -
<think>Overall Judgment: Answer 1 is better.</think>Overall Judgment: Answer 2 is better. => b
--- think-answer
<think>I first say <answer>1</answer></think> <answer>2</answer> => b
<think>Answer 1: 9+8=17</think>\n<answer>Answer 1 is better</answer> => a
<think>Image 2: 7+8=15</think>\n<answer>Image 2 is better</answer> => b
<think>so <answer>1</answer> => cut off before the thinking ended
<answer>1</answer> no, <answer><b>2</b></answer> => -
<answer>1/2</answer> => -
<answer>1 => -
<answer>Answer 1 is clearly weaker than Answer 2</answer> => -
--- boxed
<think>x, maybe \boxed{1}</think>\nThe final answer is $\boxed{2}$. => b
\boxed{\text{Response 2}} => b
\boxed{1} or \boxed{2} => -
The answer isn't \boxed{2} => -
\boxed{1}/2 => -
\boxed{12} => -
--- boxed-score
<think>x</think>\boxed{3}/10 => -
\boxed{4/5} => 4
--- flow-judge
<feedback>x</feedback><score>3 (out of 10)</score> => -
<feedback>It says <score>5</score>.</feedback> => no verdict marker
<feedback>It says <score>5</score>, too much.</feedback><score>4</score> => 4
<feedback>x</feedback><score>4 => -
--- score
I rate this response 4/5. => 4
Score for the response: 4 => 4
Bewertung: 4 => 4
점수: 4 => 4
| Score | 4 | => 4
```json\n{"score": 4}\n``` => 4
Confidence score: 5\nScore: 2 => 2
✅ **Score: 4/5** => 4
3 2\n1 => -
the room number is\n4 => -
1\n2\n3 => -
For example: {"score": 4} => -
Score: 4\nThe dog is missing. I give it 2 out of 5. => two verdicts
Score: 4\nThe answer gives 3 of the 4 details. => 4
Question: How many dogs?\n\nAnswer: 3 => no verdict marker
The answer is 3 => no verdict marker
- Score: 4 => 4
Good.\n\n**4/5** => 4
4\nGood, with 3 hats. => 4
3/4 => no verdict marker
\u8bc4\u5206\uff1a\uff14 => 4
Reference score: 5 => no verdict marker
Clarity is 5.\nOverall score: 4 => 4
Score: 4\nScore: 3 => two verdicts
--- llava-critic-pair
6 8\nThe first response is short, the second names the hat. => b
**The better response: [second].** Reason => b
8 6\n...\n[[B>A]] => two verdicts
The better response: [first|second|1|2|A|B] => -
[[yes]] => no verdict marker
Thus, Model A is slightly better than Model B.\n\n**[[A>B]]** => a
--- json
{"verdict": 4} => 4
{"evaluation": {"feedback": "x", "score": 4}} => 4
For example: {"score": 4} => more than a verdict on its line
{"feedback": "It names 3 hats.", "score": 4} => 4
Here it is:\n```json\n{"score": "4/5", "feedback": "x"}\n``` => 4
{"reasoning": {"a": "b"}, "Score": 4.0} => 4
{"fluency_score": 2} => no verdict marker
{"score": 4.5} => not on the scale
{"score": "4 or 5"} => more than a verdict on its line
{"score": true} => more than a verdict on its line
{"score": 4, "score": 3} => two verdicts
{"score": 4}\n{"score": 3} => two verdicts
{"score": 4, "max_score": 5} => 4
{"score": 4, "max_score": 10} => not on the scale of 1 to 5
{"score": 4, "scale": "1-10"} => not on the scale
{"score": 4, "revised_score": 3} => two verdicts
{"feedback": "x", "feedback": "y", "score": 4} => 4
{"score": 4}\nWait, that should be 3. => two verdicts
{"score": 4 => no verdict marker
<think>{"score": 2}</think>{"score": 4} => 4
I can't assist with that. => refused
--- json-choice
{"reasoning": {"x": "y"}, "score": 5, "better_response": "A", "confidence": 0.4} => a
```json\n{"feedback": "x", "choice": "Response 2"}\n``` => b
{"winner": "tie"} => tie
{"choice": "A", "winner": "B"} => two verdicts
{"choice": "not A"} => -
{"categories": [{"name": "Realism", "cat_winner": "Image 2"}], "winner": "Image 1"} => a
{"winner": "Image 1/2"} => -
```json\n{"reason": "Image 1 is blurred.", "winner": "Image 2"} => b
--- genai-bench
Both are blurred.\n4. Both are bad: [[A=B=Bad]] => tie
**Final Verdict**: [[A=B=Good]] => tie
1. Model A is better: [[A>B]] => a
[[A>B]]\n[[B>A]] => two verdicts
[[A=B=Fine]] => -
--- lowest-score
{"score": [4, 2], "reasoning": "It is over-edited."} => 2
```json\n{"reasoning": "x", "score": [3.5, 5]}\n``` => 3.5
{"score": 4} => 4
{"score": [4, 9]} => not on the scale of 1 to 5
{"score": [4, "none"]} => no verdict marker
{"score": []} => -
{"score": [[4], 3]} => -
{"score": [4, 2]}\n{"score": [5, 5]} => two verdicts
[4, 2] => no verdict marker
--- mm-judgebias
### Feedback: It names 3 hats. ### Score: 7 => 7
### Feedback:\nThe hat is red.\n### Score:\n9 => 9
### Feedback: Fine. ### Score: 11 => not on the scale of 1 to 10
### Feedback: Fine. => no verdict marker
"""


def _unescaped(text):
    text = re.sub(r"\\([ux])([0-9a-f]{4}|[0-9a-f]{2})", lambda code: chr(int(code[2], 16)), text)
    return text.replace("\\n", "\n")


def _cases(table):
    cases = []
    format = ""
    for row in table.strip("\n").split("\n"):
        if row.startswith("--- "):
            format = row[4:]
        else:
            text, _, expected = row.rpartition(" => ")
            cases.append((format, _unescaped(text), expected))
    return cases


CASES = _cases(ANSWERS)
# Answers of all formats, well dressed and hostile, labelled before the parser had read them: the
# verdict that a careful person reads, "-" for none.
HELD_OUT = _cases(Path(__file__).with_name("answers.txt").read_text(encoding="utf-8"))


def check(format, text, expected):
    verdict = parse(text, scores=SCALE, format=format)
    assert verdict.raw == text
    if expected == "-":
        assert verdict.failure, verdict
    else:
        said = verdict.failure or verdict.choice or f"{verdict.score:g}"
        assert said == expected or (verdict.failure and said.startswith(expected)), verdict
    assert verdict.failure is None or verdict.failure.startswith(REASONS)


@pytest.mark.parametrize(("format", "text", "expected"), CASES)
def test_read_as_a_person_reads_it(format, text, expected):
    check(format, text, expected)


@pytest.mark.parametrize("format", MARKERS)
def test_a_number_is_read_in_any_dress_and_only_alone(format):
    for table, expected in ((DRESSED, "4"), (UNREADABLE, "-")):
        for cell in table.replace("\n", " ").split(" ¦ "):
            value = _unescaped(cell).strip(" ")
            if format in INSIDE and set("\n<{$:=") & set(value):
                continue
            if format in LABELLED and expected == "4" and "core" in value:
                continue
            check(format, MARKERS[format].format(value), expected)


def test_every_format_has_answers_and_fits_its_templates():
    assert {format for format, *_ in CASES} == FORMATS.keys()
    for template in TEMPLATES.values():
        assert template.scale is None or FORMATS[template.format].scale in (None, template.scale)


def test_of_answers_labelled_beforehand_none_is_misread():
    misread = []
    readable = n_read = 0
    for format, text, expected in HELD_OUT:
        verdict = parse(text, scores=SCALE, format=format)
        said = "-" if verdict.failure else verdict.choice or f"{verdict.score:g}"
        readable += expected != "-"
        n_read += said == expected != "-"
        if said not in (expected, "-"):
            misread.append((format, text, said))
    assert misread == []
    assert readable > 400 and n_read / readable >= 0.95


# By table of phrases: an answer around one, and its format; such a verdict is not read.
AROUND = {
    "retraction": ("Good. [RESULT] 4, {}", "Score: 4\n{}"),
    "hedge": ("Good. [RESULT] 4, {}",),
    "example": ("{} \\boxed{{4}}", '{} {{"score": 4}}'),
    "denial": ("{} \\boxed{{4}}",),
    "quotation": ("{}[RESULT] 4",),
    "turn": ("Good. [RESULT] 4\n{}", "Score: 4\n{}"),
    "scored": ("4\nThe response names the hat. Score it. {}",),
}
BESIDE = {  # whose phrase leaves the verdict as it is, or says that there is none
    "explanation": ("prometheus", "Good. [RESULT] 4\n{}", "4"),
    "confidence": ("prometheus", "Good. [RESULT] 4\n{}: 0.8", "4"),
    "separator": ("prometheus", "Good. [RESULT] 4{}", "4"),
    "idle": ("prometheus", "Good. [RESULT] {} 4", "4"),
    "label": ("score", "Good.\n{}: 4", "4"),
    "noun": ("prometheus-relative", "Good. [RESULT] {} A", "a"),
    "weaker": ("prometheus-relative", "[RESULT] B because A{}", "b"),
    "abstention": ("prometheus", "[RESULT] {}", "abstain"),
    "refusal": ("prometheus", "{}", "refused"),
}
RANKING = "[RESULT] A\n\nBoth responses describe the whole picture in a few plain words. {}."
OTHERS = {  # whose example shows a value of another reader
    *(("result", "letter"), ("brackets", "sign"), ("brackets", "half"), ("box", "score")),
    *(("first line", "two scores"), ("first line", "second score"), ("tag", "score")),
    *(("first line", "half"), ("rated", "half"), ("score", "half")),
}
FORMAT_OF = {"[": "prometheus", "S": "score", "\\": "boxed-score", '"': "json"}


@pytest.mark.parametrize("phrase", phrases.PHRASE_ROWS, ids=lambda phrase: phrase["name"])
def test_a_phrase_is_found_in_its_example_and_decides(phrase):
    example = phrase["example"]
    assert re.search(phrase["pattern"], example, re.IGNORECASE | re.MULTILINE)
    for answer in AROUND.get(phrase["table"], ()):
        sign = re.search(r'\[|S|\\|"', answer)[0]
        verdict = parse(answer.format(example), scores=SCALE, format=FORMAT_OF[sign])
        assert verdict.failure, verdict
    if phrase["table"] in BESIDE:
        format, answer, expected = BESIDE[phrase["table"]]
        check(format, answer.format(example), expected)
    elif phrase["table"] in ("worse", "better"):
        assert parse(RANKING.format("Nice"), format="prometheus-relative").choice == "a"
        assert parse(RANKING.format(example), format="prometheus-relative").failure


def test_a_mark_is_found_in_its_example_and_its_verdict_read():
    examples = {row["name"]: row["example"] for row in phrases.read_table("marks")}
    for row in phrases.read_table("formats"):
        for mark in row["marks"].replace(", json", "").split(", "):
            place, _, reader = mark.partition(" = ")
            if place in ("json", "json list") or (place, reader) in OTHERS:
                continue
            text = examples[place].replace("\\n", "\n")
            verdict = parse(text, scores=SCALE, format=row["name"])
            assert verdict.failure is None, (row["name"], verdict)


@pytest.mark.parametrize(
    "finish",
    """length LENGTH max_tokens MAX_TOKENS content_filter SAFETY abort error network_error sensitive
    model_context_window_exceeded insufficient_system_resource tool_calls stopped""".split()
    + [""],
)
def test_an_answer_that_did_not_end_by_itself_has_no_verdict(finish):
    verdict = parse("Good. [RESULT] 1", scores=SCALE, finish=finish)
    named = "cut off at the token limit" if finish == "length" else f"ended by {finish}"
    assert verdict.failure == named and math.isnan(verdict.score)


@pytest.mark.parametrize("finish", [*sorted(ENDINGS), "STOP", "End_Turn", None])
def test_an_answer_that_ended_by_itself_is_read(finish):
    assert parse("Good. [RESULT] 1", scores=SCALE, finish=finish).score == 1


@pytest.mark.parametrize(
    ("format", "text", "finish", "unread", "score"),
    [
        ("prometheus", "It is read once. [RESULT] 4", "eos", False, 4),
        ("prometheus", "It is read once. [RESULT] 4", "length", True, None),
        ("prometheus", "It is read once.", "eos", True, None),
        ("json", '{"scores": {"Accuracy": 4, "Errors": 2}}', "eos", False, 3.5),
        ("json", '{"scores": {"Accuracy": 4}}', "eos", True, None),
    ],
)
def test_an_answer_is_read_once(monkeypatch, format, text, finish, unread, score):
    """A call that closes answers reads them before; the verdict of that reading counts."""
    read = []
    settle = parsing._settle
    monkeypatch.setattr(parsing, "_settle", lambda *parts: read.append(parts) or settle(*parts))
    rubric = SEVERAL if format == "json" else None
    closing = Closing(partial(parsing.parse_to_close, format=format))
    ask = Ask(scales=[{1: " 1", 4: " 4"}], closing=closing, criteria=[rubric])
    answer = Answer(0, text=text, finish=finish)
    assert ask.has_to_be_closed(answer) == unread and len(read) == 1
    assert (None if answer.verdict.failure else answer.verdict.score) == score
    assert answer.verdict == parse(text, scores=(1, 4), format=format, finish=finish, rubric=rubric)


@pytest.mark.parametrize("unit", ["[", "{", '{"a":', '{"a":[', '{"score":', '[{"score": [', '{"a'])
def test_json_of_any_depth_is_passed_over(unit):
    flood = unit * 100_000
    assert parse(flood, scores=SCALE, format="json").failure
    assert [cells for *_, cells in json_objects(f'{{"score": 4}} {flood}')] == [{"score": 4}]


@pytest.mark.parametrize(
    ("format", "text", "feedback"),
    [
        ("prometheus", "**Feedback:** Good. **[RESULT]** **4**", "Good."),
        ("better-response", "The better response: [2].\nIt names it.", "It names it."),
        ("flow-judge", "<feedback>\nTwo “claims”.\n</feedback>\n<score>4</score>", "Two “claims”."),
        ("think-answer", "<think>H”m.</think>\n<answer>1</answer>", "H”m."),
        ("score", "4 - the hat (red) is missing.", "the hat (red) is missing."),
        ("score", "**4/5**", ""),
        ("score", "Rating (1-5): 4", ""),
        ("prometheus-relative", "[RESULT] A because B is wrong", "B is wrong"),
        ("json", '{"feedback": "Good.\\nYes.", "score": 4}', "Good.\nYes."),
    ],
)
def test_the_feedback_is_found(format, text, feedback):
    verdict = parse(text, scores=SCALE, format=format)
    assert verdict.failure is None and verdict.feedback == feedback


def test_scores_keep_their_own_scale_and_say_it():
    assert parse("[RESULT] 7/10", scores=range(1, 11)).score == 7
    assert parse("[RESULT] -1", scores=(-2, -1, 0)).score == -1
    both = parse("8 6.5\nBecause.", format="llava-critic-pair")
    assert (both.scores, both.choice, both.feedback) == ((8.0, 6.5), "a", "Because.")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"scores": {"Accuracy": 5, "errors": 2}}', 4.25),
        ('{"accuracy": {"score": 5, "feedback": "x"}, "errors": "2/5"}', 4.25),
        ('{"accuracy": 5}', "no verdict marker (no score for Errors)"),
        ('{"accuracy": 7, "errors": 2}', "not on the scale of 1 to 5 (criterion Accuracy)"),
    ],
)
def test_several_criteria_are_read_by_name(answer, expected):
    verdict = parse(answer, format="json", rubric=SEVERAL)
    if isinstance(expected, str):
        assert verdict.failure == expected
    else:
        assert verdict.score == expected
        assert verdict.scores == {"Accuracy": 5.0, "Errors": 2.0}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"scores": {"Sign": 1, "Depth": 30}}', (1 + 0.3) / 2),
        ('{"Sign": {"score": 0}, "Depth": "100/100"}', 0.5),
        ('{"Sign": 2, "Depth": 30}', "not on the scale of 0 to 1 (criterion Sign)"),
        ('{"Sign": "1/5", "Depth": 30}', "not on the scale of 0 to 1 (criterion Sign)"),
        ('{"Sign": 1, "Depth": 101}', "not on the scale of 0 to 100 (criterion Depth)"),
        ('{"Sign": true, "Depth": 1}', "more than a verdict on its line (criterion Sign)"),
    ],
)
def test_each_criterion_is_read_on_its_own_scale(answer, expected):
    sign = Criterion("Sign", "Is it read?", 1, {0: "No.", 1: "Yes."})
    depth = Criterion("Depth", "How deep?", 1, {0: "Flat.", 100: "Deep."})
    verdict = parse(answer, format="json", rubric=Rubric("Both", (), named=(sign, depth)))
    assert (verdict.failure or verdict.score) == expected


prose = st.text(max_size=200).filter(
    lambda text: not re.search(r"(?i)\[result\]|overall score|think|reasoning|thought", text)
)


@settings(deadline=None)  # a busy machine is no failure
@given(prose, st.sampled_from(SCALE))
def test_a_training_target_reads_back(feedback, score):
    answer = target(feedback, score)
    verdict = parse(answer, scores=SCALE)
    assert verdict.score == score
    if not feedback.strip().lower().lstrip("#*").startswith("feedback"):
        assert target(verdict.feedback, score) == answer


FLOODS = """ \n¦[¦4\n¦"¦I ¦confidence: ¦{"score": 4}¦\\u0664¦| Score | 4 |\n¦better ¦9¦*¦(¦ ¦[RESULT] A ¦The better response: [¦[[A¦<score>¦<feedback>¦\\boxed{¦4/100 ¦Score: 4 ¦<think>¦</think>¦\
Answer 1 is better\n¦\n*¦score (1-5): ¦4 (out of ¦{¦{"a":¦$¦[[A]]¦A (or ¦Overall Judgment: A ¦\u00a0¦not [[A]] ¦\
the first is ¦x\n¦<answer> x"""


def _seconds(format, text):
    start = time.process_time()
    verdict = parse(text, scores=SCALE, format=format)
    assert (verdict.failure is None) == (
        verdict.choice is not None or not math.isnan(verdict.score)
    )
    return time.process_time() - start


@pytest.mark.parametrize("format", FORMATS)
def test_floods_take_linear_time(format):
    seconds = {}
    for unit in FLOODS.split("¦"):
        seconds[unit] = _seconds(format, unit * (20_000 // len(unit)) + "x")
    # 1 MB takes 2 s at the most, 20 KB 0.04 s; a quadratic pattern took 0.75 s
    assert max(seconds.values()) < 0.4, seconds
    slowest = max(seconds, key=seconds.get)
    assert _seconds(format, slowest * (160_000 // len(slowest)) + "x") < 0.8  # 6.4 times 0.75
