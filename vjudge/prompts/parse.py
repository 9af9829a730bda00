"""A judge's answer -> a verdict, or no verdict and the reason.

A verdict is read only where the judge's format puts it. Nothing is guessed from the prose, and nothing falls back to a
default: an answer that does not state exactly one verdict is a failure that says why. A tie is a verdict, and so is an
abstention ("N/A", "abstain", "cannot judge", "unable to decide" in the verdict's place): neither is a number.

`FORMATS` lists what can be read. Every pattern is linear in the length of the answer: repeats are bounded, or end
before the next place can start. A judge that answers with a bare number from a reward head (Skywork-VL-Reward) writes
no text, so there is nothing to parse.
"""

from __future__ import annotations

import re
from collections import Counter
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
    SPELLED,
    Readout,
    Scale,
    Statement,
    choice_at,
    first_line,
    number_at,
    read_choices,
    read_numbers,
    strip_prefix,
    value_of,
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
        ... [RESULT] 4                               4
        Feedback: ... **[RESULT]** (4).              4: emphasis, brackets, quotes, ":" and "=" are passed over
        [RESULT] 4/5, [4]/5, 4 (out of five)         4: the rubric's own maximum
        [RESULT] 4/10, [4]/10, 4 (1-10)              failure: another scale
        [RESULT] 4.0                                 4: the same number
        [RESULT] 4.5, 7, 0, -4                       failure: off the rubric
        [RESULT] 4-5, 4 or five, (4) (5), 4->5, 4:5  failure: more than one number; spaces and dashes of any kind
        [RESULT] 4 because 3 of the 5 claims hold    failure: more than one number
        [RESULT] 4. It names 3 things.               4: the sentence is over; "4. No, 3." is a failure
        [RESULT] 4, then more prose                  4: the prose stays in `raw`
        [RESULT] 4 %, 4 of the claims, 4 is too high failure: a unit, a count, a denial
        [RESULT] four, IV, full-width or other       failure: no number after the marker (only plain digits are read)
          digits, 4th, 80%, nothing at all
        [RESULT] N/A                                 abstention
        (an integer ... between 1 and 5) [RESULT] 3  3: numbers before the marker are prose
        the prompt's format line, then [RESULT] 3    3: the line's marker has no number and is no verdict
        [RESULT] 4 ... [RESULT]                      failure: the last marker binds and has no number
        [RESULT] 4 ... [RESULT] 4                    4: the same verdict twice
        [RESULT] 4 ... [RESULT] 2                    failure: two different verdicts
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
    statements = list({statement.key: statement for statement in readout.statements}.values())
    if len(statements) > 1:
        count = "two" if len(statements) == 2 else str(len(statements))
        listed = f"{', '.join(map(str, statements[:-1]))} and {statements[-1]}"
        return replace(failed, failure=f"{count} different verdicts: {listed}")
    stated = statements[0]
    for value in stated.scores or ((stated.score,) if stated.choice is None else ()):
        off = not low <= value <= high if rule.scale else value not in scores
        if off:
            on = "scale" if rule.scale else "rubric"
            return replace(failed, failure=f"score {value:g} is off the {on} ({low:g}-{high:g})")
    scale = (float(low), float(high)) if stated.scores or stated.choice is None else None
    return Verdict(stated.score, feedback, text, None, stated.choice, scale, stated.scores, stated.strong)


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
    scale = (scores[0], scores[-1]) if scores else None
    sample = [text for text in texts[:200] if text.strip()]
    counts = {
        name: sum(_is_read(text, scores, name) for text in sample)
        for name, rule in FORMATS.items()
        if name != format and rule.gives == own.gives and (rule.gives == "choice" or rule.scale in (None, scale))
    }
    wide = ("llava-critic-pair", "score")  # of two that read as much, the narrower one is meant
    best = max(counts, key=lambda name: (counts[name], name not in wide))
    return best if 2 * counts[best] > len(sample) else None


def _is_read(text: str, scores: Sequence[int], format: str) -> bool:
    verdict = parse(text, scores=scores, format=format)
    return verdict.failure is None and not verdict.abstained


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
        highest = value_of(out_of[1] or out_of[2]) if out_of else NAN
        if out_of and highest in (scale[1], 5, 10, 100) and value_of(number[0]) <= highest:
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
    counts = [f"{SPELLED.get(str(what), what)} {n}" for what, n in votes.most_common()]
    counted = ", ".join([*counts, *([f"no vote {silent}"] if silent else [])])
    best = votes.most_common(2)
    if not best or (len(best) == 2 and best[0][1] == best[1][1]):
        return Verdict(NAN, counted, "", f"no majority: {counted}")
    winner = next(v for v in verdicts if v.failure is None and (v.choice or v.score) == best[0][0])
    return replace(winner, feedback=counted, raw="", scores=(), strong=None)


Reader = Callable[[str, Scale], Readout]


@dataclass(frozen=True)
class Format:
    """One way in which judges write a verdict.

    Args:
        name: its key in `FORMATS`.
        gives: "score", or "choice" between two responses.
        pattern: what is read, for a person.
        scale: lowest and highest score of the format's own; None where the rubric's holds, or where a choice is made
            without numbers.
        example: an answer's verdict in it.
        source: who writes it.
        read: the answer -> what it says (internal).
    """

    name: str
    gives: str
    pattern: str
    scale: tuple[int, int] | None
    example: str
    source: str
    read: Reader


FORMATS: dict[str, Format] = {}
"""What can be read, by name."""


def _format(
    name: str, gives: str, pattern: str, *, example: str, source: str, scale: tuple[int, int] | None = None
) -> Callable[[Reader], Reader]:
    """Put the reader below it into `FORMATS`."""

    def add(read: Reader) -> Reader:
        FORMATS[name] = Format(name, gives, pattern, scale, example, source, read)
        return read

    return add


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
_ARENA_CHOICES = {
    **{"A>>B": ("a", True), "A>B": ("a", False), "B>A": ("b", False), "B>>A": ("b", True), "A=B": ("tie", False)},
    **{"B<<A": ("a", True), "B<A": ("a", False), "A<B": ("b", False), "A<<B": ("b", True), "B=A": ("tie", False)},
}
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


@_format(
    "prometheus",
    "score",
    "the number after the last [RESULT]",
    example="The answer is mostly right. So the overall score is 4.\n[RESULT] 4",
    source="prometheus-eval/prometheus-vision README.md; prometheus-eval/prometheus-eval parser.py",
)
def _prometheus(text: str, scale: Scale) -> Readout:
    readout = read_numbers([*_MARKER.finditer(text)], scale, "last verdict marker", "no verdict marker")
    if readout.failure or not any(statement.choice is None for statement in readout.statements):
        return readout
    closing = [Statement(score=float(match[1]), start=match.start()) for match in _OVERALL.finditer(text)]
    return replace(readout, statements=tuple(sorted([*readout.statements, *closing], key=lambda stated: stated.start)))


@_format(
    "prometheus-relative",
    "choice",
    "A, B or tie after the last [RESULT]",
    example="Response A misses the cat, Response B names it. [RESULT] B",
    source="Prometheus 2: prometheus-eval/prometheus-eval parser.py; ties are ours",
)
def _relative(text: str, scale: Scale) -> Readout:
    return read_choices([*_MARKER.finditer(text)], "ab", "last verdict marker", "no verdict marker")


@_format(
    "final-score",
    "score",
    'the number after the last "Final Score"',
    example="The caption fits the image.\nFinal Score: 4",
    source="UnifiedReward (arXiv 2503.05236), pointwise",
)
def _final_score(text: str, scale: Scale) -> Readout:
    return read_numbers([*_FINAL.finditer(text)], scale, '"Final Score"', 'no "Final Score"')


@_format(
    "score",
    "score",
    'the number after "Score:", "Rating:" or "Grade:", in English or Chinese; else a line that is "4" or "4/5"',
    example="The sign is misread.\n**Score:** 2",
    source="ours, for chat models that keep to no other format",
)
def _score(text: str, scale: Scale) -> Readout:
    """Every label must agree; else the first or last line is a number, or one out of the highest."""
    if places := [*_ANY_LABEL.finditer(text)]:
        return read_numbers(places, scale, '"Score:"', "")
    lines = [
        *re.finditer(rf"^[ *_]{{0,8}}(?={NUMBER}(?: {{0,3}}/ {{0,3}}[0-9]{{1,4}})?[ *_.]{{0,4}}$)", text, re.MULTILINE)
    ]
    ends = {len(text) - len(text.lstrip()), text.rstrip().rfind("\n") + 1}
    return read_numbers([line for line in lines if line.start() in ends], scale, '"Score:"', 'no "Score:"')


@_format(
    "llava-critic",
    "score",
    'the number after "Final Score" (or Overall, Total); else after "Score:" or before "out of 100"; else a first line'
    " that is a number",
    scale=(0, 100),
    example="The response is accurate but brief.\nFinal Score: 85",
    source="LLaVA-Critic-113k pointwise rows (LLaVA-VL/LLaVA-NeXT#461)",
)
def _critic_score(text: str, scale: Scale) -> Readout:
    """A total binds; else every labelled or out-of-100 number must agree; else a first line that is a number."""
    if places := [*_TOTAL.finditer(text)]:
        return read_numbers(places, scale, "score", "")
    readout = read_numbers([*_LABELLED.finditer(text)], scale, "score", "no score")
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


@_format(
    "llava-critic-pair",
    "choice",
    "any of better-response, arena, mt-bench and two-scores; two of them must agree",
    scale=(1, 10),
    example="The better response: [second].\nReason: it names the number.",
    source="LLaVA-Critic-113k pairwise rows",
)
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


@_format(
    "better-response",
    "choice",
    '"The better response: [first|second|1|2|A|B]", or a line that begins "Response B is better than response A" or'
    ' "Two responses are equally good"',
    example="The better response: [1].",
    source="LLaVA-Critic-113k",
)
def _better_response(text: str, scale: Scale) -> Readout:
    # "Which is the better response?" and other prose has no colon or bracket; the format has.
    what = '"The better response"'
    places = sorted([*_BETTER.finditer(text), *_BETTER_THAN.finditer(text)], key=lambda match: match.start())
    readout = read_choices(places, "ab12", what, f"no {what}")
    equal = [*_EQUAL.finditer(text)]
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


@_format(
    "arena",
    "choice",
    "[[A>>B]], [[A>B]], [[A=B]], [[B>A]] or [[B>>A]]",
    example="My final verdict is: [[A>>B]]",
    source="LLaVA-Critic-113k; WildVision; lmarena/arena-hard-auto",
)
def _arena(text: str, scale: Scale) -> Readout:
    def read(inner: str) -> Statement | None:
        choice = _ARENA_CHOICES.get(re.sub(r"\s", "", inner.upper()))
        return Statement(choice=choice[0], strong=choice[1]) if choice else None

    return _brackets(text, read, "[[A>>B]], [[A>B]], [[A=B]], [[B>A]] or [[B>>A]]")


@_format(
    "mt-bench",
    "choice",
    "[[A]], [[B]], or [[C]] for a tie",
    example="Assistant A reads the sign right. [[A]]",
    source="MT-Bench (arXiv 2306.05685); Multimodal RewardBench",
)
def _mt_bench(text: str, scale: Scale) -> Readout:
    def read(inner: str) -> Statement | None:
        choice = {"a": "a", "b": "b", "c": "tie", "tie": "tie"}.get(inner.lower())
        return Statement(choice=choice) if choice else None

    return _brackets(text, read, "[[A]], [[B]] or [[C]]")


@_format(
    "mt-bench-score",
    "score",
    "the number in [[ ]]",
    scale=(1, 10),
    example="It misreads the sign. Rating: [[5]]",
    source="MT-Bench (arXiv 2306.05685), single-answer grading",
)
def _mt_bench_score(text: str, scale: Scale) -> Readout:
    def read(inner: str) -> Statement | None:
        return Statement(score=float(inner)) if re.fullmatch(NUMBER, inner) else None

    return _brackets(text, read, "[[number]]", scale)


@_format(
    "two-scores",
    "choice",
    "a first line of two scores, the higher one wins",
    scale=(1, 10),
    example="8 6\nAssistant 1 describes the scene in more detail.",
    source="LLaVA-Critic-113k; haotian-liu/LLaVA llava/eval (LLaVA-Bench)",
)
def _two_scores(text: str, scale: Scale) -> Readout:
    start, line = first_line(text)
    match = _TWO.fullmatch(line)
    if match is None:
        return Readout(failure="no first line of two scores")
    first, second = float(match[1]), float(match[2])
    choice = "tie" if first == second else "a" if first > second else "b"
    return Readout((Statement(choice=choice, scores=(first, second)),), start, start + len(line))


@_format(
    "reference-scores",
    "score",
    "a first line of two scores, the reference's and then the response's",
    scale=(1, 10),
    example="9 7\nAssistant 2 leaves the date out.",
    source="haotian-liu/LLaVA llava/eval/eval_gpt_review_bench.py (LLaVA-Bench), which reads neither '8, 6' nor '8/10'",
)
def _reference_scores(text: str, scale: Scale) -> Readout:
    readout = _two_scores(text, scale)
    both = (statement.scores for statement in readout.statements)
    return replace(readout, statements=tuple(Statement(score=scores[1], scores=scores) for scores in both))


@_format(
    "unified-reward",
    "choice",
    'a line that begins "Answer 1 is better" or "Answer 2 is better"; "Overall Judgment" binds over it',
    example="Both name the dog, one its colour.\nAnswer 1 is better",
    source="UnifiedReward (arXiv 2503.05236), pairwise",
)
def _unified_reward(text: str, scale: Scale) -> Readout:
    if _JUDGMENT.search(text):
        return _vl_rewardbench(text, scale)
    absent = 'no line "Answer 1 is better" or "Answer 2 is better"'
    return read_choices([*_ANSWER_LINE.finditer(text)], "12", "last line", absent)


@_format(
    "vl-rewardbench",
    "choice",
    '"Overall Judgment: Answer 1|2 is better"',
    example="1. Accuracy: Answer 1 is better.\nOverall Judgment: Answer 2 is better.",
    source="vl-rewardbench/VL_RewardBench",
)
def _vl_rewardbench(text: str, scale: Scale) -> Readout:
    return read_choices([*_JUDGMENT.finditer(text)], "ab12", '"Overall Judgment"', 'no "Overall Judgment"')


def _inside(text: str, places: Sequence[re.Match[str]], group: int, scale: Scale | None, what: str) -> Readout:
    """Read what stands inside tags or braces, a choice where there is no scale; it must be the whole of it."""
    if not places:
        return Readout(failure=f"no {what}")
    results: list[tuple[Statement | None, str | None]] = []
    for place in places:
        inner = place[group].strip()
        if scale is None:
            statement, end, failure = choice_at(inner, 0, len(inner), "ab12", what)
        else:
            statement, end, failure = number_at(inner, 0, len(inner), scale, what)
        rest = inner[end:].strip(" \n.*_`)]}\"'").lower()
        if not failure and rest and not re.match(r"(?:response|answer|is (?:the )?(?:better|preferred|best))\b", rest):
            statement, failure = None, f"{inner[:40]!r} in {what} is more than a verdict"
        if not place[0].endswith(("}", f"</{place[1]}>")):
            statement, failure = None, f"{place[0][:40]!r} has no end"
        if not failure and scale and (added := why_no_score(text, place.end(), scale)):
            statement, failure = None, added
        results.append((statement, failure))
    statements = tuple(statement for statement, _ in results if statement)
    return Readout(statements, places[-1].start(), places[-1].end(), results[-1][1])


def _after_thinking(
    text: str, pattern: re.Pattern[str], group: int, scale: Scale | None, what: str, tag: str = ""
) -> Readout:
    """Read inside tags or braces once the judge has thought; the thinking is the feedback where nothing else is."""
    marks = [*_THINK.finditer(text)]
    if marks and not marks[-1][1]:
        return Readout(failure="the thinking never ends")
    places = [m for m in pattern.finditer(text, marks[-1].end() if marks else 0) if not tag or m[1].lower() == tag]
    # What VL-RewardBench's judges write inside: "Overall Judgment: Answer 1 is better".
    if tag and places and _JUDGMENT.match(places[-1][group].strip()):
        inner = _vl_rewardbench(places[-1][group], (NAN, NAN))
        return replace(inner, start=places[-1].start(), end=places[-1].end())
    readout = _inside(text, places, group, scale, what)
    if readout.start is None:
        return readout
    before = text[: readout.start].strip()
    marks = [*_THINK.finditer(before)]
    if 1 <= len(marks) <= 2 and marks[-1].end() == len(before) and marks[0].start() * (len(marks) - 1) == 0:
        before = before[marks[0].end() if len(marks) == 2 else 0 : marks[-1].start()].strip()
    return replace(readout, feedback=before)


@_format(
    "think-answer",
    "choice",
    "1 or 2 in <answer>, after </think>",
    example="<think>The first invents a dog.</think><answer>2</answer>",
    source="R1-Reward (yfzhang114/r1_reward)",
)
def _think_answer(text: str, scale: Scale) -> Readout:
    return _after_thinking(text, _TAGGED, 2, None, "<answer>", tag="answer")


@_format(
    "boxed",
    "choice",
    "1 or 2 in \\boxed{}, after </think> where the judge thinks",
    example="<think>The first invents a dog.</think>\\boxed{2}",
    source="LLaVA-Critic-R1 (LLaVA-VL/LLaVA-NeXT#475)",
)
def _boxed(text: str, scale: Scale) -> Readout:
    return _after_thinking(text, _BOXED, 1, None, "\\boxed{}")


@_format(
    "boxed-score",
    "score",
    "the number in \\boxed{}, after </think> where the judge thinks",
    example="<think>One claim is wrong.</think>\\boxed{4}",
    source="ours, after LLaVA-Critic-R1's form for pairs",
)
def _boxed_score(text: str, scale: Scale) -> Readout:
    return _after_thinking(text, _BOXED, 1, scale, "\\boxed{}")


@_format(
    "flow-judge",
    "score",
    "the number in <score>; the feedback in <feedback>",
    example="<feedback>\nOne claim is wrong.\n</feedback>\n<score>\n4\n</score>",
    source="flowaicom/Flow-Judge-v0.1",
)
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
