"""What a blind view hides: scores that a feedback tells by a marker, a label or as n/5."""

import pytest

from vjudge.prompts.parse import FORMATS, parse
from vjudge.review.hiding import hide_scores

TOLD = """
It names all but one, so 4/5.|It names all but one, so [hidden].
Rating: [[4]]|Rating: [[[hidden]]]
分数：4|分数：[hidden]
Score (1-5): 4|Score (1-5): [hidden]
I rated it as a four out of five.|I rated it as a [hidden].
The likeness is high, hence an 8; it is not a perfect 10.|The likeness is high, hence an [hidden]; it is not a perfect [hidden].
No execution of the edit (score1: 0).|No execution of the edit (score1: [hidden]).
So the overall score is 4.\\n[RESULT] 4|So the overall score is [hidden].\\n[RESULT] [hidden]
It names 4 of the 5 apples and 2 of 3 dogs.|It names 4 of the 5 apples and 2 of 3 dogs.
The clock shows 4:30; 3 cars pass in 20 minutes.|The clock shows 4:30; 3 cars pass in 20 minutes.
1. The dog is brown.\\n2. The cat is not.|1. The dog is brown.\\n2. The cat is not.
"""


@pytest.mark.parametrize("case", TOLD.strip().splitlines())
def test_what_reads_as_a_verdict_is_hidden_and_content_stays(case):
    text, expected = case.replace("\\n", "\n").split("|")
    hidden, count = hide_scores(text)
    assert hidden == expected and count == expected.count("[hidden]")
    for name, rule in FORMATS.items():
        if rule.gives == "score":
            assert parse(hidden, scores=(1, 2, 3, 4, 5), format=name).failure


def test_a_long_text_takes_no_longer_than_its_length():
    for piece in ("score " * 30, "4 out of ", "is the a ", "[RESULT] ", "[[", "4/5 "):
        hide_scores(piece * (20_000 // len(piece)))
    assert not any(sign.isdigit() for sign in hide_scores("Score: 4. " * 300)[0])
