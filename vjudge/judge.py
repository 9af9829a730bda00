"""Judge: grade responses with a template, a parser and an engine.

A judge is thin. The template renders an item, the engine answers, the parser reads the verdict, the run keeps it. An
answer without a verdict stays without a score: it is counted, shown and never tried again.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from tqdm.auto import tqdm

import vjudge
from vjudge import data, prompts, verdicts
from vjudge.prompts import QWEN_1_5, TEMPLATES, Prompt, Template
from vjudge.records import Item
from vjudge.runs import Run

if TYPE_CHECKING:
    from vjudge.engines import Answer, Forward, TorchEngine
    from vjudge.engines.server import ServerEngine

DEFAULT_TEMPLATE = "prometheus-vision"
SERVER, SERVER_TEMPLATE = "openai:", "chat"  # how such a judge's name begins; its default wording
MAX_NEW_TOKENS = 1024  # Source: the published decoding of Prometheus-Vision (llava/eval/model_vqa.py upstream)


def load_judge(
    name_or_path: str | Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    quantization: str | None = None,
    template: str | Template | None = None,
    engine: str = "auto",
    revision: str | None = None,
    **engine_options: Any,
) -> Judge:
    """Load a judge.

    Args:
        name_or_path: "tiny", the judge inside this package; a folder with a LLaVA checkpoint; a hub id; or
            "openai:MODEL", a model behind an OpenAI-compatible server (`base_url=` names another than OpenAI's).
        device: "auto" takes CUDA, else MPS, else the CPU.
        dtype: "auto" takes bfloat16 on a GPU that has it, float16 on other GPUs, float32 on a CPU.
        quantization: None, "8bit" or "4bit"; needs CUDA and bitsandbytes.
        template: the judge's wording, a name in `vjudge.prompts.TEMPLATES` or a `Template`; None takes the published
            Prometheus-Vision wording, and for a server our own, "chat". A server writes the conversation around it.
        engine: "torch" or "server"; "auto" takes the server for "openai:MODEL".
        revision: branch, tag or commit of a hub checkpoint.
        engine_options: for the engine, such as `image_mode`; see `vjudge.engines.TorchEngine` and, for
            `base_url`, `concurrency`, `price` and more, `vjudge.engines.server.ServerEngine`.

    Raises:
        ValueError: an unknown judge, template or engine; an unsupported checkpoint; an option this machine can't serve.
    """
    remote = engine == "server" or (engine == "auto" and str(name_or_path).startswith(SERVER))
    default = SERVER_TEMPLATE if remote else DEFAULT_TEMPLATE
    chosen = TEMPLATES.get(template or default) if not isinstance(template, Template) else template
    if chosen is None:
        raise ValueError(f"template {template!r} is unknown; use one of {sorted(TEMPLATES)} or a Template")
    if remote:
        if (device, dtype, quantization, revision) != ("auto", "auto", None, None):
            raise ValueError("device, dtype, quantization and revision are the server's own choice; leave them out")
        from vjudge.engines.server import ServerEngine

        served = ServerEngine(str(name_or_path).removeprefix(SERVER), **engine_options)
        return Judge(str(name_or_path), template=chosen.as_messages(), engine=served)
    if engine not in ("auto", "torch"):
        raise ValueError(f'engine {engine!r} is unknown; use "auto", "torch" or "server"')
    from vjudge import engines, models  # torch: seconds to import, so only when a model is wanted

    model = models.load(name_or_path, device=device, dtype=dtype, quantization=quantization, revision=revision)
    if model.tiled and not isinstance(template, Template):
        chosen = replace(chosen, conversation=QWEN_1_5)  # a family knows one conversation only
    return Judge(str(name_or_path), template=chosen, engine=engines.TorchEngine(model, **engine_options))


class Judge:
    """A template, a parser and an engine under a name.

    Args:
        name: what the table's `judge` column says.
        template: how an item is put to the judge, and how its answers are read.
        engine: what runs the model.
    """

    def __init__(self, name: str, *, template: Template, engine: TorchEngine | ServerEngine) -> None:
        self.name, self.template, self.engine = name, template, engine

    def __repr__(self) -> str:
        return f"Judge({self.name!r}, template={self.template.name!r}, engine={self.engine.name!r})"

    def render(self, item: Item | Mapping[str, Any], *, mode: str = "feedback") -> str:
        """What the model reads for one item, as text; "<image>" stands where an image goes.

        Args:
            item: an `Item` or a row with the canonical columns.
            mode: as in `grade`; "score" ends in the forced marker.
        """
        return self._prompt(item if isinstance(item, Item) else Item.from_row(item), mode).text

    def forward(self, question: str, images: Sequence[Any], *, image_mode: str | None = None) -> Forward:
        """One pass of the model over a free question, for research and for comparison with the original code.

        Args:
            question: may say "<image>" where each image stands, else the images come first. The judge's
                conversation is put around it.
            images: what `vjudge.images.open_image` opens.
            image_mode: "crop" (default) or "pad" for LLaVA-1.5; "anyres" (default for one image) or "pad" (default for
                several) for LLaVA-OneVision.

        Returns:
            input_ids, pixel_values, image_features and logits as the original code has them; see
            `vjudge.engines.Forward`.

        Raises:
            ValueError: too long a prompt, with its length and the limit; marks that don't fit the images; an image
                that can't be opened; an unknown mode.
        """
        prompt = prompts.question(self.template.conversation, question, n_images=len(images))
        return self.engine.forward(prompt, images, image_mode=image_mode)

    def complete(
        self,
        question: str,
        images: Sequence[Any],
        *,
        max_new_tokens: int = MAX_NEW_TOKENS,
        image_mode: str | None = None,
        repetition_penalty: float = 1.0,
    ) -> list[int]:
        """The model's greedy answer to a free question, as token ids; a token that ends the answer is included.

        Args:
            max_new_tokens: at least 1; the model's context bounds it too.
            repetition_penalty: 1 for none; LLaVA-Critic's generation_config.json says 1.05, which the original applies
                to generated tokens alone, as here.

        Other arguments and errors as in `forward`.
        """
        prompt = prompts.question(self.template.conversation, question, n_images=len(images))
        return self.engine.complete(
            prompt,
            images,
            max_new_tokens=max_new_tokens,
            image_mode=image_mode,
            repetition_penalty=repetition_penalty,
        )

    def grade(
        self,
        items: Any,
        *,
        mode: str = "feedback",
        samples: int = 1,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        batch_size: int | str = "auto",
        max_new_tokens: int = MAX_NEW_TOKENS,
        out: str | Path | None = None,
        progress: bool = True,
    ) -> pd.DataFrame:
        """Grade every response of a collection.

        Args:
            items: a `datasets.Dataset`, a list of rows or of `Item`s, or a DataFrame, with the canonical columns.
            mode: "feedback" lets the judge write its feedback, then the verdict; "score" forces the verdict at once and
                reads the distribution over the scores in one forward pass.
            samples: verdicts an item; more than one needs a temperature.
            temperature: 0 for greedy decoding. Prometheus-Vision published 1.0 with top_p 0.9.
            top_p: draw from the most probable tokens that have this probability together, in (0, 1].
            seed: of the draws. A verdict's draws depend on it, the item's id and the sample's number alone.
            batch_size: items computed together, or "auto".
            max_new_tokens: the most tokens of an answer; the model's context bounds it too.
            out: a folder that records every verdict as soon as it exists. After an interruption, the same call
                continues there and returns the same table; a call that differs in anything that matters is refused.
            progress: whether to show a progress bar.

        Returns:
            One row a verdict, in the collection's order:

            - id, judge, and sample (from 0) where samples are several
            - score: NaN where there is none
            - expected_score: the mean of probabilities
            - probabilities: score -> probability at the verdict, normalised over the rubric's scores, before
              temperature and top_p; None where there is no verdict
            - probability_mass: what those scores had of the whole vocabulary, 0-1
            - feedback, raw (the whole answer), failure (None or the reason)
            - n_prompt_tokens (image tokens included), n_new_tokens, seconds (the row's share of its batch)
            - carried along: gold, human_scores, group, criteria

            `attrs["failures"]` counts failures by reason; `attrs["without_distribution"]` counts verdicts whose score
            was written in other tokens than the scale's.

        Raises:
            CollectionError: bad rows, all of them, before any work.
            ValueError: an unsound option, or a scale that the judge's vocabulary can't be asked for.
            RunError: `out` can't be used, or its disk is full; what was written stays.
        """
        _check_options(mode, samples, temperature, top_p, seed, batch_size, max_new_tokens)
        rows = _rows(items)
        items = rows if isinstance(items, pd.DataFrame) else items
        data.validate(items)
        tasks = [task for row in rows for task in self._tasks(row, mode, samples)]
        decoding = {"max_new_tokens": max_new_tokens, "temperature": temperature, "top_p": top_p}
        with ExitStack() as stack:
            run = None
            done: dict[tuple[Any, ...], dict[str, Any]] = {}
            if out is not None:
                drawn = {**decoding, "samples": samples, "seed": seed} if mode == "feedback" else {}
                manifest = self._manifest(mode, drawn, tasks, data.fingerprint(items))
                note = {"started": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "batch_size": batch_size}
                run = stack.enter_context(Run(out).open({**manifest, "note": note}, expected=len(tasks)))
                done |= run.done
            bar = stack.enter_context(
                tqdm(total=len(tasks), initial=len(done), desc=self.name, unit="verdict", disable=not progress)
            )
            failed = sum(record["failure"] is not None for record in done.values())
            wanted = {index for index, task in enumerate(tasks) if task.key not in done}
            images = _Images(rows, samples if self.template.sees_images else 0)
            for answers in self._answers(tasks, images, mode, decoding, seed, batch_size, wanted):
                records = [self._record(answer, tasks[answer.index], mode) for answer in answers]
                if run is not None:
                    # What only the transport prevented is asked for again by the next call.
                    run.append(record for answer, record in zip(answers, records, strict=True) if not answer.transient)
                done.update((tasks[answer.index].key, record) for answer, record in zip(answers, records, strict=True))
                failed += sum(record["failure"] is not None for record in records)
                bar.set_postfix(failed=failed, refresh=False)
                bar.update(len(records))
        keyed = [(done[task.key], task.carried) for task in tasks]
        return verdicts.table(keyed, judge=self.name, mode=mode, several=samples > 1)

    def _prompt(self, item: Item, mode: str) -> Prompt:
        prompt = self.template.render(item)
        return prompt.append(self.template.forced) if mode == "score" else prompt

    def _tasks(self, row: Item | Mapping[str, Any], mode: str, samples: int) -> Iterator[_Task]:
        """The verdicts to come for one row; the samples share one prompt."""
        item = row if isinstance(row, Item) else Item.from_row(row)
        prompt = self._prompt(item, mode)
        carried: dict[str, Any] = {}
        if isinstance(row, Item) or "gold" in row:
            carried["gold"] = item.gold
        if item.human_scores or (not isinstance(row, Item) and "human_scores" in row):
            carried["human_scores"] = list(item.human_scores)
        carried |= {"group": item.group, "criteria": item.rubric.criteria}
        for sample in range(samples):
            yield _Task((item.id, sample), prompt, item.rubric.scores, carried)

    def _answers(
        self,
        tasks: Sequence[_Task],
        images: Sequence[Sequence[Any]],
        mode: str,
        decoding: Mapping[str, Any],
        seed: int,
        batch_size: int | str,
        wanted: set[int],
    ) -> Iterator[list[Answer]]:
        """Ask the engine for what is wanted, batch by batch."""
        if not wanted:
            return iter(())
        scores = sorted({score for task in tasks for score in task.scores})
        asked: dict[str, Any] = {
            "score_texts": {score: self.template.score_text(score) for score in scores},
            "marker": self.template.marker,
            "batch_size": batch_size,
            "wanted": wanted,
        }
        prompts = [task.prompt for task in tasks]
        if mode == "score":
            return self.engine.score(prompts, images, **asked)
        seeds = [_seed(seed, *task.key) for task in tasks]
        return self.engine.generate(prompts, images, seeds=seeds, **decoding, **asked)

    def _record(self, answer: Answer, task: _Task, mode: str) -> dict[str, Any]:
        """One verdict as the run keeps it."""
        read = None if mode == "score" else self.template.format
        id, sample = task.key
        return {"id": id, "sample": sample, **verdicts.record(answer, scores=task.scores, format=read)}

    def _manifest(self, mode: str, drawn: Mapping[str, Any], tasks: Sequence[_Task], collection: str) -> dict[str, Any]:
        """What decides the verdicts of a run."""
        digest = hashlib.sha256()
        for task in tasks:
            digest.update(f"{len(task.prompt.text)}:{task.prompt.text}".encode("utf-8", "surrogatepass"))
        identity = self.engine.identity()
        return {
            "judge": self.name,
            "mode": mode,
            "template": {"name": self.template.name, "fingerprint": self.template.fingerprint()},
            "prompts": digest.hexdigest(),
            "collection": {"fingerprint": collection, "verdicts": len(tasks)},
            "decoding": dict(drawn),
            **identity,
            "versions": {"vjudge": vjudge.__version__, **identity["versions"]},
        }


@dataclass(frozen=True)
class _Task:
    """One verdict to come."""

    key: tuple[str, int]  # item and sample
    prompt: Prompt
    scores: tuple[int, ...]
    carried: dict[str, Any]


class _Rows(Sequence[Mapping[str, Any]]):
    """A `datasets.Dataset` row by row, images undecoded, so that no more than one row's images are in memory."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset.with_format("arrow")

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._dataset[index].to_pylist()[0]


class _Images(Sequence[Sequence[Any]]):
    """The images of each verdict to come, read from their row when asked for; none for a judge that sees none."""

    def __init__(self, rows: Sequence[Any], samples: int) -> None:
        self._rows, self._samples = rows, samples

    def __len__(self) -> int:
        return len(self._rows) * self._samples

    def __getitem__(self, index: Any) -> Any:
        if not self._samples:
            return ()
        row = self._rows[index // self._samples]
        images = row.images if isinstance(row, Item) else row.get("images")
        return () if images is None else tuple(images)


def _rows(items: Any) -> Sequence[Item | Mapping[str, Any]]:
    """Any accepted collection as a sequence of rows."""
    if isinstance(items, pd.DataFrame):
        return items.to_dict("records")
    if hasattr(items, "with_format") and hasattr(items, "features"):
        return _Rows(items)
    if isinstance(items, (list, tuple)) and all(isinstance(item, (Item, Mapping)) for item in items):
        return items
    raise ValueError(
        f"items is a {type(items).__name__}; give a datasets.Dataset, a list of rows or Items, or a DataFrame"
    )


def _check_options(
    mode: str, samples: int, temperature: float, top_p: float, seed: int, batch_size: int | str, max_new_tokens: int
) -> None:
    """Refuse unsound options, all at once."""

    def whole(value: Any, least: int) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    sound = {
        f'mode={mode!r}: use "feedback" or "score"': mode in ("feedback", "score"),
        f"samples={samples!r}: use a whole number from 1": whole(samples, 1),
        f"temperature={temperature!r}: use 0 for greedy decoding, or a number above 0": 0 <= temperature < math.inf,
        f"top_p={top_p!r}: use a number in (0, 1]": 0 < top_p <= 1,
        f"seed={seed!r}: use a whole number from 0": whole(seed, 0),
        f'batch_size={batch_size!r}: use "auto" or a whole number from 1': batch_size == "auto" or whole(batch_size, 1),
        f"max_new_tokens={max_new_tokens!r}: use a whole number from 1": whole(max_new_tokens, 1),
        f"samples={samples!r} of greedy decoding are all the same: set a temperature": samples == 1 or temperature > 0,
        'mode="score" draws nothing: leave samples and temperature out': mode != "score"
        or (samples, temperature) == (1, 0),
    }
    if faults := [fault for fault, fine in sound.items() if not fine]:
        raise ValueError("; ".join(faults))


def _seed(seed: int, id: str, sample: int) -> int:
    """A number for one verdict's draws that no other verdict shares."""
    digest = hashlib.sha256(f"{seed}\0{sample}\0{id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")
