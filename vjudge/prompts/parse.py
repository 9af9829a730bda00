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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vjudge.records import NAN, Verdict

Scale = tuple[float, float]


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
        return Verdict(NAN, _strip_prefix(text), text, found.failure if text.strip() else "empty answer")
    feedback = found.feedback
    if feedback is None:
        before = _strip_prefix(text[: found.start].rstrip("*_`"))  # "**[RESULT] 4**": emphasis around the verdict
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


# [0-9] and not \d, which also matches the digits of other scripts; nine at most, so that a flood of them stays finite.
_NUMBER = r"[+-]?[0-9]{1,9}(?:\.[0-9]{1,9})?"
# What may stand between the marker and the verdict: space, colon or equals sign, markdown emphasis, quotes, brackets.
_LEAD = r"[\s:=*_`\"'(\[{]*"
_SCORE = re.compile(rf"{_LEAD}({_NUMBER})")
_OUT_OF = re.compile(rf"[ \t*_]*(?:/|out of)[ \t*_]*({_NUMBER})(?![\w%])", re.IGNORECASE)
# "4th", "80%", "4.5.1": the number is part of something else.
_GLUED = re.compile(r"[\w%]|\.[0-9]")
# "4-5", "4 or 5", "4, 5", "4 5": more than one number offered as the score.
_SECOND = re.compile(r"[ \t*_]*(?:(?:[-\u2010-\u2015~,;&|/]|to\b|or\b|and\b)[ \t*_]*)?[0-9]", re.IGNORECASE)
_ABSTAIN = r"n/?a|abstain(?:ed|s)?|(?:cannot|can't|unable to) (?:be )?(?:judged?|decided?|determined?|tell|evaluated?)"
_ABSTAINED = re.compile(rf"{_LEAD}(?:{_ABSTAIN})(?!\w)", re.IGNORECASE)
_NOUN = r"(?:(?:the|response|answer|assistant|model|option) ){0,2}"
_CHOICE = re.compile(
    rf"{_LEAD}{_NOUN}(?:(first|1|a)|(second|2|b)|(tie|tied|draw|c|(?:both (?:(?:answers|responses) )?(?:are )?)?"
    rf"equal(?:ly good)?)|({_ABSTAIN}))(?![\w%>=<]|\.[0-9])",
    re.IGNORECASE,
)
# "A or B", "1/2", "A, B", "A B", "A < B": more than one choice offered.
_OTHER = re.compile(
    rf"[ \t*_`\"')\]}}]{{0,8}}(?:(?:[-\u2010-\u2015~,;&|/]|[<>=]{{1,3}}|(?i:or|and|to)\b)[ \t*_`\"'(\[{{]{{0,8}}"
    rf"(?i:{_NOUN}(?:first|second|tie|[12]|[ab]))|[AB12])(?!\w)"
)
# "A good answer": an article, unless a word follows that a choice can have after it.
_ARTICLE = re.compile(r"[ \t]{1,4}(?!(?:is|was|because|since|over|than|as|due|wins|and|or|to)\b)[a-z]")
# "A is not better", "A is worse than B": the choice is named, and not made.
_DENIED = re.compile(
    r"[ \t*_`\"')\]}]{0,8}(?:(?:is|was)(?:n't|n\u2019t| not) (?:the |any )?(?:better|best|preferred|superior|winner)\b"
    r"|(?:is|was) (?:(?:much|slightly|clearly|far|the) )?(?:no better|worse|inferior)\b|loses\b)",
    re.IGNORECASE,
)
SAID = {"a": "A", "b": "B", "tie": "tie", "abstain": "abstention"}


_PREFIX = re.compile(r"\s*(?:#+[ \t]*)?(?:\*\*)?feedback(?:\*\*)?:(?:\*\*)?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Claim:
    """One verdict stated somewhere in an answer."""

    score: float = NAN
    choice: str | None = None
    scores: tuple[float, ...] = ()
    strong: bool | None = None

    def __str__(self) -> str:
        if self.strong:
            return {"a": "A>>B", "b": "B>>A"}.get(self.choice or "", "tie")
        return SAID[self.choice] if self.choice else f"{self.score:g}"


@dataclass(frozen=True)
class Reading:
    """What one format finds in an answer.

    Args:
        claims: the verdicts that could be read, in their order.
        start, end: where the verdict that binds stands; start None where the format's place for it is not there.
        failure: why the verdict that binds can't be read.
        feedback: the feedback, where the format marks it.
    """

    claims: tuple[Claim, ...] = ()
    start: int | None = None
    end: int = 0
    failure: str | None = None
    feedback: str | None = None


def _number_after(text: str, position: int, highest: float, place: str) -> tuple[Claim | None, int, str | None]:
    """The number that follows a place ending at `position`: the claim, where it ends, or why there is none."""
    abstained = _ABSTAINED.match(text, position)
    if abstained:
        return Claim(choice="abstain"), abstained.end(), None
    match = _SCORE.match(text, position)
    if match is None:
        return None, position, f"no number after the {place}"
    end = match.end()
    if _GLUED.match(text, end):
        word = text[match.start(1) : end + 8].split()[0]
        return None, end, f"{word!r} after the {place} is not a plain number"
    out_of = _OUT_OF.match(text, end)
    if out_of:
        if float(out_of[1]) != highest:
            on = "scale" if place != "last verdict marker" else "rubric"
            return None, end, f"a score out of {float(out_of[1]):g} on a {on} up to {highest:g}"
        end = out_of.end()
    if _SECOND.match(text, end):
        return None, end, f"more than one number after the {place}"
    return Claim(score=float(match[1])), end, None


def _choice_after(text: str, position: int, allowed: str, place: str) -> tuple[Claim | None, int, str | None]:
    """The choice that follows a place ending at `position`; `allowed` names the words that may stand for one."""
    match = _CHOICE.match(text, position)
    word = match[match.lastindex or 0] if match else ""
    if match is None or (len(word) == 1 and word.lower() not in allowed):
        return None, position, f"no choice after the {place}"
    end = match.end()
    if _OTHER.match(text, end):
        return None, end, f"more than one choice after the {place}"
    if _DENIED.match(text, end) or (word in ("A", "a") and _ARTICLE.match(text, end)):
        said = text[match.start(match.lastindex or 0) : end + 12].splitlines()[0]
        return None, end, f"{said!r} after the {place} is not a plain choice"
    return Claim(choice=("a", "b", "tie", "abstain")[(match.lastindex or 1) - 1]), end, None


def _read_all(
    text: str,
    places: Sequence[re.Match[str]],
    after: Callable[[int], tuple[Claim | None, int, str | None]],
    *,
    absent: str,
) -> Reading:
    """Read after every place; the last one binds, an earlier one without a verdict is prose."""
    if not places:
        return Reading(failure=absent)
    read = [after(place.end()) for place in places]
    claims = tuple(claim for claim, _, _ in read if claim)
    return Reading(claims, places[-1].start(), read[-1][1], read[-1][2])


def _first_line(text: str) -> tuple[int, str]:
    """The first line that is not blank, and where it starts."""
    start = len(text) - len(text.lstrip())
    return start, text[start:].split("\n", 1)[0].rstrip()


def _strip_prefix(text: str) -> str:
    return _PREFIX.sub("", text, count=1).strip() if _PREFIX.match(text) else text.strip()


Reader = Callable[[str, Scale], Reading]


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
_AS_LABEL = r"(?=[*_]{0,3}[ \t]{0,3}[:=])"
_REMARK = rf"(?:[ \t]\([^()\n]{{0,30}}\){_AS_LABEL})?"  # "Final Score (1-5): 4"
_FINAL = re.compile(rf"\bfinal score\b{_REMARK}", re.IGNORECASE)
_TOTAL = re.compile(rf"\b(?:final|overall|total) score\b{_REMARK}", re.IGNORECASE)
_LABELLED = re.compile(rf"\b(?:score|rating)\b{_REMARK}{_AS_LABEL}", re.IGNORECASE)
_OF_100 = re.compile(rf"(?<![\w.])({_NUMBER})[ \t*_]{{0,4}}(?:/|out of)[ \t*_]{{0,4}}100(?![\w%])", re.IGNORECASE)
_BETTER = re.compile(r"\bthe better (?:response|answer)\b(?: is)?", re.IGNORECASE)
_EQUAL = re.compile(
    r"^\W{0,8}(?:the )?(?:two|both) (?:responses|answers) are equally good\b", re.IGNORECASE | re.MULTILINE
)
_ARENA = re.compile(r"\[\[\s{0,3}([^\[\]]{1,20}?)\s{0,3}\]\]")
_JUDGMENT = re.compile(r"\boverall judge?ment\b", re.IGNORECASE)
_ANSWER_LINE = re.compile(r"^[ \t*_#>]{0,8}(?=answer [12] is (?:the )?better\b)", re.IGNORECASE | re.MULTILINE)
_THINK = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
# The end is optional: the last place binds, and one that is cut off or holds more than text is no verdict.
_TAGGED = re.compile(r"<(answer|score)>([^<]{0,400})(?:</\1>)?", re.IGNORECASE)
_BOXED = re.compile(r"\\boxed[ \t]{0,3}\{(?:\s{0,3}\\(?:boxed|text|textbf|mathbf|mathrm)\{){0,2}([^{}]{0,200})\}?")
_TWO = re.compile(rf"({_NUMBER})(?:/10)?[ \t]{{0,4}}[ \t,;/|][ \t]{{0,4}}({_NUMBER})(?:/10)?[ \t.]{{0,4}}")
_OVERALL = re.compile(rf"\bthe overall score is[\s:*_(\[]*({_NUMBER})(?![\w%])(?!\.[0-9])", re.IGNORECASE)
_ARENA_CHOICES = {
    **{"A>>B": ("a", True), "A>B": ("a", False), "B>A": ("b", False), "B>>A": ("b", True), "A=B": ("tie", False)},
    **{"B<<A": ("a", True), "B<A": ("a", False), "A<B": ("b", False), "A<<B": ("b", True), "B=A": ("tie", False)},
}


@_format(
    "prometheus",
    "score",
    "the number after the last [RESULT]",
    example="The answer is mostly right. So the overall score is 4.\n[RESULT] 4",
    source="prometheus-eval/prometheus-vision README.md; prometheus-eval/prometheus-eval parser.py",
)
def _prometheus(text: str, scale: Scale) -> Reading:
    markers = list(_MARKER.finditer(text))
    found = _read_all(
        text,
        markers,
        lambda position: _number_after(text, position, scale[1], "last verdict marker"),
        absent="no verdict marker",
    )
    if found.failure or not any(claim.choice is None for claim in found.claims):
        return found
    stated = [(m.start(), c) for m in markers if (c := _number_after(text, m.end(), scale[1], "")[0])]
    stated += [(match.start(), Claim(score=float(match[1]))) for match in _OVERALL.finditer(text)]
    return replace(found, claims=tuple(claim for _, claim in sorted(stated, key=lambda pair: pair[0])))


@_format(
    "prometheus-relative",
    "choice",
    "A, B or tie after the last [RESULT]",
    example="Response A misses the cat, Response B names it. [RESULT] B",
    source="Prometheus 2: prometheus-eval/prometheus-eval parser.py; ties are ours",
)
def _relative(text: str, scale: Scale) -> Reading:
    markers = list(_MARKER.finditer(text))
    return _read_all(
        text,
        markers,
        lambda position: _choice_after(text, position, "ab", "last verdict marker"),
        absent="no verdict marker",
    )


@_format(
    "final-score",
    "score",
    'the number after the last "Final Score"',
    example="The caption fits the image.\nFinal Score: 4",
    source="UnifiedReward (arXiv 2503.05236), pointwise",
)
def _final_score(text: str, scale: Scale) -> Reading:
    places = list(_FINAL.finditer(text))
    return _read_all(
        text,
        places,
        lambda position: _number_after(text, position, scale[1], '"Final Score"'),
        absent='no "Final Score"',
    )


@_format(
    "llava-critic",
    "score",
    (
        'the number after "Final Score" (or Overall, Total); else after "Score:" or before "out of 100"; else a'
        " first line that is a number"
    ),
    scale=(0, 100),
    example="The response is accurate but brief.\nFinal Score: 85",
    source="LLaVA-Critic-113k pointwise rows (LLaVA-VL/LLaVA-NeXT#461)",
)
def _critic_score(text: str, scale: Scale) -> Reading:
    """A total binds; else every labelled or out-of-100 number must agree; else a first line that is a number."""
    if places := list(_TOTAL.finditer(text)):
        return _read_all(text, places, lambda position: _number_after(text, position, scale[1], "score"), absent="")
    places = list(_LABELLED.finditer(text))
    found = _read_all(
        text, places, lambda position: _number_after(text, position, scale[1], "score"), absent="no score"
    )
    whole = list(_OF_100.finditer(text))
    if whole and (found.start is None or not found.failure):
        claims = (*found.claims, *(Claim(score=float(match[1])) for match in whole))
        last = max(found.start or 0, whole[-1].start())
        return Reading(claims, last, max(found.end, whole[-1].end()))
    if found.start is None:
        start, line = _first_line(text)
        if re.fullmatch(rf"{_NUMBER}[ \t.]{{0,4}}", line):
            return Reading((Claim(score=float(line.rstrip(" \t."))),), start, start + len(line))
    return found


@_format(
    "better-response",
    "choice",
    '"The better response: [first|second|1|2|A|B]", or a line "Two responses are equally good."',
    example="The better response: [1].",
    source="LLaVA-Critic-113k",
)
def _better(text: str, scale: Scale) -> Reading:
    places = [*_BETTER.finditer(text)]
    # "Which is the better response?" and other prose has no colon or bracket; the format has.
    places = [place for place in places if re.match(r"[*_]{0,3}[ \t]{0,3}[:\[]", text[place.end() : place.end() + 8])]
    found = _read_all(
        text,
        places,
        lambda position: _choice_after(text, position, "ab12", '"The better response"'),
        absent='no "The better response"',
    )
    if equal := list(_EQUAL.finditer(text)):
        claims = (*found.claims, *[Claim(choice="tie")] * len(equal))
        start = max(found.start or 0, equal[-1].start())
        return Reading(
            claims, start, max(found.end, equal[-1].end()), found.failure if found.start is not None else None
        )
    return found


def _brackets(text: str, read: Callable[[str], Claim | None], what: str) -> Reading:
    """Verdicts in double brackets; the last pair binds."""
    places = list(_ARENA.finditer(text))
    if not places:
        return Reading(failure=f"no {what}")
    claims = [read(place[1]) for place in places]
    failure = None if claims[-1] else f"{places[-1][0]!r} is no {what}"
    return Reading(tuple(claim for claim in claims if claim), places[-1].start(), places[-1].end(), failure)


@_format(
    "arena",
    "choice",
    "[[A>>B]], [[A>B]], [[A=B]], [[B>A]] or [[B>>A]]",
    example="My final verdict is: [[A>>B]]",
    source="LLaVA-Critic-113k; WildVision; lmarena/arena-hard-auto",
)
def _arena(text: str, scale: Scale) -> Reading:
    def read(said: str) -> Claim | None:
        choice = _ARENA_CHOICES.get(re.sub(r"\s", "", said.upper()))
        if choice:
            return Claim(choice=choice[0], strong=choice[1])
        return Claim(choice="abstain") if _ABSTAINED.fullmatch(said) else None

    return _brackets(text, read, "[[A>>B]], [[A>B]], [[A=B]], [[B>A]] or [[B>>A]]")


@_format(
    "mt-bench",
    "choice",
    "[[A]], [[B]], or [[C]] for a tie",
    example="Assistant A reads the sign right. [[A]]",
    source="MT-Bench (arXiv 2306.05685); Multimodal RewardBench",
)
def _mt_bench(text: str, scale: Scale) -> Reading:
    def read(said: str) -> Claim | None:
        choice = {"a": "a", "b": "b", "c": "tie", "tie": "tie"}.get(said.lower())
        return Claim(choice=choice) if choice else Claim(choice="abstain") if _ABSTAINED.fullmatch(said) else None

    return _brackets(text, read, "[[A]], [[B]] or [[C]]")


@_format(
    "mt-bench-score",
    "score",
    "the number in [[ ]]",
    scale=(1, 10),
    example="It misreads the sign. Rating: [[5]]",
    source="MT-Bench (arXiv 2306.05685), single-answer grading",
)
def _mt_bench_score(text: str, scale: Scale) -> Reading:
    def read(said: str) -> Claim | None:
        if re.fullmatch(_NUMBER, said):
            return Claim(score=float(said))
        return Claim(choice="abstain") if _ABSTAINED.fullmatch(said) else None

    return _brackets(text, read, "[[number]]")


@_format(
    "two-scores",
    "choice",
    "a first line of two scores, the higher one wins",
    scale=(1, 10),
    example="8 6\nAssistant 1 describes the scene in more detail.",
    source="LLaVA-Critic-113k; haotian-liu/LLaVA llava/eval (LLaVA-Bench)",
)
def _two_scores(text: str, scale: Scale) -> Reading:
    start, line = _first_line(text)
    match = _TWO.fullmatch(line)
    if match is None:
        return Reading(failure="no first line of two scores")
    first, second = float(match[1]), float(match[2])
    choice = "tie" if first == second else "a" if first > second else "b"
    return Reading((Claim(choice=choice, scores=(first, second)),), start, start + len(line))


@_format(
    "llava-critic-pair",
    "choice",
    "any of better-response, arena, mt-bench and two-scores; two of them must agree",
    scale=(1, 10),
    example="The better response: [second].\nReason: it names the number.",
    source="LLaVA-Critic-113k pairwise rows",
)
def _critic_pair(text: str, scale: Scale) -> Reading:
    """LLaVA-Critic's answers to a pair have several forms; where an answer has two of them, they must agree."""
    found = [
        reading
        for read in (_better, _arena, _mt_bench, _two_scores)
        if (reading := read(text, scale)).start is not None
    ]
    # [[A>B]] is no [[A]] and the reverse: a bracket that one of the two can read is no failure of the other.
    if any(not reading.failure for reading in found):
        found = [reading for reading in found if not (reading.failure or "").startswith("'[[")]
    if not found:
        return Reading(failure="no verdict in any of LLaVA-Critic's forms")
    claims = tuple(claim for reading in found for claim in reading.claims)
    if len({claim.choice for claim in claims}) == 1:
        claims = claims[:1]  # the same choice, in one form with a degree and in another without
    failure = next((reading.failure for reading in found if reading.failure), None)
    last = max(found, key=lambda reading: reading.start or 0)
    return replace(last, claims=claims, failure=failure)


@_format(
    "vl-rewardbench",
    "choice",
    '"Overall Judgment: Answer 1|2 is better"',
    example="1. Accuracy: Answer 1 is better.\nOverall Judgment: Answer 2 is better.",
    source="vl-rewardbench/VL_RewardBench",
)
def _vl_rewardbench(text: str, scale: Scale) -> Reading:
    return _read_all(
        text,
        list(_JUDGMENT.finditer(text)),
        lambda position: _choice_after(text, position, "ab12", '"Overall Judgment"'),
        absent='no "Overall Judgment"',
    )


@_format(
    "unified-reward",
    "choice",
    'a line that begins "Answer 1 is better" or "Answer 2 is better"; "Overall Judgment" binds over it',
    example="Both name the dog, one its colour.\nAnswer 1 is better",
    source="UnifiedReward (arXiv 2503.05236), pairwise",
)
def _unified_reward(text: str, scale: Scale) -> Reading:
    """A line that begins "Answer 1 is better"; an "Overall Judgment" binds over such lines."""
    if _JUDGMENT.search(text):
        return _vl_rewardbench(text, scale)
    return _read_all(
        text,
        list(_ANSWER_LINE.finditer(text)),
        lambda position: _choice_after(text, position, "12", "last line"),
        absent='no line "Answer 1 is better" or "Answer 2 is better"',
    )


def _after_thinking(text: str) -> int | None:
    """Where the answer starts once the judge has thought; None where the thinking never ends."""
    marks = list(_THINK.finditer(text))
    if not marks:
        return 0
    return marks[-1].end() if marks[-1][1] else None


def _inside(text: str, places: Sequence[re.Match[str]], group: int, choice: bool, high: float, what: str) -> Reading:
    """Read what stands inside tags or braces; it must be the whole of it."""
    if not places:
        return Reading(failure=f"no {what}")
    read: list[tuple[Claim | None, str | None]] = []
    for place in places:
        said = place[group].strip()
        claim, end, failure = _choice_after(said, 0, "ab12", what) if choice else _number_after(said, 0, high, what)
        rest = said[end:].strip(" \t\n.*_`)]}\"'").lower()
        if claim and rest and not re.match(r"(?:response|answer|is (?:the )?(?:better|preferred|best))\b", rest):
            claim, failure = None, f"{said[:40]!r} in {what} is more than a verdict"
        if not place[0].endswith(("}", f"</{place[1]}>")):
            claim, failure = None, f"{place[0][:40]!r} has no end"
        read.append((claim, failure))
    claims = tuple(claim for claim, _ in read if claim)
    return Reading(claims, places[-1].start(), places[-1].end(), read[-1][1])


@_format(
    "think-answer",
    "choice",
    "1 or 2 in <answer>, after </think>",
    example="<think>The first invents a dog.</think><answer>2</answer>",
    source="R1-Reward (yfzhang114/r1_reward)",
)
def _think_answer(text: str, scale: Scale) -> Reading:
    start = _after_thinking(text)
    if start is None:
        return Reading(failure="the thinking never ends")
    places = [m for m in _TAGGED.finditer(text, start) if m[1].lower() == "answer"]
    # What VL-RewardBench's judges write inside: "Overall Judgment: Answer 1 is better".
    if places and _JUDGMENT.match(places[-1][2].strip()):
        inner = _vl_rewardbench(places[-1][2], scale)
        return replace(inner, start=places[-1].start(), end=places[-1].end())
    return _thought(text, _inside(text, places, 2, True, 0, "<answer>"))


@_format(
    "boxed",
    "choice",
    "1 or 2 in \\boxed{}, after </think> where the judge thinks",
    example="<think>The first invents a dog.</think>\\boxed{2}",
    source="LLaVA-Critic-R1 (LLaVA-VL/LLaVA-NeXT#475)",
)
def _boxed(text: str, scale: Scale) -> Reading:
    start = _after_thinking(text)
    if start is None:
        return Reading(failure="the thinking never ends")
    return _thought(text, _inside(text, list(_BOXED.finditer(text, start)), 1, True, 0, "\\boxed{}"))


@_format(
    "boxed-score",
    "score",
    "the number in \\boxed{}, after </think> where the judge thinks",
    example="<think>One claim is wrong.</think>\\boxed{4}",
    source="ours, after LLaVA-Critic-R1's form for pairs",
)
def _boxed_score(text: str, scale: Scale) -> Reading:
    start = _after_thinking(text)
    if start is None:
        return Reading(failure="the thinking never ends")
    return _thought(text, _inside(text, list(_BOXED.finditer(text, start)), 1, False, scale[1], "\\boxed{}"))


def _thought(text: str, reading: Reading) -> Reading:
    """Take the thinking as the feedback where nothing else is said before the verdict."""
    if reading.start is None:
        return reading
    said = text[: reading.start].strip()
    marks = list(_THINK.finditer(said))
    if 1 <= len(marks) <= 2 and marks[-1].end() == len(said) and marks[0].start() * (len(marks) - 1) == 0:
        said = said[marks[0].end() if len(marks) == 2 else 0 : marks[-1].start()].strip()
    return replace(reading, feedback=said)


@_format(
    "flow-judge",
    "score",
    "the number in <score>; the feedback in <feedback>",
    example="<feedback>\nOne claim is wrong.\n</feedback>\n<score>\n4\n</score>",
    source="flowaicom/Flow-Judge-v0.1",
)
def _flow(text: str, scale: Scale) -> Reading:
    start, end = text.lower().find("<feedback>"), text.lower().rfind("</feedback>")
    marked = 0 <= start < end
    places = [match for match in _TAGGED.finditer(text) if match[1].lower() == "score"]
    if marked:  # a score inside of the feedback is quoted
        places = [place for place in places if not start < place.start() < end]
    found = _inside(text, places, 2, False, scale[1], "<score>")
    if found.start is None or not marked:
        return found
    return replace(found, feedback=text[start + len("<feedback>") : end].strip())
