"""A judge's answer -> a verdict, or no verdict and the reason.

A verdict is read only where the judge's format puts it: nothing is guessed from the prose, and nothing falls back to a
default. A tie is a verdict, and so is an abstention ("N/A", "abstain", "cannot judge" in the verdict's place). What
follows a number or a choice in its clause decides: another one, another scale, a unit or a denial is a failure, plain
prose is none. Every pattern is linear in the length of the answer: repeats are bounded, or end before the next place
can start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from vjudge.records import CHOICES, NAN, Verdict

Scale = tuple[float, float]


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
        A `Verdict`; a failed one's feedback is what precedes the last marker, the whole answer where there is none.

    Raises:
        ValueError: an unknown format, or an empty scale where the rubric's is needed.

    The rules, on "prometheus" as an example: the verdict is the number after the last `[RESULT]`; the feedback is the
    text before that marker, without a leading "Feedback:".

        answer                                       verdict (rubric 1-5)
        Feedback: ... **[RESULT]** (4).              4: emphasis, brackets, quotes, ":" and "=" are passed over
        [RESULT] 4/5, [4]/5, 4 (out of five), 4.0    4: the rubric's own maximum, the same number
        [RESULT] 4/10, [4]/10, 4 (1-10)              failure: another scale
        [RESULT] 4.5, 7, 0, -4                       failure: off the rubric
        [RESULT] 4-5, 4 or five, (4) (5), 4->5, 4:5  failure: more than one number; spaces and dashes of any kind
        [RESULT] 4. It names 3 things.               4: the sentence is over; "4. No, 3." is a failure
        [RESULT] 4 %, 4 of the claims, 4 is too high failure: a unit, a count, a denial
        [RESULT] four, IV, 4th, nothing at all       failure: only plain digits are read
        [RESULT] 4 ... [RESULT]                      failure: the last marker binds and has no number
        [RESULT] 4 ... [RESULT] 2                    failure: two different verdicts, as after "overall score is 4."

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
        return Verdict(NAN, _strip_prefix(text), text, readout.failure if text.strip() else "empty answer")
    feedback = readout.feedback
    if feedback is None:
        before = _strip_prefix(text[: readout.start].rstrip("*_`"))  # "**[RESULT] 4**": emphasis around the verdict
        after = text[readout.end :].lstrip(" \t\n.*_`)]}\"'").rstrip()
        feedback = before or (after if readout.statements else "")
    statements = list(dict.fromkeys(readout.statements))
    values = [
        value for statement in statements for value in statement.scores or (statement.score,) if value is not None
    ]
    failure = readout.failure
    if not failure and len(statements) > 1:
        count = "two" if len(statements) == 2 else str(len(statements))
        failure = f"{count} different verdicts: {', '.join(map(str, statements[:-1]))} and {statements[-1]}"
    for value in values:
        if not (failure or (low <= value <= high if rule.scale else value in scores)):
            failure = f"score {value:g} is off the {'scale' if rule.scale else 'rubric'} ({low:g}-{high:g})"
    if failure:
        return Verdict(NAN, feedback, text, failure)
    (statement,) = statements
    score, scale = NAN if statement.score is None else statement.score, (float(low), float(high)) if values else None
    return Verdict(score, feedback, text, None, statement.choice, scale, statement.scores, statement.strong)


def suggest_format(texts: Sequence[str], *, scores: Sequence[int] = (), format: str) -> str | None:
    """Name the format that reads most of the answers that a judge's own can't; it is said, and nothing is read anew.

    >>> suggest_format(["**Score:** 3", "**Score:** 4", "It depends."], scores=(1, 2, 3, 4, 5), format="prometheus")
    'score'

    Args:
        texts: answers without a verdict in `format`; of many, the first 200 are looked at.
        scores: the rubric's scale, as in `parse`.
        format: the judge's own format. Only formats of its kind and scale come into question.

    Returns:
        One that reads more than half of them; None where none does.
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


_PREFIX = re.compile(r"\s*(?:#+[ \t]*)?(?:\*\*)?feedback(?:\*\*)?:(?:\*\*)?\s*", re.IGNORECASE)


def _strip_prefix(text: str) -> str:
    """An answer without "Feedback:" before it."""
    return _PREFIX.sub("", text, count=1).strip() if _PREFIX.match(text) else text.strip()


@dataclass(frozen=True)
class Statement:
    """One verdict stated somewhere in an answer; two are equal that say the same."""

    score: float | None = None
    choice: str | None = None
    scores: tuple[float, ...] = ()
    strong: bool | None = None
    start: int = field(default=0, compare=False)

    def __str__(self) -> str:
        names = {"a": "A", "b": "B", "abstain": "abstention", "tie": "tie"}
        if self.strong:
            names |= {"a": "A>>B", "b": "B>>A"}
        return names[self.choice] if self.choice else f"{self.score or 0:g}"


ABSTENTION = Statement(choice="abstain")


@dataclass(frozen=True)
class Readout:
    """What one format reads in an answer: all that is stated, in order, and of the verdict that binds where it stands
    (start None: nowhere), why it can't be read and, where the format marks it, the feedback."""

    statements: tuple[Statement, ...] = ()
    start: int | None = None
    end: int = 0
    failure: str | None = None
    feedback: str | None = None


# --- numbers, and what follows them

_PLAIN_SIGNS = {
    "\n": "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029",
    " ": "\t\x1f\xa0\u1680\u2000-\u200f\u202a-\u202f\u205f-\u2069\u3000\ufeff\xad",
    "-": "\u2010-\u2013\u2043\u2212\ufe58\ufe63\uff0d",
    ",": "\u2014\u2015",  # a dash that parts sentences
    "~": "\u301c\uff5e",
    "/": "\u2044\u2215\u29f8\uff0f",
    "'": "\u2018-\u201b",
    '"': "\u201c-\u201f\xab\xbb\u300c-\u300f",
    "%": "\u066a\u2030\u2031\ufe6a\uff05",
}
_CHARACTERS = "".join(map(chr, range(0x10000)))
PLAIN = {ord(sign): plain for plain, signs in _PLAIN_SIGNS.items() for sign in re.findall(f"[{signs}]", _CHARACTERS)}
"""One plain character for each kind of space, dash, slash, quote and percent sign, so that indices stay."""
_WORDS = dict(zip("two three four five six seven eight nine ten hundred".split(), (*range(2, 11), 100), strict=True))
_WORD = "|".join(_WORDS)
# [0-9] and not \d, which also matches the digits of other scripts; nine at most, so that a flood of them stays finite.
_UNSIGNED = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
_NUMBER = rf"[+-]?{_UNSIGNED}"
# What may stand between the marker and the verdict: space, colon or equals sign, markdown emphasis, quotes, brackets.
_LEAD = r"[\s:=*_`\"'(\[{]*"
_CLOSE = r"[ *_`\"')\]}$]{0,12}"
_SCORE = re.compile(rf"{_LEAD}({_NUMBER})")
_GLUED = re.compile(r"[\w%]|\.[0-9]")  # "4th", "80%", "4.5.1": the number is part of something else
_OUT_OF = re.compile(
    rf"{_CLOSE}[(\[]?(?:/|(?:out )?of (?:a (?:possible |maximum |total )?(?:of )?)?)[ *_`\"'(\[]{{0,8}}"
    rf"({_UNSIGNED}|{_WORD})(?![\w%]|\.[0-9])",
    re.IGNORECASE,
)
# "2 of 5 claims hold": a count of things, no score; looked for after "of 5" alone.
_COUNT = re.compile(
    r"(?!(?:points?|pts?|stars?|marks?|on|for|because|since|as|overall|in|with|due|given|based|which|where|but|that|is"
    r"|although|while|maximum|max|possible|total)\b)[a-z]"
)
_RANGE = rf"({_UNSIGNED}) *(?:-|to|and|through) *({_UNSIGNED})"
_SCALES = re.compile(rf"{_RANGE}(?: point| scale|-point)?|(?:({_UNSIGNED})|\b({_WORD}))[- ]point", re.IGNORECASE)
_HIGHEST = re.compile(rf"(?<![\w.])({_UNSIGNED})(?![\w%]|\.[0-9])")
# Digits of any kind: a further number is no less a number for being written otherwise.
_DIGIT = re.compile(r"[\d\xb2\xb3\xb9\xbc-\xbe\u2070-\u2089\u2150-\u218b\u2460-\u249b]")
_SECOND = re.compile(
    rf"[ ,(-]*(?:or|minus|plus|times|and a|and half|point)\b"
    rf"|.*\b(?:or|to|maybe|perhaps|possibly|nearly|almost|than|not|but)[ ,]+(?:{_WORD})\b",
    re.IGNORECASE,
)
# "4 percent", "4 of the claims hold", "4 at most", "4 is not deserved": no score, or one that is not given.
_NO_SCORE = re.compile(
    r"(?:per ?cent(?:ile)?|degrees?|dollars?|euros?|[cmk]m|kg|seconds?|minutes?|hours?|times|x"
    r"|of +(?:the|these|those|its)|if|unless|otherwise|at (?:best|most|least)|min(?:imum)?|max(?:imum)?"
    r"|not(?! only)|never|cannot|\w{2,8}n't)\b"
    r"|(?:(?:is|was|be|been|have|has|would|should|could|can|may|might|will|does|did|do|seems?|looks?|far|much)\b +)"
    r"{1,4}(?:not(?! only)|never|no|too|hardly)\b",
    re.IGNORECASE,
)
# Where a clause ends: the line, a mark of the vocabulary, a heading, a sentence before a capital (or a script without).
_CLAUSE_END = re.compile(r"\n|<[/|]|#{2,}|\u3002|[.!?;][\"')\]}*_`]{0,8} *(?=([^\W\d_]))")
# The sentence after the verdict takes it back: "4. No, 3."
_CORRECTION = re.compile(
    r" *(?:no,|or|actually|wait|correction|sorry|alternatively|maybe|perhaps|rather|make|scratch|hmm|on second thought"
    r"|on reflection)(?![a-z])[^.\n]{0,60}?[0-9]",
    re.IGNORECASE,
)
_PUNCTUATION = ".,;:!([-\u2026\u3002\uff0c\uff1b\uff1a\u3001\uff01"
# After a verdict in brackets, tags or a box, which hold the whole of it.
_ADDED = re.compile(
    rf"{_CLOSE}\\?(?:%|per ?cent\b|(?:[-~/:>]|to\b|or\b|and\b)[ *_>$(\[{{\\]{{0,8}}[0-9])", re.IGNORECASE
)
_ABSTAIN = r"n/?a|abstain(?:ed|s)?|(?:cannot|can't|unable to) (?:be )?(?:judged?|decided?|determined?|tell|evaluated?)"
_ABSTAINED = re.compile(rf"{_LEAD}(?:{_ABSTAIN})(?!\w)", re.IGNORECASE)

Result = tuple[Statement | None, int, str | None]
"""At one place: the verdict, where it ends, and why it is none or, beside a verdict, what leaves it in doubt."""


def _number_at(text: str, start: int, stop: int, scale: Scale, place: str, remark: str = "") -> Result:
    """The number from `start` on; a remark of the label before it, "Score (1-5):", may name the scale."""
    low, high = scale
    alone = _HIGHEST.findall(_SCALES.sub("", remark))
    mention = _other_scale(remark, scale) or next((number for number in alone if float(number) != high), None)
    if mention:
        return None, start, f"a score on another scale ({mention}) than {low:g}-{high:g}"
    if abstained := _ABSTAINED.match(text, start, stop):
        return replace(ABSTENTION, start=start), abstained.end(), None
    match = _SCORE.match(text, start, stop)
    if match is None:
        return None, start, f"no number after the {place}"
    end = match.end()
    if _GLUED.match(text, end, stop):
        return None, end, f"{text[match.start(1) : end + 8].split()[0]!r} after the {place} is not a plain number"
    out_of = _OUT_OF.match(text, end, stop)
    if out_of:
        if (maximum := _value_of(out_of[1])) != high:
            on = "rubric" if "marker" in place else "scale"
            return None, end, f"a score out of {maximum:g} on a {on} up to {high:g}"
        end = out_of.end()
    words, after = _clause(text, end, stop)
    rest = _SCALES.sub("", words)
    odd_sign = words and not words[0].isalpha() and (words[0] not in _PUNCTUATION or re.match("-[^ ]", words))
    failure = None
    if mention := _other_scale(words, scale):
        failure = f"a score on another scale ({mention}) than {low:g}-{high:g}"
    elif _DIGIT.search(rest) or _SECOND.match(rest) or _CORRECTION.match(after):
        failure = f"more than one number after the {place}"
    elif odd_sign or words.endswith("?") or _NO_SCORE.match(words) or (out_of and _COUNT.match(words)):
        failure = f"{text[match.start(1) : end + 16].splitlines()[0]!r} after the {place} is not a plain number"
    return Statement(score=float(match[1]), start=start), end, failure


def _clause(text: str, start: int, stop: int) -> tuple[str, str]:
    """The words from `start` to the end of their clause or line, and those of the line that come after; 200 at most."""
    window = text[start : min(stop, start + 200)].partition("\n")[0].lstrip(" *_`\"')]}")
    for end in _CLAUSE_END.finditer(window):
        if not (end[1] or "").islower():
            return window[: end.end() if end[0][0] == "?" else end.start()].rstrip(), window[end.end() :]
    return window.rstrip(), ""


def _value_of(number: str) -> float:
    """A number in digits or, from two on, in English words."""
    return _WORDS[number.lower()] if number.lower() in _WORDS else float(number)


def _other_scale(words: str, scale: Scale) -> str | None:
    """The first scale that some words speak of and that is not this one; a hundredth of it is no difference."""
    for match in _SCALES.finditer(words):
        low, high = (match[1], match[2]) if match[1] else (None, match[3] or match[4])
        same_low = low is None or abs(float(low) - scale[0]) <= (scale[1] - scale[0]) / 100
        if not same_low or _value_of(high) != scale[1]:
            return match[0].strip()
    return None


def _why_no_score(text: str, end: int, scale: Scale) -> str | None:
    """Why the number that ends here, in brackets, tags or a box of its own, is not the score."""
    out_of = _OUT_OF.match(text, end)
    if out_of and _value_of(out_of[1]) != scale[1]:
        return f"a score out of {_value_of(out_of[1]):g} on a scale up to {scale[1]:g}"
    return "more than a number" if not out_of and _ADDED.match(text, end) else None


# --- choices, and what follows them

_NOUN = r"(?:(?:the|response|answer|assistant|model|option) ){0,2}"
_CHOICE = re.compile(
    rf"{_LEAD}{_NOUN}(?:(first|1|a)|(second|2|b)|(tie|tied|draw|c|(?:both (?:(?:answers|responses) )?(?:are )?)?"
    rf"equal(?:ly good)?)|({_ABSTAIN}))(?![\w%>=]|<(?![/|])|\.[0-9])",
    re.IGNORECASE,
)
# "A or B", "1/2", "A, B", "A B", "A < B", "A (or B)": more than one choice offered.
_OTHER = re.compile(
    rf"{_CLOSE}(?:(?:(?:[-~,;&|/+]|[<>=]{{1,3}}|(?i:or|and|to|vs\.?|versus)\b)[ *_`\"'(\[{{]{{0,8}}"
    rf"(?i:(?:maybe |perhaps |possibly |even ){{0,1}}{_NOUN}(?:first|second|tie|[12]|[ab]))"
    rf"|[(\[{{] *(?i:(?:or|and|vs\.?) +)?{_NOUN}[ABab12] *[)\]}}])|[AB12])(?!\w)|{_CLOSE}(?i:or)\b"
)
_MORE = (
    r"(?:(?:much|far|slightly|clearly|overall|somewhat|marginally|significantly|also|still|just|definitely|a bit) +)"
)
_FAVOURED = (
    rf"{_MORE}{{0,3}}(?:(?:the|my|a) +)?{_MORE}{{0,2}}(?:better|best|prefer\w{{0,6}}|superior|winner|winning|stronger"
    r"|strongest|more|most|favou?red|chosen|correct|right|accurate|clear\w{0,3}|not only|choice|pick)\b"
)
# What may follow a choice without punctuation: that it is the better one, why, or over what.
_AFFIRMED = re.compile(
    r"(?:(?:response|answer|one|option|assistant|model|caption|image)\b[ *_`\"')\]}]*)?"
    r"(?:$|[.,;:!(-]|because\b|since\b|as\b|due\b|given\b|for\b|by\b|over\b|in\b|on\b|with\b|overall\b|instead\b|rather\b"
    rf"|wins?\b|beats\b|outperforms\b|surpasses\b|(?:is|was|'s) +{_FAVOURED})|[A-Z][a-z]"
)
# "A is not better", "A is worse than B": the choice is named, and not made.
_DENIED = re.compile(
    rf"{_CLOSE}(?:(?:is|was)(?:n't| not) (?:the |any )?(?:better|best|preferred|superior|winner|my|correct|right)\b"
    r"|(?:is|was) (?:(?:much|slightly|clearly|far|the) )?(?:no better|worse|inferior|wrong|incorrect)\b|loses\b)",
    re.IGNORECASE,
)
_NEGATED = re.compile(r"(?:\b(?:not|never|neither)|n't)[ *_`\"':(]{0,6}(?:the |be ){0,2}$", re.IGNORECASE)
_PREFERRED = {  # "A, although B is better", by the choice that is made
    choice: re.compile(
        rf"(?<!than )\b(?:{name}) +(?:is|was) +{_MORE}{{0,2}}(?:the +)?(?:better|best|preferred|superior|stronger)\b",
        re.IGNORECASE,
    )
    for choice, name in (("a", "second|2|b"), ("b", "first|1|a"), ("tie", "first|second|[12ab]"))
}
_HEDGED = re.compile(r"\bor +(?:equal|tied|a tie|(?:the )?same|as good|worse)\b|\?$", re.IGNORECASE)


def _choice_at(text: str, start: int, stop: int, signs: str, place: str) -> Result:
    """The choice from `start` on, by one of the signs (letters, digits) that stand for one."""
    match = _CHOICE.match(text, start, stop)
    word = match[match.lastindex or 0] if match else ""
    if match is None or (len(word) == 1 and word.lower() not in signs):
        return None, start, f"no choice after the {place}"
    end, statement = match.end(), Statement(choice=CHOICES[(match.lastindex or 1) - 1], start=start)
    if statement.choice == "abstain":
        return statement, end, None
    if _OTHER.match(text, end, stop):
        return None, end, f"more than one choice after the {place}"
    words, _ = _clause(text, end, stop)
    denied = _DENIED.match(text, end, stop) or _HEDGED.search(words) or re.match("[,;:(-] *[0-9]|-[^ ]", words)
    if denied or not (not words or words[0] in _PUNCTUATION or _AFFIRMED.match(words)):
        inner = text[match.start(match.lastindex or 0) : end + 12].splitlines()[0]
        return None if denied else statement, end, f"{inner!r} after the {place} is not a plain choice"
    return (
        statement,
        end,
        f"more than one choice after the {place}" if _PREFERRED[statement.choice or ""].search(words) else None,
    )


# --- the places where formats put a verdict


@dataclass(frozen=True)
class Place:
    """Where a format puts its verdict, and what may stand there."""

    pattern: str  # what stands before it; with a group "inner", what holds it, and "end" closes that
    name: str  # for a failure's reason
    signs: str = ""  # the letters and digits that may stand for a choice; "" for a number of the scale
    absent: str = ""  # the reason where it is nowhere
    table: Mapping[str, Statement] | None = None  # what double brackets may hold; {} for a number of the scale

    def hits(self, text: str, start: int = 0) -> list[re.Match[str]]:
        """Every place of an answer, from an index on."""
        return [*re.compile(self.pattern, re.IGNORECASE | re.MULTILINE).finditer(text, start)]

    def read(self, text: str, scale: Scale, hits: Sequence[re.Match[str]] | None = None) -> Readout:
        """Read at every hit, up to the next one; the last one binds, an earlier one without a verdict is prose."""
        hits = self.hits(text) if hits is None else hits
        if not hits:
            return Readout(failure=self.absent or f"no {self.name}")
        stops = [*(hit.start() for hit in hits[1:]), len(text)]
        results = [self._at(text, hit, stop, scale) for hit, stop in zip(hits, stops, strict=True)]
        return Readout(tuple(statement for statement, _, _ in results if statement), hits[-1].start(), *results[-1][1:])

    def _at(self, text: str, hit: re.Match[str], stop: int, scale: Scale) -> Result:
        """What is said at one hit: after it, or inside of its brackets, tags or braces, which hold nothing else."""
        groups = hit.groupdict()
        if "inner" not in groups:
            return self._from(text, hit.end(), stop, scale, groups.get("remark") or "")
        inner = groups["inner"].strip()
        if self.table is not None:
            return self._bracketed(text, hit, inner, scale)
        statement, end, failure = self._from(inner, 0, len(inner), scale)
        rest = inner[end:].strip(" \n.*_`)]}\"'").lower()
        own = None
        if not failure and rest and not re.match(r"(?:response|answer|is (?:the )?(?:better|preferred|best))\b", rest):
            own = f"{inner[:40]!r} in {self.name} is more than a verdict"
        if not groups["end"]:
            own = f"{hit[0][:40]!r} has no end"
        if not (own or failure or self.signs):
            own = _why_no_score(text, hit.end(), scale)
        return None if own else statement, hit.end(), own or failure

    def _from(self, text: str, start: int, stop: int, scale: Scale, remark: str = "") -> Result:
        """What is said from an index on."""
        if self.signs:
            return _choice_at(text, start, stop, self.signs, self.name)
        return _number_at(text, start, stop, scale, self.name, remark)

    def _bracketed(self, text: str, hit: re.Match[str], inner: str, scale: Scale) -> Result:
        """What double brackets hold."""
        table = self.table or {}
        statement = ABSTENTION if _ABSTAINED.fullmatch(inner) else table.get(re.sub(r"\s", "", inner.upper()))
        if not table and re.fullmatch(_NUMBER, inner):
            statement = Statement(score=float(inner))
        failure = None if statement else f"{hit[0]!r} is no {self.name}"
        if not failure and not table:
            failure = _why_no_score(text, hit.end(), scale)
        elif _NEGATED.search(text, max(0, hit.start() - 24), hit.start()) or _DENIED.match(text, hit.end()):
            failure = failure or f"{hit[0]!r} is denied"
        return statement, hit.end(), failure


_AS_LABEL = r"(?=[*_]{0,3} {0,3}[:=])"
_REMARK = rf"(?:[*_]{{0,3}} {{0,3}}\((?P<remark>[^()\n]{{0,30}})\){_AS_LABEL})?"  # "Final Score (1-5): 4"
_CHINESE = r"(?:\u5206\u6570|\u8bc4\u5206|\u5f97\u5206|\u5206\u6578|\u8a55\u5206)[*_]{0,3}[:\uff1a]"
_TAG = r"<{0}>(?P<inner>[^<]{{0,400}})(?P<end></{0}>)?"  # one that is cut off or holds more than text is no verdict
_BOX = (
    r"(?-i:\\boxed {0,3}\{(?:\s{0,3}\\(?:boxed|text|textbf|mathbf|mathrm)\{){0,2}(?P<inner>[^{}]{0,200})(?P<end>\}?))"
)
_BRACKETS = r"\[\[\s{0,3}(?P<inner>[^\[\]]{1,20}?)\s{0,3}\]\]"
_DEGREES = {
    f"{first}{sign}{second}": Statement(choice=choice.lower() if sign != "=" else "tie", strong=len(sign) == 2)
    for first, second in ("AB", "BA")
    for choice, signs in ((first, (">>", ">", "=")), (second, ("<<", "<")))
    for sign in signs
}
_LETTERS = {sign: Statement(choice=choice) for sign, choice in (("A", "a"), ("B", "b"), ("C", "tie"), ("TIE", "tie"))}

_MARKED = Place(r"\[RESULT\]", "last verdict marker", absent="no verdict marker")
_CHOSEN = replace(_MARKED, signs="ab")
_FINAL = Place(rf"\bfinal score\b{_REMARK}", '"Final Score"')
_TOTAL = Place(rf"\b(?:final|overall|total) score\b{_REMARK}", "score")
_LABELLED = Place(rf"\b(?:score|rating)\b{_REMARK}{_AS_LABEL}", "score")
_ANY_LABEL = Place(rf"\b(?:score|rating|grade)\b{_REMARK}{_AS_LABEL}|{_CHINESE}", '"Score:"')
_BETTER = Place(  # "Which is the better response?" and other prose has no colon or bracket; the format has
    r"\bthe better (?:response|answer)\b(?: is)?(?=[*_]{0,3} {0,3}[:\[])|^[ *_#>]{0,8}"
    r"(?=(?:response|answer) [12ab] is (?:\w{1,13} )?better than (?:response|answer) [12ab]\b)",
    '"The better response"',
    "ab12",
)
_JUDGED = Place(r"\boverall judge?ment\b", '"Overall Judgment"', "ab12")
_ANSWERED = Place(
    r"^[ *_#>]{0,8}(?=answer [12] is (?:the )?better\b)",
    *("last line", "12", 'no line "Answer 1 is better" or "Answer 2 is better"'),
)
_ARENA = Place(_BRACKETS, "[[A>>B]], [[A>B]], [[A=B]], [[B>A]] or [[B>>A]]", table=_DEGREES)
_MT_BENCH = Place(_BRACKETS, "[[A]], [[B]] or [[C]]", table=_LETTERS)
_TAGGED, _SCORED = Place(_TAG.format("answer"), "<answer>", "ab12"), Place(_TAG.format("score"), "<score>")
_BOXED, _BOXED_SCORE = Place(_BOX, "\\boxed{}", "ab12"), Place(_BOX, "\\boxed{}")

_OVERALL = re.compile(rf"\bthe overall score is[\s:*_(\[]*({_NUMBER})(?![\w%])(?!\.[0-9])", re.IGNORECASE)
_NUMBER_LINE = re.compile(rf"^[ *_]{{0,8}}(?={_NUMBER}(?: {{0,3}}/ {{0,3}}[0-9]{{1,4}})?[ *_.]{{0,4}}$)", re.MULTILINE)
_OF_100 = re.compile(rf"(?<![\w.])({_NUMBER})[ *_]{{0,4}}(?:/|out of)[ *_]{{0,4}}100(?![\w%])", re.IGNORECASE)
_FROM = re.compile(r"[0-9]%? {0,2}(?:[-/~,]|to|or|and)? {0,2}$|\bnot {0,2}$", re.IGNORECASE)  # "80 to 85 out of 100"
_TWO = re.compile(rf"({_NUMBER})(?:/10)? {{0,4}}[ ,;|] {{0,4}}({_NUMBER})(?:/10)?[ .]{{0,4}}")
_EQUAL = re.compile(
    r"^\W{0,8}(?:the )?(?:two|both) (?:responses|answers) are equally good\b", re.IGNORECASE | re.MULTILINE
)
_THINK = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_THOUGHT = re.compile(
    r"(?:</?think(?:ing)?>)?((?:(?!</?think(?:ing)?>).)*)</?think(?:ing)?>", re.IGNORECASE | re.DOTALL
)


def _prometheus(text: str, scale: Scale) -> Readout:
    readout = _MARKED.read(text, scale)
    if readout.failure or not any(statement.choice is None for statement in readout.statements):
        return readout
    closing = [Statement(score=float(hit[1]), start=hit.start()) for hit in _OVERALL.finditer(text)]
    return replace(
        readout, statements=tuple(sorted([*readout.statements, *closing], key=lambda statement: statement.start))
    )


def _score(text: str, scale: Scale) -> Readout:
    """Every label must agree; else the first or last line is a number, or one out of the highest."""
    if not (hits := _ANY_LABEL.hits(text)):
        ends = {len(text) - len(text.lstrip()), text.rstrip().rfind("\n") + 1}
        hits = [line for line in _NUMBER_LINE.finditer(text) if line.start() in ends]
    return _ANY_LABEL.read(text, scale, hits)


def _critic_score(text: str, scale: Scale) -> Readout:
    """A total binds; else every labelled or out-of-100 number must agree; else a first line that is a number."""
    if hits := _TOTAL.hits(text):
        return _TOTAL.read(text, scale, hits)
    readout = _LABELLED.read(text, scale)
    if (whole := [*_OF_100.finditer(text)]) and (readout.start is None or not readout.failure):
        more = any(_FROM.search(text, max(0, hit.start() - 12), hit.start()) for hit in whole)
        failure = "more than one number before the 100" if more else None
        return _joined(
            [readout, Readout(tuple(Statement(score=float(hit[1])) for hit in whole), *whole[-1].span(), failure)]
        )
    start, line = _first_line(text)
    if readout.start is None and re.fullmatch(rf"{_NUMBER}[ .]{{0,4}}", line):
        return Readout((Statement(score=float(line.rstrip(" ."))),), start, start + len(line))
    return readout


def _joined(readouts: Sequence[Readout]) -> Readout:
    """Several forms in one answer: all that they state, the first failure, and the latest place."""
    there = [readout for readout in readouts if readout.start is not None]
    return Readout(
        tuple(statement for readout in there for statement in readout.statements),
        max(readout.start or 0 for readout in there),
        max(readout.end for readout in there),
        next((readout.failure for readout in there if readout.failure), None),
    )


def _better_response(text: str, scale: Scale) -> Readout:
    readout, ties = _BETTER.read(text, scale), [*_EQUAL.finditer(text)]
    return _joined([readout, Readout((Statement(choice="tie"),), *ties[-1].span())]) if ties else readout


def _first_line(text: str) -> tuple[int, str]:
    """The first line that is not blank, and where it starts."""
    start = len(text) - len(text.lstrip())
    return start, text[start:].partition("\n")[0].rstrip()


def _two_scores(text: str, scale: Scale, *, of_second: bool = False) -> Readout:
    start, line = _first_line(text)
    if not (match := _TWO.fullmatch(line)):
        return Readout(failure="no first line of two scores")
    first, second = scores = float(match[1]), float(match[2])
    choice = "tie" if first == second else "a" if first > second else "b"
    statement = Statement(score=second, scores=scores) if of_second else Statement(choice=choice, scores=scores)
    return Readout((statement,), start, start + len(line))


def _critic_pair(text: str, scale: Scale) -> Readout:
    """LLaVA-Critic's answers to a pair have several forms; where an answer has two of them, they must agree."""
    readouts = [read(text, scale) for read in (_better_response, _ARENA.read, _MT_BENCH.read, _two_scores)]
    readouts = [readout for readout in readouts if readout.start is not None]
    # [[A>B]] is no [[A]] and the reverse: a bracket that one of the two can read is no failure of the other.
    if not all(readout.failure for readout in readouts):
        readouts = [readout for readout in readouts if not (readout.failure or "").startswith("'[[")]
    if not readouts:
        return Readout(failure="no verdict in any of LLaVA-Critic's forms")
    readout = _joined(readouts)
    if (
        len({statement.choice for statement in readout.statements}) == 1
    ):  # in one form with a degree and in another without
        return replace(readout, statements=readout.statements[:1])
    return readout


def _unified_reward(text: str, scale: Scale) -> Readout:
    return (_JUDGED if _JUDGED.hits(text) else _ANSWERED).read(text, scale)


def _after_thinking(place: Place, text: str, scale: Scale) -> Readout:
    """Read inside tags or braces once the judge has thought; the thinking is the feedback where nothing else is."""
    marks = [*_THINK.finditer(text)]
    if marks and not marks[-1][1]:
        return Readout(failure="the thinking never ends")
    hits = place.hits(text, marks[-1].end() if marks else 0)
    # What VL-RewardBench's judges write inside: "Overall Judgment: Answer 1 is better".
    if place is _TAGGED and hits and re.match(_JUDGED.pattern, hits[-1]["inner"].strip(), re.IGNORECASE):
        return replace(_JUDGED.read(hits[-1]["inner"], scale), start=hits[-1].start(), end=hits[-1].end())
    readout = place.read(text, scale, hits)
    before = text[: readout.start or 0].strip()
    thought = _THOUGHT.fullmatch(before)
    return replace(readout, feedback=(thought[1] if thought else before).strip())


def _flow_judge(text: str, scale: Scale) -> Readout:
    start, end = text.lower().find("<feedback>"), text.lower().rfind("</feedback>")
    marked = 0 <= start < end  # a score inside of the feedback is quoted
    hits = [hit for hit in _SCORED.hits(text) if not (marked and start < hit.start() < end)]
    return replace(
        _SCORED.read(text, scale, hits), feedback=text[start + len("<feedback>") : end].strip() if marked else None
    )


@dataclass(frozen=True)
class Format:
    """One way in which judges write a verdict."""

    gives: str  # "score", or "choice" between two responses
    read: Callable[[str, Scale], Readout]  # an answer and a scale -> what it says
    source: str  # who writes it
    scale: tuple[int, int] | None = None  # its own; None for the rubric's, or where a choice is made without numbers


_CRITIC, _LLAVA_BENCH = "LLaVA-Critic-113k", "haotian-liu/LLaVA llava/eval (LLaVA-Bench)"
_MT, _REWARD = "MT-Bench (arXiv 2306.05685)", "UnifiedReward (arXiv 2503.05236)"

FORMATS: dict[str, Format] = {
    # "... So the overall score is 4.\n[RESULT] 4", "... [RESULT] B"
    "prometheus": Format("score", _prometheus, "prometheus-eval/prometheus-vision README.md and parser.py"),
    "prometheus-relative": Format("choice", _CHOSEN.read, "prometheus-eval/prometheus-eval parser.py; ties are ours"),
    # "... Final Score: 4", "... **Score:** 2"
    "final-score": Format("score", _FINAL.read, f"{_REWARD}, pointwise"),
    "score": Format("score", _score, "ours, for chat models that keep to no other format"),
    # "... Final Score: 85"; "The better response: [second].", or any of the other three
    "llava-critic": Format("score", _critic_score, f"{_CRITIC} pointwise rows (LLaVA-VL/LLaVA-NeXT#461)", (0, 100)),
    "llava-critic-pair": Format("choice", _critic_pair, f"{_CRITIC} pairwise rows", (1, 10)),
    "better-response": Format("choice", _better_response, _CRITIC),
    # "... [[A>>B]]", "... [[A]]" with [[C]] for a tie, "... Rating: [[5]]"
    "arena": Format("choice", _ARENA.read, f"{_CRITIC}; WildVision; lmarena/arena-hard-auto"),
    "mt-bench": Format("choice", _MT_BENCH.read, f"{_MT}; Multimodal RewardBench"),
    "mt-bench-score": Format(
        "score", Place(_BRACKETS, "[[number]]", table={}).read, f"{_MT}, single-answer grading", (1, 10)
    ),
    # "8 6\n..."; of the second the first score is the reference's
    "two-scores": Format("choice", _two_scores, f"{_CRITIC}; {_LLAVA_BENCH}", (1, 10)),
    "reference-scores": Format("score", partial(_two_scores, of_second=True), _LLAVA_BENCH, (1, 10)),
    # "...\nAnswer 1 is better", "... Overall Judgment: Answer 2 is better."
    "unified-reward": Format("choice", _unified_reward, f"{_REWARD}, pairwise"),
    "vl-rewardbench": Format("choice", _JUDGED.read, "vl-rewardbench/VL_RewardBench"),
    # "<think>...</think><answer>2</answer>", "<think>...</think>\\boxed{2}", "<feedback>...</feedback><score>4</score>"
    "think-answer": Format("choice", partial(_after_thinking, _TAGGED), "R1-Reward (yfzhang114/r1_reward)"),
    "boxed": Format("choice", partial(_after_thinking, _BOXED), "LLaVA-Critic-R1 (LLaVA-VL/LLaVA-NeXT#475)"),
    "boxed-score": Format(
        "score", partial(_after_thinking, _BOXED_SCORE), "ours, after LLaVA-Critic-R1's form for pairs"
    ),
    "flow-judge": Format("score", _flow_judge, "flowaicom/Flow-Judge-v0.1"),
}
"""What can be read, by name."""


# --- what a person would read as a verdict, in whatever form

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
_TELLING = [  # a word of scoring, a few words that link, and a number
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
        out_of = _OUT_OF.match(plain, number.end())
        if out_of and (highest := _value_of(out_of[1])) in (scale[1], 5, 10, 100) and _value_of(number[0]) <= highest:
            if not _is_count(plain, out_of.end()) and not plain.startswith("/", out_of.end()):
                spans.add((number.start(), out_of.end()))
    lines = [line.span(1) for line in re.finditer(r"([^\n]*)(?:\n|$)", plain)]
    while left := _lines_that_read(plain, _apart(spans), scale):
        whole = {lines[n] for n in left}
        if whole <= spans:
            return [(0, len(text))]
        spans |= whole
    return _apart(spans)


def _is_count(text: str, end: int) -> bool:
    """Whether a number that ends here counts things, as in "4/5 items"."""
    rest = text[end : end + 40].lstrip(" *_`\"')]}")
    return bool(_COUNT.match(rest)) and not _OF_SCORES.match(rest)


def _apart(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, those that overlap as one."""
    apart: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if apart and start < apart[-1][1]:
            apart[-1] = apart[-1][0], max(end, apart[-1][1])
        elif start < end:
            apart.append((start, end))
    return apart


def _lines_that_read(text: str, spans: Sequence[tuple[int, int]], scale: Scale) -> set[int]:
    """The lines in which a reader still reads a score once the spans are hidden; no span holds a line's end."""
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    rest = "[hidden]".join(text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
    lines: set[int] = set()
    for rule in FORMATS.values():
        readout = rule.read(rest, rule.scale or scale) if rule.gives == "score" else Readout()
        if readout.statements and readout.start is not None:
            lines.update(range(rest.count("\n", 0, readout.start), rest.count("\n", 0, readout.end) + 1))
    return lines
