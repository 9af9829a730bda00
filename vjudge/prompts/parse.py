"""Read the verdict out of a judge's answer, or say why there is none.

A verdict stands alone: after the marker of its format there is one value of the scale, in any of
the usual dress (`vjudge.prompts.values`), then the end of the line, or a separator and words that
hold no second value and take nothing back (`vjudge.prompts.phrases`). Else it is missing, with a
reason. Thinking is not read, and an answer that did not end by itself has no verdict. All patterns
take time linear in the answer's length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from vjudge.prompts import phrases, values
from vjudge.prompts.objects import Reading, read_json
from vjudge.prompts.values import MORE, NO_VALUE, Said, plain_text
from vjudge.records import NAN, Rubric, Verdict

# How every failure begins; details may follow.
REASONS = tuple(
    "no verdict marker,not on the scale,two verdicts,more than a verdict on its line,cut off,"
    "ended by,refused,empty answer".split(",")
)
ENDINGS = frozenset(("stop", "end_turn", "eos", "stop_sequence", "none"))
"""How an answer that ended by itself has ended, in any case."""
_HIDDEN = r"(?i)< ?{}(?:think(?:ing)?|thought|reasoning|feedback)>"  # tags of what is not read
_MOST_MARKS = 100  # of one kind in an answer; and the characters of what follows a verdict:
_MOST_FOLLOWING = 50_000


class Mark(NamedTuple):
    """Where a format puts its verdict: a row of `../assets/marks.tsv`, and who reads it there.

    The verdict is in the group "value" of the pattern.
    """

    pattern: re.Pattern
    read: Callable
    # "after": behind a marker, to the end of the line. "label": so, and before the marker the line
    # or the sentence says nothing. "inside": after an opening bracket. "line": a line or sentence,
    # which is prose where it is no verdict. "last": so, behind a whole sentence.
    kind: str


class Format(NamedTuple):
    """One way in which judges write a verdict: a row of `../assets/formats.tsv`."""

    gives: str  # "score", or "choice" between two responses
    marks: tuple[Mark, ...]  # what they read must agree; none for JSON alone
    scale: tuple[int, int] | None  # its own; None for the rubric's
    opens: bool  # the verdict may open the answer, and an explanation follow
    # What a JSON object may hold: "score", "choice", "lowest" of a list of scores; "" for nothing.
    json: str


def parse(
    text: str,
    *,
    scores: Sequence = (),
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
    if format not in FORMATS:
        raise ValueError(f"unknown verdict format {format!r}; one of: {', '.join(sorted(FORMATS))}")
    rule = FORMATS[format]
    scale = range(rule.scale[0], rule.scale[1] + 1) if rule.scale else scores
    if rubric and not (rubric.named and rule.gives == "score"):
        rubric = None
    if rule.gives == "score" and not len(scale) and not rubric:
        raise ValueError("scores is empty: give the rubric's scale, for example (1, 2, 3, 4, 5)")

    if str(finish).lower() not in ENDINGS:
        failure = "cut off at the token limit" if finish == "length" else f"ended by {finish}"
        return Verdict(NAN, _unwrap(text), text, failure)
    return _read(text, rule, scale, rubric)


def _read(text: str, rule: Format, scale: Sequence, rubric: Rubric | None) -> Verdict:
    """Read an answer that ended by itself."""
    # 1) thinking is not read
    hidden_end = 0
    for closing in re.finditer(_HIDDEN.format("/ ?"), text):
        hidden_end = closing.end()
    visible = " " * hidden_end + text[hidden_end:]
    if re.search(_HIDDEN.format(""), visible):
        return Verdict(NAN, _unwrap(text), text, "cut off before the thinking ended")
    if not text.strip():
        return Verdict(NAN, _unwrap(text), text, "empty answer")

    # 2) find the places of verdicts and read what stands there
    plain = phrases.without_confidence(plain_text(visible)).rstrip()
    readings = _read_marks(plain, rule, scale)
    for reading in read_json(visible, rule.json, scale, rubric) if rule.json else ():
        if _is_anothers(plain, reading.start, reading.start, "json"):
            reading = reading._replace(said=MORE)
        readings.append(reading)
    readings.sort(key=lambda reading: reading.start)

    # 3) the last one counts, unless something says otherwise
    verdict = _settle(plain, rule, readings)
    feedback = _feedback(text, readings)
    if isinstance(verdict, str):
        failure = "refused" if phrases.REFUSAL.match(plain) else verdict
        return Verdict(NAN, feedback, text, failure)
    return Verdict(verdict.score, feedback, text, None, verdict.choice, verdict.scores)


def parse_to_close(text: str, *, finish: str, **options: Any) -> tuple[Verdict, bool]:
    """An answer's verdict, and whether it is to be closed: it has none that counts, nor refuses.

    Options are those of `parse`.
    """
    verdict = parse(text, **options)  # as of an answer that ended by itself
    refused = verdict.failure is not None and verdict.failure.startswith("refused")
    if str(finish).lower() not in ENDINGS:
        verdict = parse(text, finish=finish, **options)  # says so at once
    return verdict, verdict.failure is not None and not refused


# --- what stands at a mark

_BOLD = re.compile(r"(?:^|[\s(:])(?:\*\*|__)$")  # opens right before a label
_UNFINISHED = re.compile(r"(?<!\bis)(?<!\bjson)(?<=\w)[ \"'*`]*$", re.IGNORECASE)  # a sentence


def _read_marks(plain: str, rule: Format, scale: Sequence) -> list[Reading]:
    """What is said at each place where a mark of the format stands."""
    readings = []
    for mark in rule.marks:
        hits = list(islice(mark.pattern.finditer(plain), _MOST_MARKS + 1))
        if len(hits) > _MOST_MARKS:
            return [Reading(0, 0, f"two verdicts (more than {_MOST_MARKS} markers)")]
        for hit in hits:
            reading = _read_mark(plain, mark, hit, rule.gives, scale)
            if reading is not None:
                readings.append(reading)
    return readings


def _read_mark(
    plain: str, mark: Mark, hit: re.Match, gives: str, scale: Sequence
) -> Reading | None:
    """What is said at one place; None where it is prose, or the label of something else."""
    value_text = hit["value"]
    start = hit.start()

    # 1) what stands before it: nothing beside a label, a whole sentence before a last line
    if mark.kind == "label":
        before, sentence = _before(plain, start)
        if re.search(r"\w", values.undress(sentence)) and not _BOLD.search(before):
            return None  # "Fluency score", "Max score"
    if mark.kind == "last":
        sentence_end = re.search(r"[.!)*_]\s*$", plain[max(0, start - 200) : start] or ".")
        if not (sentence_end and values.is_value(value_text)):
            return None

    # 2) the value, and what stands behind it on its line
    verdict = mark.read(value_text, scale) if len(value_text) <= values.LONGEST else MORE
    clauses = re.sub("[,;]", ":", value_text)  # one of them may take it back
    if not isinstance(verdict, str) and (
        phrases.HEDGED.search(value_text)
        or phrases.RETRACTED.search(clauses)
        or _is_anothers(plain, start, hit.end(), mark.kind)
    ):
        verdict = MORE
    if mark.kind in ("line", "last") and isinstance(verdict, str):
        return None
    first_words = " ".join(value_text[:200].split()[: 1 if gives == "score" else 3])
    prose = verdict == MORE and not values.LOOKS_LIKE[gives].search(first_words)
    return Reading(start, hit.end(), verdict, prose=prose, value=hit.start("value"))


def _before(plain: str, start: int) -> tuple[str, str]:
    """What stands before a place: the end of its line, and of its sentence."""
    before = plain[plain.rfind("\n", 0, start) + 1 : start]
    return before, re.split(r"[.!?;]|, (?:so|thus|hence|therefore)\b", before[-100:])[-1]


def _is_anothers(plain: str, start: int, stop: int, kind: str) -> bool:
    """Whether the words around a verdict deny it, or make it an example or a quotation."""
    before, sentence = _before(plain, start)
    line_start = start - len(before)  # where the line begins
    above = plain[max(0, line_start - 200) : line_start].rstrip(" \n`").rpartition("\n")[2]
    if not above.endswith(":"):  # it doesn't announce what stands here
        above = ""
    if kind in ("inside", "json") and phrases.DENIED.search(sentence):
        return True
    announced = above
    if before.strip():
        announced = before[-100:] if kind in ("after", "json") else ""
    if phrases.QUOTED.search(announced):
        return True
    if kind == "json" and (phrases.EXAMPLE.search(above) or _UNFINISHED.search(sentence)):
        return True
    if re.search(r"\b(?:I|my)\b", sentence):  # "I would label this as "[[A>B]]"."
        return False
    opened = before.count('"') % 2 or plain.count('"', line_start, stop) % 2
    return bool(opened) or before.lstrip().startswith(">")


# --- whether something says otherwise

_SHORT = 60  # characters; less than that is no explanation
_OVERALL = re.compile(rf"(?i)\boverall score is[\s:*_(\[]{{0,8}}({values.DIGITS})(?![\w%])(?!\.\d)")
_SCORED = re.compile(  # "rated 3", "I give it a 3", "it merits a 3", "hence 3."
    r"(?i)\b(?:(?:scor|rat|grad)(?:e|ed|ing)\b[^\n\d]{0,30}?|i(?:'d| would| will)? (?:give|gave"
    r"|assign)\b[^\n\d]{0,20}?|(?:merits?|deserves?|earns?|warrants?) (?:\w+ ){0,2}?an? "
    rf"|(?:hence|therefore|thus|so|answer|instead)\W{{1,3}}(?=[\d.]+\W*(?:$|[\n.!;])))"
    rf"({values.DIGITS})"
)
_RANKED = re.compile(  # "A is worse"; "B is better"
    rf"(?i)\b({values.WHO})(?: response| answer)? (?:is|was) (?:\w+ )?(?:not|worse|weaker|inferior"
    rf"|wrong)\b|\b(?:prefer|choose|pick|favou?r)\b[^.\n]{{0,20}}?\b({values.WHO})\b"
    rf"|\b({values.WHO})\b[^.\n]{{0,40}}\b(?:better|best|preferred|superior|wins?|winner"
    r"|stronger|ahead|leads|outperforms|beats|chosen|(?:right|correct) choice)\b"
)


def _settle(plain: str, rule: Format, readings: Sequence) -> Said | str:
    """What the last place says, or why that does not stand."""
    if not readings:
        return "no verdict marker"
    verdict = readings[-1].said
    if isinstance(verdict, str):
        return verdict
    for reading in readings:
        silent = reading.prose or reading.said == NO_VALUE
        if not silent and reading.said != verdict:
            return "two verdicts"
    if verdict.choice == "abstain":
        return verdict
    tail = plain[readings[-1].end :]
    opens = rule.opens and not re.search(r"\w", plain[: readings[0].start])
    following = plain[readings[-1].value :]
    explains = opens or (rule.gives == "choice" and len(following.strip()) >= _SHORT)
    reason = _taken_back(following, tail, rule.gives, verdict, explains)
    for hit in _OVERALL.finditer(plain):
        if verdict.choice is None and not rule.scale and float(hit[1]) != verdict.score:
            reason = "another overall score"
    return f"two verdicts ({reason})" if reason else verdict


def _taken_back(following: str, tail: str, gives: str, verdict: Said, explains: bool) -> str | None:
    """What follows may explain a verdict that opens the answer, or a choice; never replace it."""
    if len(following) > _MOST_FOLLOWING:
        return "what follows is too long for an explanation"
    if phrases.RETRACTED.search(following):
        return "what follows takes it back"
    if not phrases.may_follow(tail, explains=explains):
        return "what follows is no explanation"
    tail = tail.replace("_", " ")
    if not explains:
        for hit in values.LOOKS_LIKE[gives].finditer(tail):
            if gives == "choice" or hit[0] != f"{verdict.score:g}":
                return "more values follow"
        return None
    return "what follows names another" if _names_another(tail, gives, verdict) else None


def _names_another(tail: str, gives: str, verdict: Said) -> bool:
    """Whether an explanation holds another verdict: on a line of its own, or in a sentence."""
    for text in filter(values.is_value, set(tail.split("\n"))):
        is_number = gives == "score" or (verdict.scores and not re.search("[A-Za-z]", text))
        if is_number or getattr(values.choice(text), "choice", None) != verdict.choice:
            return True
    if gives == "score":
        return any(float(hit[1]) != verdict.score for hit in _SCORED.finditer(tail))
    for worse, *better in _RANKED.findall(tail):
        if (values.side_of(worse or "".join(better)) == verdict.choice) == bool(worse):
            return True
    return False


# --- the feedback: the text before the verdict, or after one that opens the answer

_TAGS = r"</?(?:think(?:ing)?|thought|reasoning|feedback)>"
_WRAPPING = re.compile(
    rf"(?i)\A\s*(?:(?:#+[ \t]*)?(?:\*\*)?feedback(?:\*\*)?:(?:\*\*)?|{_TAGS})|{_TAGS}\s*\Z"
)

_EXPLAINED = re.compile(  # on the verdict's line, or nothing
    r"\A.*?(?: -+ | ?[:;,(|\u2014]| \u2013 | because | since | as )\W*([^\W\d].*)|\A.*", re.DOTALL
)


def _feedback(text: str, readings: Sequence) -> str:
    if not readings:
        return _unwrap(text)
    reading = readings[-1]
    if reading.feedback is not None:
        return reading.feedback
    before = _unwrap(text[: reading.start].rstrip("*_`# \t\n"))
    after = _unwrap(text[reading.end :].lstrip(" \t\n.*_`)]}\"'"))
    return before or after or _EXPLAINED.sub(r"\1", text[reading.value : reading.end]).strip(" )")


def _unwrap(text: str) -> str:
    """A feedback without the label or the tags around it."""
    for _ in range(2):
        text = _WRAPPING.sub("", text).strip()
    return text


# --- the formats

_READERS: dict[str, Callable] = {
    "score": values.score,
    "half": partial(values.score, halves=True),
    "two scores": values.two_scores,
    "second score": partial(values.two_scores, of_second=True),
    "choice": values.choice,
    "letter": partial(values.choice, signs="ab"),
    "degree": partial(values.sign, table=values.DEGREES),
    "sign": partial(values.sign, table=values.LETTERS),
    "four sign": partial(values.sign, table=values.FOUR_SIGNS),
    "any sign": partial(values.sign, table=values.DEGREES | values.LETTERS),
}
_DRESS = r"[\s*_`\"':=|]*"
_MARKS = {row["name"]: row for row in phrases.read_table("marks")}


def _mark(written: str) -> Mark:
    """The mark that "name = reader" says."""
    name, _, reader = written.partition(" = ")
    row = _MARKS[name]
    pattern = row["pattern"].replace("<LABEL>", values.LABEL).replace("<DRESS>", _DRESS)
    if "(?P<value>" not in pattern:  # what stands behind it, to the end of the line
        pattern = rf"(?:{pattern}){_DRESS}(?P<value>[^\n]*)"
    compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    return Mark(compiled, _READERS[reader], row["kind"])


def _format(row: Mapping[str, str]) -> Format:
    lowest, _, highest = row["scale"].partition("-")
    marks = row["marks"].split(", ")
    in_json = {"json": row["gives"], "json list": "lowest"}
    return Format(
        row["gives"],
        tuple(_mark(written) for written in marks if written not in in_json),
        (int(lowest), int(highest)) if highest else None,
        opens=bool(row["opens"]),
        json=in_json.get(marks[-1], ""),
    )


FORMATS = {row["name"]: _format(row) for row in phrases.read_table("formats")}
"""What can be read, by name."""
