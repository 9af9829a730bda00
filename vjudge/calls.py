"""A judge's call: rows -> prompts, an engine's answers -> records, kept by a run as soon as they exist.

`Judge.grade` and `Judge.compare` are this one pipeline; what differs is the wording, and whether a row is put to the
judge once a sample or once an order.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

import vjudge
from vjudge import data
from vjudge.engines.engine import Answer, Ask, Engine, whole
from vjudge.images import ImageError, Picture, Pictures
from vjudge.prompts import Prompt, Template
from vjudge.prompts.parse import suggest_format
from vjudge.records import Item, Pair
from vjudge.runs import Run, RunError
from vjudge.table import ORDERS, fault_of, in_order, one_sided, record_of

EMBEDDED = ("tiny", "tiny-base")  # made for Scenes alone
LOOKED_AT = 100  # rows of a call in which an embedded judge looks for what it was not made for
MANY = 0.1  # the share of failures at which another format is looked for


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
        self._unit = "order" if pairs else "sample"
        self.keys: list[tuple[str, Any]] = []
        self.prompts: list[Prompt] = []
        self.scores: list[tuple[int, ...]] = []
        self.carried: list[dict[str, Any]] = []
        self._without_images = 0
        for row in rows:
            subject = subject_of(row, pairs)
            self._without_images += sees and not subject.images
            self.carried.append(_carried(row, subject))
            self.keys += [(subject.id, unit) for unit in self.units]
            if isinstance(subject, Pair):
                self.prompts += [prompt_of(template, in_order(subject, unit), ask.mode) for unit in self.units]
                self.scores += [(0, 1)] * len(self.units)
            else:  # samples share one prompt
                self.prompts += [prompt_of(template, subject, ask.mode)] * len(self.units)
                self.scores += [template.scores(subject.rubric)] * len(self.units)
        self.images = Images(rows, len(self.units) if sees else 0, pictures)
        texts = {scale: template.score_texts(scale) for scale in set(self.scores)}  # one mapping for each rubric
        seeds = [] if ask.scores else [seed_of(seed, *key) for key in self.keys]
        self.ask = replace(ask, scales=[texts[scale] for scale in self.scores], seeds=seeds)

    def collect(self, engine: Engine, *, out: str | Path | None, progress: bool) -> list[dict[str, Any]]:
        """Every verdict's record, in the order of `keys`."""
        ask, template = self.ask, self.template
        decoding: dict[str, Any] = {}
        if not ask.scores:
            decoding = {name: getattr(ask, name) for name in ("max_new_tokens", "temperature", "top_p")}
            decoding |= {"repetition_penalty": ask.repetition_penalty} if ask.repetition_penalty != 1 else {}
            decoding |= {"seed": self.seed} | ({} if template.compares else {"samples": len(self.units)})
        wording = {"name": template.name, "fingerprint": template.fingerprint()}
        about: dict[str, Any] = {"judge": self.name, "mode": ask.mode, "template": wording, "decoding": decoding}
        about |= {"note": {"origin": self._origin} if self._origin else {}}
        return collect(
            engine,
            self.prompts,
            self.images,
            ask,
            self.keys,
            self._record,
            about,
            desc=self.name,
            unit="verdict",
            key=self._unit,
            out=out,
            progress=progress,
            fault=self._fault,
        )

    def notes(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What a table is told besides its records."""
        return {
            "without_images": self._without_images,
            "unlike": _unlike(self.images) if self.name in EMBEDDED else None,
            "collection": self._origin,
            "one_sided": self._one_sided,
            "suggested": self._suggested(records),
        }

    def _fault(self, index: int, record: Mapping[str, Any]) -> str | None:
        """What keeps a run's record from being this verdict."""
        return fault_of(record, self.scores[index], compares=self.template.compares)

    def _record(self, answer: Answer) -> dict[str, Any]:
        """One verdict as the run keeps it, without its key."""
        format = None if self.ask.scores else self.template.format
        return record_of(answer, scores=self.scores[answer.index], format=format, compares=self.template.compares)

    def _suggested(self, records: Sequence[Mapping[str, Any]]) -> str | None:
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
    record: Callable[[Answer], dict[str, Any]],
    about: Mapping[str, Any],
    *,
    desc: str,
    unit: str,
    key: str,
    out: str | Path | None,
    progress: bool,
    fault: Callable[[int, Mapping[str, Any]], str | None] = lambda place, held: None,
) -> list[dict[str, Any]]:
    """Get each key's record, from the run in `out` or from the engine, in the order of `keys`.

    A key is an id and what the column `key` holds. `about` is what decides the records besides prompts, images and
    engine; `fault` says what a run's record lacks at its place.
    """
    done: dict[tuple[Any, ...], dict[str, Any]] = {}
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
            for each, held in done.items():
                what = fault(places[each], held) if each in places else "is none of this call's"
                if what is not None:
                    raise RunError(f"{run.path}: the {unit} {each} {what}; restore the record or use another folder")
        bar = tqdm(total=len(keys), initial=len(done), desc=desc, unit=unit, disable=not progress)
        stack.enter_context(bar)
        failed = sum(held["failure"] is not None for held in done.values())
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


def subject_of(row: Mapping[str, Any], pair: bool) -> Item | Pair:
    """A row as an item, or as a pair."""
    return Pair.from_row(row) if pair else Item.from_row(row)


def _carried(row: Mapping[str, Any], subject: Item | Pair) -> dict[str, Any]:
    """What of a row comes along into the table."""
    category = {"category": row["category"]} if "category" in row else {}
    if isinstance(subject, Pair):
        preference = {"preference": subject.preference} if "preference" in row else {}
        return {"id": subject.id, "group": subject.group, "criteria": subject.criteria, **preference, **category}
    gold: dict[str, Any] = {"gold": subject.gold} if "gold" in row else {}
    gold |= {"human_scores": list(subject.human_scores)} if "human_scores" in row else {}
    return {**gold, "group": subject.group, "criteria": subject.rubric and subject.rubric.criteria, **category}


def prompt_of(template: Template, subject: Item | Pair, mode: str) -> Prompt:
    """What the model reads of an item or a pair."""
    prompt = template.render(subject)
    return prompt.append(template.forced) if mode == "score" else prompt


def _unlike(images: Images) -> dict[str, int]:
    """How many of a call's rows, some looked at, have pictures or texts unlike those of Scenes."""
    from vjudge.scenes.language import speaks_scenes
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
