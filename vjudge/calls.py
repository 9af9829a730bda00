"""A judge's call: rows -> prompts, answers -> records, kept by a run as soon as they exist, records -> a table.

`Judge.grade` and `Judge.compare` are this one pipeline; what differs is the wording, and whether a row is put to the
judge once a sample or once an order: a judge may prefer whichever response stands first, so a pair is shown in both
orders, "ab" and "ba", and verdicts are turned back to the pair's own a and b. A record is what a run keeps of one
verdict, in plain JSON values; tables are built from records alone, so that a continued run ends in the table of an
unbroken one.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

import vjudge
from vjudge import data
from vjudge.data.schema import CollectionError, Problem
from vjudge.engines.engine import Answer, Ask, Engine, whole
from vjudge.images import ImageError, Picture, Pictures
from vjudge.prompts import Prompt, Template
from vjudge.prompts.parse import parse, suggest_format
from vjudge.records import NAN, Item, Pair, Verdict, is_missing, unit_of
from vjudge.runs import Run, RunError

ORDERS = ("ab", "ba")
SWAPPED = {"a": "b", "b": "a"}
POINTS = {"a": 1, "b": -1, "tie": 0}
LOW_MASS = 0.5  # the scores' probability together, below which the judge would rather have written something else
ONE_SIDED, CHANCE = 0.75, 0.01  # the share of decided preferences for one side, and the test's p-value
EMBEDDED = ("tiny", "tiny-base")  # made for Scenes alone
LOOKED_AT = 100  # rows of a call in which an embedded judge looks for what it was not made for
MANY = 0.1  # the share of failures at which another format is looked for

_KINDS = dict.fromkeys(("score", "expected_score", "probability_mass", "probability_a", "seconds", "gold"), "float64")
_KINDS |= dict.fromkeys(("sample", "n_prompt_tokens", "n_new_tokens"), "int64")
_READ = ("score", "expected_score", "probabilities", "probability_mass", "feedback", "raw", "failure")
_WORK = ("n_prompt_tokens", "n_new_tokens", "seconds")
_CARRIED = ("gold", "human_scores", "preference", "group", "criteria", "category")
_SHOWN = 5  # reasons on a line
_REMARKS = {  # by the count that makes it worth saying
    "decided": "both orders were asked: {for_first} of {decided} known preferences are for the first response, and a"
    " judge that always takes one side would be right there by the order alone",
    "failed": "{failed} of {total} {verdicts} failed: {reasons}",
    "suggested_format": "format {suggested_format!r} would read most of them: give load_judge a template= with it, if"
    " the judge writes so",
    "abstained": "{abstained} of {total} verdicts are abstentions",
    "without_distribution": "{without_distribution} of {total} have a score and no distribution: no log-probabilities"
    " came with it, or it was written in other tokens than the scale's",
    "changed": "{changed} of {pairs} verdicts changed with the order; the first response was chosen in {first} of"
    " {choices} choices",
    "low_mass": "{low_mass} of {total} {verdicts} rest on less than {least:g} of the probability: the judge would"
    " rather have written something else there",
    "without_images": "{without_images} {items} have no image and were judged without",
    "kinds": "of {rows} rows looked at, {kinds} unlike those of Scenes, the drawings that {judge!r} was made for: its"
    " scores mean nothing there",
}

Record = dict[str, Any]


class JudgeCall:
    """What a judge puts to its engine in one call: each row once a unit, which is a sample's number or an order.

    A single order becomes both where the known preferences are one-sided. `keys` (id, unit), `prompts`, `images` and
    `scores` have one entry a verdict, `carried` (the columns that come along into the table) one a row.
    """

    def __init__(self, name: str, items: Any, template: Template, ask: Ask, *, units: Sequence[Any], seed: int) -> None:
        self.name, self.template, self.seed = name, template, seed
        self._origin, pictures, rows = data.origin(items), Pictures(), data.rows_of(items)
        pairs, sees = template.compares, template.sees_images
        data.validate(rows, needs=template.needs, sees_images=sees, pictures=pictures, pairs=pairs)
        self._one_sided = one_sided(rows.column("preference")) if pairs and len(units) == 1 else None
        self.units = ORDERS if self._one_sided else units
        self.keys: list[tuple[str, Any]] = []
        self.prompts: list[Prompt] = []
        self.scores: list[tuple[int, ...]] = []
        self.carried: list[Record] = []
        self._without_images = 0
        for row in rows:
            subject: Item | Pair = Pair.from_row(row) if pairs else Item.from_row(row)
            self._without_images += sees and not subject.images
            self.carried.append(_carried(row, subject))
            self.keys += [(subject.id, unit) for unit in self.units]
            if isinstance(subject, Pair):
                swapped = replace(subject, response_a=subject.response_b, response_b=subject.response_a)
                sides = [swapped if unit == "ba" else subject for unit in self.units]
                self.prompts += [prompt_of(template, pair, ask.mode) for pair in sides]
            else:  # samples share one prompt
                self.prompts += [prompt_of(template, subject, ask.mode)] * len(self.units)
            self.scores += [(0, 1) if pairs else template.scores(subject.rubric)] * len(self.units)
        self.images = Images(rows, len(self.units) if sees else 0, pictures)
        texts = {scale: template.score_texts(scale) for scale in set(self.scores)}  # one mapping for each rubric
        seeds = [] if ask.scores else [seed_of(seed, *key) for key in self.keys]
        self.ask = replace(ask, scales=[texts[scale] for scale in self.scores], seeds=seeds)

    def table(self, engine: Engine, *, out: str | Path | None, progress: bool) -> pd.DataFrame:
        """The verdicts, from the run in `out` or from the engine, with what they lack counted and said."""
        ask, template = self.ask, self.template
        decoding: Record = {}
        if not ask.scores:
            decoding = {name: getattr(ask, name) for name in ("max_new_tokens", "temperature", "top_p")}
            decoding |= {"repetition_penalty": ask.repetition_penalty} if ask.repetition_penalty != 1 else {}
            decoding |= {"seed": self.seed} | ({} if template.compares else {"samples": len(self.units)})
        wording = {"name": template.name, "fingerprint": template.fingerprint()}
        about: Record = {"judge": self.name, "mode": ask.mode, "template": wording, "decoding": decoding}
        about |= {"note": {"origin": self._origin} if self._origin else {}}
        request = (self.prompts, self.images, ask, self.keys)
        key = "order" if template.compares else "sample"
        where: Record = {"desc": self.name, "unit": "verdict", "key": key, "out": out, "progress": progress}
        records = collect(engine, *request, self._record, about, fault=self._fault, **where)
        columns, own = self._comparisons(records) if template.compares else self._grades(records)
        repeats = len(columns["id"]) // len(self.carried)
        for name in (name for name in _CARRIED if any(name in row for row in self.carried)):
            columns[name] = [row.get(name) for row in self.carried for _ in range(repeats)]
        kinds = {name: _KINDS.get(name, object) for name in columns}  # texts, None and dicts stay as they are
        frame = pd.DataFrame({name: pd.Series(cells, dtype=kinds[name]) for name, cells in columns.items()})
        frame.attrs = self._account(records, own)
        frame.attrs["work"] = engine.work and asdict(engine.work)  # None where it computes elsewhere
        return frame

    def _record(self, answer: Answer) -> Record:
        """One verdict as the run keeps it, without its key."""
        format = None if self.ask.scores else self.template.format
        return record_of(answer, scores=self.scores[answer.index], format=format, compares=self.template.compares)

    def _fault(self, place: int, record: Mapping[str, Any]) -> str | None:
        """What keeps a record that was read back from being this verdict; None for a sound one."""
        if lacking := [name for name in (*_READ, "choice", "scores", "strong", *_WORK) if name not in record]:
            return f"lacks {', '.join(lacking)}"
        low, high = min(self.scores[place], default=-math.inf), max(self.scores[place], default=math.inf)
        for name in ("expected_score",) if self.template.compares else ("score", "expected_score"):
            value = record[name]
            if value is not None and not (isinstance(value, (int, float)) and low <= value <= high):
                return f"has the {name} {value!r}, off its scale ({low}-{high})"
        return None

    def _grades(self, records: Sequence[Record]) -> tuple[dict[str, list[Any]], Record]:
        """The columns of `Judge.grade`, and its own attrs."""
        names = [*(["sample"] if len(self.units) > 1 else []), *_READ, *_WORK]
        names += [name for name in ("choice", "scores") if any(record[name] for record in records)]
        columns: dict[str, list[Any]] = {
            "id": [record["id"] for record in records],
            "judge": [self.name] * len(records),
        }
        columns |= {name: [record[name] for record in records] for name in names}
        shares = [record["probabilities"] for record in records]
        columns["probabilities"] = [own and {int(score): share for score, share in own.items()} for own in shares]
        abstained = sum(record["choice"] == "abstain" for record in records)
        silent = sum(record["failure"] is None and record["probabilities"] is None for record in records) - abstained
        blind = silent if self.template.marker else 0  # else no place has a distribution
        return columns, {"without_distribution": blind, "abstained": abstained, "scale": self.template.scale}

    def _comparisons(self, records: Sequence[Record]) -> tuple[dict[str, list[Any]], Record]:
        """The columns of `Judge.compare`, and its own attrs."""
        orders = {order: records[place :: len(self.units)] for place, order in enumerate(self.units)}
        pairs = list(zip(*orders.values(), strict=True))
        choices = {  # on what was shown, in terms of the pair itself
            order: [SWAPPED.get(one["choice"], one["choice"]) if order == "ba" else one["choice"] for one in own]
            for order, own in orders.items()
        }
        verdicts = [combine(of_pair) for of_pair in zip(*choices.values(), strict=True)]
        columns: dict[str, list[Any]] = {
            "id": [pair[0]["id"] for pair in pairs],
            "judge": [self.name for _ in pairs],
            "verdict": [verdict for verdict, _ in verdicts],
            "consistent": [agree for _, agree in verdicts],
            "probability_a": [sum(map(_chance_of_a, pair)) / len(pair) for pair in pairs],
            **{f"verdict_{order}": own for order, own in choices.items()},
            "failure": [_failures(pair) for pair in pairs],
        }
        for name in ("scores", "strong", "feedback", "raw"):
            columns |= {f"{name}_{order}": [one[name] for one in own] for order, own in orders.items()}
        columns |= {name: [sum(one[name] for one in pair) for pair in pairs] for name in _WORK}
        agreed = [agree for verdict, agree in verdicts if agree is not None and verdict != "abstain"]
        first = [record["choice"] == "a" for record in records if record["choice"] in ("a", "b")]
        counts = {"pairs": len(agreed), "consistent": sum(agreed), "choices": len(first), "first": sum(first)}
        return columns, {"position": counts}

    def _account(self, records: Sequence[Record], own: Record) -> Record:
        """The `attrs` of a table: what it lacks is counted there, and said on one line; of a whole one, nothing is."""
        reasons = Counter(record["failure"] for record in records if record["failure"] is not None)
        masses = [record["probability_mass"] for record in records if record["failure"] is None and self.ask.scores]
        attrs: Record = {"judge": self.name, "mode": self.ask.mode, "failures": dict(reasons), **own}
        attrs["low_mass"] = sum(mass is not None and mass < LOW_MASS for mass in masses)
        attrs["without_images"] = self._without_images
        looks = _unlike(self.images) if self.name in EMBEDDED else {}
        seldom = {"unlike": looks, "suggested_format": self._suggested(records), "collection": self._origin}
        attrs |= {name: value for name, value in (seldom | {"one_sided": self._one_sided}).items() if value}
        listed = ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common(_SHOWN))
        more = f", and {len(reasons) - _SHOWN} more reasons" if len(reasons) > _SHOWN else ""
        kinds = [f"{looks[kind]} have {kind}" for kind in ("pictures", "texts") if looks.get(kind)]
        sides, position = self._one_sided or {}, own.get("position", {"pairs": 0, "consistent": 0})
        facts = attrs | looks | position | {"decided": sides.get("decided"), "for_first": sides.get("first")}
        facts |= {"failed": reasons.total(), "reasons": listed + more, "kinds": " and ".join(kinds), "least": LOW_MASS}
        facts |= {"total": len(records), "changed": position["pairs"] - position["consistent"]}
        pair = self.template.compares
        facts |= {"verdicts": "comparisons" if pair else "verdicts", "items": "pairs" if pair else "items"}
        if line := "; ".join(remark.format_map(facts) for name, remark in _REMARKS.items() if facts.get(name)):
            print(line, file=sys.stderr)
        return attrs

    def _suggested(self, records: Sequence[Record]) -> str | None:
        """The format that reads most of the answers that the judge's own can't, where they are many."""
        pairs = zip(self.scores, records, strict=True)
        failed = [(scale, record["raw"]) for scale, record in pairs if record["failure"] and record["raw"].strip()]
        if self.ask.scores or len(failed) < max(2, MANY * len(records)):
            return None
        scale = failed[0][0]
        texts = [text for other, text in failed if other == scale]
        return suggest_format(texts, scores=() if self.template.compares else scale, format=self.template.format)


class Images(Sequence[Sequence[Any]]):
    """The images of each prompt of a call, `repeats` prompts a row, read from their row when they are asked for."""

    def __init__(self, rows: Sequence[Any], repeats: int, pictures: Pictures) -> None:
        self.rows, self.repeats, self.pictures = rows, repeats, pictures

    def __len__(self) -> int:
        return len(self.rows) * self.repeats

    def __getitem__(self, index: Any) -> Any:
        images = self.rows[index // self.repeats].get("images") if self.repeats else None
        return () if images is None else tuple(map(self._picture, images))

    def _picture(self, source: Any) -> Any:
        try:
            return self.pictures(source)
        except ImageError:
            return source  # the engine says of the row what is wrong with it


def collect(
    engine: Engine,
    prompts: Sequence[Prompt],
    images: Images,
    ask: Ask,
    keys: Sequence[tuple[str, Any]],
    record: Callable[[Answer], Record],
    about: Mapping[str, Any],
    *,
    desc: str,
    unit: str,
    key: str,
    out: str | Path | None,
    progress: bool,
    fault: Callable[[int, Mapping[str, Any]], str | None] = lambda place, entry: None,
) -> list[Record]:
    """Get each key's record, from the run in `out` or from the engine, in the order of `keys`.

    A key is an id and what the column `key` holds. `about` is what decides the records besides prompts, images and
    engine; `fault` says what a run's record lacks at its place.
    """
    done: dict[tuple[Any, ...], Record] = {}
    with ExitStack() as stack:
        run = None
        if out is not None:
            identity, digest = engine.identity(), hashlib.sha256()
            for text in (prompt.text for prompt in prompts):
                digest.update(f"{len(text)}:{text}".encode("utf-8", "surrogatepass"))
            fingerprint = data.fingerprint(images.rows, pictures=images.pictures)
            started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            manifest = {
                **about,
                "prompts": digest.hexdigest(),
                "collection": {"fingerprint": fingerprint, f"{unit}s": len(keys)},
                **identity,
                "versions": {"vjudge": vjudge.__version__, **identity["versions"]},
                "note": {"started": started, "batch_size": ask.batch_size, **about["note"]},
            }
            run = stack.enter_context(Run(out, keys=("id", key)).open(manifest, expected=len(keys)))
            done |= run.done
            places = {each: place for place, each in enumerate(keys)}
            for each, entry in done.items():
                what = fault(places[each], entry) if each in places else "is none of this call's"
                if what is not None:
                    raise RunError(f"{run.path}: the {unit} {each} {what}; restore the record or use another folder")
        bar = tqdm(total=len(keys), initial=len(done), desc=desc, unit=unit, disable=not progress)
        stack.enter_context(bar)
        failed = sum(entry["failure"] is not None for entry in done.values())
        missing = {place for place, each in enumerate(keys) if each not in done}
        for answers in engine.answer(prompts, images, ask, missing) if missing else ():
            fresh = [dict(zip(("id", key), keys[answer.index], strict=True)) | record(answer) for answer in answers]
            if run is not None:
                # What only the transport prevented is asked for again by the next call.
                run.append(each for answer, each in zip(answers, fresh, strict=True) if not answer.transient)
            done |= {(each["id"], each[key]): each for each in fresh}
            failed += sum(each["failure"] is not None for each in fresh)
            bar.set_postfix(failed=failed, refresh=False)
            bar.update(len(fresh))
    return [done[each] for each in keys]


def seed_of(seed: int, id: str, sample: int | str) -> int:
    """A number for one verdict's draws that no other verdict shares."""
    digest = hashlib.sha256(f"{seed}\0{sample}\0{id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


def check_ask(ask: Ask, *, samples: int, seed: int) -> None:
    """Refuse unsound options of a call, all at once, each with its remedy."""
    faults = ask.check()
    faults += [] if whole(samples, 1) else [f"samples={samples!r}: use a whole number from 1"]
    faults += [] if whole(seed, 0) else [f"seed={seed!r}: use a whole number from 0"]
    if whole(samples, 2) and ask.temperature == 0:
        faults.append(f"samples={samples!r} of greedy decoding are all the same: set a temperature")
    if faults:
        raise ValueError("; ".join(faults))


def prompt_of(template: Template, subject: Item | Pair, mode: str) -> Prompt:
    """What the model reads of an item or a pair."""
    prompt = template.render(subject)
    return prompt.append(template.forced) if mode == "score" else prompt


def _carried(row: Mapping[str, Any], subject: Item | Pair) -> Record:
    """What of a row comes along into the table."""
    cells: Record = {name: row[name] for name in ("category",) if name in row} | {"group": subject.group}
    if isinstance(subject, Pair):
        return cells | {"criteria": subject.criteria} | {n: subject.preference for n in ("preference",) if n in row}
    cells |= {"gold": subject.gold} if "gold" in row else {}
    cells |= {"human_scores": list(subject.human_scores)} if "human_scores" in row else {}
    return cells | {"criteria": subject.rubric and subject.rubric.criteria}


def record_of(answer: Answer, *, scores: Sequence[int], format: str | None, compares: bool = False) -> Record:
    """One verdict's columns, NaN or None where a failure leaves none, read from the text by its `format`.

    Without one, the mode of the distribution (the lowest of equals). Two compared responses have the scale (0, 1).
    """
    probabilities, mass = distribution(answer.score_logprobs, scores)
    if answer.failure is not None:
        verdict = Verdict(NAN, "", answer.text, answer.failure)
    elif format is None and not probabilities:
        verdict = Verdict(NAN, "", answer.text, "no score of the rubric has a probability")
    elif format is None and compares:
        first, second = probabilities.values()
        verdict = Verdict(NAN, "", "", choice="tie" if first == second else "a" if first > second else "b")
    elif format is None:
        verdict = Verdict(float(max(probabilities, key=probabilities.__getitem__)), "", "")
    else:
        verdict = parse(answer.text, scores=scores, format=format)
        if verdict.failure is not None and not answer.stopped:
            verdict = replace(verdict, failure=f"{verdict.failure} (cut off at {answer.n_new_tokens} tokens)")
    if verdict.failure is not None or verdict.abstained:
        probabilities, mass = {}, NAN
    return {
        **{name: getattr(verdict, name) for name in ("score", "choice")},
        "scores": list(verdict.scores) or None,
        "strong": verdict.strong,
        "expected_score": sum(score * share for score, share in probabilities.items()) if probabilities else NAN,
        "probabilities": {str(score): share for score, share in probabilities.items()} or None,
        "probability_mass": mass,
        **{name: getattr(verdict, name) for name in ("feedback", "raw", "failure")},
        **{name: getattr(answer, name) for name in _WORK},
    }


def distribution(logprobs: Mapping[int, float] | None, scores: Sequence[int]) -> tuple[dict[int, float], float]:
    """Log-probabilities as score -> probability over a scale, and its mass before; empty where there is none."""
    values = [] if logprobs is None else [logprobs.get(score, NAN) for score in scores]
    if not values or any(math.isnan(value) or value == math.inf for value in values):
        return {}, NAN
    highest = max(values)
    if highest == -math.inf:
        return {}, 0.0
    weights = [math.exp(value - highest) for value in values]
    total = sum(weights)
    return {score: weight / total for score, weight in zip(scores, weights, strict=True)}, total * math.exp(highest)


def _chance_of_a(record: Mapping[str, Any]) -> float:
    """The probability of the pair's own a in one order; NaN where there is no distribution."""
    second = NAN if is_missing(record["expected_score"]) else record["expected_score"]
    return second if record["order"] == "ba" else 1 - second


def _failures(records: Sequence[Mapping[str, Any]]) -> str | None:
    """Why a pair's orders have no verdict."""
    return "; ".join(f"{one['order']}: {one['failure']}" for one in records if one["failure"]) or None


def combine(choices: Sequence[str | None]) -> tuple[str | None, bool | None]:
    """What the verdicts of a pair's orders say together.

    Args:
        choices: one for each order, in terms of the pair; None where there is no verdict.

    Returns:
        The combined verdict and whether the orders agree. The side with more points wins, a choice counting one point
        and a tie none: a choice and a tie make that choice, a choice of each side makes a tie. Without a verdict in
        some order there is none; an abstention in some order is one. With a single order nothing is known of agreement.

    >>> combine(["a", "a"]), combine(["a", "tie"]), combine(["a", "b"]), combine(["a", None])
    (('a', True), ('a', False), ('tie', False), (None, None))

    Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning, sums points over both orders likewise.
    """
    agree = None if len(choices) < 2 or None in choices else len(set(choices)) == 1
    if None in choices:
        return None, agree
    if "abstain" in choices:
        return "abstain", agree
    points = sum(POINTS[choice] for choice in choices if choice)
    return "a" if points > 0 else "b" if points < 0 else "tie", agree


def one_sided(preferences: Iterable[Any]) -> dict[str, int] | None:
    """How many known preferences are for `first` among the `decided`; None where they are not `ONE_SIDED`.

    >>> one_sided(["a"] * 20 + ["tie"]), one_sided(["a"] * 5), one_sided("aababaab")
    ({'first': 20, 'decided': 20}, None, None)
    """
    counts = Counter(choice for choice in preferences if choice in ("a", "b"))
    first, decided = counts["a"], counts.total()
    if not decided or max(first, decided - first) < ONE_SIDED * decided:
        return None
    from scipy.stats import binomtest  # seldom needed

    return {"first": first, "decided": decided} if binomtest(first, decided).pvalue < CHANCE else None


def _unlike(images: Images) -> dict[str, int]:
    """How many of a call's rows, some looked at, have pictures or texts unlike those of Scenes."""
    from vjudge.scenes.collection import speaks_scenes
    from vjudge.scenes.world import is_scene

    rows = images.rows
    places = range(0, len(rows), max(1, len(rows) // LOOKED_AT))
    counts = {"rows": len(places), "pictures": 0, "texts": 0}
    scenes: dict[str, bool] = {}
    for place in places:
        texts = (rows[place].get(name) for name in ("instruction", "response", "response_a", "response_b"))
        counts["texts"] += not speaks_scenes(" ".join(text for text in texts if isinstance(text, str)))
        pictures = [each for each in images[place * images.repeats] if isinstance(each, Picture)]
        for picture in pictures:
            if picture.key not in scenes:
                try:
                    scenes[picture.key] = is_scene(picture.open())
                except ImageError:  # the row fails by itself
                    scenes[picture.key] = True
        counts["pictures"] += not all(scenes[picture.key] for picture in pictures)
    return counts


def parts_of(candidates: Iterable[Mapping[str, Any]], by: str) -> Iterator[Record]:
    """Every two responses of each row as a pair, named "id/i-j"; by "scores", each by itself, named "id/i"."""
    names = ("response_a", "response_b") if by == "pairs" else ("response",)
    for row in candidates:
        shared = {
            name: value
            for name, value in row.items()
            if name not in ("responses", "preference", "gold", "human_scores")
        }
        for part in combinations(enumerate(row["responses"]), len(names)):
            texts = dict(zip(names, (text for _, text in part), strict=True))
            yield {**shared, "id": f"{row['id']}/{'-'.join(str(i) for i, _ in part)}", **texts}


def check_rows(rows: Sequence[Mapping[str, Any]], field: str, sound: Sequence[bool], what: str, remedy: str) -> None:
    """Refuse rows without an id of their own or whose field is not sound, all of them by CollectionError."""
    problems = []
    ids: set[str] = set()
    for index, (row, fine) in enumerate(zip(rows, sound, strict=True)):
        id = None if is_missing(row.get("id")) else str(row["id"])
        if id is None or id in ids:
            problems.append(Problem(index, id, "id", "is missing or not unique", "give every row its own id"))
        if not fine:
            problems.append(Problem(index, id, field, what, remedy))
        ids.add(str(id))
    if problems:
        raise CollectionError.of_rows(problems, len(rows))


def ranking(candidates: Sequence[Mapping[str, Any]], judged: pd.DataFrame, *, by: str) -> pd.DataFrame:
    """The table of a ranking, one row a candidate, from the frame of `Judge.compare` or `Judge.grade`."""
    places = [(number, i) for number, row in enumerate(candidates) for i in range(len(row["responses"]))]
    if by == "scores":
        values = judged["expected_score"].fillna(judged["score"])
        points = [(*place, value) for place, value in zip(places, values, strict=True)]
    else:
        duels = [(n, *two) for n, row in enumerate(candidates) for two in combinations(range(len(row["responses"])), 2)]
        points = []
        for name in (name for name in judged if name in ("verdict_ab", "verdict_ba")):
            for (number, i, j), choice in zip(duels, judged[name], strict=True):
                win = POINTS.get(choice, NAN)
                points += [(number, i, win), (number, j, -win)]
    groups = pd.DataFrame(points, columns=["row", "candidate", "points"]).groupby(["row", "candidate"])["points"]
    value = groups.mean()
    rank = value.groupby("row").rank(method="min", ascending=False)
    columns: dict[str, Any] = {
        "id": [candidates[number]["id"] for number, _ in places],
        "judge": judged.attrs["judge"],
        "candidate": [i for _, i in places],
        "response": [candidates[number]["responses"][i] for number, i in places],
        "value": value.to_numpy(),
        "rank": rank.to_numpy(),
        "best": rank.to_numpy() == 1,
        "n": groups.count().to_numpy(),
        "missing": (groups.size() - groups.count()).to_numpy(),
    }
    if any(row.get("ranks") for row in candidates):
        ranks = [row.get("ranks") or [NAN] * len(row["responses"]) for row in candidates]
        columns["true_rank"] = [ranks[number][i] for number, i in places]
    if any("category" in row for row in candidates):
        columns["category"] = [candidates[number].get("category", NAN) for number, _ in places]
    frame = pd.DataFrame({**columns, "group": [unit_of(candidates[number]) for number, _ in places]})
    frame.attrs = {name: judged.attrs[name] for name in ("judge", "mode", "failures", "low_mass", "without_images")}
    return frame
