"""A judge's call: rows -> prompts, an engine's answers -> records, kept by a run as soon as they exist.

`Judge.grade` and `Judge.compare` are this one pipeline; what differs is the wording, and whether a row is put to the
judge once a sample or once an order.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

import vjudge
from vjudge import data
from vjudge.data import rows_of
from vjudge.engines.engine import Ask, Engine, whole
from vjudge.images import ImageError, Picture, Pictures
from vjudge.prompts import Prompt, Template
from vjudge.prompts.parse import suggest_format
from vjudge.records import Item, Pair
from vjudge.runs import Run, RunError
from vjudge.table import fault_of, in_order, record_of

Records = dict[tuple[Any, ...], dict[str, Any]]
EMBEDDED = ("tiny", "tiny-base")  # made for Scenes alone
LOOKED_AT = 100  # rows of a call in which an embedded judge looks for what it was not made for
MANY = 0.1  # the share of failures at which another format is looked for


@dataclass(frozen=True)
class JudgeCall:
    """What a judge puts to its engine in one call.

    Args:
        name: the judge's.
        template: its wording for one response, or for two.
        units: samples' numbers, or orders: each row is put to the judge once for each.
        rows, origin: the canonical rows, and where they come from.
        pictures: of the call.
        keys: one a verdict: (id, unit).
        prompts, images, scores: one a verdict: what is asked, with which images, and the scale.
        ask: how; its scales and seeds stand one a verdict.
        seed: of the draws.
        carried: one a row: the columns that come along into the table.
        without_images: rows without an image for a judge that sees images.
        unlike: for an embedded judge, what it was not made for among the rows.
    """

    name: str
    template: Template
    units: Sequence[Any]
    rows: Sequence[Mapping[str, Any]]
    origin: Any
    pictures: Pictures
    keys: list[tuple[str, Any]]
    prompts: list[Prompt]
    images: Images
    scores: list[tuple[int, ...]]
    ask: Ask
    seed: int
    carried: list[dict[str, Any]]
    without_images: int
    unlike: dict[str, int] | None

    @classmethod
    def of(cls, name: str, items: Any, template: Template, ask: Ask, *, units: Sequence[Any], seed: int) -> JudgeCall:
        """Check the rows and render them: one prompt a row and unit.

        Raises:
            CollectionError: bad rows, all of them.
        """
        pictures, rows = Pictures(), rows_of(items)
        data.validate(
            rows, needs=template.needs, sees_images=template.sees_images, pictures=pictures, pairs=template.compares
        )
        keys: list[tuple[str, Any]] = []
        rendered: list[Prompt] = []
        scales: list[dict[int, str]] = []
        scores: list[tuple[int, ...]] = []
        carried: list[dict[str, Any]] = []
        texts: dict[tuple[int, ...], dict[int, str]] = {}
        without = 0
        for row in rows:
            subject = subject_of(row, template.compares)
            without += template.sees_images and not subject.images
            carried.append(_carried(row, subject))
            own = (0, 1) if template.compares else template.scores(subject.rubric)
            scale = texts.setdefault(own, template.score_texts(own))
            if isinstance(subject, Pair):
                rendered += [prompt_of(template, in_order(subject, unit), ask.mode) for unit in units]
            else:  # samples share one prompt
                rendered += [prompt_of(template, subject, ask.mode)] * len(units)
            keys += [(subject.id, unit) for unit in units]
            scores += [own] * len(units)
            scales += [scale] * len(units)
        images = Images(rows, 1 if template.sees_images else 0, pictures)
        return cls(
            name=name,
            template=template,
            units=units,
            rows=rows,
            origin=data.origin(items),
            pictures=pictures,
            keys=keys,
            prompts=rendered,
            images=Images(rows, len(units) if template.sees_images else 0, pictures),
            scores=scores,
            ask=replace(ask, scales=scales, seeds=[] if ask.scores else [seed_of(seed, *key) for key in keys]),
            seed=seed,
            carried=carried,
            without_images=without,
            unlike=_unlike(rows, images) if name in EMBEDDED else None,
        )

    def collect(self, engine: Engine, *, out: str | Path | None, progress: bool) -> Records:
        """Get every verdict's record, by key, from the run's folder or from the engine."""
        unit = "order" if self.template.compares else "sample"
        done: dict[tuple[Any, ...], dict[str, Any]] = {}
        with ExitStack() as stack:
            run = None
            if out is not None:
                note: dict[str, Any] = {"started": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
                note |= {"batch_size": self.ask.batch_size}
                note |= {"origin": self.origin} if self.origin else {}
                run = Run(out, keys=("id", unit))
                stack.enter_context(run.open({**self.manifest(engine), "note": note}, expected=len(self.keys)))
                done |= self._sound(run)
            bar = stack.enter_context(
                tqdm(total=len(self.keys), initial=len(done), desc=self.name, unit="verdict", disable=not progress)
            )
            failed = sum(record["failure"] is not None for record in done.values())
            missing = {index for index, key in enumerate(self.keys) if key not in done}
            answers = engine.answer(self.prompts, self.images, self.ask, missing) if missing else iter(())
            for batch in answers:
                records = [self._record(answer, unit) for answer in batch]
                if run is not None:
                    # What only the transport prevented is asked for again by the next call.
                    run.append(record for answer, record in zip(batch, records, strict=True) if not answer.transient)
                done.update((self.keys[answer.index], record) for answer, record in zip(batch, records, strict=True))
                failed += sum(record["failure"] is not None for record in records)
                bar.set_postfix(failed=failed, refresh=False)
                bar.update(len(records))
        return done

    def manifest(self, engine: Engine) -> dict[str, Any]:
        """What decides the verdicts of a run."""
        identity, ask = engine.identity(), self.ask
        decoding: dict[str, Any] = {}
        if not ask.scores:
            decoding = {name: getattr(ask, name) for name in ("max_new_tokens", "temperature", "top_p")}
            decoding |= {"repetition_penalty": ask.repetition_penalty} if ask.repetition_penalty != 1 else {}
            decoding |= {"seed": self.seed} | ({} if self.template.compares else {"samples": len(self.units)})
        return {
            "judge": self.name,
            "mode": ask.mode,
            "template": {"name": self.template.name, "fingerprint": self.template.fingerprint()},
            "prompts": prompts_digest(self.prompts),
            "collection": {
                "fingerprint": data.fingerprint(self.rows, pictures=self.pictures),
                "verdicts": len(self.keys),
            },
            "decoding": decoding,
            **identity,
            "versions": {"vjudge": vjudge.__version__, **identity["versions"]},
        }

    def _sound(self, run: Run) -> Records:
        """The verdicts that a run holds, checked against the scales of the call.

        Raises:
            RunError: one of them is none of this call's, or off its scale.
        """
        scales = dict(zip(self.keys, self.scores, strict=True))
        for key, record in run.done.items():
            fault = "is none of this call's"
            if key in scales and (fault := fault_of(record, scales[key], compares=self.template.compares) or "") == "":
                continue
            raise RunError(f"{run.path}: the verdict {key} {fault}; restore the record or use another folder")
        return run.done

    def _record(self, answer: Any, unit: str) -> dict[str, Any]:
        """One verdict as the run keeps it."""
        id, number = self.keys[answer.index]
        scores, compares = self.scores[answer.index], self.template.compares
        format = None if self.ask.scores else self.template.format
        return {"id": id, unit: number} | record_of(answer, scores=scores, format=format, compares=compares)

    def notes(self, records: Records) -> dict[str, Any]:
        """What a table is told besides its records."""
        suggested = self._suggested(records)
        return {"without_images": self.without_images, "unlike": self.unlike, "suggested": suggested}

    def _suggested(self, records: Records) -> str | None:
        """The format that reads most of the answers that the judge's own can't, where they are many."""
        failed = [key for key in self.keys if records[key]["failure"] is not None and records[key]["raw"].strip()]
        if self.ask.scores or len(failed) < max(2, MANY * len(self.keys)):
            return None
        scales = dict(zip(self.keys, self.scores, strict=True))
        scale = scales[failed[0]]
        texts = [records[key]["raw"] for key in failed if scales[key] == scale]
        return suggest_format(texts, scores=() if self.template.compares else scale, format=self.template.format)


class Images(Sequence[Sequence[Any]]):
    """The images of each prompt of a call, read from their row when they are asked for.

    Args:
        rows: of the collection.
        repeats: prompts a row; 0 for a model that sees no images.
        pictures: makes a `Picture` of each, once; None gives the sources as they are.
    """

    def __init__(self, rows: Sequence[Any], repeats: int, pictures: Pictures | None = None) -> None:
        self._rows, self._repeats, self._pictures = rows, repeats, pictures

    def __len__(self) -> int:
        return len(self._rows) * self._repeats

    def __getitem__(self, index: Any) -> Any:
        images = self._rows[index // self._repeats].get("images") if self._repeats else None
        return () if images is None else tuple(map(self._picture, images))

    def _picture(self, source: Any) -> Any:
        try:
            return source if self._pictures is None else self._pictures(source)
        except ImageError:
            return source  # the engine says of the row what is wrong with it


def seed_of(seed: int, id: str, sample: int | str) -> int:
    """A number for one verdict's draws that no other verdict shares."""
    digest = hashlib.sha256(f"{seed}\0{sample}\0{id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


def prompts_digest(rendered: Sequence[Prompt]) -> str:
    """SHA-256 (hex) over the prompts of a call, for a run's manifest."""
    digest = hashlib.sha256()
    for prompt in rendered:
        text = prompt.text
        digest.update(f"{len(text)}:{text}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def check_ask(ask: Ask, *, samples: int, seed: int) -> None:
    """Refuse unsound options of a call, all at once.

    Raises:
        ValueError: what is unsound, each with its remedy.
    """
    faults = ask.check()
    faults += [] if whole(samples, 1) else [f"samples={samples!r}: use a whole number from 1"]
    faults += [] if whole(seed, 0) else [f"seed={seed!r}: use a whole number from 0"]
    if samples != 1 and ask.temperature == 0:
        faults.append(f"samples={samples!r} of greedy decoding are all the same: set a temperature")
    if faults:
        raise ValueError("; ".join(faults))


def subject_of(row: Mapping[str, Any], pair: bool) -> Item | Pair:
    """A row as an item, or as a pair."""
    return Pair.from_row(row) if pair else Item.from_row(row)


def _carried(row: Mapping[str, Any], subject: Item | Pair) -> dict[str, Any]:
    """What of a row comes along into the table."""
    if isinstance(subject, Pair):
        preference = {"preference": subject.preference} if "preference" in row else {}
        return {"id": subject.id, "group": subject.group, "criteria": subject.criteria, **preference}
    gold = {"gold": subject.gold} if "gold" in row else {}
    scores = {"human_scores": list(subject.human_scores)} if "human_scores" in row else {}
    return {**gold, **scores, "group": subject.group, "criteria": subject.rubric.criteria if subject.rubric else None}


def prompt_of(template: Template, subject: Item | Pair, mode: str) -> Prompt:
    """What the model reads of an item or a pair."""
    prompt = template.render(subject)
    return prompt.append(template.forced) if mode == "score" else prompt


def _unlike(rows: Sequence[Mapping[str, Any]], images: Images) -> dict[str, int]:
    """How many of a call's rows, some looked at, have pictures or texts unlike those of Scenes."""
    from vjudge.scenes.likeness import is_scene, speaks_scenes

    places = range(0, len(rows), max(1, len(rows) // LOOKED_AT))
    counts = {"rows": len(places), "pictures": 0, "texts": 0}
    scenes: dict[str, bool] = {}
    for place in places:
        texts = (rows[place].get(name) for name in ("instruction", "response", "response_a", "response_b"))
        counts["texts"] += not speaks_scenes(" ".join(text for text in texts if isinstance(text, str)))
        for picture in images[place]:
            if isinstance(picture, Picture) and picture.key not in scenes:
                try:
                    scenes[picture.key] = is_scene(picture.open())
                except ImageError:  # the row fails by itself
                    scenes[picture.key] = True
        counts["pictures"] += not all(scenes.get(getattr(picture, "key", ""), True) for picture in images[place])
    return counts
