"""Read the verdict out of a judge's answer, or say why there is none.

A verdict stands alone: after the marker of its format there is one value of the scale, in any of
the usual dress (`vjudge.prompts.values`), and then the end of the line. Whatever else stands on
that line makes the verdict missing, with a reason. Thinking is not read, and an answer that was cut
off has no verdict. All patterns take time linear in the answer's length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from vjudge.prompts import values
from vjudge.prompts.objects import Reading, read_json
from vjudge.prompts.values import MORE, NO_VALUE, Said, plain_text
from vjudge.records import NAN, Verdict

# How every failure begins; details may follow.
REASONS = (
    *("no verdict marker", "not on the scale", "two verdicts", "more than a verdict on its line"),
    *("cut off", "ended by", "refused", "empty answer"),
)
_HIDDEN = r"(?i)< ?{}(?:think(?:ing)?|thought|reasoning|feedback)>"  # tags of what is not read


class Mark(NamedTuple):
    """Where a format puts its verdict: in the group "value" of a pattern."""

    pattern: str
    read: Callable
    # "after": behind a marker, to the end of the line. "label": so, and no other word than "so" or
    # "the" may stand before the marker. "inside": between brackets, beside which nothing stands.
    # "line": a whole line or sentence, which is prose where it is no verdict.
    kind: str = "after"


class Format(NamedTuple):
    """One way in which judges write a verdict."""

    gives: str  # "score", or "choice" between two responses
    marks: tuple = ()  # what they read must agree; none for JSON
    scale: tuple[int, int] | None = None  # its own; None for the rubric's
    opens: bool = False  # the verdict may open the answer, and an explanation follow


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
    end = 0
    for closing in re.finditer(_HIDDEN.format("/ ?"), text):
        end = closing.end()
    visible = " " * end + text[end:]
    failure = _not_whole(text, visible, finish)
    if failure:
        return Verdict(NAN, _unwrap(text), text, failure)

    # 2) find the places of verdicts and read what stands there
    plain = plain_text(visible)
    if rule.marks:
        readings = _read_marks(plain, rule, scale)
    else:
        readings = read_json(visible, rule.gives, scale, weights or {})

    # 3) the last one counts, unless something says otherwise
    said = _settle(plain, rule, readings)
    feedback = _feedback(text, readings)
    if isinstance(said, str):
        failure = "refused" if _REFUSAL.match(plain) else said
        return Verdict(NAN, feedback, text, failure)
    return Verdict(said.score, feedback, text, None, said.choice, said.scores)


def is_unread(text: str, scales: Mapping, *, format: str, finish: str) -> bool:
    """Whether an answer holds no verdict that counts, and is no refusal.

    `scales` maps each named criterion, or "" for one verdict, to its scale.
    """
    weights = {name: 1.0 for name in scales if name}
    scores = tuple(next(iter(scales.values())))
    failure = parse(text, scores=scores, format=format, weights=weights).failure
    if failure is None:
        return finish != "stop"
    return not failure.startswith("refused")


def _not_whole(text: str, visible: str, finish: str) -> str | None:
    if finish != "stop":
        return "cut off at the token limit" if finish == "length" else f"ended by {finish}"
    if not text.strip():
        return "empty answer"
    unfinished = re.search(_HIDDEN.format(""), visible)
    return "cut off before the thinking ended" if unfinished else None


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
            said = mark.read(hit["value"], scale)
            before = re.split(r"[.!?;\n]", plain[max(0, hit.start() - 100) : hit.start()])[-1]
            if mark.kind == "line" and isinstance(said, str):
                continue
            if mark.kind == "label" and values.undress(before).strip(" >#-"):
                continue  # "Fluency score", "Max score"
            behind = re.search(r"\]\][^\w<]*\w", hit["value"][: values.LONGEST])
            if mark.kind == "inside" and (behind or _DENIED.search(before)):
                said = MORE
            words = 1 if rule.gives == "score" else 3  # in which a value would stand
            opening = " ".join(hit["value"][: values.LONGEST].split()[:words])
            prose = said == MORE and not values.LOOKS_LIKE[rule.gives].search(opening)
            readings.append(Reading(hit.start(), hit.end(), said, prose=prose))
    return sorted(readings, key=lambda reading: reading.start)


# --- whether something says otherwise

_TAKEN_BACK = re.compile(
    r"(?i)\b(?:correct(?:ion|ed)\b|scratch that|second thoughts?\b|(?:up)?on reflection|reconsider"
    r"|i (?:take (?:it|that) back|mean\b|meant\b|changed?\b|was wrong|made a mistake)|my mistake"
    r"|revis(?:e|ed|ing)\b|chang\w{1,3} (?:my|the) (?:mind|score|verdict|rating|answer|choice)\b"
    r"|(?:ignore|disregard) (?:that|this|the (?:above|previous))|overrule|undecided|withdraw|oops"
    r"|(?:previous|above|new|real|actual|wrong) (?:score|verdict|rating|answer|choice)|would give"
    r"|strike that|make (?:that|it)\b|that said|changed from|too (?:high|low|generous|harsh|lenient"
    r"|strict)\b|(?:this|the|my) (?:score|verdict|rating|choice)\b[^.\n]{0,20}\b(?:wrong|mistake"
    r"|lower|higher|different))|~~|(?:^|[.!?\n])[ *_#>(-]{0,8}(?:wait|actually|no[,.! ]|sorry|hmm+"
    r"|edit:|update|oh\b|or\b|alternatively|instead|hold on|then again)"
)
_SHORT = 60  # characters; less than that is no explanation
_OVERALL = re.compile(rf"(?i)\boverall score is[\s:*_(\[]{{0,8}}({values.DIGITS})(?![\w%])(?!\.\d)")
_SCORED = re.compile(
    r"(?i)\b(?:(?:scor|rat|grad)(?:e|ed|ing)\b[^\n\d]{0,30}?|i(?:'d| would| will)? (?:give|gave"
    r"|assign)\b[^\n\d]{0,20}?|(?:merits?|deserves?|earns?|warrants?) (?:\w+ ){0,2}?an? )"
    rf"({values.DIGITS})"
)
_RANKED = re.compile(  # "A is worse"; "B is better"
    rf"(?i)\b({values.WHO})(?: response| answer)? (?:is|was) (?:\w+ )?(?:not|worse|weaker|inferior"
    rf"|wrong)\b|\b({values.WHO})\b[^.\n]{{0,40}}\b(?:better|best|preferred|superior|wins?|winner"
    r"|stronger|outperforms|beats|chosen|(?:right|correct) choice)\b"
)
_REFUSAL = re.compile(
    r"(?i)\W{0,20}(?:(?:i'?m|i am) (?:(?:very|so|really) )?(?:sorry|unable to|not able to)|sorry,"
    r"|i apologi[sz]e|as an ai\b|as a language model|i (?:can(?:no|')t|can not|won't|will not|must"
    r" decline|decline to) (?:\w+ )?(?:assist|help|comply|provide|evaluate|judge|rate|grade|score"
    r"|fulfil|complete|do|continue|engage|answer|compare))"
)


def _settle(plain: str, rule: Format, readings: Sequence) -> Said | str:
    """What the last place says, or why that does not stand."""
    if not readings:
        return "no verdict marker"
    last = readings[-1].said
    if isinstance(last, str):
        return last
    for reading in readings:
        silent = reading.prose or reading.said == NO_VALUE
        if not silent and reading.said != last:
            return "two verdicts"
    if last.choice == "abstain":
        return last
    tail = plain[readings[-1].end :]
    opens = rule.opens and not plain[: readings[0].start].strip(" \n*_#>`{[(")
    explains = opens or (rule.gives == "choice" and len(tail.strip()) >= _SHORT)
    other = _taken_back(tail, rule.gives, last, explains)
    for hit in _OVERALL.finditer(plain):
        if last.choice is None and not rule.scale and float(hit[1]) != last.score:
            other = "another overall score"
    return f"two verdicts ({other})" if other else last


def _taken_back(tail: str, gives: str, said: Said, explains: bool) -> str | None:
    """What follows may explain a verdict that opens the answer, or a choice; never replace it."""
    if _TAKEN_BACK.search(tail):
        return "what follows takes it back"
    if not explains:
        more = values.LOOKS_LIKE[gives].search(tail.replace("_", " "))
        return "more values follow" if more else None
    others = []
    for line in filter(values.is_value, tail.split("\n")):
        if getattr(values.choice(line), "choice", None) != said.choice or gives == "score":
            others.append(line)
    if gives == "score":
        others += [hit for hit in _SCORED.findall(tail) if float(hit) != said.score]
    for worse, better in _RANKED.findall(tail if gives == "choice" else ""):
        if (values.side_of(better or worse) == said.choice) == bool(worse):
            others.append(better or worse)
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
    return before or _unwrap(text[last.end :].lstrip(" \t\n.*_`)]}\"'"))


def _unwrap(text: str) -> str:
    """A feedback without the label or the tags around it."""
    for _ in range(2):
        text = _WRAPPING.sub("", text).strip()
    return text


# --- the formats


def _after(marker: str, value: str = r"[^\n]*") -> str:
    """A pattern of what stands after a marker, to the end of the line."""
    return rf"(?:{marker})[\s*_`\"':=]*(?P<value>{value})"


_SCORE = _after(  # "Overall score 4", "Rating (1-5): 4"
    r"\b(?:final|overall|total) (?:score|rating|grade)\b|(?:\b(?:score|rating|grade)\b"
    "|\u5206\u6570|\u8bc4\u5206|\u5f97\u5206|\u5206\u6578|\u8a55\u5206)"
    r"(?=[*_]{0,3} {0,3}(?:\([^()\n]{0,30}\))?[*_ ]{0,4}[:=])"
)
# an echo of the prompt's "[RESULT] (an integer number between 1 and 5)" is no marker
_RESULT = _after(
    r"\[RESULT\](?!\W{0,4}an? (?:integer|number|score)\b|\W{0,2}\(A(?: or|,) B|\W{0,2}\(?write\b)",
    r"(?:(?!\[RESULT\])[^\n])*",
)
_BRACKETS = _after(r"\[\[(?=[^\[\]\n]{1,40}\]\])")
_BOX = _after(r"\\boxed\s{0,3}\{(?=(?:[^{}]|\{[^{}]{0,60}\}){0,100}\})")
_FIRST = r"\A\s*(?P<value>\S[^\n]{0,199})$"
_IS_BETTER = (  # a line, or the first sentence of one, that says which response is better
    r"^(?P<value>[^\n.]{0,100}\b(?:better|equal)[^\n.]{0,60}\.?[*_ ]{0,4})(?:$|(?<=\. )(?=[A-Z]))"
)
_THE_BETTER = _after(
    r"(?<!neither is )(?<!not )\bthe better (?:response|answer)\b(?: is)?(?=[*_]{0,3} {0,3}[:\[])",
    r"\[[^\[\]\n]{1,20}\](?=\.[*_]{0,3} [A-Z])|[^\n]*",  # "[1]. It names ..."
)


_TAGGED = _after(r"<(answer|score)>(?=(?:(?!</?(?:answer|score)>)[\s\S]){0,200}</\1>)")


def _scores(read: Callable) -> tuple:
    """The marks of a labelled score, and of one that opens the answer."""
    return Mark(_SCORE, read, "label"), Mark(_FIRST, read, "line")


def _signs(table: Mapping) -> Mark:
    return Mark(_BRACKETS, partial(values.sign, table=table), "inside")


_to_100 = partial(values.score, halves=True)
_first = Mark(_FIRST, values.two_scores, "line")
_second = Mark(_FIRST, partial(values.two_scores, of_second=True), "line")
_last = Mark(r"^(?P<value>[^\n]{1,200})\s*\Z", values.score, "line")
_judged = Mark(_after(r"\boverall judge?ment\b"), values.choice)
_better = (
    Mark(_THE_BETTER, values.choice),
    Mark(_after(r"(?<=[.!?] )the better (?:response|answer) is\b"), values.choice, "label"),
    Mark(_IS_BETTER, values.choice, "line"),
)
_degree = _signs(values.DEGREES | values.LETTERS)

# What can be read, by name.
FORMATS: dict = {
    # "... So the overall score is 4.\n[RESULT] 4", "... [RESULT] B": prometheus-eval; ties are ours
    "prometheus": Format("score", (Mark(_RESULT, values.score),)),
    "prometheus-relative": Format("choice", (Mark(_RESULT, partial(values.choice, signs="ab")),)),
    # "... Final Score: 4": UnifiedReward (arXiv 2503.05236), pointwise
    "final-score": Format("score", (Mark(_after(r"\bfinal score\b"), values.score, "label"),)),
    # LLaVA-Critic-113k (LLaVA-VL/LLaVA-NeXT#461): a score of 100, and the better of two responses
    "llava-critic": Format("score", _scores(_to_100), (0, 100), opens=True),
    "better-response": Format("choice", _better, opens=True),
    # "... [[A>>B]]": LLaVA-Critic-113k; WildVision; lmarena/arena-hard-auto
    "arena": Format("choice", (_signs(values.DEGREES),)),
    # "... [[A]]", [[C]] for a tie; "Rating: [[5]]": MT-Bench (arXiv 2306.05685); MM RewardBench
    "mt-bench": Format("choice", (_signs(values.LETTERS),)),
    "mt-bench-score": Format("score", (Mark(_BRACKETS, _to_100, "inside"),), (1, 10)),
    # "8 6\n...", of the second form the first score is the reference's: LLaVA-Bench
    "two-scores": Format("choice", (_first,), (1, 10), opens=True),
    "reference-scores": Format("score", (_second,), (1, 10), opens=True),
    # "...\nAnswer 1 is better": UnifiedReward; "Overall Judgment: Answer 2 is better.":
    # VL_RewardBench
    "unified-reward": Format("choice", (_judged, _better[2]), opens=True),
    "vl-rewardbench": Format("choice", (_judged,)),
    # "<think>...</think><answer>2</answer>": R1-Reward (yfzhang114/r1_reward);
    # "<answer>Answer 2 is better</answer>": UnifiedReward-Think (CodeGoat24/UnifiedReward)
    "think-answer": Format("choice", (Mark(_TAGGED, values.choice, "inside"),)),
    # "<think>...</think>\\boxed{2}": LLaVA-Critic-R1 (LLaVA-VL/LLaVA-NeXT#475); of scores, ours
    "boxed": Format("choice", (Mark(_BOX, values.choice, "inside"),)),
    "boxed-score": Format("score", (Mark(_BOX, values.score, "inside"),)),
    # "<feedback>...</feedback><score>4</score>": flowaicom/Flow-Judge-v0.1
    "flow-judge": Format("score", (Mark(_TAGGED, values.score, "inside"),)),
    # "... **Score:** 2" or a first or last line that is a number: ours, for chat models
    "score": Format("score", (*_scores(values.score), _last), opens=True),
    # LLaVA-Critic-113k's four forms for pairs
    "llava-critic-pair": Format("choice", (*_better, _degree, _first), (1, 10), opens=True),
    # {"feedback": "...", "score": 4}, {"reasoning": ..., "better_response": "A"} (MMRB2)
    "json": Format("score"),
    "json-choice": Format("choice"),
}
