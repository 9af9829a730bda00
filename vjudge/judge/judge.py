"""Judge: grade responses with a template, a parser and an engine.

A judge is thin. The template renders an item, the engine answers, the parser reads the verdict, the run keeps it. An
answer without a verdict stays without a score: it is counted, shown and never tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from vjudge import comparisons, data, prompts, verdicts
from vjudge.prompts import Template
from vjudge.prompts.families import Family
from vjudge.prompts.parse import FORMATS
from vjudge.records import Item, Pair
from vjudge.tasks import Images, Task, check_options, collect, make_task, rows_of, work_of

if TYPE_CHECKING:
    from vjudge.engines import Engine, Forward, TorchEngine

MAX_NEW_TOKENS = 1024  # Source: the published decoding of Prometheus-Vision (llava/eval/model_vqa.py upstream)


class Judge:
    """A template, a parser and an engine under a name.

    Args:
        name: what the table's `judge` column says.
        template: how one response is put to the judge, and how its answers are read.
        engine: what runs the model.
        pairs: how two responses are put to it; None for a judge that was never taught to compare.
        family: what is published about judges of its kind: `judge.family.published` holds their decoding.

    Raises:
        ValueError: a wording for the wrong number of responses, or with a format that can't read its answers.
    """

    def __init__(
        self,
        name: str,
        *,
        template: Template,
        engine: Engine,
        pairs: Template | None = None,
        family: Family | None = None,
    ) -> None:
        if template.compares or (pairs is not None and not pairs.compares):
            raise ValueError("template= judges one response and pairs= compares two")
        for wording in filter(None, (template, pairs)):
            if wording.format not in FORMATS:
                known = ", ".join(sorted(FORMATS))
                raise ValueError(f"template {wording.name!r} has the unknown format {wording.format!r}; one of {known}")
            gives = FORMATS[wording.format].gives
            if (gives == "choice") != wording.compares:
                raise ValueError(
                    f"template {wording.name!r} ({wording.kind}) can't be read by format {wording.format!r}: it gives a"
                    f" {gives}"
                )
        self.name, self.template, self.engine, self.pairs, self.family = name, template, engine, pairs, family

    def __repr__(self) -> str:
        return f"Judge({self.name!r}, template={self.template.name!r}, engine={self.engine.name!r})"

    def render(self, item: Item | Pair | Mapping[str, Any], *, mode: str = "feedback") -> str:
        """What the model reads for one item or pair, as text; "<image>" stands where an image goes.

        Args:
            item: an `Item`, a `Pair`, or a row with the canonical columns of either.
            mode: as in `grade`; "score" ends in the forced marker.
        """
        if not isinstance(item, (Item, Pair)):
            item = Pair.from_row(item) if "response_a" in item else Item.from_row(item)
        template = self._comparing() if isinstance(item, Pair) else self.template
        return make_task((item.id, 0), item, template, mode, {}).prompt.text

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
        return self._local().forward(prompt, images, image_mode=image_mode)

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
            max_new_tokens: at least 1.
            repetition_penalty: 1 for none; LLaVA-Critic's generation_config.json says 1.05, which the original applies
                to generated tokens alone, as here.

        Other arguments and errors as in `forward`.
        """
        prompt = prompts.question(self.template.conversation, question, n_images=len(images))
        return self._local().complete(
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
        repetition_penalty: float = 1.0,
        seed: int = 0,
        batch_size: int | str = "auto",
        max_new_tokens: int | None = None,
        out: str | Path | None = None,
        progress: bool = True,
    ) -> pd.DataFrame:
        """Grade every response of a collection.

        Args:
            items: a `datasets.Dataset`, a list of rows or of `Item`s, or a DataFrame, with the canonical columns.
            mode: "feedback" lets the judge write its feedback, then the verdict; "score" forces the verdict at once and
                reads the distribution over the scores in one forward pass.
            samples: verdicts an item; more than one needs a temperature.
            temperature: 0 for greedy decoding. Prometheus-Vision published 1.0 with top_p 0.9: a judge decodes as
                published by `grade(items, **judge.family.published)`.
            top_p: draw from the most probable tokens that have this probability together, in (0, 1].
            repetition_penalty: above 0; above 1, tokens that the prompt or the answer holds already become less likely.
                Prometheus published 1.03. See `vjudge.engines.Engine.generate` for what counts as the prompt.
            seed: of the draws. A verdict's draws depend on it, the item's id and the sample's number alone.
            batch_size: items computed together, or "auto".
            max_new_tokens: the most tokens of an answer; the model's context bounds it too. None takes the family's
                published limit.
            out: a folder that records every verdict as soon as it exists. After an interruption, the same call
                continues there and returns the same table; a call that differs in anything that matters is refused.
            progress: whether to show a progress bar.

        Returns:
            One row a verdict, in the collection's order:

            - id, judge, and sample (from 0) where samples are several
            - score: NaN where there is none
            - expected_score: the mean of probabilities
            - probabilities: score -> probability at the verdict, normalised over the rubric's scores, before
              temperature, top_p and penalty; None where there is no verdict
            - probability_mass: what those scores had of the whole vocabulary, 0-1
            - feedback, raw (the whole answer), failure (None or the reason)
            - choice: "abstain" where the judge declined to give a score; the column stands only where one did
            - n_prompt_tokens (image tokens included), n_new_tokens, seconds (the row's share of its batch)
            - carried along: gold, human_scores, group, criteria

            `attrs["failures"]` counts failures by reason; `attrs["without_distribution"]` counts verdicts whose score
            came without log-probabilities or was written in other tokens than the scale's; `attrs["scale"]` is the
            judge's own scale, such as (0, 100), None where the rubric's holds; `attrs["work"]` is what this call
            computed on this machine (`vjudge.engines.work.Work`), None elsewhere.

        Raises:
            CollectionError: bad rows, all of them, before any work.
            ValueError: an unsound option, or a scale that the judge's vocabulary can't be asked for.
            RunError: `out` can't be used, or its disk is full; what was written stays.
        """
        decoding = self._decoding(max_new_tokens, temperature, top_p, repetition_penalty)
        check_options(
            mode, samples, temperature, top_p, repetition_penalty, seed, batch_size, decoding["max_new_tokens"]
        )
        self._check_mode(self.template, mode)
        rows = rows_of(items)
        items = rows if isinstance(items, pd.DataFrame) else items
        data.validate(items, needs=self.template.needs)
        tasks = [task for row in rows for task in self._tasks(row, mode, samples)]
        images = Images(rows, samples if self.template.sees_images else 0)
        done = collect(
            tasks,
            images,
            self.template,
            mode,
            name=self.name,
            engine=self.engine,
            decoding=decoding,
            seed=seed,
            batch_size=batch_size,
            drawn={"samples": samples, "seed": seed} if mode == "feedback" else None,
            out=out,
            content=lambda: items,
            progress=progress,
        )
        keyed = [(done[task.key], task.carried) for task in tasks]
        frame = verdicts.table(
            keyed,
            judge=self.name,
            mode=mode,
            several=samples > 1,
            scale=self.template.scale,
            distributed=bool(self.template.marker),
        )
        frame.attrs["work"] = work_of(self.engine)
        return frame

    def compare(
        self,
        pairs: Any,
        *,
        orders: str = "both",
        mode: str = "feedback",
        temperature: float = 0.0,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        batch_size: int | str = "auto",
        max_new_tokens: int | None = None,
        out: str | Path | None = None,
        progress: bool = True,
    ) -> pd.DataFrame:
        """Compare the two responses of every pair, in both orders.

        Args:
            pairs: a `datasets.Dataset`, a list of rows or of `Pair`s, or a DataFrame: `id`, `images`, `instruction`,
                `response_a`, `response_b`, and where known `criteria`, `descriptions`, `reference_answer`,
                `preference`, `group`.
            orders: "both" shows each pair twice, each response first once; "one" shows response_a first alone.
            mode: "score" forces the verdict at once, in one forward pass: the more probable of A and B.
            Others: as in `grade`.

        Returns:
            One row a pair, in the collection's order:

            - id, judge
            - verdict: "a", "b", "tie", "abstain", or None: what the orders say together (`comparisons.combine`)
            - consistent: whether the orders agree; None where one of them has no verdict, or with a single order
            - probability_a: of A's token against B's where the verdict is written, the mean of the orders; NaN where
              the judge's format has no such place
            - verdict_ab, verdict_ba: by order, in terms of the pair's own a and b
            - failure: None, or the order and the reason
            - by order: scores (the two, in the order shown, where the judge scores both), strong, feedback, raw
            - n_prompt_tokens, n_new_tokens, seconds: sums over the orders
            - carried along: preference, group, criteria

            `attrs["failures"]` counts failures by reason; `attrs["position"]` counts `consistent` among `pairs` with
            two verdicts, and `first` (the response shown first) among all `choices`.

        Raises:
            CollectionError: bad pairs, all of them, before any work.
            ValueError: the judge has no wording for pairs; an unsound option.
            RunError: as in `grade`.
        """
        template = self._comparing()
        if orders not in ("both", "one"):
            raise ValueError(f'orders={orders!r}: use "both" or "one"')
        shown = comparisons.ORDERS if orders == "both" else comparisons.ORDERS[:1]
        decoding = self._decoding(max_new_tokens, temperature, top_p, repetition_penalty)
        check_options(mode, 1, temperature, top_p, repetition_penalty, seed, batch_size, decoding["max_new_tokens"])
        self._check_mode(template, mode)
        rows = rows_of(pairs)
        data.validate(rows, needs=template.needs)
        tasks, carried = [], []
        for row in rows:
            pair = row if isinstance(row, Pair) else Pair.from_row(row)
            kept: dict[str, Any] = {"id": pair.id, "group": pair.group, "criteria": pair.criteria}
            carried.append(kept | ({"preference": pair.preference} if pair is row or "preference" in row else {}))
            tasks += [
                make_task((pair.id, order), comparisons.shown(pair, order), template, mode, carried[-1])
                for order in shown
            ]
        done = collect(
            tasks,
            Images(rows, len(shown) if template.sees_images else 0),
            template,
            mode,
            name=self.name,
            engine=self.engine,
            decoding=decoding,
            seed=seed,
            batch_size=batch_size,
            drawn={"seed": seed} if mode == "feedback" else None,
            out=out,
            content=lambda: rows,
            progress=progress,
        )
        frame = comparisons.table(carried, done, judge=self.name, mode=mode, orders=shown)
        frame.attrs["work"] = work_of(self.engine)
        return frame

    def rank(
        self, candidates: Any, *, by: str = "pairs", orders: str = "both", mode: str = "feedback", **options: Any
    ) -> pd.DataFrame:
        """Rank the responses to each instruction: best of n.

        Args:
            candidates: rows as for `grade` or `compare`, with a list `responses` in place of the response.
            by: "pairs" compares every two of them, n (n - 1) comparisons in both orders; "scores" grades each.
            orders: as in `compare`.
            mode, options: as in `compare` or `grade`: `out`, `seed`, `batch_size` and so on.

        Returns:
            One row a candidate: id, judge, candidate (its place in `responses`), response, value, rank (1 is best;
            equals share it), best, n and missing (how many of the value's verdicts there are and are not), group.
            By pairs, value is the mean of 1 for a win, -1 for a loss and 0 for a tie; with nothing missing, times n it
            is LLaVA-Critic's reward. By scores, it is the expected score where there is one, else the score.

        Raises:
            CollectionError: bad rows, all of them, before any work.
            ValueError: the judge has no wording for pairs; an unsound option.

        Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning: r_i = sum_k a_ki - sum_l a_il.
        """
        if by not in ("pairs", "scores"):
            raise ValueError(f'by={by!r}: use "pairs" or "scores"')
        rows = rows_of(candidates)
        comparisons.check_candidates(rows)
        if by == "scores":
            judged = self.grade(list(comparisons.singles_of(rows)), mode=mode, **options)
        else:
            judged = self.compare(list(comparisons.pairs_of(rows)), orders=orders, mode=mode, **options)
        return comparisons.ranking(rows, judged, judge=self.name, by=by)

    def _local(self) -> TorchEngine:
        """The engine, where it holds the model itself."""
        engine: Any = self.engine
        if not hasattr(engine, "forward"):
            raise ValueError(f"judge {self.name!r} runs elsewhere: only a model on this machine shows what it computes")
        local: TorchEngine = engine
        return local

    def _comparing(self) -> Template:
        """The wording for pairs."""
        if self.pairs is None:
            raise ValueError(
                f"judge {self.name!r} has no wording for two responses: rank by scores, or give load_judge a template= "
                "that compares, such as 'chat-relative', knowing that the judge was not taught to"
            )
        return self.pairs

    def _check_mode(self, template: Template, mode: str) -> None:
        if mode == "score" and not template.marker:
            raise ValueError(
                f'mode="score" needs a place where the verdict stands, and answers to template {template.name!r} have'
                ' none: use mode="feedback", or for LLaVA-Critic template="llava-critic-rubric"'
            )

    def _decoding(
        self, max_new_tokens: int | None, temperature: float, top_p: float, repetition_penalty: float
    ) -> dict[str, Any]:
        limit = self.family.max_new_tokens if self.family else MAX_NEW_TOKENS
        limit = limit if max_new_tokens is None else max_new_tokens
        penalty = {} if repetition_penalty == 1 else {"repetition_penalty": repetition_penalty}
        return {"max_new_tokens": limit, "temperature": temperature, "top_p": top_p, **penalty}

    def _tasks(self, row: Item | Mapping[str, Any], mode: str, samples: int) -> Iterator[Task]:
        """The verdicts to come for one row; the samples share one prompt."""
        item = row if isinstance(row, Item) else Item.from_row(row)
        carried: dict[str, Any] = {}
        if isinstance(row, Item) or "gold" in row:
            carried["gold"] = item.gold
        if item.human_scores or (not isinstance(row, Item) and "human_scores" in row):
            carried["human_scores"] = list(item.human_scores)
        carried |= {"group": item.group, "criteria": item.rubric.criteria if item.rubric else None}
        first = make_task((item.id, 0), item, self.template, mode, carried)
        return (replace(first, key=(item.id, sample)) for sample in range(samples))
