"""What an answer states at one place: the number or choice that stands there, or why there is none.

What follows it in its clause decides: another number, another scale, a unit, a denial or another choice is a failure,
and plain prose is none. Every pattern is linear in the length of the answer: repeats are bounded, or end before the
next place can start.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from vjudge.records import CHOICES

Scale = tuple[float, float]
Expected = str | Scale
"""The scale of a number, or the signs of "ab12c" that may stand for a choice."""


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
_WORDS = {word: n for n, word in enumerate("two three four five six seven eight nine ten".split(), 2)} | {
    "hundred": 100
}
_WORD = "|".join(_WORDS)
# [0-9] and not \d, which also matches the digits of other scripts; nine at most, so that a flood of them stays finite.
_UNSIGNED = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
NUMBER = rf"[+-]?{_UNSIGNED}"
# What may stand between the marker and the verdict: space, colon or equals sign, markdown emphasis, quotes, brackets.
_LEAD = r"[\s:=*_`\"'(\[{]*"
_CLOSE = r"[ *_`\"')\]}$]{0,12}"
_SCORE = re.compile(rf"{_LEAD}({NUMBER})")
# "4th", "80%", "4.5.1": the number is part of something else.
_GLUED = re.compile(r"[\w%]|\.[0-9]")
OUT_OF = re.compile(
    rf"{_CLOSE}[(\[]?(?:/|(?:out )?of (?:a (?:possible |maximum |total )?(?:of )?)?)[ *_`\"'(\[]{{0,8}}"
    rf"(?:({_UNSIGNED})|({_WORD}))(?![\w%]|\.[0-9])",
    re.IGNORECASE,
)
# "2 of 5 claims hold": a count of things, no score; looked for after "of 5" alone.
COUNT = re.compile(
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
ABSTAINED = re.compile(rf"{_LEAD}(?:{_ABSTAIN})(?!\w)", re.IGNORECASE)
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
DENIED = re.compile(
    rf"{_CLOSE}(?:(?:is|was)(?:n't| not) (?:the |any )?(?:better|best|preferred|superior|winner|my|correct|right)\b"
    r"|(?:is|was) (?:(?:much|slightly|clearly|far|the) )?(?:no better|worse|inferior|wrong|incorrect)\b|loses\b)",
    re.IGNORECASE,
)
NEGATED = re.compile(r"(?:\b(?:not|never|neither)|n't)[ *_`\"':(]{0,6}(?:the |be ){0,2}$", re.IGNORECASE)
_PREFERRED = {  # "A, although B is better", by the choice that is made
    choice: re.compile(
        rf"(?<!than )\b(?:{name}) +(?:is|was) +{_MORE}{{0,2}}(?:the +)?(?:better|best|preferred|superior|"
        r"stronger)\b",
        re.IGNORECASE,
    )
    for choice, name in (("a", "second|2|b"), ("b", "first|1|a"), ("tie", "first|second|[12ab]"))
}
_HEDGED = re.compile(r"\bor +(?:equal|tied|a tie|(?:the )?same|as good|worse)\b|\?$", re.IGNORECASE)
_PREFIX = re.compile(r"\s*(?:#+[ \t]*)?(?:\*\*)?feedback(?:\*\*)?:(?:\*\*)?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Statement:
    """One verdict stated somewhere in an answer; two are equal that say the same."""

    score: float | None = None
    choice: str | None = None
    scores: tuple[float, ...] = ()
    strong: bool | None = None
    start: int = field(default=0, compare=False)

    def __str__(self) -> str:
        if self.strong:
            return {"a": "A>>B", "b": "B>>A"}.get(self.choice or "", "tie")
        return {"a": "A", "b": "B", "abstain": "abstention", "tie": "tie"}.get(
            self.choice or "", f"{self.score or 0:g}"
        )


@dataclass(frozen=True)
class Readout:
    """What one format reads in an answer.

    Args:
        statements: the verdicts that could be read, in their order.
        start, end: where the verdict that binds stands; start None where the format's place for it is not there.
        failure: why the verdict that binds can't be read.
        feedback: the feedback, where the format marks it.
    """

    statements: tuple[Statement, ...] = ()
    start: int | None = None
    end: int = 0
    failure: str | None = None
    feedback: str | None = None


After = tuple[Statement | None, int, str | None]
"""What follows a place: the verdict, where it ends, and why it is none or, beside a verdict, leaves it in doubt."""


def read_after(places: Sequence[re.Match[str]], expected: Expected, place: str, absent: str) -> Readout:
    """Read after every place, up to the next one; the last one binds, an earlier one without a verdict is prose."""
    if not places:
        return Readout(failure=absent)
    stops = [*(match.start() for match in places[1:]), len(places[0].string)]
    results = [
        verdict_at(match.string, match.end(), stop, expected, place, match.groupdict().get("remark") or "")
        for match, stop in zip(places, stops, strict=True)
    ]
    statements = tuple(statement for statement, _, _ in results if statement)
    return Readout(statements, places[-1].start(), results[-1][1], results[-1][2])


def verdict_at(text: str, start: int, stop: int, expected: Expected, place: str, remark: str = "") -> After:
    """The choice or the number from `start` on; what follows it in its clause decides whether it is the verdict.

    Args:
        remark: of the label before it, "Score (1-5):", which may name the scale.
    """
    if isinstance(expected, str):
        return _choice_at(text, start, stop, expected, place)
    low, high = expected
    alone = _HIGHEST.findall(_SCALES.sub("", remark))
    mention = _other_scale(remark, expected) or next((number for number in alone if float(number) != high), None)
    if mention:
        return None, start, f"a score on another scale ({mention}) than {low:g}-{high:g}"
    if abstained := ABSTAINED.match(text, start, stop):
        return Statement(choice="abstain", start=start), abstained.end(), None
    match = _SCORE.match(text, start, stop)
    if match is None:
        return None, start, f"no number after the {place}"
    end = match.end()
    if _GLUED.match(text, end, stop):
        return None, end, f"{text[match.start(1) : end + 8].split()[0]!r} after the {place} is not a plain number"
    out_of = OUT_OF.match(text, end, stop)
    if out_of:
        if (maximum := maximum_of(out_of)) != high:
            on = "rubric" if "marker" in place else "scale"
            return None, end, f"a score out of {maximum:g} on a {on} up to {high:g}"
        end = out_of.end()
    words, after = _clause(text, end, stop)
    failure = None
    if mention := _other_scale(words, expected):
        failure = f"a score on another scale ({mention}) than {low:g}-{high:g}"
    elif _DIGIT.search(_SCALES.sub("", words)) or _SECOND.match(_SCALES.sub("", words)) or _CORRECTION.match(after):
        failure = f"more than one number after the {place}"
    elif (
        (words and not words[0].isalpha() and (words[0] not in _PUNCTUATION or re.match("-[^ ]", words)))
        or words.endswith("?")
        or _NO_SCORE.match(words)
        or (out_of and COUNT.match(words))
    ):
        failure = f"{text[match.start(1) : end + 16].splitlines()[0]!r} after the {place} is not a plain number"
    return Statement(score=float(match[1]), start=start), end, failure


def _choice_at(text: str, start: int, stop: int, allowed: str, place: str) -> After:
    match = _CHOICE.match(text, start, stop)
    word = match[match.lastindex or 0] if match else ""
    if match is None or (len(word) == 1 and word.lower() not in allowed):
        return None, start, f"no choice after the {place}"
    end, choice = match.end(), CHOICES[(match.lastindex or 1) - 1]
    if choice == "abstain":
        return Statement(choice=choice, start=start), end, None
    if _OTHER.match(text, end, stop):
        return None, end, f"more than one choice after the {place}"
    words, _ = _clause(text, end, stop)
    denied = DENIED.match(text, end, stop) or _HEDGED.search(words) or re.match("[,;:(-] *[0-9]|-[^ ]", words)
    failure = None
    if denied or not (not words or words[0] in _PUNCTUATION or _AFFIRMED.match(words)):
        inner = text[match.start(match.lastindex or 0) : end + 12].splitlines()[0]
        failure = f"{inner!r} after the {place} is not a plain choice"
    elif _PREFERRED[choice].search(words):
        failure = f"more than one choice after the {place}"
    return None if denied else Statement(choice=choice, start=start), end, failure


def _clause(text: str, start: int, stop: int) -> tuple[str, str]:
    """The words from `start` to the end of their clause or line, and those of the line that come after; 200 at most."""
    window = text[start : min(stop, start + 200)].partition("\n")[0].lstrip(" *_`\"')]}")
    for end in _CLAUSE_END.finditer(window):
        if not (end[1] or "").islower():
            return window[: end.end() if end[0][0] == "?" else end.start()].rstrip(), window[end.end() :]
    return window.rstrip(), ""


def value_of(number: str) -> float:
    """A number in digits or, from two on, in English words."""
    return _WORDS[number.lower()] if number.lower() in _WORDS else float(number)


def maximum_of(out_of: re.Match[str]) -> float:
    """The number after "out of"."""
    return value_of(out_of[1] or out_of[2])


def _other_scale(words: str, scale: Scale) -> str | None:
    """The first scale that some words speak of and that is not this one; a hundredth of it is no difference."""
    for match in _SCALES.finditer(words):
        low, high = (match[1], match[2]) if match[1] else (None, match[3] or match[4])
        same_low = low is None or abs(float(low) - scale[0]) <= (scale[1] - scale[0]) / 100
        if not same_low or value_of(high) != scale[1]:
            return match[0].strip()
    return None


def why_no_score(text: str, end: int, scale: Scale) -> str | None:
    """Why the number that ends here, in brackets, tags or a box of its own, is not the score."""
    out_of = OUT_OF.match(text, end)
    if out_of and maximum_of(out_of) != scale[1]:
        return f"a score out of {maximum_of(out_of):g} on a scale up to {scale[1]:g}"
    return "more than a number" if not out_of and _ADDED.match(text, end) else None


def first_line(text: str) -> tuple[int, str]:
    """The first line that is not blank, and where it starts."""
    start = len(text) - len(text.lstrip())
    return start, text[start:].partition("\n")[0].rstrip()


def strip_prefix(text: str) -> str:
    """An answer without "Feedback:" before it."""
    return _PREFIX.sub("", text, count=1).strip() if _PREFIX.match(text) else text.strip()
