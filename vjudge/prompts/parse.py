"""Read the verdict from a judge's answer, or say why there is none.

A verdict stands alone: after the marker of its format there is one value of the scale, with or
without formatting such as bold or brackets (`values.py`, `choices.py`), then the end of the line,
or a separator and words that hold no second value and take nothing back (`surroundings.py`,
`phrases.py`). Otherwise the verdict is missing, with a reason. Thinking is not read, and an answer
that did not end by itself has no verdict. All patterns take time linear in the answer's length.
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
"""The values of `finish`, in lower case, of an answer that ended by itself."""
_MOST_MARKERS = 100  # matches of one marker in an answer; with more the answer is not read
_SHORT = 60  # characters; a shorter text is no explanation


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
        finish: how the answer ended, as the engine says it; None where it doesn't. An answer has no
            verdict unless this is one of `ENDINGS`, in upper or lower case, or None.
        rubric: one with named criteria, for format "json": `Verdict.scores` then holds the score of
            each by name, and `Verdict.score` their weighted mean (`Rubric.combined`).

    Returns:
        A score, a choice, or a failure that begins with one of `REASONS`.

    Raises:
        ValueError: an unknown format, or a scale that is missing.
    """
    # 1) the format's own scale, or else that of the call; a rubric matters only for its named
    #    criteria, and only to a format of scores
    if format not in FORMATS:
        raise ValueError(f"unknown verdict format {format!r}; one of: {', '.join(sorted(FORMATS))}")
    rule = FORMATS[format]
    scale = range(rule.scale[0], rule.scale[1] + 1) if rule.scale else scores
    if rubric and not (rubric.named and rule.gives == "score"):
        rubric = None
    if rule.gives == "score" and not len(scale) and not rubric:
        raise ValueError("scores is empty: give the rubric's scale, for example (1, 2, 3, 4, 5)")
    # 2) only an answer that ended by itself is read
    return _unended(text, finish) or _read(text, rule, scale, rubric)


def parse_to_close(text: str, *, finish: str, **options: Any) -> tuple[Verdict, bool]:
    """Read an answer, and decide whether the judge has to be asked once more to close it.

    Args:
        text, finish: as in `parse`.
        options: further options of `parse`.

    Returns:
        tuple: the verdict, and whether to close the answer: it has no verdict and does not refuse.
    """
    # a refusal is recognised in a truncated answer, too: it is read as if it had ended by itself
    verdict = parse(text, **options)
    refused = verdict.failure is not None and verdict.failure.startswith("refused")
    verdict = _unended(text, finish) or verdict
    return verdict, verdict.failure is not None and not refused


def _unended(text: str, finish: str | None) -> Verdict | None:
    """Return the failed verdict of an answer that did not end by itself; None if it did."""
    if str(finish).lower() in ENDINGS:  # no `finish` is written as "none"
        return None
    failure = "cut off at the token limit" if finish == "length" else f"ended by {finish}"
    return _failed(text, failure)


def _failed(text: str, failure: str) -> Verdict:
    """Return the failed verdict of an answer (`text`) that was not read."""
    return Verdict(NAN, _unwrap(text), text, failure)


def _read(text: str, rule: Format, scale: Scale, rubric: Rubric | None) -> Verdict:
    """Read an answer that ended by itself.

    Args:
        text: the answer.
        rule: the format.
        scale: whole numbers, lowest first.
        rubric: one with named criteria, for JSON; else None.
    """
    # 1) thinking is not read
    visible = phrases.without_thinking(text)
    if visible is None:
        return _failed(text, "cut off before the thinking ended")
    if not text.strip():
        return _failed(text, "empty answer")

    # 2) read the candidates for a verdict, at markers and in JSON objects; `visible` and `plain`
    #    replace characters one for one, so that positions are those of `text`
    plain = phrases.without_confidence(plain_text(visible)).rstrip()
    candidates = _at_markers(plain, rule, scale)
    for candidate in read_json(visible, rule.json, scale, rubric) if rule.json else ():
        # quotation marks inside the object don't count: only the text before it is searched
        if surroundings.is_denied_or_quoted(plain, candidate.start, candidate.start, "json"):
            candidate = candidate._replace(value=MORE)
        candidates.append(candidate)
    candidates.sort(key=lambda candidate: candidate.start)

    # 3) the last candidate counts, unless another one or the text after it contradicts it
    value = _settle(plain, rule, candidates)
    feedback = _feedback(text, candidates)
    if isinstance(value, str):
        failure = "refused" if phrases.REFUSAL.match(plain.lstrip()) else value
        return Verdict(NAN, feedback, text, failure)
    return Verdict(value.score, feedback, text, choice=value.choice, scores=value.scores)


# --- the candidates at markers


def _at_markers(plain: str, rule: Format, scale: Scale) -> list[Candidate]:
    """Read the candidates at all markers of a format; too many of one marker are two verdicts."""
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
    """Read the candidate at one marker.

    Args:
        plain: the answer, as plain text.
        marker: the marker.
        hit: the match of the marker's pattern; its group "value" is the text to read.
        gives: "score" or "choice".
        scale: whole numbers, lowest first.

    Returns:
        The candidate; None where the match is prose, or the label of something else.
    """
    # 1) the text before the marker: no further words on the line of a label ("Fluency score"); the
    #    end of a sentence, of bold text or of the line above, before a last line
    start = hit.start()
    if marker.kind == "label" and surroundings.labels_something_else(plain, start):
        return None
    if marker.kind == "last":
        before = plain[max(0, start - 200) : start] or "."  # a verdict may also be the whole answer
        if not re.search(r"[.!)*_]\s*$", before) or not is_value(hit["value"]):
            return None

    # 2) the value, which words around it may hedge, take back, deny or quote
    text = hit["value"]
    value = marker.read(text, scale) if len(text) <= LONGEST else MORE
    if not isinstance(value, str) and (
        surroundings.is_hedged(text)
        or surroundings.is_denied_or_quoted(plain, start, hit.end(), marker.kind)
    ):
        value = MORE

    # 3) a line without a value is prose, and so is what follows another marker, if its first words
    #    (one for a score, three for a choice) are no value ("Score: see below, 3 or 4"): such a
    #    candidate contradicts no other one
    if marker.kind in ("line", "last") and isinstance(value, str):
        return None
    first_words = text[:200].split()[: 1 if gives == "score" else 3]
    is_prose = value == MORE and not LOOKS_LIKE[gives].search(" ".join(first_words))
    return Candidate(start, hit.end(), value, hit.start("value"), is_prose=is_prose)


# --- whether the other candidates and the text around the last one agree with it


def _settle(plain: str, rule: Format, candidates: Sequence[Candidate]) -> ValueOrReason:
    """Return the value of the last candidate, or the reason why it does not count.

    Args:
        plain: the answer, as plain text.
        rule: its format.
        candidates: in the order of their `start`.
    """
    # 1) all candidates must agree, except for those without anything like a value
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

    # 2) the text after the verdict may explain it, where the verdict opens the answer or is a
    #    choice with a longer text after it, but never take it back or replace it
    following = plain[decisive.value_start :]
    opens = rule.opens and not re.search(r"\w", plain[: candidates[0].start])
    explains = opens or (rule.gives == "choice" and len(following.strip()) >= _SHORT)
    tail = plain[decisive.stop :]
    reason = surroundings.objection(following, tail, rule.gives, value, explains=explains)
    # a score on the rubric's scale must not differ from an overall score elsewhere in the answer
    if value.choice is None and not rule.scale and surroundings.names_another_overall(plain, value):
        reason = "another overall score"
    return f"two verdicts ({reason})" if reason else value


# --- the feedback: the text before the verdict, or after one that opens the answer

_TAGS = r"</?(?:think(?:ing)?|thought|reasoning|feedback)>"
# "**Feedback:**" or a tag before a feedback, or a tag after it.
_WRAPPING = re.compile(
    rf"(?i)\A\s*(?:(?:#+[ \t]*)?(?:\*\*)?feedback(?:\*\*)?:(?:\*\*)?|{_TAGS})|{_TAGS}\s*\Z"
)
# Replaced by group 1, a verdict's line "4 - the hat is missing" becomes its explanation "the hat is
# missing". A line without an explanation becomes "".
_EXPLAINED = re.compile(
    r"\A.*?(?: -+ | ?[:;,(|\u2014]| \u2013 | because | since | as )\W*([^\W\d].*)|\A.*", re.DOTALL
)


def _feedback(text: str, candidates: Sequence[Candidate]) -> str:
    """Return the feedback of an answer.

    Args:
        text: the answer.
        candidates: in the order of their `start`.

    Returns:
        The feedback of the last candidate's JSON object; without one the text before the last
        candidate, else the text after it, else its explanation on its own line. Without candidates
        it is the whole answer.
    """
    if not candidates:
        return _unwrap(text)
    decisive = candidates[-1]
    if decisive.feedback is not None:
        return decisive.feedback
    before = _unwrap(text[: decisive.start].rstrip("*_`# \t\n"))
    after = _unwrap(text[decisive.stop :].lstrip(" \t\n.*_`)]}\"'"))
    verdict_line = text[decisive.value_start : decisive.stop]
    return before or after or _EXPLAINED.sub(r"\1", verdict_line).strip(" )")


def _unwrap(text: str) -> str:
    """Remove the label and the tags around a feedback."""
    for _ in range(2):  # a tag with a label inside it takes two rounds
        text = _WRAPPING.sub("", text).strip()
    return text
