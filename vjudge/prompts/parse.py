"""A judge's answer -> a verdict, or no verdict and the reason.

A verdict is read only where the judge's format puts it: nothing is guessed from the prose, and nothing falls back to a
default. A tie is a verdict, and so is an abstention ("N/A", "abstain", "cannot judge" in the verdict's place). Every
pattern is linear in the length of the answer: repeats are bounded, or end before the next place can start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from vjudge.prompts.reading import (
    ABSTAINED,
    COUNT,
    DENIED,
    NEGATED,
    NUMBER,
    OUT_OF,
    PLAIN,
    Expected,
    Readout,
    Scale,
    Statement,
    first_line,
    maximum_of,
    read_after,
    strip_prefix,
    value_of,
    verdict_at,
    why_no_score,
)
from vjudge.records import NAN, Verdict


def parse(text: str, *, scores: Sequence[int] = (), format: str = "prometheus") -> Verdict:
    """Read the verdict out of a judge's answer.

    >>> parse("The sign is misread. So the overall score is 2.\\n[RESULT] 2", scores=(1, 2, 3, 4, 5)).score
    2.0
    >>> parse("The sign is misread. [RESULT] 2 (out of 10)", scores=(1, 2, 3, 4, 5)).failure
    'a score out of 10 on a rubric up to 5'
    >>> parse("Both name it, B the colour too. [RESULT] B", format="prometheus-relative").choice
    'b'

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
    text before that marker, without a leading "Feedback:". What follows the number in its clause decides whether it is
    the score: strictly, so that a number among the reasons is a failure too, unless a new sentence gives them.

        answer                                       verdict (rubric 1-5)
        Feedback: ... **[RESULT]** (4).              4: emphasis, brackets, quotes, ":" and "=" are passed over
        [RESULT] 4/5, [4]/5, 4 (out of five), 4.0    4: the rubric's own maximum, the same number
        [RESULT] 4/10, [4]/10, 4 (1-10)              failure: another scale
        [RESULT] 4.5, 7, 0, -4                       failure: off the rubric
        [RESULT] 4-5, 4 or five, (4) (5), 4->5, 4:5  failure: more than one number; spaces and dashes of any kind
        [RESULT] 4 because 3 of the 5 claims hold    failure: more than one number
        [RESULT] 4. It names 3 things.               4: the sentence is over; "4. No, 3." is a failure
        [RESULT] 4 %, 4 of the claims, 4 is too high failure: a unit, a count, a denial
        [RESULT] four, IV, 4th, nothing at all       failure: only plain digits are read
        [RESULT] N/A                                 abstention
        [RESULT] 4 ... [RESULT]                      failure: the last marker binds and has no number
        [RESULT] 4 ... [RESULT] 2                    failure: two different verdicts; twice the same is one
        So the overall score is 4. [RESULT] 2        failure: two different verdicts
        So the overall score is 4.                   failure: no verdict marker

    Source: the output format of prometheus-eval/prometheus-vision README.md; the rules for hostile answers are ours.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown verdict format {format!r}; one of: {', '.join(sorted(FORMATS))}")
    rule = FORMATS[format]
    if rule.gives == "score" and rule.scale is None and not len(scores):
        raise ValueError("scores is empty: give the rubric's scale, for example (1, 2, 3, 4, 5)")
    low, high = rule.scale or ((scores[0], scores[-1]) if len(scores) else (NAN, NAN))
    readout = rule.read(text.translate(PLAIN), (low, high))
    if readout.start is None:
        return Verdict(NAN, strip_prefix(text), text, readout.failure if text.strip() else "empty answer")
    feedback = readout.feedback
    if feedback is None:
        before = strip_prefix(text[: readout.start].rstrip("*_`"))  # "**[RESULT] 4**": emphasis around the verdict
        after = text[readout.end :].lstrip(" \t\n.*_`)]}\"'").rstrip()
        feedback = before or (after if readout.statements else "")
    failed = Verdict(NAN, feedback, text, readout.failure or "unread")
    if readout.failure:
        return failed
    statements = list(dict.fromkeys(readout.statements))
    if len(statements) > 1:
        count = "two" if len(statements) == 2 else str(len(statements))
        listed = f"{', '.join(map(str, statements[:-1]))} and {statements[-1]}"
        return replace(failed, failure=f"{count} different verdicts: {listed}")
    (stated,) = statements
    values = stated.scores or (() if stated.score is None else (stated.score,))
    for value in values:
        if not low <= value <= high if rule.scale else value not in scores:
            on = "scale" if rule.scale else "rubric"
            return replace(failed, failure=f"score {value:g} is off the {on} ({low:g}-{high:g})")
    score, scale = NAN if stated.score is None else stated.score, (float(low), float(high)) if values else None
    return Verdict(score, feedback, text, None, stated.choice, scale, stated.scores, stated.strong)


def suggest_format(texts: Sequence[str], *, scores: Sequence[int] = (), format: str) -> str | None:
    """Name the format that reads most of the answers that a judge's own format can't.

    Nothing is read anew by it: it is said beside the failures, so that a person can choose the format.

    >>> suggest_format(["**Score:** 3", "**Score:** 4", "It depends."], scores=(1, 2, 3, 4, 5), format="prometheus")
    'score'

    Args:
        texts: answers without a verdict in `format`; of many, the first 200 are looked at.
        scores: the rubric's scale, as in `parse`.
        format: the judge's own format. Only formats of its kind and scale come into question.

    Returns:
        The name of a format that reads more than half of them; None where none does.
    """
    own = FORMATS[format]
    scores = range(own.scale[0], own.scale[1] + 1) if own.scale else scores
    scales = (None, (scores[0], scores[-1]) if scores else None)
    sample = [text for text in texts[:200] if text.strip()]
    counts = dict.fromkeys(FORMATS, 0)
    for name, rule in FORMATS.items():
        if name != format and rule.gives == own.gives and (rule.gives == "choice" or rule.scale in scales):
            verdicts = [parse(text, scores=scores, format=name) for text in sample]
            counts[name] = sum(verdict.failure is None and not verdict.abstained for verdict in verdicts)
    wide = ("llava-critic-pair", "score")  # of two that read as much, the narrower one is meant
    best = max(counts, key=lambda name: (counts[name], name not in wide))
    return best if 2 * counts[best] > len(sample) else None


def verdict_spans(text: str, scale: Scale = (1, 5)) -> list[tuple[int, int]]:
    """Where a person who reads a judge's feedback would take something for its verdict, in order and apart.

    >>> feedback = "The sign is misread, so the score is **2**. It counts 4 of the 5 apples."
    >>> [feedback[start:end] for start, end in verdict_spans(feedback)]
    ['2']

    Args:
        text: feedback, in whatever form; what is left of an answer that could not be parsed may hold any.
        scale: lowest and highest score, which tell "4/7" from a fraction.

    Returns:
        (start, end) of each number, spelled number or choice. More than `parse` accepts ("a solid four", "4-5", other
        languages), and never less: no reader in `FORMATS` reads a score in what is left, if need be because a whole
        line is among the spans. Counts of things ("4/5 items", "2 of 3 dogs") are not.
    """
    plain = text.translate(PLAIN)
    spans = {match.span("value") for pattern in _TELLING for match in pattern.finditer(plain)}
    spans |= {match.span("value") for match in _GIVEN.finditer(plain) if not _is_count(plain, match.end())}
    for number in _NUMBERS.finditer(plain):
        out_of = OUT_OF.match(plain, number.end())
        if out_of and (highest := maximum_of(out_of)) in (scale[1], 5, 10, 100) and value_of(number[0]) <= highest:
            if not _is_count(plain, out_of.end()) and not plain.startswith("/", out_of.end()):
                spans.add((number.start(), out_of.end()))
    lines = [(line.start(), line.end()) for line in re.finditer(r"[^\n]*(?:\n|$)", plain)]
    while left := _lines_that_read(plain, _joined(spans), scale):
        whole = {(lines[n][0], lines[n][0] + len(plain[slice(*lines[n])].rstrip("\n"))) for n in left}
        if whole <= spans:
            return [(0, len(text))]
        spans |= whole
    return _joined(spans)


def _is_count(text: str, end: int) -> bool:
    """Whether a number that ends here counts things, as in "4/5 items"."""
    rest = text[end : end + 40].lstrip(" *_`\"')]}")
    return bool(COUNT.match(rest)) and not _OF_SCORES.match(rest)


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, those that overlap as one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        elif start < end:
            joined.append((start, end))
    return joined


def _lines_that_read(text: str, spans: Sequence[tuple[int, int]], scale: Scale) -> set[int]:
    """The lines in which a reader still reads a score once the spans are hidden; no span holds a line's end."""
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    rest = "[hidden]".join(text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
    lines: set[int] = set()
    for rule in FORMATS.values():
        readout = rule.read(rest, rule.scale or scale) if rule.gives == "score" else Readout()
        if readout.statements and readout.start is not None:
            first, last = (rest.count("\n", 0, end) for end in (readout.start, readout.end))
            lines |= set(range(first, last + 1))
    return lines


Reader = Callable[[str, Scale], Readout]

_MARKER = re.compile(r"\[RESULT\]", re.IGNORECASE)
_AS_LABEL = r"(?=[*_]{0,3} {0,3}[:=])"
_REMARK = rf"(?:[*_]{{0,3}} {{0,3}}\((?P<remark>[^()\n]{{0,30}})\){_AS_LABEL})?"  # "Final Score (1-5): 4"
_FINAL = re.compile(rf"\bfinal score\b{_REMARK}", re.IGNORECASE)
_TOTAL = re.compile(rf"\b(?:final|overall|total) score\b{_REMARK}", re.IGNORECASE)
_LABELLED = re.compile(rf"\b(?:score|rating)\b{_REMARK}{_AS_LABEL}", re.IGNORECASE)
_ANY_LABEL = re.compile(
    rf"\b(?:score|rating|grade)\b{_REMARK}{_AS_LABEL}|(?:\u5206\u6570|\u8bc4\u5206|\u5f97\u5206|\u5206\u6578|\u8a55\u5206)[*_]{{0,3}}[:\uff1a]",
    re.IGNORECASE,
)
_OF_100 = re.compile(rf"(?<![\w.])({NUMBER})[ *_]{{0,4}}(?:/|out of)[ *_]{{0,4}}100(?![\w%])", re.IGNORECASE)
_FROM = re.compile(r"[0-9]%? {0,2}(?:[-/~,]|to|or|and)? {0,2}$|\bnot {0,2}$", re.IGNORECASE)  # "80 to 85 out of 100"
_BETTER = re.compile(r"\bthe better (?:response|answer)\b(?: is)?(?=[*_]{0,3} {0,3}[:\[])", re.IGNORECASE)
_BETTER_THAN = re.compile(
    r"^[ *_#>]{0,8}(?=(?:response|answer) [12ab] is (?:\w{1,13} )?better than (?:response|answer) [12ab]\b)",
    re.IGNORECASE | re.MULTILINE,
)
_EQUAL = re.compile(
    r"^\W{0,8}(?:the )?(?:two|both) (?:responses|answers) are equally good\b", re.IGNORECASE | re.MULTILINE
)
_ARENA = re.compile(r"\[\[\s{0,3}([^\[\]]{1,20}?)\s{0,3}\]\]")
_JUDGMENT = re.compile(r"\boverall judge?ment\b", re.IGNORECASE)
_ANSWER_LINE = re.compile(r"^[ *_#>]{0,8}(?=answer [12] is (?:the )?better\b)", re.IGNORECASE | re.MULTILINE)
_THINK = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
# The end is optional: the last place binds, and one that is cut off or holds more than text is no verdict.
_TAGGED = re.compile(r"<(answer|score)>([^<]{0,400})(?:</\1>)?", re.IGNORECASE)
_BOXED = re.compile(r"\\boxed {0,3}\{(?:\s{0,3}\\(?:boxed|text|textbf|mathbf|mathrm)\{){0,2}([^{}]{0,200})\}?")
_TWO = re.compile(rf"({NUMBER})(?:/10)? {{0,4}}[ ,;|] {{0,4}}({NUMBER})(?:/10)?[ .]{{0,4}}")
_OVERALL = re.compile(rf"\bthe overall score is[\s:*_(\[]*({NUMBER})(?![\w%])(?!\.[0-9])", re.IGNORECASE)
_NUMBER_LINE = re.compile(rf"^[ *_]{{0,8}}(?={NUMBER}(?: {{0,3}}/ {{0,3}}[0-9]{{1,4}})?[ *_.]{{0,4}}$)", re.MULTILINE)
# What a person would read as a verdict and no format has: a word of scoring, a few words that link, and a number.
_SPELLED_NUMBER = r"(?:two|three|four|five|six|seven|eight|nine|ten)\b"
_ANY_NUMBER = rf"(?:[+-]?\d{{1,9}}(?:[.,]\d{{1,9}})?%?|{_SPELLED_NUMBER}|zero\b|one\b(?! of))(?![a-z0-9])"
_JOIN = r" {0,2}(?:[-/~]|to|or|and|out of|of|instead of|rather than|von|sur|de) {0,2}"
_VALUE = rf"(?P<value>{_ANY_NUMBER}(?:{_JOIN}{_ANY_NUMBER}){{0,2}})"
_GAP = r"[ :\uff1a=*_`\"'(\[{<>,~-]{0,9}"
_LINK = (
    r"(?:(?:is|are|was|be|been|of|as|at|to|an?|the|it|this|that|its|response|answer|would|should|could|must|will|can|may"
    r"|might|overall|final|solid|strong|weak|clear|full|perfect|low|high|about|around|only|just|between|level|given|equals"
    rf"|also|down|up|from|est|ist|es|more|than)\b{_GAP}){{0,8}}"
)
_TELLING = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:\b(?:scor(?:es?|ed|ing)|rat(?:es?|ed|ings?)|grad(?:es?|ed|ing)|verdict|level|points|bewertung|punktzahl|note"
        rf"|nota|puntuaci\u00f3n|calificaci\u00f3n)(?:[ _]?\d(?= ?[:=])|\b)(?: {{0,3}}\([^()\n]{{0,30}}\))?"
        rf"|<score>|\\boxed){_GAP}{_LINK}{_VALUE}",
        r"\[RESULT\][^\w\n]{0,12}\n?[^\w\n]{0,12}(?P<value>[+-]?\w{1,40}(?:[./-]\w{1,40}){0,3})",
        r"\[\[ {0,3}(?P<value>[^\[\]\n]{1,20}?) {0,3}\]\]",
        rf"(?:\u5206\u6570|\u8bc4\u5206|\u5f97\u5206|\u5206\u6578|\u8a55\u5206|\u6253\u5206|\u30b9\u30b3\u30a2|\u8a55\u4fa1"
        rf"|\u5f97\u70b9|\u70b9\u6570|\uc810\uc218|\ud3c9\uc810)[^\w\n]{{0,6}}\w{{0,2}}?[^\w\n]{{0,6}}{_VALUE}",
        r"(?P<value>(?:\d{1,3}(?:\.\d)?|[\u4e00\u4e8c\u4e24\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341]{1,3}))"
        r"(?= ?\u5206(?![\u949f\u9418\u4e4b\u6790\u522b\u985e\u7c7b\u4eab\u914d\u5e03\u5b50\u6210\u5f00\u660e\u79bb]))",
        rf"(?P<value>{_ANY_NUMBER})(?=-stars?\b|[ -](?:score|rating|grade)\b)",
        rf"\b(?:scor|rat|grad)[^.()\n]{{0,60}}\((?P<value>{_ANY_NUMBER}(?: (?:and|to) {_ANY_NUMBER})?)\)",
        r"\ban? (?:(?:solid|strong|clear|weak|low|high|perfect) )?[*_]{0,3}(?P<value>\d{1,3})"
        r"(?=[*_]{0,3}(?:[.,;!)\n]|$| (?:for|because|since|overall|due|in terms)\b))",
        rf"(?:^|(?<=\n))[ *_#>]{{0,8}}(?P<value>{_ANY_NUMBER}(?: {{0,3}}/ {{0,3}}\d{{1,4}})?)(?=[ *_.]{{0,4}}(?:\n|$))",
    )
]
_GIVEN = re.compile(
    r"\b(?:giv(?:es?|en|ing)|gave|(?:deserv|receiv)(?:es?|ed|ing)|(?:earn|merit|assign|award)(?:s|ed|ing)?"
    rf"|gets?|got|getting)\b{_GAP}{_LINK}{_VALUE}",
    re.IGNORECASE,
)
_NUMBERS = re.compile(rf"(?<![\w./])(?:\d{{1,9}}(?:\.\d{{1,9}})?|{_SPELLED_NUMBER})", re.IGNORECASE)
_OF_SCORES = re.compile(r"(?:stars?|ratings?|scores?|grades?|and|or|here|to|from|at|from|this)\b", re.IGNORECASE)


def _after(pattern: re.Pattern[str], place: str, absent: str, allowed: str = "") -> Reader:
    """A reader of what stands after a pattern: a number, or a choice by the signs that are allowed."""
    return lambda text, scale: read_after([*pattern.finditer(text)], allowed or scale, place, absent)


def _prometheus(text: str, scale: Scale) -> Readout:
    readout = _MARKED(text, scale)
    if readout.failure or not any(statement.choice is None for statement in readout.statements):
        return readout
    closing = [Statement(score=float(match[1]), start=match.start()) for match in _OVERALL.finditer(text)]
    return replace(readout, statements=tuple(sorted([*readout.statements, *closing], key=lambda stated: stated.start)))


def _score(text: str, scale: Scale) -> Readout:
    """Every label must agree; else the first or last line is a number, or one out of the highest."""
    if not (places := [*_ANY_LABEL.finditer(text)]):
        ends = {len(text) - len(text.lstrip()), text.rstrip().rfind("\n") + 1}
        places = [line for line in _NUMBER_LINE.finditer(text) if line.start() in ends]
    return read_after(places, scale, '"Score:"', 'no "Score:"')


def _critic_score(text: str, scale: Scale) -> Readout:
    """A total binds; else every labelled or out-of-100 number must agree; else a first line that is a number."""
    if places := [*_TOTAL.finditer(text)]:
        return read_after(places, scale, "score", "")
    readout = read_after([*_LABELLED.finditer(text)], scale, "score", "no score")
    whole = [*_OF_100.finditer(text)]
    if whole and (readout.start is None or not readout.failure):
        more = any(_FROM.search(text, max(0, match.start() - 12), match.start()) for match in whole)
        return Readout(
            (*readout.statements, *(Statement(score=float(match[1])) for match in whole)),
            max(readout.start or 0, whole[-1].start()),
            max(readout.end, whole[-1].end()),
            "more than one number before the 100" if more else None,
        )
    if readout.start is None:
        start, line = first_line(text)
        if re.fullmatch(rf"{NUMBER}[ .]{{0,4}}", line):
            return Readout((Statement(score=float(line.rstrip(" ."))),), start, start + len(line))
    return readout


def _critic_pair(text: str, scale: Scale) -> Readout:
    """LLaVA-Critic's answers to a pair have several forms; where an answer has two of them, they must agree."""
    readers = (_better_response, _arena, _mt_bench, _two_scores)
    readouts = [readout for read in readers if (readout := read(text, scale)).start is not None]
    # [[A>B]] is no [[A]] and the reverse: a bracket that one of the two can read is no failure of the other.
    if any(not readout.failure for readout in readouts):
        readouts = [readout for readout in readouts if not (readout.failure or "").startswith("'[[")]
    if not readouts:
        return Readout(failure="no verdict in any of LLaVA-Critic's forms")
    statements = tuple(statement for readout in readouts for statement in readout.statements)
    if len({statement.choice for statement in statements}) == 1:
        statements = statements[:1]  # the same choice, in one form with a degree and in another without
    failure = next((readout.failure for readout in readouts if readout.failure), None)
    last = max(readouts, key=lambda readout: readout.start or 0)
    return replace(last, statements=statements, failure=failure)


def _better_response(text: str, scale: Scale) -> Readout:
    # "Which is the better response?" and other prose has no colon or bracket; the format has.
    what = '"The better response"'
    places = sorted([*_BETTER.finditer(text), *_BETTER_THAN.finditer(text)], key=lambda match: match.start())
    readout, equal = read_after(places, "ab12", what, f"no {what}"), [*_EQUAL.finditer(text)]
    if not equal:
        return readout
    return Readout(
        (*readout.statements, *[Statement(choice="tie")] * len(equal)),
        max(readout.start or 0, equal[-1].start()),
        max(readout.end, equal[-1].end()),
        readout.failure if readout.start is not None else None,
    )


def _brackets(text: str, read: Callable[[str], Statement | None], what: str, scale: Scale | None = None) -> Readout:
    """Verdicts in double brackets; the last pair binds."""
    places = [*_ARENA.finditer(text)]
    if not places:
        return Readout(failure=f"no {what}")
    statements = [Statement(choice="abstain") if ABSTAINED.fullmatch(place[1]) else read(place[1]) for place in places]
    last = places[-1]
    failure = None if statements[-1] else f"{last[0]!r} is no {what}"
    if scale and not failure:
        failure = why_no_score(text, last.end(), scale)
    elif NEGATED.search(text, max(0, last.start() - 24), last.start()) or DENIED.match(text, last.end()):
        failure = failure or f"{last[0]!r} is denied"
    return Readout(tuple(statement for statement in statements if statement), last.start(), last.end(), failure)


def _arena(text: str, scale: Scale) -> Readout:
    def read(inner: str) -> Statement | None:
        sides = re.fullmatch(r"([AB])(>>?|<<?|=)([AB])", re.sub(r"\s", "", inner.upper()))
        if sides is None or sides[1] == sides[3]:
            return None
        choice = "tie" if sides[2] == "=" else (sides[1] if ">" in sides[2] else sides[3]).lower()
        return Statement(choice=choice, strong=len(sides[2]) == 2)

    return _brackets(text, read, "[[A>>B]], [[A>B]], [[A=B]], [[B>A]] or [[B>>A]]")


def _mt_bench(text: str, scale: Scale) -> Readout:
    def read(inner: str) -> Statement | None:
        choice = {"a": "a", "b": "b", "c": "tie", "tie": "tie"}.get(inner.lower())
        return Statement(choice=choice) if choice else None

    return _brackets(text, read, "[[A]], [[B]] or [[C]]")


def _mt_bench_score(text: str, scale: Scale) -> Readout:
    def read(inner: str) -> Statement | None:
        return Statement(score=float(inner)) if re.fullmatch(NUMBER, inner) else None

    return _brackets(text, read, "[[number]]", scale)


def _two_scores(text: str, scale: Scale) -> Readout:
    start, line = first_line(text)
    match = _TWO.fullmatch(line)
    if match is None:
        return Readout(failure="no first line of two scores")
    first, second = float(match[1]), float(match[2])
    choice = "tie" if first == second else "a" if first > second else "b"
    return Readout((Statement(choice=choice, scores=(first, second)),), start, start + len(line))


def _reference_scores(text: str, scale: Scale) -> Readout:
    readout = _two_scores(text, scale)
    both = (statement.scores for statement in readout.statements)
    return replace(readout, statements=tuple(Statement(score=scores[1], scores=scores) for scores in both))


def _unified_reward(text: str, scale: Scale) -> Readout:
    return (_JUDGED if _JUDGMENT.search(text) else _ANSWERED)(text, scale)


def _inside(text: str, places: Sequence[re.Match[str]], group: int, expected: Expected, what: str) -> Readout:
    """Read what stands inside tags or braces; it must be the whole of it."""
    if not places:
        return Readout(failure=f"no {what}")
    results: list[tuple[Statement | None, str | None]] = []
    for place in places:
        inner = place[group].strip()
        statement, end, failure = verdict_at(inner, 0, len(inner), expected, what)
        rest = inner[end:].strip(" \n.*_`)]}\"'").lower()
        if not failure and rest and not re.match(r"(?:response|answer|is (?:the )?(?:better|preferred|best))\b", rest):
            statement, failure = None, f"{inner[:40]!r} in {what} is more than a verdict"
        if not place[0].endswith(("}", f"</{place[1]}>")):
            statement, failure = None, f"{place[0][:40]!r} has no end"
        if not failure and not isinstance(expected, str) and (added := why_no_score(text, place.end(), expected)):
            statement, failure = None, added
        results.append((statement, failure))
    statements = tuple(statement for statement, _ in results if statement)
    return Readout(statements, places[-1].start(), places[-1].end(), results[-1][1])


def _after_thinking(text: str, pattern: re.Pattern[str], expected: Expected, what: str, tag: str = "") -> Readout:
    """Read inside tags or braces once the judge has thought; the thinking is the feedback where nothing else is."""
    marks = [*_THINK.finditer(text)]
    if marks and not marks[-1][1]:
        return Readout(failure="the thinking never ends")
    places = [m for m in pattern.finditer(text, marks[-1].end() if marks else 0) if not tag or m[1].lower() == tag]
    # What VL-RewardBench's judges write inside: "Overall Judgment: Answer 1 is better".
    if tag and places and _JUDGMENT.match(places[-1][2].strip()):
        return replace(_JUDGED(places[-1][2], (NAN, NAN)), start=places[-1].start(), end=places[-1].end())
    readout = _inside(text, places, 2 if tag else 1, expected, what)
    if readout.start is None:
        return readout
    before = text[: readout.start].strip()
    marks = [*_THINK.finditer(before)]
    if 1 <= len(marks) <= 2 and marks[-1].end() == len(before) and marks[0].start() * (len(marks) - 1) == 0:
        before = before[marks[0].end() if len(marks) == 2 else 0 : marks[-1].start()].strip()
    return replace(readout, feedback=before)


def _answer(text: str, scale: Scale) -> Readout:
    return _after_thinking(text, _TAGGED, "ab12", "<answer>", tag="answer")


def _boxed(text: str, scale: Scale) -> Readout:
    return _after_thinking(text, _BOXED, "ab12", "\\boxed{}")


def _boxed_score(text: str, scale: Scale) -> Readout:
    return _after_thinking(text, _BOXED, scale, "\\boxed{}")


def _flow_judge(text: str, scale: Scale) -> Readout:
    start, end = text.lower().find("<feedback>"), text.lower().rfind("</feedback>")
    marked = 0 <= start < end
    places = [match for match in _TAGGED.finditer(text) if match[1].lower() == "score"]
    if marked:  # a score inside of the feedback is quoted
        places = [place for place in places if not start < place.start() < end]
    readout = _inside(text, places, 2, scale, "<score>")
    if readout.start is None or not marked:
        return readout
    return replace(readout, feedback=text[start + len("<feedback>") : end].strip())


_MARKED = _after(_MARKER, "last verdict marker", "no verdict marker")
_JUDGED = _after(_JUDGMENT, '"Overall Judgment"', 'no "Overall Judgment"', "ab12")
_ANSWERED = _after(_ANSWER_LINE, "last line", 'no line "Answer 1 is better" or "Answer 2 is better"', "12")


@dataclass(frozen=True)
class Format:
    """One way in which judges write a verdict.

    Args:
        gives: "score", or "choice" between two responses.
        read: the answer and a scale -> what it says (internal).
        source: who writes it.
        scale: lowest and highest score of the format's own; None where the rubric's holds, or where a choice is made
            without numbers.
    """

    gives: str
    read: Reader
    source: str
    scale: tuple[int, int] | None = None


_RELATIVE = _after(_MARKER, "last verdict marker", "no verdict marker", "ab")
_FINAL_SCORE = _after(_FINAL, '"Final Score"', 'no "Final Score"')
_BENCH, _CRITIC = "haotian-liu/LLaVA llava/eval (LLaVA-Bench)", "LLaVA-Critic-113k"
_MT_BENCH, _REWARD = "MT-Bench (arXiv 2306.05685)", "UnifiedReward (arXiv 2503.05236)"
FORMATS: dict[str, Format] = {
    # "... So the overall score is 4.\n[RESULT] 4", "... [RESULT] B"
    "prometheus": Format("score", _prometheus, "prometheus-eval/prometheus-vision README.md and parser.py"),
    "prometheus-relative": Format("choice", _RELATIVE, "prometheus-eval/prometheus-eval parser.py; ties are ours"),
    # "... Final Score: 4", "... **Score:** 2"
    "final-score": Format("score", _FINAL_SCORE, f"{_REWARD}, pointwise"),
    "score": Format("score", _score, "ours, for chat models that keep to no other format"),
    # "... Final Score: 85"; "The better response: [second].", or any of the other three
    "llava-critic": Format("score", _critic_score, f"{_CRITIC} pointwise rows (LLaVA-VL/LLaVA-NeXT#461)", (0, 100)),
    "llava-critic-pair": Format("choice", _critic_pair, f"{_CRITIC} pairwise rows", (1, 10)),
    "better-response": Format("choice", _better_response, _CRITIC),
    # "... [[A>>B]]", "... [[A]]" with [[C]] for a tie, "... Rating: [[5]]"
    "arena": Format("choice", _arena, f"{_CRITIC}; WildVision; lmarena/arena-hard-auto"),
    "mt-bench": Format("choice", _mt_bench, f"{_MT_BENCH}; Multimodal RewardBench"),
    "mt-bench-score": Format("score", _mt_bench_score, f"{_MT_BENCH}, single-answer grading", (1, 10)),
    # "8 6\n..."; of the second the first score is the reference's
    "two-scores": Format("choice", _two_scores, f"{_CRITIC}; {_BENCH}", (1, 10)),
    "reference-scores": Format("score", _reference_scores, _BENCH, (1, 10)),
    # "...\nAnswer 1 is better", "... Overall Judgment: Answer 2 is better."
    "unified-reward": Format("choice", _unified_reward, f"{_REWARD}, pairwise"),
    "vl-rewardbench": Format("choice", _JUDGED, "vl-rewardbench/VL_RewardBench"),
    # "<think>...</think><answer>2</answer>", "<think>...</think>\\boxed{2}", "<feedback>...</feedback><score>4</score>"
    "think-answer": Format("choice", _answer, "R1-Reward (yfzhang114/r1_reward)"),
    "boxed": Format("choice", _boxed, "LLaVA-Critic-R1 (LLaVA-VL/LLaVA-NeXT#475)"),
    "boxed-score": Format("score", _boxed_score, "ours, after LLaVA-Critic-R1's form for pairs"),
    "flow-judge": Format("score", _flow_judge, "flowaicom/Flow-Judge-v0.1"),
}
"""What can be read, by name."""
