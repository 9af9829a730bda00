"""Judge: a wording, a model and a reader of answers. Grade one response, compare two, rank many.

An answer without a verdict stays without a score: it is counted, shown and never tried again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from vjudge import calls, data, prompts
from vjudge.calls import ORDERS, JudgeCall, combine
from vjudge.data.schema import plain
from vjudge.engines.engine import Ask, Engine
from vjudge.names import public
from vjudge.prompts import MESSAGES, QWEN_1_5, Template, families
from vjudge.prompts.families import Family
from vjudge.prompts.parse import FORMATS
from vjudge.records import Item, Pair

if TYPE_CHECKING:
    from vjudge.engines import Forward

__all__ = ["MAX_NEW_TOKENS", "Judge", "combine", "load_judge", "plan"]
__dir__ = public(__name__)

MAX_NEW_TOKENS = 1024  # Source: the published decoding of Prometheus-Vision (llava/eval/model_vqa.py upstream)
SERVER = "openai:"  # how the name of a judge behind a server begins
ENGINES = ("auto", "torch", "server", "vllm", "ray")
UNSET = {"device": "auto", "dtype": "auto", "attention": "auto", "check_memory": True}  # of the others: None
LEFT_OPEN = {"server": (), "vllm": ("dtype", "quantization", "revision")}  # options for a device that an engine takes


def load_judge(
    name_or_path: str | Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    quantization: str | None = None,
    template: str | Template | None = None,
    engine: str = "auto",
    revision: str | None = None,
    device_map: str | dict[str, Any] | None = None,
    attention: str = "auto",
    check_memory: bool = True,
    **engine_options: Any,
) -> Judge:
    """Load a judge.

    Args:
        name_or_path: "tiny", the judge inside this package; a folder or a hub id with a LLaVA checkpoint, a chat model
            that reads images, or a language model that does not (it is told of images that it can't see); or
            "openai:MODEL", a model behind an OpenAI-compatible server (`base_url=` names another than OpenAI's).
        device, dtype: "auto" takes CUDA, else MPS, else the CPU; bfloat16 on a GPU that has it, float16 on other GPUs,
            float32 on a CPU.
        quantization: None, "8bit" or "4bit"; needs bitsandbytes.
        template: the judge's wording, a name in `vjudge.prompts.TEMPLATES` or a `Template`, for pairs where it compares
            two responses; None takes the family's own (`vjudge.prompts.families`), without a family "chat".
        engine: "torch", "server", "vllm" (in this process) or "ray" (`workers=` processes); "auto" takes the server for
            "openai:MODEL", else torch.
        revision: branch, tag or commit of a hub checkpoint.
        device_map: "auto" spreads the weights over all GPUs and the CPU's memory; or module name -> device.
        attention: "auto" is the model's own way, else "flash_attention_2", "sdpa" or "eager".
        check_memory: whether to refuse, before weights are fetched, a judge that does not fit in the free memory.
        engine_options: see `TorchEngine`, `ServerEngine`, `VllmEngine` and `RayEngine` in `vjudge.engines`.

    Raises:
        ValueError: an unknown judge, template or engine; an unsupported checkpoint; an option this machine can't serve.
        TypeError: an option that the engine does not have.

    >>> import vjudge as vj
    >>> judge = vj.load_judge("tiny", device="cpu")
    >>> judge
    Judge('tiny', template='prometheus-vision', engine='torch')
    >>> judge.family.published["temperature"]
    1.0
    """
    if engine not in ENGINES:
        raise ValueError(f"engine {engine!r} is unknown; use one of {', '.join(map(repr, ENGINES))}")
    if not isinstance(name_or_path, (str, os.PathLike)):
        raise TypeError(f"a judge has a name, or a path as text; {name_or_path!r} is neither")
    if not (name := str(name_or_path)).strip():
        raise ValueError("a judge has a name such as 'tiny', or the path of a folder; this one is blank")
    wording = None if template is None else families.wording(template)
    if engine == "auto":
        engine = "server" if name.startswith(SERVER) else "torch"
    placing: dict[str, Any] = {"device": device, "dtype": dtype, "quantization": quantization, "revision": revision}
    placing |= {"device_map": device_map, "attention": attention, "check_memory": check_memory}
    placing = {option: value for option, value in placing.items() if value != UNSET.get(option)}
    if engine in LEFT_OPEN and (own := [option for option in placing if option not in LEFT_OPEN[engine]]):
        raise ValueError(f"{', '.join(own)}: these are the {engine} engine's own choice; leave them out")
    from vjudge import engines  # torch: seconds to import, so only when a model is wanted

    if engine == "ray":
        load = partial(load_judge, template=template, **placing)
        spread = engines.RayEngine(name_or_path, load=load, **engine_options)
        return Judge(name, template=spread.template, pairs=spread.pairs, engine=spread, family=spread.family)
    if engine == "server":
        family = families.find(name)
        single, pairs = _wordings(family or families.FAMILIES["chat"], wording)
        fixed = [one.conversation for one in (single, pairs) if one and one.conversation.name != MESSAGES.name]
        options = {"conversation": fixed[0] if fixed else None, **engine_options}
        served = engines.ServerEngine(name.removeprefix(SERVER), **options)
        pairs = pairs and pairs.as_messages()
        return Judge(name, template=single.as_messages(), pairs=pairs, engine=served, family=family)
    if engine == "vllm":
        here: Any = engines.VllmEngine(name_or_path, **placing, **engine_options)
    else:
        from vjudge import models

        has = sorted(set(signature(engines.TorchEngine).parameters) - {"model"})
        if stray := sorted(set(engine_options) - set(has)):  # before anything is loaded
            raise TypeError(f"{', '.join(stray)}: the torch engine has no such option; it has {', '.join(has)}")
        here = engines.TorchEngine(models.load(name_or_path, **placing), **engine_options)
    return _fitted(name_or_path, here, wording, exact=isinstance(template, Template))


def _fitted(name_or_path: str | Path, engine: Any, wording: Template | None, *, exact: bool) -> Judge:
    """A judge whose model is in this process, asked in the conversation of its checkpoint; an exact wording keeps its
    own."""
    model = engine.model
    if wording is None:
        wording = families.recorded(model.path)
    # A build tells the family where the vision is ours alone: there are chat models of LLaVA's class, too.
    build = model.model.config.to_dict() if model.sees_images and model.processor is None else {}
    family = families.find(name_or_path) or families.find(name_or_path, config=build) or families.FAMILIES["chat"]

    def fitted(one: Template) -> Template:
        if not model.sees_images:
            one = replace(one, sees_images=False)
        if one.conversation.name == MESSAGES.name:
            return one.bind(model.processor or model.tokenizer, image_token=model.image_token)
        if model.tiled and not exact and one.conversation.name != QWEN_1_5.name:
            return replace(one, conversation=QWEN_1_5)  # a family knows one conversation only
        return one

    single, pairs = _wordings(family, wording)
    chats = bool(model.tokenizer.chat_template or getattr(model.processor, "chat_template", None))
    if wording is not None and not wording.compares and pairs and pairs.conversation.name == MESSAGES.name:
        pairs = pairs if chats else None  # the family's own would go into a chat template
    return Judge(
        str(name_or_path), template=fitted(single), pairs=pairs and fitted(pairs), engine=engine, family=family
    )


def _wordings(family: Family, chosen: Template | None) -> tuple[Template, Template | None]:
    """A family's wordings for one response and for two, one of them replaced by the chosen one."""
    if chosen is not None and chosen.compares:
        return family.template, chosen
    return chosen or family.template, family.pairs


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
        for one in filter(None, (template, pairs)):
            gives = FORMATS[one.format].gives if one.format in FORMATS else "nothing: it is unknown"
            if gives != ("choice" if one.compares else "score"):
                raise ValueError(f"template {one.name!r} ({one.kind}): format {one.format!r} gives {gives}")
        self.name, self.template, self.engine, self.pairs, self.family = name, template, engine, pairs, family

    def __repr__(self) -> str:
        return f"Judge({self.name!r}, template={self.template.name!r}, engine={self.engine.name!r})"

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
            temperature, top_p, repetition_penalty: see `vjudge.engines.Ask`; greedy unless `**judge.family.published`
                decodes as published. A score pass draws nothing: of these, only the published decoding as a whole,
                which has no effect there, is not refused.
            seed: of the draws; a verdict's depend on it, the item's id and the sample's number alone.
            batch_size: items computed together, or "auto".
            max_new_tokens: the most tokens of an answer, within the context; None takes the family's published limit.
            out: a folder that records every verdict as soon as it exists. After an interruption, the same call
                continues there; a call that differs in anything that matters is refused.

        Returns:
            One row a verdict, in the collection's order: id, judge, sample (from 0, where there are several), score
            (NaN where there is none), failure (None or the reason), expected_score (the mean of probabilities: score ->
            probability at the verdict over the rubric's scores, before temperature, top_p and penalty),
            probability_mass (what those scores had of the whole vocabulary), feedback, raw (the whole answer),
            n_prompt_tokens (image tokens included), n_new_tokens, seconds (its share of its batch); choice ("abstain":
            the judge declined) and scores (the reference answer's, then its own) where some row has one; and as given
            gold, human_scores, group, criteria, category.

            `attrs` say what it rests on: failures by reason, and the suggested_format that would read most of many;
            without_distribution (scores without log-probabilities); low_mass (verdicts of a score pass on less than
            `vjudge.calls.LOW_MASS` of the probability); abstained; without_images (rows, for a judge that sees images);
            unlike (rows that an embedded judge was not made for); collection (`vjudge.data.origin`); scale (the judge's
            own, None for the rubric's); work (`vjudge.engines.Work`).

        Raises:
            CollectionError: bad rows, all of them, before any work.
            ValueError: an unsound option, or a scale that the judge's vocabulary can't be asked for.
            RunError: `out` can't be used, or its disk is full; what was written stays.

        >>> import vjudge as vj
        >>> items = vj.load_collection("scenes", split="test", limit=5)
        >>> judge = vj.load_judge("tiny", device="cpu")
        >>> run = judge.grade(items, progress=False)
        >>> run["score"].tolist()
        [1.0, 5.0, 2.0, 3.0, 4.0]
        >>> run.attrs["failures"], run.attrs["without_images"]
        ({}, 0)
        """
        draws: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "repetition_penalty": repetition_penalty}
        bounds: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "max_new_tokens": max_new_tokens}
        call = self._call(items, mode=mode, samples=samples, **bounds, **draws)
        return call.table(self.engine, out=out, progress=progress)

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
        """Compare the two responses of every pair, in both orders; other arguments as in `grade`.

        Args:
            pairs: a `datasets.Dataset`, a list of rows or of `Pair`s, or a DataFrame, with the columns of pairs.
            orders: "both" shows each pair twice, each response first once; "one" shows response_a first alone, but asks
                both, and says so, where the known preferences are one-sided (`vjudge.calls.ONE_SIDED`).
            mode: "score" forces the verdict at once, in one forward pass: the more probable of A and B.

        Returns:
            One row a pair, in the collection's order: id, judge, verdict and consistent (what the orders say together
            and whether they agree, see `combine`), probability_a (of A's token against B's where the verdict is
            written, the mean of the orders), verdict_ab and verdict_ba (in terms of the pair's own a and b), failure
            (None, or the order and the reason); by order scores (the two, as shown), strong, feedback and raw; sums of
            n_prompt_tokens, n_new_tokens and seconds; and as given preference, group, criteria, category.

            `attrs` as in `grade`; `position` counts `consistent` among `pairs` with two verdicts, and `first` (the
            response shown first) among all `choices`; `one_sided` preferences are why both orders were asked.

        Raises:
            ValueError: the judge has no wording for pairs; the others as in `grade`.

        >>> from dataclasses import replace
        >>> import vjudge as vj
        >>> from vjudge.prompts import TEMPLATES, VICUNA_V1
        >>> wording = replace(TEMPLATES["chat-relative"], conversation=VICUNA_V1)  # tiny was never taught to compare
        >>> judge = vj.load_judge("tiny", device="cpu", template=wording)
        >>> first, second = list(vj.load_collection("scenes", split="test", limit=2))
        >>> pair = {**first, "response_a": first["response"], "response_b": second["response"]}
        >>> run = judge.compare([pair], mode="score", progress=False)
        >>> run[["verdict_ab", "verdict_ba", "verdict"]].values.tolist()
        [['a', 'b', 'tie']]
        """
        draws: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "repetition_penalty": repetition_penalty}
        bounds: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "max_new_tokens": max_new_tokens}
        call = self._call(pairs, orders=orders, mode=mode, **bounds, **draws)
        return call.table(self.engine, out=out, progress=progress)

    def rank(
        self, candidates: Any, *, by: str = "pairs", orders: str | None = None, mode: str = "feedback", **options: Any
    ) -> pd.DataFrame:
        """Rank the responses to each instruction: best of n.

        Args:
            candidates: rows as for `grade` or `compare`, with a list `responses` in place of the response.
            by: "pairs" compares every two of them, n (n - 1) comparisons in both orders; "scores" grades each.
            orders: by pairs, as in `compare`; None for both.
            mode, options: as in `compare` or `grade`: `out`, `seed`, `batch_size` and so on.

        Returns:
            One row a candidate: id, judge, candidate (its place in `responses`), response, value, rank (1 is best;
            equals share it), best, n and missing (how many of the value's verdicts there are and are not), group;
            true_rank and category where known. By pairs, value is the mean of 1 for a win, -1 for a loss and 0 for a
            tie: with nothing missing, times n it is LLaVA-Critic's reward. By scores, it is the expected score where
            there is one, else the score.

        Raises:
            ValueError: the judge has no wording for pairs; `orders` by scores; the others as in `grade`.

        >>> import vjudge as vj
        >>> rows = list(vj.load_collection("scenes", split="test", limit=3))
        >>> candidates = [{**rows[0], "responses": [row["response"] for row in rows]}]
        >>> judge = vj.load_judge("tiny", device="cpu")
        >>> judge.rank(candidates, by="scores", progress=False)["rank"].tolist()
        [3.0, 1.0, 2.0]

        Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning: r_i = sum_k a_ki - sum_l a_il.
        """
        rows = _candidates(candidates, by, orders)
        if by == "pairs":
            options["orders"] = orders or "both"
        judged = (self.compare if by == "pairs" else self.grade)(list(calls.parts_of(rows, by)), mode=mode, **options)
        frame = calls.ranking(rows, judged, by=by)
        frame.attrs["collection"] = data.origin(candidates)
        return frame

    def render(self, item: Item | Pair | Mapping[str, Any], *, mode: str = "feedback") -> str:
        """What the model reads for one item or pair, as text; "<image>" stands where an image goes.

        It is an `Item`, a `Pair`, or a row with the canonical columns of either; with mode "score", the prompt ends in
        the forced marker. CollectionError says what the row lacks; its images are not looked at.

        >>> import vjudge as vj
        >>> (item,) = vj.load_collection("scenes", split="test", limit=1)
        >>> vj.load_judge("tiny", device="cpu").render(item, mode="score")[-19:]
        'ASSISTANT: [RESULT]'
        """
        if mode not in ("feedback", "score"):
            raise ValueError(f'mode={mode!r}: use "feedback" or "score"')
        rows = data.rows_of([item])
        pair = "response_a" in rows[0]
        template = self._pairwise() if pair else self.template
        data.validate(rows, needs=template.needs, pairs=pair, pictures=lambda source: source)
        return calls.prompt_of(template, (Pair if pair else Item).from_row(rows[0]), mode).text

    def forward(self, question: str, images: Sequence[Any], *, image_mode: str | None = None) -> Forward:
        """One pass over a free question, for comparison with the original code; see `vjudge.engines.Forward`.

        Args:
            question: may say "<image>" where each image stands, else they come first.
            images: what `vjudge.images.open_image` opens.
            image_mode: "crop" (default) or "pad" for LLaVA-1.5; "anyres" (default for one image) or "pad" (default for
                several) for LLaVA-OneVision.

        Raises:
            ValueError: too long a prompt; marks that don't fit the images; a bad image; an unknown mode.
        """
        answer: Forward = self._local(question, images, "forward", image_mode=image_mode)
        return answer

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

        Arguments and errors as in `forward`; LLaVA-Critic's generation_config.json has a repetition_penalty of 1.05.
        """
        how: dict[str, Any] = {"max_new_tokens": max_new_tokens, "repetition_penalty": repetition_penalty}
        tokens: list[int] = self._local(question, images, "complete", image_mode=image_mode, **how)
        return tokens

    def _local(self, question: str, images: Sequence[Any], method: str, **options: Any) -> Any:
        """What the engine makes of a free question, where it holds the model itself."""
        if not hasattr(self.engine, method):
            raise ValueError(f"judge {self.name!r} runs elsewhere: only a model on this machine shows what it computes")
        prompt = prompts.question(self.template.conversation, question, n_images=len(images))
        return getattr(self.engine, method)(prompt, images, **options)

    def _pairwise(self) -> Template:
        """The wording for pairs."""
        if self.pairs is None:
            raise ValueError(
                f"judge {self.name!r} has no wording for two responses: rank by scores, or give load_judge a template= "
                "that compares, such as 'chat-relative', knowing that the judge was not taught to"
            )
        return self.pairs

    def _call(
        self,
        rows: Any,
        *,
        orders: str | None = None,
        mode: str = "feedback",
        samples: int = 1,
        seed: Any = 0,
        batch_size: Any = "auto",
        max_new_tokens: Any = None,
        **draws: Any,
    ) -> JudgeCall:
        """What `grade` puts to the engine, or with orders `compare`; unsound options are refused, all at once."""
        template = self.template if orders is None else self._pairwise()
        if orders not in ("both", "one", None):
            raise ValueError(f'orders={orders!r}: use "both" or "one"')
        if mode == "score":  # the published decoding, as a whole, means what a score pass does
            published = {"samples": 1, "temperature": 0.0, "top_p": 1.0, "repetition_penalty": 1.0}
            published |= self.family.published if self.family else {}
            own = {"samples": published["samples"] if template.compares else samples, **draws}
            if all(value == published[name] for name, value in own.items()):
                draws, samples = {}, 1
        if max_new_tokens is None:
            max_new_tokens = self.family.max_new_tokens if self.family else MAX_NEW_TOKENS
        ask = Ask(mode, template.marker, max_new_tokens=max_new_tokens, batch_size=batch_size, **draws)
        calls.check_ask(ask, samples=samples, seed=seed)
        if ask.scores and not template.marker:
            raise ValueError(
                f'mode="score" needs a place where the verdict stands, and answers to template {template.name!r} have'
                ' none: use mode="feedback", or for LLaVA-Critic template="llava-critic-rubric"'
            )
        units = range(samples) if orders is None else ORDERS if orders == "both" else ORDERS[:1]
        return JudgeCall(self.name, rows, template, ask, units=units, seed=seed)


def plan(judge: Judge, items: Any, **options: Any) -> pd.DataFrame:
    """Say what grading, comparing or ranking a collection takes, before it starts.

    Args:
        judge: any; nothing that costs is sent.
        items: what `grade`, `compare` (rows with `response_a`) or `rank` (rows with `responses`) takes.
        options: of that call: `mode`, `samples`, `batch_size`, `max_new_tokens` and so on.

    Returns:
        Indexed by quantity, with the columns `planned` (NaN where it is not known), `unit` and `note` (how it is known,
        or why it is not): verdicts, tokens and images here; requests, tokens and cost of a server.

    Raises:
        CollectionError, ValueError, TypeError: what the call itself would say.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=10)
    >>> table = vj.plan(vj.load_judge("tiny", device="cpu"), items)
    >>> table.loc[["verdicts", "images shown", "images encoded"], "planned"].tolist()
    [10.0, 10.0, 1.0]
    """
    rows: Sequence[Mapping[str, Any]] = data.rows_of(items)
    names = set(rows[0]) if len(rows) else set()
    options = {name: value for name, value in options.items() if name not in ("out", "progress")}
    compares = "response_a" in names
    if "responses" in names:
        by, orders = options.pop("by", "pairs"), options.pop("orders", None)
        candidates, compares = _candidates(rows, by, orders), by == "pairs"
        rows = list(calls.parts_of(candidates, by))
        options |= {"orders": orders} if orders else {}
    call = judge._call(rows, **({"orders": "both"} if compares else {}) | options)
    frame = pd.DataFrame(judge.engine.plan(call.prompts, call.images, call.ask))
    return frame.astype({"planned": "float64"}).set_index("quantity")


def _candidates(items: Any, by: str, orders: str | None) -> Sequence[Mapping[str, Any]]:
    """The rows of a ranking; unsound options and rows are refused."""
    if by not in ("pairs", "scores"):
        raise ValueError(f'by={by!r}: use "pairs" or "scores"')
    if by == "scores" and orders is not None:
        raise ValueError(f"orders={orders!r}: a response that is graded by itself has no order; leave it out")
    rows = data.rows_of(items)
    lists = [plain(row.get("responses")) for row in rows]
    sound = [isinstance(responses, list) and len(responses) >= 2 for responses in lists]
    calls.check_rows(rows, "responses", sound, "is not a list of two texts or more", "give the candidates")
    return rows
