r"""Read a line that begins with one value: a score, a choice, or two scores.

The usual dress is taken off first (bold, brackets, quotes, boxes, tags). Then the line is a value,
a separator, and words that hold no second value. A reader returns what the line says, or as a text
why it says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vjudge.records import NAN

OFF_SCALE = "not on the scale"
MORE = "more than a verdict on its line"
NO_VALUE = "no verdict marker with a verdict after it"
LONGEST = 1000  # characters of a line that can be a verdict and its explanation


class Said(NamedTuple):
    """What an answer says; the fields are those of `vjudge.records.Verdict`."""

    score: float = NAN
    choice: str | None = None
    scores: tuple | Mapping | None = None


# --- a line without its dress

_PLAIN: dict = str.maketrans(  # each kind of line end, dash, quote and bracket, so that places stay
    "\x85\u2028\u2029\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\u3002\u2018\u2019\u201a"
    "\u201b\u201c\u201d\u201e\u201f\xab\xbb\u300c\u300d\u300e\u300f\u3010\u3011\u2044\u2215\u3001",
    "\n\n\n----::---.''''" + 10 * '"' + "[]//,",
)
_PLAIN.update({code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)})  # full width
_BLANK = re.compile(  # blanks, invisible characters and ornaments
    r"[^\S\n]|[\0\x1c-\x1f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufe0f\u20e3\u2605\u2606"
    "\u2696\u2705\u2714\u2728\u2b50\U0001f300-\U0001f64f\U0001f680-\U0001f6ff\U0001f900-\U0001faff]"
)
_DRESS = re.compile(
    r"</?\w+>|<\|[\w ]+\|>|\\(?:boxed|text(?:bf)?|math(?:bf|rm))\b|\\[()\[\]]|\}\$?"
    r"|[*_`\")\]]|(?<!\w)'|'(?!\w)"
)
LABEL = (
    r"(?:(?:score|rating|grade)(?: (?:for|of) (?:(?:the|this) )?(?:response|answer|caption|image))?"
    "|bewertung|punktzahl|gesamtnote|puntuaci\xf3n|puntaje|calificaci\xf3n|punteggio|pontua\xe7\xe3o"
    "|(?:最终|最終|综合|綜合|总体|整体)?(?:分数|评分|得分|分數|評分|总分|總分)"
    "|(?:최종 )?(?:점수|평점)|スコア|評価|点数)"
)
NOUN = (
    "(?:judge?ment|verdict|result|choice|answer|response|assistant|model|option|candidate"
    "|(?:edited )?image|antwort"
    "|r\xe9ponse|respuesta|回答|答案|답변|응답)"
)
_IDLE = re.compile(  # words that change no verdict; a noun at the end of a line may
    r"(?i)(?<![a-z])(?:(?:so|thus|therefore|hence|finally|(?:in )?(?:conclusion|summary)"
    r"|in my opinion|all in all|^based on [^,.]{1,40}|my|the|final|overall|total|judge's|far|much"
    r"|slightly|clearly|marginally|significantly|definitely)\b,?"
    rf"|(?:{LABEL}|{NOUN})(?![a-z])(?=\W*\w))"
)


def plain_text(text: str) -> str:
    """A text of the same length with plain dashes, quotes, blanks and digits."""
    text = _BLANK.sub(" ", text.translate(_PLAIN))
    return re.sub(r"[^\D0-9]", lambda digit: str(int(digit[0])), text)


def bare(text: str) -> str:
    """A line without emphasis, quotes, boxes and tags; an opening bracket stays as "("."""
    text = re.sub(r"\$([^$]*)\$", r" \1 ", text)
    return re.sub(r"[\[{]", "(", " ".join(_DRESS.sub(" ", text).split()))


def undress(text: str) -> str:
    r"""The same without idle words.

    >>> undress(r"**The score is:** $\boxed{4}$/5")
    'is: (4 /5'
    """
    return " ".join(_IDLE.sub(" ", bare(text)).split())


# --- patterns of undressed lines

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
DIGITS = r"\d{1,9}(?:\.\d{1,9})?"
WHO = "(?:[ab12]|first|second)"
_NUMBER = rf"[+-]?{DIGITS}|{'|'.join(WORDS)}"
_IS = r"[(|: ]*(?:winner ?|better (?:one )?)?(?:is ?|of ?)?(?:[:=(|]|- )*[( ]*"
_UNIT = r"(?: (?:points?|stars?|marks?|punkten?|puntos)\b| ?(?:点|분|점|分))?"
_OUT_OF = r"\(? ?(?:/|(?:out of|of|von|sur|de)\b) ?(?:a )?(?:possible |maximum )?"
_SCORE = re.compile(
    rf"(?i){_IS}(?:(?:(?P<low>{DIGITS}) ?(?:-|to) ?|{_OUT_OF})(?P<high>{DIGITS}) ?[:=] ?)?"
    rf"(?P<value>{_NUMBER})(?![\d\xb2\xb3\xb9\xbc-\xbe])(?!\.\d){_UNIT}"
    rf"(?: ?{_OUT_OF}(?P<top>{_NUMBER}))?(?P<percent> ?%)?{_UNIT}"
)
_NAMED = re.compile(  # no score: "Answer 2", "The answer is 3"
    r"(?i)\b(?:answer|response|assistant|model|option|candidate|winner|choice)(?: is)?[:=]? ?\d"
)
_TEN = r"(?: ?(?:/|out of) ?10)?"
_PAIR = re.compile(rf"({DIGITS}){_TEN} ?[ ,;|] ?({DIGITS}){_TEN} ?[.]?")
_BEST = (
    rf"(?:better|best|preferred|winner|superior|stronger|{NOUN})(?: one| {NOUN})?|besser|mejor"
    "|meilleure?"
)
_TIE = rf"(?:tied?|draw)|(?:(?:(?:both|two)(?: {NOUN}s?)?|they)(?: are)? )?equal(?:ly good)?"
_CHOICE = re.compile(
    rf"(?i){_IS}(?:it ?(?:is|'s) )?(?:(?:a )?(?P<tie>{_TIE})"
    rf"|(?P<who>{WHO})(?:(?<=t|d) (?:one|{NOUN}))?"
    rf"(?: ?(?P<sign>>{{1,3}}|<{{1,3}}|=|beats ) ?(?P<beaten>{WHO})"
    rf"| wins| (?:is|was|ist|est|es) (?:{_BEST})(?: (?:than|over|to) (?P<than>{WHO}))?)?)(?!\w)"
)
_SIGN = re.compile(rf"(?i)[( ]*(tie|[a-z](?: ?[<>=]+ ?[a-z]+)*)(?: is {NOUN})?(?![\w/])")
_ABSTAINED = re.compile(
    r"(?i)\(?(?:n/?a|not applicable|abstain(?:ed|s)?|(?:i )?(?:cannot|can'?t|unable to) (?:be )?"
    r"(?:judged?|decided?|determined?|tell|evaluated?))(?: ?[.!]?| ?\([^\d]*)"
)
LOOKS_LIKE = {  # a value in a line or text that is more than one
    "score": re.compile(rf"(?i)\d+(?:\.\d+)?|\b(?:{'|'.join(WORDS[2:])})\b"),
    "choice": re.compile(r"\b(?:[AB12]|(?i:first|second|tied?|draw|equal\w{0,2}))\b"),
}

# --- what may stand behind a value

_SEPARATED = re.compile(  # nothing, or what separates an explanation from a verdict
    r"[\s.!,;:|~(-]*$| ?[:;,|(]| --? | ?[.!] (?=\S+ \S+ \S)"
    r"| (?:because|since|as|due to|given that|weil|da|car|porque)\b| ?(?:因为|因為)"
)
_REASON = re.compile(r"(?i)\b(?:because|since|as|due to|given that)\b")
_COUNTED = re.compile(  # "since 1 object is missing", "2 of the colours"
    rf"(?i)\b(?:\d+|{'|'.join(WORDS)})(?= (?:of (?:\w+ )?)?(?!(?:is|was|would|should|could|might"
    r"|may|can|seems?|fits?|and|or|for|to|than|but|if|at|in|on|as|points?|stars?|marks?|out|of|less"
    r"|more|lower|higher|instead|rather|then|not|because|since|given|after|with)\b)[a-z]{3,})"
)
_WEAKER = (  # of the side that was not chosen
    r"(?: \w+ly)? (?:(?:is|was) (?:\w+ly )?(?:wrong|incorrect|inaccurate|worse|weaker|inferior"
    r"|incomplete|vaguer?|unfaithful|irrelevant|less (?!wrong|inaccurate|vague)|not (?:as |so )?"
    r"(?:good|accurate|right|correct|faithful|complete|detailed))|(?:miss|lack|fail|ignore|omit|hallucinate"
    r"|invent|misread|misidentifie|overlook)(?:e?s)\b|(?:has|contains|makes) (?:\w+ )?(?:errors?"
    r"|mistakes?)|do(?:es)?(?: not|n't) (?:name|mention|see|answer|address|describe|match|read"
    r"|follow)\b)"
)


def _adds_nothing(tail: str, gives: str, verdict: Said) -> bool:
    """Whether what stands behind a value separates itself and holds no second value."""
    if not _SEPARATED.match(tail):
        return False
    if gives == "score":
        if _REASON.search(tail):
            tail = _COUNTED.sub("", tail)
        numbers = [_number(hit[0].lower()) for hit in LOOKS_LIKE["score"].finditer(tail)]
        return all(number == verdict.score for number in numbers)
    for hit in LOOKS_LIKE["choice"].finditer(tail):
        same = side_of(hit[0]) == verdict.choice
        weaker = bool(re.match(_WEAKER, tail[hit.end() :]))
        if weaker == same or (verdict.choice == "tie" and not same):
            return False
    return True


# --- readers of a line


def is_value(text: str) -> bool:
    """Whether a line is a value of any kind and scale, and nothing else."""
    text = undress(text) if len(text) <= 200 else ""
    for kind in (_SCORE, _CHOICE, _PAIR):
        hit = kind.match(text)
        if hit and not text[hit.end() :].strip(" .!,;:"):
            return True
    return False


def _no_value(text: str, gives: str) -> Said | str:
    """What a line says that is no value: an abstention, or why it says nothing."""
    if _ABSTAINED.fullmatch(bare(text)):
        return Said(choice="abstain")
    return MORE if LOOKS_LIKE[gives].search(text) else NO_VALUE


def _number(text: str) -> float:
    return float(WORDS.index(text)) if text in WORDS else float(text)


def score(text: str, scale: Sequence, *, halves: bool = False) -> Said | str:
    """A line that says one number of the scale; `halves` allows the numbers between.

    >>> score("**4/5** (good)", (1, 2, 3, 4, 5)).score, score("4 or 5", (1, 2, 3, 4, 5))
    (4.0, 'more than a verdict on its line')
    """
    undressed = undress(text)
    hit = _SCORE.match(undressed)
    if hit is None or _NAMED.search(bare(text)):
        return _no_value(text, "score")
    value = _number(hit["value"].lower())
    if not _adds_nothing(undressed[hit.end() :], "score", Said(value)):
        return MORE
    lowest = scale[0]
    highest = scale[-1]
    fits = value in scale or (halves and lowest <= value <= highest)
    fits = fits and (hit["low"] is None or _number(hit["low"]) == lowest)
    for top in (hit["high"], hit["top"], "100" if hit["percent"] else None):
        fits = fits and (top is None or _number(top.lower()) == highest)
    return Said(score=value) if fits else f"{OFF_SCALE} of {lowest} to {highest}"


def two_scores(text: str, scale: Sequence, *, of_second: bool = False) -> Said | str:
    """A line of two numbers: a choice by them, or `of_second` the second one."""
    hit = _PAIR.fullmatch(bare(text).lstrip("("))
    if hit is None:
        return NO_VALUE
    score_a, score_b = scores = (float(hit[1]), float(hit[2]))
    if min(scores) < scale[0] or max(scores) > scale[-1]:
        return OFF_SCALE
    if of_second:
        return Said(score=score_b, scores=scores)
    if score_a == score_b:
        return Said(choice="tie", scores=scores)
    return Said(choice="a" if score_a > score_b else "b", scores=scores)


def side_of(who: str) -> str:
    """Which of two responses "first", "2" or "A" is; "tie" for other words."""
    who = who.casefold()
    if who in ("a", "1", "first"):
        return "a"
    return "b" if who in ("b", "2", "second") else "tie"


def choice(text: str, scale: Sequence = (), *, signs: str = "ab12") -> Said | str:
    """A line that says one choice; `signs` are the letters and digits that stand for one.

    >>> choice("Answer 2 is better.").choice, choice("A is weaker than B")
    ('b', 'more than a verdict on its line')
    """
    undressed = undress(text)
    hit = _CHOICE.match(undressed)
    if hit is None:
        return _no_value(text, "choice")
    if hit["who"] and hit["who"] in "12" and "1" not in signs:
        return f"{OFF_SCALE} of {', '.join(signs).upper()}"
    verdict = Said(choice=side_of(hit["who"] or "tie"))
    beaten = side_of(hit["beaten"] or hit["than"] or "tie")
    if beaten == verdict.choice != "tie":
        return MORE
    if hit["sign"]:
        sides = {">": verdict.choice, "b": verdict.choice, "<": beaten, "=": "tie"}
        verdict = Said(choice=sides[hit["sign"][0]])
    return verdict if _adds_nothing(undressed[hit.end() :], "choice", verdict) else MORE


DEGREES = {"A>>B": "a", "A>B": "a", "A=B": "tie", "B>A": "b", "B>>A": "b"}
FOUR_SIGNS = DEGREES | {"A=B=GOOD": "tie", "A=B=BAD": "tie"}
LETTERS = {"A": "a", "B": "b", "C": "tie", "TIE": "tie"}


def sign(text: str, scale: Sequence = (), *, table: Mapping) -> Said | str:
    """What double brackets hold: one of a table's signs."""
    undressed = undress(text)
    hit = _SIGN.match(undressed)
    key = re.sub(r"\s", "", hit[1]).upper() if hit else ""
    if hit and key in table:
        verdict = Said(choice=table[key])
        return verdict if _adds_nothing(undressed[hit.end() :], "choice", verdict) else MORE
    reason = _no_value(text, "choice")
    return f"{OFF_SCALE} of {', '.join(table)}" if reason == MORE else reason
