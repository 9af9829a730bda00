"""What a run is made of: its tasks, the rows and images behind them, their options; and how the records are got."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from tqdm.auto import tqdm

import vjudge
from vjudge import data, verdicts
from vjudge.prompts import Prompt, Template
from vjudge.records import Item, Pair
from vjudge.runs import Run

if TYPE_CHECKING:
    from vjudge.engines import Answer, Engine


@dataclass(frozen=True)
class Task:
    """One verdict to come."""

    key: tuple[str, int | str]  # the item, and its sample or order
    prompt: Prompt
    scores: tuple[int, ...]
    carried: dict[str, Any]


def make_task(
    key: tuple[str, int | str], item: Item | Pair, template: Template, mode: str, carried: dict[str, Any]
) -> Task:
    """One verdict to come."""
    prompt = template.render(item)
    if mode == "score":
        prompt = prompt.append(template.forced)
    return Task(key, prompt, template.scores(item.rubric), carried)


def _record(answer: Answer, task: Task, template: Template, mode: str, unit: str) -> dict[str, Any]:
    """One verdict as the run keeps it."""
    id, number = task.key
    scores, read = (0, 1) if template.compares else task.scores, None if mode == "score" else template.format
    return {"id": id, unit: number} | verdicts.record(answer, scores=scores, format=read, choices=template.compares)


class Rows(Sequence[Mapping[str, Any]]):
    """A `datasets.Dataset` row by row, images undecoded, so that no more than one row's images are in memory."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset.with_format("arrow")

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._dataset[index].to_pylist()[0]


class Images(Sequence[Sequence[Any]]):
    """The images of each verdict to come, read from their row when asked for; none for a judge that sees none."""

    def __init__(self, rows: Sequence[Any], samples: int) -> None:
        self._rows, self._samples = rows, samples

    def __len__(self) -> int:
        return len(self._rows) * self._samples

    def __getitem__(self, index: Any) -> Any:
        if not self._samples:
            return ()
        row = self._rows[index // self._samples]
        images = row.images if isinstance(row, (Item, Pair)) else row.get("images")
        return () if images is None else tuple(images)


def rows_of(items: Any) -> Sequence[Any]:
    """Any accepted collection as a sequence of rows."""
    if isinstance(items, pd.DataFrame):
        return items.to_dict("records")
    if hasattr(items, "with_format") and hasattr(items, "features"):
        return Rows(items)
    if isinstance(items, (list, tuple)) and all(isinstance(item, (Item, Pair, Mapping)) for item in items):
        return items
    raise ValueError(
        f"items is a {type(items).__name__}; give a datasets.Dataset, a list of rows or Items, or a DataFrame"
    )


def check_options(
    mode: str,
    samples: int,
    temperature: float,
    top_p: float,
    repetition_penalty: float,
    seed: int,
    batch_size: int | str,
    max_new_tokens: int,
) -> None:
    """Refuse unsound options, all at once."""

    def whole(value: Any, least: int) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    sound = {
        f'mode={mode!r}: use "feedback" or "score"': mode in ("feedback", "score"),
        f"samples={samples!r}: use a whole number from 1": whole(samples, 1),
        f"temperature={temperature!r}: use 0 for greedy decoding, or a number above 0": 0 <= temperature < math.inf,
        f"top_p={top_p!r}: use a number in (0, 1]": 0 < top_p <= 1,
        f"repetition_penalty={repetition_penalty!r}: use 1 for none, or a number above 0": 0
        < repetition_penalty
        < math.inf,
        f"seed={seed!r}: use a whole number from 0": whole(seed, 0),
        f'batch_size={batch_size!r}: use "auto" or a whole number from 1': batch_size == "auto" or whole(batch_size, 1),
        f"max_new_tokens={max_new_tokens!r}: use a whole number from 1": whole(max_new_tokens, 1),
        f"samples={samples!r} of greedy decoding are all the same: set a temperature": samples == 1 or temperature > 0,
        'mode="score" draws nothing: leave samples, temperature and repetition_penalty out': mode != "score"
        or (samples, temperature, repetition_penalty) == (1, 0, 1),
    }
    if faults := [fault for fault, fine in sound.items() if not fine]:
        raise ValueError("; ".join(faults))


def seed_of(seed: int, id: str, sample: int | str) -> int:
    """A number for one verdict's draws that no other verdict shares."""
    digest = hashlib.sha256(f"{seed}\0{sample}\0{id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


def collect(
    tasks: Sequence[Task],
    images: Images,
    template: Template,
    mode: str,
    *,
    name: str,
    engine: Engine,
    decoding: Mapping[str, Any],
    seed: int,
    batch_size: int | str,
    drawn: Mapping[str, Any] | None,
    out: str | Path | None,
    content: Callable[[], Any],
    progress: bool,
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Get every task's record, from the run's folder or from the engine.

    Args:
        tasks, images: one image list a task.
        template, mode, decoding, seed, batch_size, out, progress: of the call.
        name, engine: of the judge.
        drawn: what besides `decoding` decides the draws; None where nothing is drawn.
        content: gives what is judged, for the collection's fingerprint.

    Returns:
        key -> record.
    """
    unit = "order" if template.compares else "sample"
    done: dict[tuple[Any, ...], dict[str, Any]] = {}
    with ExitStack() as stack:
        run = None
        if out is not None:
            drawing = {**decoding, **drawn} if drawn is not None else {}
            judged = content()
            manifest = _manifest(name, engine, template, mode, drawing, tasks, data.fingerprint(judged))
            note: dict[str, Any] = {"started": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "batch_size": batch_size}
            note |= {"origin": found} if (found := data.origin(judged)) else {}
            run = Run(out, keys=("id", unit))
            run = stack.enter_context(run.open({**manifest, "note": note}, expected=len(tasks)))
            done |= run.done
            engine.batch_found = kept = run.manifest["note"].get("batch_found")
        bar = stack.enter_context(
            tqdm(total=len(tasks), initial=len(done), desc=name, unit="verdict", disable=not progress)
        )
        failed = sum(record["failure"] is not None for record in done.values())
        wanted = {index for index, task in enumerate(tasks) if task.key not in done}
        for answers in _answers(engine, tasks, images, template, mode, decoding, seed, batch_size, wanted):
            records = [_record(answer, tasks[answer.index], template, mode, unit) for answer in answers]
            if run is not None:
                # The size first: whoever continues after these verdicts computes with what they were computed with.
                if (chosen := (work_of(engine) or {}).get("batch_found")) and chosen != kept:
                    run.note(batch_found=(kept := chosen))
                # What only the transport prevented is asked for again by the next call.
                run.append(record for answer, record in zip(answers, records, strict=True) if not answer.transient)
            done.update((tasks[answer.index].key, record) for answer, record in zip(answers, records, strict=True))
            failed += sum(record["failure"] is not None for record in records)
            bar.set_postfix(failed=failed, refresh=False)
            bar.update(len(records))
    return done


def _answers(
    engine: Engine,
    tasks: Sequence[Task],
    images: Images,
    template: Template,
    mode: str,
    decoding: Mapping[str, Any],
    seed: int,
    batch_size: int | str,
    wanted: set[int],
) -> Iterator[list[Answer]]:
    """Ask the engine for what is wanted, batch by batch."""
    if not wanted:
        return iter(())
    asked: dict[str, Any] = {
        "score_texts": template.score_texts(sorted({score for task in tasks for score in task.scores})),
        "marker": template.marker,
        "batch_size": batch_size,
        "wanted": wanted,
    }
    prompts = [task.prompt for task in tasks]
    if mode == "score":
        return engine.score(prompts, images, **asked)
    seeds = [seed_of(seed, *task.key) for task in tasks]
    return engine.generate(prompts, images, seeds=seeds, **decoding, **asked)


def work_of(engine: Engine) -> dict[str, float] | None:
    """What the last call of an engine computed on this machine; None where it computes elsewhere."""
    work = getattr(engine, "work", None)
    return None if work is None else dict(work.as_dict())


def _manifest(
    name: str,
    engine: Engine,
    template: Template,
    mode: str,
    drawn: Mapping[str, Any],
    tasks: Sequence[Task],
    collection: str,
) -> dict[str, Any]:
    """What decides the verdicts of a run."""
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(f"{len(task.prompt.text)}:{task.prompt.text}".encode("utf-8", "surrogatepass"))
    identity = engine.identity()
    return {
        "judge": name,
        "mode": mode,
        "template": {"name": template.name, "fingerprint": template.fingerprint()},
        "prompts": digest.hexdigest(),
        "collection": {"fingerprint": collection, "verdicts": len(tasks)},
        "decoding": dict(drawn),
        **identity,
        "versions": {"vjudge": vjudge.__version__, **identity["versions"]},
    }
