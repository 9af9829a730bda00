"""A judge's answer -> a verdict, or no verdict and the reason.

A verdict is read only where the judge's format puts it. Nothing is guessed from the prose, and nothing falls back to a
default: an answer that does not state exactly one score of the rubric is a failure that says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from vjudge.records import NAN, Verdict

# [0-9] and not \d, which also matches the digits of other scripts; nine at most, so that a flood of them stays finite.
_NUMBER = r"[+-]?[0-9]{1,9}(?:\.[0-9]{1,9})?"
_MARKER = re.compile(r"\[RESULT\]", re.IGNORECASE)
# What may stand between the marker and the number: space, colon or equals sign, markdown emphasis, quotes, brackets.
_SCORE = re.compile(rf"[\s:=*_`\"'(\[{{]*({_NUMBER})")
_OVERALL = re.compile(rf"\bthe overall score is[\s:*_(\[]*({_NUMBER})(?![\w%])(?!\.[0-9])", re.IGNORECASE)
_OUT_OF = re.compile(rf"[ \t*_]*(?:/|out of)[ \t*_]*({_NUMBER})(?![\w%])", re.IGNORECASE)
# "4th", "80%", "4.5.1": the number is part of something else.
_GLUED = re.compile(r"[\w%]|\.[0-9]")
# "4-5", "4 or 5", "4, 5", "4 5": more than one number offered as the score.
_SECOND = re.compile(r"[ \t*_]*(?:(?:[-\u2010-\u2015~,;&|/]|to\b|or\b|and\b)[ \t*_]*)?[0-9]", re.IGNORECASE)
_PREFIX = re.compile(r"\s*(?:#+[ \t]*)?(?:\*\*)?feedback(?:\*\*)?:(?:\*\*)?\s*", re.IGNORECASE)


def parse(text: str, *, scores: Sequence[int], format: str = "prometheus") -> Verdict:
    """Read the verdict out of a judge's answer.

    Args:
        text: the answer, without the prompt.
        scores: the rubric's scale, for example (1, 2, 3, 4, 5).
        format: the way this family of judges writes its verdict; one of `FORMATS`.

    Returns:
        A `Verdict`. On failure its score is NaN and its feedback is what precedes the last marker (the whole answer
        where there is no marker), so that a reader can see what happened.

    Raises:
        ValueError: an unknown format or an empty scale.

    "prometheus": the verdict is the number after the last `[RESULT]`; the feedback is the text before that marker,
    without a leading "Feedback:".

        answer                                      verdict (rubric 1-5)
        ... [RESULT] 4                              4
        Feedback: ... **[RESULT]** (4).             4: emphasis, brackets, quotes, ":" and "=" are passed over
        [RESULT] 4/5, [RESULT] 4 out of 5           4: the rubric's own maximum
        [RESULT] 4/10                               failure: another scale
        [RESULT] 4.0                                4: the same number
        [RESULT] 4.5, 7, 0, -4                      failure: off the rubric
        [RESULT] 4-5, 4 or 5, 4 5                   failure: more than one number
        [RESULT] four, IV, full-width or other      failure: no number after the marker (only plain digits are read)
          digits, 4th, 80%, nothing at all
        (an integer ... between 1 and 5) [RESULT] 3 3: numbers before the marker are prose
        the prompt's format line, then [RESULT] 3   3: the line's marker has no number and is no verdict
        [RESULT] 4 ... [RESULT]                     failure: the last marker binds and has no number
        [RESULT] 4 ... [RESULT] 4                   4: the same verdict twice
        [RESULT] 4 ... [RESULT] 2                   failure: two different verdicts
        So the overall score is 4. [RESULT] 2       failure: two different verdicts
        So the overall score is 4.                  failure: no verdict marker
        [RESULT] 4, then more prose                 4: the prose stays in `raw`

    Source: the output format of prometheus-eval/prometheus-vision README.md; the rules for hostile answers are ours.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown verdict format {format!r}; one of: {', '.join(sorted(FORMATS))}")
    if not len(scores):
        raise ValueError("scores is empty: give the rubric's scale, for example (1, 2, 3, 4, 5)")
    return FORMATS[format](text, tuple(scores))


def _prometheus(text: str, scores: tuple[int, ...]) -> Verdict:
    markers = list(_MARKER.finditer(text))
    if not markers:
        return Verdict(NAN, _feedback(text), text, "no verdict marker" if text.strip() else "empty answer")
    feedback = _feedback(text[: markers[-1].start()].rstrip("*_`"))  # "**[RESULT] 4**": emphasis around the verdict
    stated = [_score_after(text, marker.end(), highest=scores[-1]) for marker in markers]
    score, failure = stated[-1]
    if failure is None:
        claims = [
            (marker.start(), value) for marker, (value, unread) in zip(markers, stated, strict=True) if not unread
        ]
        claims += [(match.start(), float(match[1])) for match in _OVERALL.finditer(text)]
        different = [f"{value:g}" for value in dict.fromkeys(value for _, value in sorted(claims))]
        if len(different) > 1:
            count = "two" if len(different) == 2 else str(len(different))
            failure = f"{count} different verdicts: {', '.join(different[:-1])} and {different[-1]}"
        elif score not in scores:
            failure = f"score {score:g} is off the rubric ({scores[0]}-{scores[-1]})"
    return Verdict(NAN if failure else score, feedback, text, failure)


def _score_after(text: str, position: int, *, highest: int) -> tuple[float, str | None]:
    """The number that follows a marker ending at `position`, or NaN and why there is none."""
    match = _SCORE.match(text, position)
    if match is None:
        return NAN, "no number after the last verdict marker"
    rest = match.end()
    if _GLUED.match(text, rest):
        word = text[match.start(1) : rest + 8].split()[0]
        return NAN, f"{word!r} after the last verdict marker is not a plain number"
    out_of = _OUT_OF.match(text, rest)
    if out_of:
        if float(out_of[1]) != highest:
            return NAN, f"a score out of {float(out_of[1]):g} on a rubric up to {highest}"
        rest = out_of.end()
    if _SECOND.match(text, rest):
        return NAN, "more than one number after the last verdict marker"
    return float(match[1]), None


def _feedback(text: str) -> str:
    return _PREFIX.sub("", text, count=1).strip() if _PREFIX.match(text) else text.strip()


FORMATS: dict[str, Callable[[str, tuple[int, ...]], Verdict]] = {"prometheus": _prometheus}
