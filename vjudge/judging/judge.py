"""Judge: a prompt template and an engine. It grades one response, compares two, ranks many.

An answer without a verdict either stays without a score or is closed: the engine appends the marker
of a verdict to it and reads the distribution over the scale there. Both are counted and shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from vjudge import data
from vjudge.data.schema import Items, Row
from vjudge.engines.engine import Engine
from vjudge.judging.asking import Call, Options, PairsNotSupportedError, options_of, prepare
from vjudge.judging.candidates import candidate_rows
from vjudge.judging.comparing import compare
from vjudge.judging.examples import examples_of
from vjudge.judging.grading import grade
from vjudge.judging.ranking import rank
from vjudge.prompts import Template, families
from vjudge.prompts.families import Family
from vjudge.records import Item, Pair


@runtime_checkable
class JudgeLike(Protocol):
    """Whatever grades and compares: `Judge`, `vjudge.panel`, or any object with these names.

    Reports, probes, benchmarks, rewards and reviews need nothing else. The methods take the options
    of `Judge` and return its tables, which may lack the columns of a model's answer.
    """

    @property
    def name(self) -> str: ...

    @property
    def sees_images(self) -> bool: ...

    def grade(self, items: Items, **options: Any) -> pd.DataFrame: ...

    def compare(self, pairs: Items, **options: Any) -> pd.DataFrame: ...

    def rank(self, candidates: Items, **options: Any) -> pd.DataFrame: ...

    def render(self, item: Item | Pair | Mapping, *args: Any, **options: Any) -> str: ...

    def plan(self, items: Items, **options: Any) -> pd.DataFrame: ...


@dataclass(eq=False)
class Judge:
    """A prompt template for one response, one for two, and the engine that answers them."""

    name: str  # in the column `judge` of its tables
    _: KW_ONLY
    template: Template  # for one response
    engine: Engine
    pairs: Template | None = None  # for two; None where the judge was never taught to compare
    family: Family | None = None  # what is published of judges of its kind; None if unknown
    examples: Sequence[Item] = ()  # graded items in every prompt, see `with_examples`

    def __repr__(self) -> str:
        pairs = None if self.pairs is None else self.pairs.name
        wordings = f"template={self.template.name!r}, pairs={pairs!r}"
        examples = f", {len(self.examples)} examples" if self.examples else ""
        return f"Judge({self.name!r}, {wordings}, engine={self.engine.name!r}{examples})"

    @property
    def sees_images(self) -> bool:
        """Whether the judge is shown the images of its items."""
        return self.template.sees_images

    @property
    def gives_values(self) -> bool:
        """Whether a value head gives an unbounded number for each response, and no text."""
        return self.template.gives == "value"

    def grade(self, items: Items, **options: Any) -> pd.DataFrame:
        """Grade every response of a collection.

        Args:
            items: a `datasets.Dataset`, a DataFrame, a file, or a list of rows or `Item`s, in
                canonical columns.
            mode ("feedback"): "feedback" lets the judge write its feedback, then the verdict;
                "score" forces the verdict at once and reads the distribution over the scores in
                one forward pass.
            samples (1): verdicts per item; more than one needs a temperature.
            temperature (0.0), top_p (1.0), repetition_penalty (1.0), batch_size ("auto"): see
                `vjudge.engines.Ask`. The default is greedy; `**judge.family.published` decodes as
                the judge's authors did. Mode "score" draws no tokens: only batch_size applies.
            seed (0): the tokens that are drawn for a verdict depend on it, the item's id and the
                sample's number, and on no other item.
            max_new_tokens (None): the longest answer, within the model's context; None takes the
                published limit.
            unread (None): what happens to an answer without a verdict: "missing" leaves the score
                out, "close" puts the marker behind the answer and reads the distribution over the
                scale there. None leaves it to the template: "close" for zero-shot chat templates.
                Several criteria are closed one by one.
            criteria ("together"): for rows with several named criteria. "together" asks for all
                scores in one call (template="chat-json"), "apart" for each score in a call of its
                own, with any template that shows a rubric.
            out (None): a folder that records every verdict as soon as it exists. The same call
                continues there after an interruption; a call with other rows computes only what is
                new. Another judge, template or decoding is refused.
            progress (True): whether to show a progress bar.

        Returns:
            One row per verdict, in the collection's order, with the columns:
            - id, judge, sample (where there are several);
            - score (NaN where there is none), feedback, raw (the whole answer), failure (None or
              the reason);
            - expected_score (the sum of score times probability), probabilities (score as text ->
              probability at the verdict among these scores, before temperature, top_p and penalty),
              probability_mass (of these scores together, in the whole vocabulary), closed (whether
              the verdict was read after closing the answer);
            - n_prompt_tokens (image tokens included), n_new_tokens, seconds (its share of its
              batch);
            - only where some row has one: choice ("abstain"), reasoning, served_model and remarks
              (who answered, and what was odd in the reply), and scores. These are the scores of the
              criteria, each on its own scale (then score is their weighted mean on the row's
              scale), or the score of the reference answer and that of the response;
            - lowest and highest (the ends of the row's scale, NaN for a value head's unbounded
              number), sees_image;
            - gold, human_scores, group, criteria, category and all columns that the collection
              adds.
            The frame's `attrs` count failures, unclosed and remarks by reason, closed, abstained
            and without_images, and hold what the engine computed ("work").

        Raises:
            CollectionError: bad rows, all named before any work.
            ValueError: an invalid option. TypeError: an option that does not exist.
            RunError: `out` can't be used.

        >>> import vjudge as vj
        >>> items = vj.load_collection("scenes", split="test", limit=5)
        >>> vj.load_judge("tiny", device="cpu").grade(items, progress=False)["score"].tolist()
        [1.0, 5.0, 2.0, 3.0, 4.0]
        """
        return grade(prepare(self, items, options_of(options, "orders")))

    def compare(self, pairs: Items, **options: Any) -> pd.DataFrame:
        """Compare the two responses of every pair, by default in both orders.

        A judge with a value head grades each response alone, and the larger value is chosen.

        Args:
            pairs: as `items` of `grade`, with the columns of pairs, or `Pair`s.
            orders ("both"): "both" asks twice, with each response first once; "random" draws an
                order for each sample; "one" asks once, with response_a first.
            samples (1): answers per pair and order, each a vote; more than one needs a temperature.
            mode: as of `grade`; with "score", the more probable of A and B is chosen.
            temperature, top_p, repetition_penalty, seed, batch_size, max_new_tokens, unread, out,
                progress: as of `grade`.

        Returns:
            One row per pair, with the columns:
            - id, judge, verdict ("a", "b", "tie", "abstain" or None) and consistent (whether the
              orders agree), see `vjudge.judging.comparing.combine`; probability_a (of the token for
              a against that for b, the mean of the orders);
            - scores (as shown), feedback and raw of each order, such as raw_ab; verdict_ab and
              verdict_ba (in terms of the pair's own a and b);
            - failure, closed; sums of n_prompt_tokens, n_new_tokens, seconds;
            - lowest, highest (of the scores as shown), sees_image; the columns of the collection.
            With several samples or random orders, verdict is the majority of the answers (a tie
            where choices have equally many), and votes_a, votes_b, votes_tie, votes_missing and
            draws (a list with order, verdict, feedback, raw, closed and failure of each answer)
            replace scores, feedback and raw of each order (and verdict_ab and verdict_ba where the
            orders are random). A value head's columns are id, judge,
            verdict, score_a and score_b, failure and those after it.

        Raises:
            PairsNotSupportedError (a ValueError): the judge has no template for pairs. Other errors
                are those of `grade`.

        >>> import vjudge as vj
        >>> judge = vj.load_judge("tiny", device="cpu", template="prometheus-2-relative")
        >>> first, second = list(vj.load_collection("scenes", split="test", limit=2))
        >>> pair = {**first, "response_a": first["response"], "response_b": second["response"]}
        >>> run = judge.compare([pair], mode="score", progress=False)  # it was never taught to
        >>> run[["verdict_ab", "verdict_ba", "verdict"]].values.tolist()
        [['a', 'b', 'tie']]
        """
        return compare(prepare(self, pairs, options_of(options, "criteria"), pairs=True))

    def rank(self, candidates: Items, *, by: str = "pairs", **options: Any) -> pd.DataFrame:
        """Rank the responses to each instruction, best of n.

        Args:
            candidates: rows with a list `responses` in place of the response.
            by: "pairs" compares every two responses in both orders, n (n - 1) comparisons for n
                responses; "scores" grades each. A judge with a value head always goes by scores.
            mode, temperature, top_p, repetition_penalty, seed, batch_size, max_new_tokens, unread,
                out, progress: as of `grade`, and so are the errors.

        Returns:
            One row per candidate: id, judge, candidate (its position in `responses`), response,
            value, rank (1 is best; equal values share a rank), best (whether its rank is 1), n and
            missing (how many verdicts on it exist, and how many do not), group; true_rank and
            category where known; failure (why there is no value), closed (whether some verdict on
            it was) and sees_image.
            By pairs, value is the mean of 1 for a win, -1 for a loss and 0 for a tie; value times n
            is LLaVA-Critic's reward. By scores, it is the expected score where every verdict has
            one, otherwise the score; scores that differ by less than the engine's numeric noise
            (`vjudge.engines.engine.NOISE`) are equal.

        >>> import vjudge as vj
        >>> rows = list(vj.load_collection("scenes", split="test", limit=3))
        >>> candidates = [{**rows[0], "responses": [row["response"] for row in rows]}]
        >>> judge = vj.load_judge("tiny", device="cpu")
        >>> judge.rank(candidates, by="scores", progress=False)["rank"].tolist()
        [3.0, 1.0, 2.0]

        Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning:
        r_i = sum_k a_ki - sum_l a_il.
        """
        if self.gives_values:
            by = "scores"
        asked = options_of(options, "samples", "orders")

        def judged(rows: Items) -> pd.DataFrame:
            call = prepare(self, rows, asked, pairs=by == "pairs")
            return compare(call) if by == "pairs" else grade(call)

        return rank(candidates, by, judged, noise=self.engine.noise)

    def render(self, item: Item | Pair | Mapping, *, mode: str = "feedback") -> str:
        """Write what the model reads for one item, pair or row, with "<image>" for each image.

        With mode "score", it ends in the marker, after which the verdict is read.

        Raises:
            CollectionError: the row lacks something.

        >>> import vjudge as vj
        >>> (item,) = vj.load_collection("scenes", split="test", limit=1)
        >>> vj.load_judge("tiny", device="cpu").render(item, mode="score")[-19:]
        'ASSISTANT: [RESULT]'
        """
        call = self._prepared([item], Options(mode=mode), by="scores")
        return call.questions[0].prompt.text

    def plan(self, items: Items, *, by: str = "pairs", **options: Any) -> pd.DataFrame:
        """Estimate what a call takes, see `vjudge.plan`."""
        call = self._prepared(items, options_of(options), by=by)
        prompts = [question.prompt for question in call.questions]
        images = [question.images for question in call.questions]
        frame = pd.DataFrame(self.engine.plan(prompts, images, call.ask))
        return frame.astype({"planned": "float64"}).set_index("quantity")

    def _prepared(self, items: Items, options: Options, *, by: str) -> Call:
        """Prepare, but do not send, the call that rows of this kind are for.

        The first row decides: rows with `responses` are for `rank`, which goes `by` pairs or
        scores, those with `response_a` for `compare`, and any others for `grade`.
        """
        rows: Sequence[Row] = data.rows_of(items)
        first = rows[0] if len(rows) else {}
        pairs = "response_a" in first
        if "responses" in first:
            if self.gives_values:
                by = "scores"
            rows = candidate_rows(rows, by)
            pairs = by == "pairs"
        return prepare(self, rows, options, pairs=pairs)

    def reworded(self, template: Template | str) -> Judge:
        """Return the same judge with another prompt template, within its own conversation.

        The conversation is what surrounds the text of a template: roles, separators, a checkpoint's
        chat template. A model was trained in one and keeps it.

        Args:
            template: one that compares two responses replaces the template for pairs, any other the
                one for single responses.

        >>> import vjudge as vj
        >>> vj.load_judge("tiny", device="cpu").reworded("prometheus-vision-readme")
        Judge('tiny', template='prometheus-vision-readme', pairs=None, engine='hf')
        """
        # 1) this judge's conversation; where its text is not written out here, but by the chat
        # template, it takes the system text of the new template
        wording = families.wording(template)
        conversation = self.template.conversation
        if not conversation.written:
            system = wording.conversation.system or conversation.system
            conversation = replace(conversation, system=system)
        if conversation.name != wording.conversation.name:
            wording = replace(wording, conversation=conversation)
        # 2) a judge that is shown no images by one template is shown none by another
        if not self.template.sees_images:
            wording = replace(wording, sees_images=False)
        single, pairs = wordings_of(self.template, self.pairs, wording)
        return replace(self, template=single, pairs=pairs)

    def with_examples(self, rows: Items) -> Judge:
        """Return the same judge, shown graded items in every prompt before the item to grade.

        Each example is an earlier turn: the item in the judge's template, its images, and the
        answer that the template asks for. Its tokens count in `plan` and in the `n_prompt_tokens`
        of every verdict.

        Args:
            rows: items as of `grade`, with gold (a score of the scale) and feedback. A later call
                that grades one of them, recognised by its id or by its texts and images, is
                refused.

        Raises:
            CollectionError: bad rows. ValueError: the template's conversation has one turn.

        >>> import vjudge as vj
        >>> items = vj.load_collection("scenes", limit=3)
        >>> judge = vj.load_judge("tiny", device="cpu").with_examples(items.select([0]))
        >>> judge.render(items[1]).count("###The instruction to evaluate:")
        2
        """
        return replace(self, examples=examples_of(self.template, rows))

    def wording_of_pairs(self) -> Template:
        """Return the prompt template for two responses.

        Raises:
            PairsNotSupportedError: there is none.
        """
        if self.pairs is None:
            raise PairsNotSupportedError(
                f"judge {self.name!r}, not taught to compare, has no wording for two responses:"
                " rank by scores, or give load_judge a template= that compares, such as"
                " 'chat-relative'"
            )
        return self.pairs


def plan(judge: JudgeLike, items: Items, *, by: str = "pairs", **options: Any) -> pd.DataFrame:
    """Estimate what a call takes, without sending anything.

    Args:
        items: as of `grade`, of `compare` (rows with `response_a`) or of `rank` (with `responses`).
        judge: who would be asked.
        by, options: of the call; `by` concerns rows with `responses` alone.

    Returns:
        One row per quantity (verdicts, tokens, images) with `planned` (NaN where unknown), `unit`
        and `note`. A panel's quantities are the sums over its members.

    Raises:
        The errors of the call itself.

    >>> import vjudge as vj
    >>> items = vj.load_collection("scenes", split="test", limit=10)
    >>> table = vj.plan(vj.load_judge("tiny", device="cpu"), items)
    >>> table.loc[["verdicts", "images shown"], "planned"].tolist()
    [10.0, 10.0]
    """
    return judge.plan(items, by=by, **options)


def wordings_of(
    single: Template, pairs: Template | None, chosen: Template | None
) -> tuple[Template, Template | None]:
    """Replace one of a judge's templates by a chosen one.

    Args:
        single, pairs: the templates for one response and for two.
        chosen: it replaces `pairs` if it compares, otherwise `single`; None changes nothing.

    Returns:
        The templates for one response and for two.
    """
    if chosen is None:
        return single, pairs
    return (single, chosen) if chosen.compares else (chosen, pairs)
