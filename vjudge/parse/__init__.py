"""A judge's answer -> a verdict, or no verdict and the reason.

A verdict is read only where the judge's format puts it. Nothing is guessed from the prose, and nothing falls back to a
default: an answer that does not state exactly one verdict is a failure that says why. A tie is a verdict, and so is an
abstention ("N/A", "abstain", "cannot judge", "unable to decide" in the verdict's place): neither is a number.

    reading.py   what an answer says at one place
    readers.py   one function a format
    formats.py   the table of formats

`FORMATS` lists what can be read. Every pattern is linear in the length of the answer. A judge that answers with a bare
number from a reward head (Skywork-VL-Reward) writes no text, so there is nothing to parse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from vjudge.parse.formats import FORMATS, Format
from vjudge.parse.reading import SAID, strip_prefix
from vjudge.records import NAN, Verdict

__all__ = ["FORMATS", "Format", "parse", "vote"]


def parse(text: str, *, scores: Sequence[int] = (), format: str = "prometheus") -> Verdict:
    """Read the verdict out of a judge's answer.

    Args:
        text: the answer, without the prompt.
        scores: the rubric's scale, for example (1, 2, 3, 4, 5); not needed where the format has its own, or a choice.
        format: the way this family of judges writes its verdict; one of `FORMATS`.

    Returns:
        A `Verdict` with its score and scale, or its choice. On failure its score is NaN and its feedback is what
        precedes the last marker (the whole answer where there is none), so that a reader can see what happened.

    Raises:
        ValueError: an unknown format, or an empty scale where the rubric's is needed.

    The rules, on "prometheus" as an example: the verdict is the number after the last `[RESULT]`; the feedback is the
    text before that marker, without a leading "Feedback:".

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
        [RESULT] N/A                                abstention
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
    rule = FORMATS[format]
    if rule.gives == "score" and rule.scale is None and not len(scores):
        raise ValueError("scores is empty: give the rubric's scale, for example (1, 2, 3, 4, 5)")
    low, high = rule.scale or ((scores[0], scores[-1]) if len(scores) else (NAN, NAN))
    found = rule.read(text, (low, high))
    if found.start is None:
        return Verdict(NAN, strip_prefix(text), text, found.failure if text.strip() else "empty answer")
    feedback = found.feedback
    if feedback is None:
        before = strip_prefix(text[: found.start].rstrip("*_`"))  # "**[RESULT] 4**": emphasis around the verdict
        feedback = before or (text[found.end :].lstrip(" \t\n.*_`)]}\"'").rstrip() if found.claims else "")
    failed = Verdict(NAN, feedback, text, found.failure or "unread")
    if found.failure:
        return failed
    claims = list(dict.fromkeys(found.claims))
    if len(claims) > 1:
        count = "two" if len(claims) == 2 else str(len(claims))
        listed = f"{', '.join(map(str, claims[:-1]))} and {claims[-1]}"
        return replace(failed, failure=f"{count} different verdicts: {listed}")
    claim = claims[0]
    for value in claim.scores or ((claim.score,) if claim.choice is None else ()):
        off = not low <= value <= high if rule.scale else value not in scores
        if off:
            on = "scale" if rule.scale else "rubric"
            return replace(failed, failure=f"score {value:g} is off the {on} ({low:g}-{high:g})")
    scale = (float(low), float(high)) if claim.scores or claim.choice is None else None
    return Verdict(claim.score, feedback, text, None, claim.choice, scale, claim.scores, claim.strong)


def vote(verdicts: Sequence[Verdict]) -> Verdict:
    """Let K answers of a judge to one prompt vote: the verdict that most of them give (K-vote).

    Args:
        verdicts: of one item or pair, in one format. Failures and abstentions do not vote; they are counted.

    Returns:
        The most frequent verdict, its feedback the count of votes. Where two have as many, or none can vote, a failure:
        a draw of votes is not a judge's tie.

    Raises:
        ValueError: there are no verdicts.
    """
    if not verdicts:
        raise ValueError("no verdicts to vote with")
    votes = Counter(v.choice or v.score for v in verdicts if v.failure is None and not v.abstained)
    silent = len(verdicts) - sum(votes.values())
    counts = [f"{SAID.get(str(what), what)} {n}" for what, n in votes.most_common()]
    counted = ", ".join([*counts, *([f"no vote {silent}"] if silent else [])])
    best = votes.most_common(2)
    if not best or (len(best) == 2 and best[0][1] == best[1][1]):
        return Verdict(NAN, counted, "", f"no majority: {counted}")
    (said, _), *_ = best
    winner = next(v for v in verdicts if v.failure is None and (v.choice or v.score) == said)
    return replace(winner, feedback=counted, raw="", scores=(), strong=None)
