"""Read the verdict out of a judge's answer, or say why there is none.

A verdict stands alone: after the marker of its format there is one value of the scale, in any of
the usual dress (`values.py`, `choices.py`), then the end of the line, or a separator and words that
hold no second value and take nothing back (`surroundings.py`, `phrases.py`). Else it is missing,
with a reason. Thinking is not read, and an answer that did not end by itself has no verdict. All
patterns take time linear in the answer's length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

from vjudge.prompts import phrases, surroundings
from vjudge.prompts.choices import is_value
from vjudge.prompts.formats import FORMATS, Format, Marker
from vjudge.prompts.objects import read_json
from vjudge.prompts.values import (
    LONGEST,
    LOOKS_LIKE,
    MORE,
    NO_VALUE,
    Candidate,
    Scale,
    ValueOrReason,
    plain_text,
)
from vjudge.records import NAN, Rubric, Verdict

# How every failure begins; details may follow.
REASONS = tuple(
    "no verdict marker,not on the scale,two verdicts,more than a verdict on its line,cut off,"
    "ended by,refused,empty answer".split(",")
)
ENDINGS = frozenset(("stop", "end_turn", "eos", "stop_sequence", "none"))
"""How an answer that ended by itself has ended, in any case."""
_MOST_MARKERS = 100  # of one kind in an answer
_SHORT = 60  # characters; less than that is no explanation


def parse(
    text: str,
    *,
    scores: Scale = (),
    format: str = "prometheus",
    finish: str | None = "stop",
    rubric: Rubric | None = None,
) -> Verdict:
    """Read the verdict of one answer.

    >>> parse("The sign is misread. [RESULT] **2/5** (poor)", scores=(1, 2, 3, 4, 5)).score
    2.0
    >>> parse("[RESULT] 2 errors were found", scores=(1, 2, 3, 4, 5)).failure
    'more than a verdict on its line'

    Args:
        text: the judge's answer, without the prompt.
        scores: the scale, lowest first, for a format that has none of its own.
        format: one of `FORMATS`.
        finish: how the answer ended; only after one of `ENDINGS` can it hold a verdict.
        rubric: with named criteria, for format "json": `Verdict.scores` then holds the score of
            each by name, and `Verdict.score` their weighted mean (`Rubric.combined`).

    Returns:
        A score, a choice, or a failure that begins with one of `REASONS`.

    Raises:
        ValueError: an unknown format, or a scale that is missing.
    """
    # 1) the format's own scale, or that of the call; criteria count for a format of scores alone
    if format not in FORMATS:
        raise ValueError(f"unknown verdict format {format!r}; one of: {', '.join(sorted(FORMATS))}")
    rule = FORMATS[format]
    scale = range(rule.scale[0], rule.scale[1] + 1) if rule.scale else scores
    if rubric and not (rubric.named and rule.gives == "score"):
        rubric = None
    if rule.gives == "score" and not len(scale) and not rubric:
        raise ValueError("scores is empty: give the rubric's scale, for example (1, 2, 3, 4, 5)")
    # 2) an answer that ended by itself is read
    return _unended(text, finish) or _read(text, rule, scale, rubric)


def parse_to_close(text: str, *, finish: str, **options: Any) -> tuple[Verdict, bool]:
    """Read an answer, and decide whether it is to be closed: it has no verdict and doesn't refuse.

    Options are those of `parse`.
    """
    verdict = parse(text, **options)  # as of an answer that ended by itself
    refused = verdict.failure is not None and verdict.failure.startswith("refused")
    verdict = _unended(text, finish) or verdict
    return verdict, verdict.failure is not None and not refused


def _unended(text: str, finish: str | None) -> Verdict | None:
    """Return the failure of an answer that did not end by itself; None for one that did."""
    if str(finish).lower() in ENDINGS:
        return None
    failure = "cut off at the token limit" if finish == "length" else f"ended by {finish}"
    return _failed(text, failure)


def _failed(text: str, failure: str) -> Verdict:
    """Return the verdict of an answer that was not read."""
    return Verdict(NAN, _unwrap(text), text, failure)


def _read(text: str, rule: Format, scale: Scale, rubric: Rubric | None) -> Verdict:
    """Read an answer that ended by itself, in a format (`rule`) and on a scale."""
    # 1) thinking is not read
    visible = phrases.without_thinking(text)
    if visible is None:
        return _failed(text, "cut off before the thinking ended")
    if not text.strip():
        return _failed(text, "empty answer")

    # 2) find the places of verdicts, and read what stands there
    plain = phrases.without_confidence(plain_text(visible)).rstrip()
    candidates = _at_markers(plain, rule, scale)
    for candidate in read_json(visible, rule.json, scale, rubric) if rule.json else ():
        if surroundings.is_denied_or_quoted(plain, candidate.start, candidate.start, "json"):
            candidate = candidate._replace(value=MORE)
        candidates.append(candidate)
    candidates.sort(key=lambda candidate: candidate.start)

    # 3) the last one counts, unless something says otherwise
    value = _settle(plain, rule, candidates)
    feedback = _feedback(text, candidates)
    if isinstance(value, str):
        failure = "refused" if phrases.REFUSAL.match(plain.lstrip()) else value
        return Verdict(NAN, feedback, text, failure)
    return Verdict(value.score, feedback, text, None, value.choice, value.scores)


# --- what stands at a marker


def _at_markers(plain: str, rule: Format, scale: Scale) -> list[Candidate]:
    """Read what stands at each place where a marker of the format stands."""
    candidates = []
    for marker in rule.markers:
        hits = list(islice(marker.pattern.finditer(plain), _MOST_MARKERS + 1))
        if len(hits) > _MOST_MARKERS:
            return [Candidate(0, 0, f"two verdicts (more than {_MOST_MARKERS} markers)")]
        for hit in hits:
            candidate = _at_marker(plain, marker, hit, rule.gives, scale)
            if candidate is not None:
                candidates.append(candidate)
    return candidates


def _at_marker(
    plain: str, marker: Marker, hit: re.Match, gives: str, scale: Scale
) -> Candidate | None:
    """Read what stands at one place where a marker was found.

    Args:
        plain: the answer.
        marker: the marker.
        hit: where it was found; its group "value" is what the marker says holds the verdict.
        gives: "score" or "choice".
        scale: whole numbers, lowest first.

    Returns:
        None where it is prose, or the label of something else.
    """
    # 1) what stands before it: nothing beside a label, a whole sentence before a last line
    start = hit.start()
    if marker.kind == "label" and surroundings.labels_something_else(plain, start):
        return None
    if marker.kind == "last":
        before = plain[max(0, start - 200) : start] or "."
        if not re.search(r"[.!)*_]\s*$", before) or not is_value(hit["value"]):
            return None

    # 2) the value, which words behind it on its line may hedge or take back
    text = hit["value"]
    value = marker.read(text, scale) if len(text) <= LONGEST else MORE
    if not isinstance(value, str) and (
        surroundings.is_hedged(text)
        or surroundings.is_denied_or_quoted(plain, start, hit.end(), marker.kind)
    ):
        value = MORE

    # 3) a line that holds no value is prose
    if marker.kind in ("line", "last") and isinstance(value, str):
        return None
    first_words = text[:200].split()[: 1 if gives == "score" else 3]
    is_prose = value == MORE and not LOOKS_LIKE[gives].search(" ".join(first_words))
    return Candidate(start, hit.end(), value, hit.start("value"), is_prose=is_prose)


# --- whether something says otherwise


def _settle(plain: str, rule: Format, candidates: Sequence[Candidate]) -> ValueOrReason:
    """Return the value of the last candidate, or why it does not count."""
    # 1) all candidates must agree, but for those that say nothing
    if not candidates:
        return "no verdict marker"
    decisive = candidates[-1]
    value = decisive.value
    if isinstance(value, str):
        return value
    for candidate in candidates:
        is_silent = candidate.is_prose or candidate.value == NO_VALUE
        if not is_silent and candidate.value != value:
            return "two verdicts"
    if value.choice == "abstain":
        return value

    # 2) what follows may explain a verdict that opens the answer, or a choice; never replace it
    following = plain[decisive.value_start :]
    opens = rule.opens and not re.search(r"\w", plain[: candidates[0].start])
    explains = opens or (rule.gives == "choice" and len(following.strip()) >= _SHORT)
    tail = plain[decisive.stop :]
    reason = surroundings.objection(following, tail, rule.gives, value, explains=explains)
    if value.choice is None and not rule.scale and surroundings.names_another_overall(plain, value):
        reason = "another overall score"
    return f"two verdicts ({reason})" if reason else value


# --- the feedback: the text before the verdict, or after one that opens the answer

_TAGS = r"</?(?:think(?:ing)?|thought|reasoning|feedback)>"
# "**Feedback:**" or an opening tag before a feedback, a closing tag behind it.
_WRAPPING = re.compile(
    rf"(?i)\A\s*(?:(?:#+[ \t]*)?(?:\*\*)?feedback(?:\*\*)?:(?:\*\*)?|{_TAGS})|{_TAGS}\s*\Z"
)
# The explanation on the verdict's line, as in "4 - the hat is missing"; or nothing.
_EXPLAINED = re.compile(
    r"\A.*?(?: -+ | ?[:;,(|\u2014]| \u2013 | because | since | as )\W*([^\W\d].*)|\A.*", re.DOTALL
)


def _feedback(text: str, candidates: Sequence[Candidate]) -> str:
    """Return the text before the last verdict, else the text behind it, else that on its line."""
    if not candidates:
        return _unwrap(text)
    decisive = candidates[-1]
    if decisive.feedback is not None:
        return decisive.feedback
    before = _unwrap(text[: decisive.start].rstrip("*_`# \t\n"))
    behind = _unwrap(text[decisive.stop :].lstrip(" \t\n.*_`)]}\"'"))
    verdict_line = text[decisive.value_start : decisive.stop]
    return before or behind or _EXPLAINED.sub(r"\1", verdict_line).strip(" )")


def _unwrap(text: str) -> str:
    """Remove the label and the tags around a feedback."""
    for _ in range(2):
        text = _WRAPPING.sub("", text).strip()
    return text
