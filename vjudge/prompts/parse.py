"""Read the verdict out of a judge's answer, or say why there is none.

A verdict stands alone: after the marker of its format there is one value of the scale, in any of
the usual dress (`vjudge.prompts.values`), and then the end of the line. Whatever else stands on
that line makes the verdict missing, with a reason. Thinking is not read, and an answer that was cut
off has no verdict. All patterns take time linear in the answer's length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from vjudge.prompts import jsons, values
from vjudge.prompts.values import MORE, NO_VALUE, Reading, Said, plain_text
from vjudge.records import NAN, Verdict

REASONS = (
    *("no verdict marker", "not on the scale", "two verdicts", "more than a verdict on its line"),
    *("cut off", "ended by", "refused", "empty answer"),
)
"""How every failure begins; details may follow."""


class Mark(NamedTuple):
    """Where a format puts its verdict: in the group "value" of a pattern."""

    pattern: str
    read: Callable
    # "after": behind a marker, to the end of the line. "label": so, and no other word than "so" or
    # "the" may stand before the marker. "inside": between brackets, beside which nothing stands.
    # "line": a whole line or sentence, which is prose where it is no verdict.
    kind: str = "after"


@dataclass(frozen=True)
class Format:
    """One way in which judges write a verdict."""

    gives: str  # "score", or "choice" between two responses
    marks: tuple = ()  # what they read must agree; none for JSON
    scale: tuple[int, int] | None = None  # its own; None for the rubric's
    opens: bool = False  # the verdict may open the answer, and an explanation follow
    hidden: str = "think(?:ing)?|thought|reasoning"  # tags of what is not read


def parse(
    text: str,
    *,
    scores: Sequence = (),
    format: str = "prometheus",
    finish: str = "stop",
    weights: Mapping | None = None,
) -> Verdict:
    """Read the verdict of one answer.

    >>> parse("The sign is misread. [RESULT] **2/5**", scores=(1, 2, 3, 4, 5)).score
    2.0
    >>> parse("[RESULT] 2 errors were found", scores=(1, 2, 3, 4, 5)).failure
    'more than a verdict on its line'

    Args:
        text: the judge's answer, without the prompt.
        scores: the scale, lowest first, for a format that has none of its own.
        format: one of `FORMATS`.
        finish: how the answer ended; only after "stop" can it hold a verdict.
        weights: weight of each named criterion, for format "json": `Verdict.scores` then holds the
            score of each by name, and `Verdict.score` their weighted mean.

    Returns:
        A score, a choice, or a failure that begins with one of `REASONS`.

    Raises:
        ValueError: an unknown format, or a scale that is missing.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown verdict format {format!r}; one of: {', '.join(sorted(FORMATS))}")
    rule = FORMATS[format]
    scale = range(rule.scale[0], rule.scale[1] + 1) if rule.scale else scores
    if rule.gives == "score" and not len(scale):
        raise ValueError("scores is empty: give the rubric's scale, for example (1, 2, 3, 4, 5)")

    # 1) an answer that is not whole has no verdict
    visible = _without(rule.hidden, text)
    failure = _not_whole(text, visible, finish)
    if failure or visible is None:
        return Verdict(NAN, _unwrap(text), text, failure)

    # 2) find the places of verdicts and read what stands there
    plain = plain_text(visible)
    if rule.marks:
        readings = _read_marks(plain, rule, scale)
    else:
        readings = jsons.read(visible, rule.gives, scale, weights or {})

    # 3) the last one counts, unless something says otherwise
    said = _settle(plain, rule, readings)
    feedback = _feedback(text, readings)
    if isinstance(said, str):
        failure = "refused" if _REFUSAL.match(plain) else said
        return Verdict(NAN, feedback, text, failure)
    score = NAN if said.score is None else said.score
    return Verdict(score, feedback, text, None, said.choice, said.scores)


def _not_whole(text: str, visible: str | None, finish: str) -> str | None:
    if finish == "length":
        return "cut off at the token limit"
    if finish != "stop":
        return f"ended by {finish}"
    if not text.strip():
        return "empty answer"
    return "cut off before the thinking ended" if visible is None else None


def _without(tag: str, text: str) -> str | None:
    """A text with what stands in certain tags as blanks; None where the last of them never ends."""
    tags = list(re.finditer(rf"(?i)< ?(/?) ?(?:{tag})>", text))
    if not tags:
        return text
    if not tags[-1][1]:
        return None
    first = 0 if tags[0][1] else tags[0].start()
    last = tags[-1].end()
    return text[:first] + " " * (last - first) + text[last:]


# --- what stands at a mark

_DENIED = re.compile(
    r"(?i)\b(?:not|\w+n't|never|neither|nor|cannot|(?:rather|other) than|instead|if|unless|might"
    r"|may|could|either|or|between|wrong to|unfair to|example|format|e\.g)\b"
)


def _read_marks(plain: str, rule: Format, scale: Sequence) -> list:
    """What is said at each place where a mark of the format stands, in reading order."""
    readings = []
    for mark in rule.marks:
        for hit in re.finditer(mark.pattern, plain, re.IGNORECASE | re.MULTILINE):
            before = re.split(r"[.!?;\n]", plain[max(0, hit.start() - 100) : hit.start()])[-1]
            if mark.kind == "label" and not values.FILLERS.fullmatch(before.strip(" *_#>`\"'([")):
                continue  # "Fluency score", "Max score"
            said = mark.read(hit["value"], scale)
            if mark.kind == "line" and isinstance(said, str):
                continue
            end = hit.end()
            if mark.kind == "inside":
                line = plain[end : end + values.LONGEST].partition("\n")[0]
                end += len(line)
                beside = values.undress(line).strip(" .!,;:$")
                if not hit["end"] or beside or _DENIED.search(before):
                    said = MORE
            prose = said == NO_VALUE
            if mark.kind != "inside" and isinstance(said, str):
                prose = not values.OPENS_WITH_VALUE.match(hit["value"])
            readings.append(Reading(hit.start(), end, said, prose))
    return sorted(readings, key=lambda reading: reading.start)


# --- whether something says otherwise

_TAKEN_BACK = re.compile(
    r"(?i)\b(?:correct(?:ion|ed)\b|scratch that|second thoughts?\b|(?:on|upon) reflection"
    r"|reconsider|i (?:take (?:it|that) back|mean\b|meant\b|changed?\b|was wrong|made a mistake)"
    r"|revis(?:e|ed|ing)\b|oops"
    r"|chang\w{1,3} (?:my|the) (?:mind|score|verdict|rating|answer|choice)\b"
    r"|my mistake"
    r"|(?:ignore|disregard) (?:that|this|the (?:above|previous))|overrule|undecided"
    r"|(?:previous|above|new|real|actual|wrong) (?:score|verdict|rating|answer|choice)|withdraw"
    r"|strike that|make (?:that|it)\b|that said|changed from|would give"
    r"|too (?:high|low|generous|harsh|lenient|strict)\b"
    r"|(?:this|the|my) (?:score|verdict|rating|choice)\b[^.\n]{0,20}"
    r"\b(?:wrong|mistake|lower|higher|different))"
    r"|~~"
    r"|(?:^|[.!?\n])[ *_#>(-]{0,8}(?:wait|actually|no[,.! ]|sorry|hmm+|edit:|update|oh\b|or\b"
    r"|alternatively|instead|hold on|then again)"
)
_SHORT = 60  # characters; less than that is no explanation
_OVERALL = re.compile(rf"(?i)\boverall score is[\s:*_(\[]{{0,8}}({values.DIGITS})(?![\w%])(?!\.\d)")
_SCORED = re.compile(
    rf"(?i)\b(?:scor(?:e|ed|ing)|rat(?:e|ed|ing)|grade)\b[^\n\d]{{0,30}}?({values.DIGITS})"
)
_RANKED = re.compile(  # "A is worse"; "B is better"
    rf"(?i)\b({values.WHO}) (?:is|was) (?:\w+ )?(?:not|worse|weaker|inferior|wrong)\b"
    rf"|\b({values.WHO})\b[^.\n]{{0,40}}\b(?:better|best|preferred|superior|wins|winner"
    r"|(?:right|correct) choice)\b"
)
_REFUSAL = re.compile(
    r"(?i)\W{0,20}(?:(?:i'?m|i am) (?:very |so |really )?(?:sorry|unable to|not able to)|sorry,"
    r"|i apologi[sz]e|as an ai\b|as a language model|i (?:can(?:no|')t|can not|won't|will not"
    r"|must decline|decline to) (?:\w+ )?(?:assist|help|comply|provide|evaluate|judge|rate|grade"
    r"|score|fulfil|complete|do|continue|engage|answer|compare))"
)


def _settle(plain: str, rule: Format, readings: Sequence) -> Said | str:
    """What the last place says, or why that does not stand."""
    if not readings:
        return "no verdict marker"
    last = readings[-1].said
    if isinstance(last, str):
        return last
    # 1) no other place may say something else
    for reading in readings:
        if not reading.prose and reading.said[:2] != last[:2]:
            return "two verdicts"
    if last.choice == "abstain":
        return last
    # 2) nor may the text
    opens = rule.opens and not plain[: readings[0].start].strip(" \n*_#>`{[(")
    other = _said_after(plain[readings[-1].end :], rule.gives, last, opens)
    for hit in _OVERALL.finditer(plain if rule.gives == "score" and not rule.scale else ""):
        if float(hit[1]) != last.score:
            other = "another overall score"
    return f"two verdicts ({other})" if other else last


def _said_after(tail: str, gives: str, said: Said, opens: bool) -> str | None:
    """What follows may explain a verdict, at length where it opens the answer; never replace it."""
    if _TAKEN_BACK.search(tail):
        return "what follows takes it back"
    if not opens and (gives == "score" or len(tail.strip()) < _SHORT):
        more = values.LOOKS_LIKE[gives].search(tail.replace("_", " "))
        return "more values follow" if more else None
    if any(values.is_value(line[0]) for line in re.finditer(r"\S[^\n]*", tail)):
        return "a line that follows is one"
    others = []
    if gives == "score":
        others = [hit for hit in _SCORED.finditer(tail) if float(hit[1]) != said.score]
    for hit in _RANKED.finditer(tail if gives == "choice" else ""):
        worse, better = hit.groups()
        if (values.side_of(better or worse) == said.choice) == bool(worse):
            others.append(hit)
    return "what follows names another" if others else None


# --- the feedback: the text before the verdict, or after one that opens the answer

_TAGS = r"</?(?:think(?:ing)?|thought|reasoning|feedback)>"
_WRAPPING = re.compile(
    rf"(?i)\A\s*(?:(?:#+[ \t]*)?(?:\*\*)?feedback(?:\*\*)?:(?:\*\*)?|{_TAGS})|{_TAGS}\s*\Z"
)


def _feedback(text: str, readings: Sequence) -> str:
    if not readings:
        return _unwrap(text)
    last = readings[-1]
    if last.feedback is not None:
        return last.feedback
    before = _unwrap(text[: last.start].rstrip("*_`# \t\n"))
    if before:
        return before
    return _unwrap(text[last.end :].lstrip(" \t\n.*_`)]}\"'"))


def _unwrap(text: str) -> str:
    """A feedback without the label or the tags around it."""
    for _ in range(2):
        text = _WRAPPING.sub("", text).strip()
    return text


# --- the formats

_LEAD = r"[\s*_`\"':=]*"


def _after(marker: str, value: str = r"[^\n]*") -> str:
    """A pattern of what stands after a marker, to the end of the line."""
    return rf"(?:{marker}){_LEAD}(?P<value>{value})"


_COLON = r"(?=[*_]{0,3} {0,3}(?:\([^()\n]{0,30}\))?[*_ ]{0,4}[:=])"
_CHINESE = "\u5206\u6570|\u8bc4\u5206|\u5f97\u5206|\u5206\u6578|\u8a55\u5206"
# an echo of the prompt's "[RESULT] (an integer number between 1 and 5)" is no marker
_RESULT = _after(
    r"\[RESULT\](?!\W{0,4}an? (?:integer|number|score)\b|\W{0,2}\(A(?: or|,) B|\W{0,2}\(?write\b)",
    r"(?:(?!\[RESULT\])[^\n])*",
)
_BRACKETS = r"\[\[\s{0,3}(?P<value>[^\[\]\n]{1,30}?)\s{0,3}(?P<end>\]\])"
_TAGGED = r"<{0}>(?P<value>(?:(?!</?{0}>)[\s\S]){{0,200}})(?P<end>(?:</{0}>)?)"
_BOX = r"\\boxed\s{0,3}\{(?P<value>(?:[^{}]|\{[^{}]{0,60}\}){0,100})(?P<end>\}?)"
_FIRST = r"\A\s*(?P<value>\S[^\n]{0,199})$"
_LAST = r"^(?P<value>[^\n]{1,200})\s*\Z"
_IS_BETTER = (  # a line, or the first sentence of one, that says which response is better
    r"^(?P<value>[^\n.]{0,100}\b(?:better|equal)[^\n.]{0,60}\.?[*_ ]{0,4})(?:$|(?<=\. )(?=[A-Z]))"
)
_THE_BETTER = _after(
    r"(?<!neither is )(?<!not )\bthe better (?:response|answer)\b(?: is)?(?=[*_]{0,3} {0,3}[:\[])",
    r"\[[^\[\]\n]{1,20}\](?=\.[*_]{0,3} [A-Z])|[^\n]*",  # "[1]. It names ..."
)

_to_100 = partial(values.score, halves=True)
_two_scores = Mark(_FIRST, values.two_scores, "line")
_second_score = Mark(_FIRST, partial(values.two_scores, of_second=True), "line")
_final = Mark(_after(r"\bfinal score\b"), values.score, "label")
_total = Mark(_after(r"\b(?:final|overall|total) (?:score|rating|grade)\b"), values.score, "label")
_label = Mark(_after(rf"(?:\b(?:score|rating|grade)\b|{_CHINESE}){_COLON}"), values.score, "label")
_first = Mark(_FIRST, values.score, "line")
_judged = Mark(_after(r"\boverall judge?ment\b"), values.choice)
_stated = Mark(_IS_BETTER, values.choice, "line")
_better = (Mark(_THE_BETTER, values.choice), _stated)


def _bracketed(table: Mapping) -> Mark:
    return Mark(_BRACKETS, partial(values.sign, table=table), "inside")


FORMATS: dict = {
    # "... So the overall score is 4.\n[RESULT] 4", "... [RESULT] B": prometheus-eval; ties are ours
    "prometheus": Format("score", (Mark(_RESULT, values.score),)),
    "prometheus-relative": Format("choice", (Mark(_RESULT, partial(values.choice, signs="ab")),)),
    # "... Final Score: 4": UnifiedReward (arXiv 2503.05236), pointwise
    "final-score": Format("score", (_final,)),
    # LLaVA-Critic-113k (LLaVA-VL/LLaVA-NeXT#461): a score of 100, and the better of two responses
    "llava-critic": Format(
        "score",
        tuple(mark._replace(read=_to_100) for mark in (_total, _label, _first)),
        (0, 100),
        opens=True,
    ),
    "better-response": Format("choice", _better, opens=True),
    # "... [[A>>B]]": LLaVA-Critic-113k; WildVision; lmarena/arena-hard-auto
    "arena": Format("choice", (_bracketed(values.DEGREES),)),
    # "... [[A]]", [[C]] for a tie; "Rating: [[5]]": MT-Bench (arXiv 2306.05685); MM RewardBench
    "mt-bench": Format("choice", (_bracketed(values.LETTERS),)),
    "mt-bench-score": Format("score", (Mark(_BRACKETS, _to_100, "inside"),), (1, 10)),
    # "8 6\n...", of the second form the first score is the reference's: LLaVA-Bench
    "two-scores": Format("choice", (_two_scores,), (1, 10), opens=True),
    "reference-scores": Format("score", (_second_score,), (1, 10), opens=True),
    # "...\nAnswer 1 is better": UnifiedReward; "Overall Judgment: Answer 2 is better.":
    # VL_RewardBench
    "unified-reward": Format("choice", (_judged, _stated), opens=True),
    "vl-rewardbench": Format("choice", (_judged,)),
    # "<think>...</think><answer>2</answer>": R1-Reward (yfzhang114/r1_reward);
    # "<answer>Answer 2 is better</answer>": UnifiedReward-Think (CodeGoat24/UnifiedReward)
    "think-answer": Format("choice", (Mark(_TAGGED.format("answer"), values.choice, "inside"),)),
    # "<think>...</think>\\boxed{2}": LLaVA-Critic-R1 (LLaVA-VL/LLaVA-NeXT#475); of scores, ours
    "boxed": Format("choice", (Mark(_BOX, values.choice, "inside"),)),
    "boxed-score": Format("score", (Mark(_BOX, values.score, "inside"),)),
    # "<feedback>...</feedback><score>4</score>": flowaicom/Flow-Judge-v0.1
    "flow-judge": Format(
        "score",
        (Mark(_TAGGED.format("score"), values.score, "inside"),),
        hidden="feedback|think(?:ing)?",
    ),
    # "... **Score:** 2" or a first or last line that is a number: ours, for chat models
    "score": Format(
        "score", (_total, _label, _first, Mark(_LAST, values.score, "line")), opens=True
    ),
    # LLaVA-Critic-113k's four forms for pairs
    "llava-critic-pair": Format(
        "choice",
        (*_better, _bracketed(values.DEGREES | values.LETTERS), _two_scores),
        (1, 10),
        opens=True,
    ),
    # {"feedback": "...", "score": 4}, {"reasoning": ..., "better_response": "A"} (MMRB2)
    "json": Format("score"),
    "json-choice": Format("choice"),
}
"""What can be read, by name."""
