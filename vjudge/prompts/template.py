"""A prompt template is one wording of a judging task; filled with an item or a pair it is a prompt.

This file defines the template and the texts that replace its placeholders. `slots.py` puts images
at placeholders inside it, `forms.py` has the JSON object that it may ask for, and `chat.py` the
chat template of a checkpoint, which writes the conversation around it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from vjudge.images import ImageSource
from vjudge.prompts import forms, slots
from vjudge.prompts.answers import answer_text
from vjudge.prompts.chat import Chat, chat_of
from vjudge.prompts.conversation import IMAGE, MESSAGES, Conversation, Piece, Prompt, Reply
from vjudge.prompts.formats import FORMATS
from vjudge.prompts.slots import Placed, Turn
from vjudge.prompts.values import Scale
from vjudge.records import RESPONSE_IMAGES, Item, Pair, Rubric, Subject

FIELDS = frozenset(
    "instruction images criteria levels lowest highest reference_answer reference_clause"
    " reference_section context look form example low high".split()
)
"""The placeholders that a body may have, beside those of responses and their images."""
NEEDS = {
    "criteria": "criteria",
    "descriptions": "levels",
    "reference_answer": "reference_answer",
    "context": "context",
}
"""A column that a template requires of a row -> the placeholder that shows it."""
_HIGHEST = "its highest score"  # replaces {highest} where criteria have different scales


@dataclass(frozen=True)
class Template:
    """One wording of a judging task.

    Placeholders of the body: {instruction}, and {response} or {response_a} and {response_b};
    optional ones are {criteria}, {levels}, {lowest}, {highest}, {reference_clause},
    {reference_section}, {reference_answer}, {context}, {look} (a sentence on checking the image),
    {low}, {example} and {high} (scores at a quarter, a half and three quarters of the scale) and
    {form} (the JSON object that is asked for).

    Images stand before the text, or at {images}; those of a response at {response_images},
    {response_a_images} or {response_b_images}, beside its text or instead of it. Where the body has
    a placeholder for the images of a text, and the text holds "<image>" as often as it has images,
    they stand at these markers.

    >>> from vjudge.prompts import VICUNA_V1, Template
    >>> body = "Q: {instruction} A: {response} End with [RESULT] and a score, such as [RESULT] 3"
    >>> Template("mine", "my paper", VICUNA_V1, body, scale=(1, 5)).scores()
    (1, 2, 3, 4, 5)

    Raises:
        ValueError: the body can't be filled, or no format reads its answers.
    """

    name: str  # its key in `TEMPLATES`
    source: str  # where the template is published; "ours" where it is this project's own
    conversation: Conversation
    body: str
    scale: tuple[int, int] | None = None  # lowest and highest; None for the rubric's, or a choice
    sees_images: bool = True  # a text-only judge's prompt holds no images and says so
    marker: str = "[RESULT]"  # the text before the verdict; "" if no single text precedes it
    format: str = "prometheus"  # name of the format by which `parse.parse` reads the answer
    # The texts of {reference_clause} and {reference_section} where an item has a reference answer.
    reference_clause: str = ", a reference answer that gets a score of {highest}"
    reference_section: str = "###Reference Answer (Score {highest}):\n{reference_answer}\n\n"
    # What happens to an answer without a verdict: "missing" records none, "close" lets the judge
    # write a verdict at its end (see `closing`).
    unread: str = "missing"
    # "{response}" for a value head: the response is then the assistant's turn, outside the body.
    reply: str = ""

    def __post_init__(self) -> None:
        # 1) every placeholder of the body is known
        text = self.body + self.reply
        image_fields = [RESPONSE_IMAGES[name] for name in self.responses]
        try:
            text.format(**dict.fromkeys((*FIELDS, *self.responses, *image_fields), ""))
        except (ValueError, LookupError) as error:
            raise ValueError(
                f"template {self.name!r}: its body can't be filled ({error!r}); write a brace that"
                " is no field as {{ or }}"
            ) from error
        # 2) it shows each response
        for name in self.responses:
            if f"{{{name}}}" not in text and f"{{{RESPONSE_IMAGES[name]}}}" not in self.body:
                raise ValueError(f"template {self.name!r}: its body lacks {{{name}}}")
        # 3) its answers can be read; a value head writes no answer
        formats = [name for name, rule in FORMATS.items() if rule.gives == self.gives]
        if self.gives != "value" and self.format not in formats:
            raise ValueError(
                f"template {self.name!r}: format {self.format!r} gives no {self.gives}; one of"
                f" {', '.join(formats)}"
            )

    # --- what it asks for

    @property
    def compares(self) -> bool:
        """Whether it shows two responses, not one."""
        return "{response_a}" in self.body or "{response_a_images}" in self.body

    @property
    def responses(self) -> tuple[str, ...]:
        """The names of the columns with the responses that it shows."""
        return ("response_a", "response_b") if self.compares else ("response",)

    @property
    def gives(self) -> Literal["score", "choice", "value"]:
        """What its judge gives: a score, a choice of two, or a value without a scale."""
        if self.reply:
            return "value"
        return "choice" if self.compares else "score"

    @property
    def needs(self) -> frozenset[str]:
        """The columns of `NEEDS` that the body shows, so that a row must have them."""
        return frozenset(column for column, field in NEEDS.items() if f"{{{field}}}" in self.body)

    @property
    def is_json(self) -> bool:
        """Whether it asks for a JSON object, which its body describes at {form}."""
        return "{form}" in self.body

    @property
    def takes_criterion(self) -> bool:
        """Whether it asks for a score of the rubric's criterion, on the rubric's scale."""
        return self.gives == "score" and self.scale is None and "{criteria}" in self.body

    def scores(self, rubric: Rubric | None = None) -> tuple[int, ...]:
        """List the whole numbers of the scale, lowest first: the template's own, else the rubric's.

        Returns:
            () where there is no single scale: for a choice, a value, or several criteria.
        """
        if self.gives != "score" or (rubric and rubric.named):
            return ()
        if self.scale is not None:
            lowest, highest = self.scale
            return tuple(range(lowest, highest + 1))
        return rubric.scores if rubric else ()

    # --- how a verdict is forced at a fixed position of an answer

    @property
    def forced(self) -> str:
        """The text that score mode appends to a prompt, so that one of `score_texts` comes next."""
        return f"{self.conversation.reply}{self._before_verdict}"

    @property
    def closing(self) -> str | None:
        """The text that closes an answer without a verdict; one of `score_texts` comes next.

        None where no single text precedes a verdict: such answers can't be closed.
        """
        return f"\n{self._before_verdict}" if self.marker else None

    @property
    def closing_criterion(self) -> str:
        """The text appended to an answer so that the score of one of several criteria comes next.

        It is a format string: {name} stands for the criterion's name, in JSON.
        """
        return '\n{{"scores": {{{name}:'

    @property
    def _before_verdict(self) -> str:
        """The marker; for a JSON answer the opening brace and then the marker."""
        return f"{{{self.marker}" if self.is_json else self.marker

    def score_texts(self, scores: Scale) -> dict[int, str]:
        """Map each score to what the judge writes for it after `marker`.

        Args:
            scores: the scale. A comparison does not need it: its scores are 0 for the first
                response and 1 for the second.

        Returns:
            {} where no single text precedes a verdict, so that no distribution of scores can be
            read.
        """
        if not self.marker:
            return {}
        if not self.compares:
            return {score: f" {score}" for score in scores}
        return {0: ' "A', 1: ' "B'} if self.is_json else {0: " A", 1: " B"}

    def schema(self, rubric: Rubric | None = None) -> dict | None:
        """Return the JSON schema of an answer, for a server to enforce; None if it is no JSON."""
        return forms.schema_of(self, rubric) if self.is_json else None

    # --- the prompt

    def render(self, item: Subject, examples: Sequence[Item] = ()) -> Prompt:
        """Build the prompt for one item or pair; texts are inserted unchanged, not escaped.

        Without a reference answer its section and its mention are left out, as in Prometheus 2's
        own templates. Three things are our choices: Prometheus-Vision's template does the same,
        "Score 5" follows the rubric's scale, and a text-only judge is told of images that it can't
        see.

        Args:
            item: what to judge: an `Item`, or a `Pair` for a template that compares.
            examples: graded items that precede it, each as a user turn and the answer that the
                template asks for.

        Raises:
            ValueError: an item for a template that compares or a pair for one that doesn't; a
                rubric of several criteria for a template that asks for one score; a fault that
                `faults` lists.

        Source: prometheus-eval/prometheus-eval prometheus_eval/prompts.py (ABSOLUTE_PROMPT_WO_REF).
        """
        # 1) the template fits the item
        if isinstance(item, Pair) != self.compares:
            kind = type(item).__name__
            raise ValueError(f"template {self.name!r} does not judge a {kind} such as {item.id!r}")
        named = item.rubric and item.rubric.named
        if named and self.gives == "score" and (not self.is_json or self.scale):
            raise ValueError(
                f"template {self.name!r} asks for one score, and {item.id!r} has several criteria:"
                " use template='chat-json', or criteria='apart'"
            )
        faults = self.faults(item)
        if faults:
            raise ValueError("{}: {}; {}".format(*faults[0]))  # column: what is wrong; remedy

        # 2) the turn and the answer of each example; then the turn to judge
        pieces: list[Piece] = []
        for example in examples:
            answer = answer_text(self, example.feedback or "", int(example.gold))
            pieces += [*self._parts(example), Reply(answer)]
        pieces += self._parts(item)
        # 3) the conversation around them; for a value head its last reply is the response
        reply = self.reply.format(**self._texts(item)) if self.reply else None
        return self.conversation.ask(pieces, answer=reply)

    def _parts(self, subject: Subject) -> list[Piece]:
        """Return the turn of an item or a pair, with `IMAGE` for each of its images."""
        return [IMAGE if isinstance(piece, Placed) else piece for piece in self._turn(subject)]

    def pictures(self, item: Subject, examples: Sequence[Item] = ()) -> list[ImageSource]:
        """List the images for the `IMAGE` markers of the prompt that `render` builds, in order."""
        sources = []
        for subject in (*examples, item):
            for piece in self._turn(subject):
                if isinstance(piece, Placed):
                    sources.append(piece.source)
        return sources

    def faults(self, item: Subject) -> list[slots.Fault]:
        """List why this template can't show the images and texts of an item or a pair.

        Returns:
            (column, what is wrong with it, the remedy), once per fault.
        """
        return list(slots.faults(self, item))

    def _turn(self, subject: Subject) -> Turn:
        """Return the texts and images of a turn, in reading order."""
        # 1) the question's images lead, unless the body has a placeholder for them
        turn: Turn = []
        if self.sees_images and "{images}" not in self.body:
            for source in subject.images:
                turn += [Placed(source), self.conversation.behind_image]
        # 2) the body; any placeholder for images ends in "images}"
        texts = self._texts(subject)
        if "images}" in self.body:
            return turn + slots.fill(self, subject, texts)
        return [*turn, self.body.format(**texts)]

    def _texts(self, item: Subject) -> dict[str, Any]:
        """Map each placeholder of the body to its text, "" where the item has none."""
        # 1) the item's or the pair's own texts
        texts: dict[str, Any] = dict.fromkeys(FIELDS, "")
        texts["instruction"] = self._unseen_images(len(item.images)) + item.instruction
        for name in ("response", "response_a", "response_b", "context"):
            texts[name] = getattr(item, name, None) or ""
        if self.sees_images and item.images:
            texts["look"] = " Check what is said about an image against the image."

        # 2) the ends of the rubric's scale, without a rubric those of `scale` or 1 and 5; and
        #    scores between them as examples
        rubric = item.rubric
        lowest, highest = rubric.bounds if rubric else (self.scale or (1, 5))
        quarter = round((highest - lowest) / 4)
        texts |= {"lowest": lowest, "low": lowest + quarter}
        texts |= {"highest": highest, "high": highest - quarter}
        texts["example"] = self.middle((lowest, highest))
        if self.is_json:
            texts["form"] = forms.json_example(self, rubric)

        # 3) the criteria, whose texts may replace {lowest} and {highest}, and the reference answer,
        #    whose texts show {highest}
        texts |= _criteria_texts(item)
        if item.reference_answer and item.reference_answer.strip():
            texts["reference_answer"] = item.reference_answer
            texts["reference_clause"] = _filled(self.reference_clause, texts)
            texts["reference_section"] = _filled(self.reference_section, texts)
        return texts

    def middle(self, scale: Scale) -> int | str:
        """Return a verdict to show as an example: the middle of a scale, or "B" for a comparison.

        Args:
            scale: its scores, or just its lowest and highest; () for a comparison, or where no
                scale is known: then it is 1 to 5.
        """
        lowest, *_, highest = scale or (1, 5)
        return "B" if self.compares else (lowest + highest) // 2

    def _unseen_images(self, n_images: int) -> str:
        """Return a line about images that the judge can't see; "" if it needs none.

        None is needed where it sees them, there are none, or the body shows their description.
        """
        if self.sees_images or n_images == 0 or "{context}" in self.body:
            return ""
        count = "an image" if n_images == 1 else f"{n_images} images"
        return f"(This instruction comes with {count} that you cannot see.)\n"

    # --- the conversation around it

    def as_messages(self) -> Template:
        """Return the template for an engine that writes the conversation around it itself."""
        return replace(self, conversation=replace(MESSAGES, system=self.conversation.system))

    def bind(
        self, tokenizer: Any, *, image_token: str, otherwise: Conversation | None = None
    ) -> Template:
        """Return the template with a checkpoint's own chat template as its conversation.

        Args:
            tokenizer: a tokenizer, or a processor with one.
            image_token: what the chat template writes for an image; "" for a text-only judge.
            otherwise: a fallback. It is taken where the checkpoint has no chat template, or one
                that moves images away from their placeholders in the body.

        Raises:
            ValueError: the checkpoint has no chat template, and there is no fallback.
        """
        chat = chat_of(tokenizer, image_token=image_token, system=self.conversation.system)
        if chat is not None:
            has_image_fields = self.sees_images and "images}" in self.body
            # without a fallback `render` refuses prompts whose images would be moved
            if otherwise is None or not has_image_fields or chat.keeps_order:
                return replace(self, conversation=chat)
        if otherwise is None:
            raise ValueError(
                "this checkpoint has no chat template: give load_judge a template= that fits its"
                " training"
            )
        return replace(self, conversation=otherwise)

    @property
    def day(self) -> str:
        """The date that its chat template reads, as "2026-11-28"; "" where it reads none."""
        return getattr(self.conversation, "day", "")

    def dated(self, day: str) -> Template:
        """Return the template with another date for its chat template; unchanged if it reads none.

        Args:
            day: the date, as "2026-11-28".
        """
        if not isinstance(self.conversation, Chat) or not self.day:
            return self
        return replace(self, conversation=replace(self.conversation, day=day))

    def fingerprint(self) -> str:
        """Return the SHA-256 (hex) of all fields, the conversation's included; a run records it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


# --- the texts of criteria, levels and reference answer


def _criteria_texts(subject: Subject) -> dict[str, str]:
    """Map {criteria} and {levels} to their texts.

    Where some criterion of an item has levels of its own, {criteria} shows each criterion above its
    levels. The result then has {lowest} and {highest} instead of {levels}: no single number is the
    lowest or the highest score of all criteria.
    """
    rubric = subject.rubric
    criteria = rubric.criteria if rubric else ""
    # 1) several criteria, some of them on scales of their own
    if rubric and rubric.mixed and isinstance(subject, Item):
        lines = []
        for name, criterion_rubric in rubric.by_name.items():
            lines += [f"{name}: {criterion_rubric.criteria}", _levels_text(criterion_rubric)]
        return {"criteria": "\n".join(lines), "lowest": "its lowest", "highest": _HIGHEST}
    # 2) the names and texts of several criteria; else a pair's own text instead of the rubric's
    if rubric and rubric.named:
        criteria = "\n".join(map(str, rubric.named))
    elif isinstance(subject, Pair) and subject.criteria:
        criteria = subject.criteria
    return {"criteria": criteria, "levels": _levels_text(rubric) if rubric else ""}


def _levels_text(rubric: Rubric) -> str:
    """Write the levels of a rubric, one per line: "Score 1: ..."."""
    return "\n".join(f"Score {score}: {text}" for score, text in rubric.levels)


def _filled(reference: str, texts: Mapping[str, object]) -> str:
    """Fill the text of {reference_clause} or {reference_section} with other placeholders' texts."""
    if texts["highest"] == _HIGHEST:  # "of score {highest}" becomes "of the highest scores"
        reference = reference.replace("score {highest}", "the highest scores")
    return reference.format(**texts)
