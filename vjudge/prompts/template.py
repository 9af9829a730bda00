"""A template is one wording of a judging task; filled with an item or a pair it gives a prompt.

This file has the form of a wording and the text in its fields. `slots.py` puts pictures at places
inside it, `forms.py` has the JSON object that it may ask for, and `chat.py` the chat template of a
checkpoint.
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
"""What a wording may show beside its responses."""
NEEDS = {
    "criteria": "criteria",
    "descriptions": "levels",
    "reference_answer": "reference_answer",
    "context": "context",
}
"""The columns that a wording can't do without -> the fields that show them."""
_HIGHEST = "its highest score"  # in the place of a number, where criteria have different scales


@dataclass(frozen=True)
class Template:
    """One wording of a judging task.

    Fields of the body: {instruction}, and {response} or {response_a} and {response_b}; where the
    wording has them {criteria}, {levels}, {lowest}, {highest}, {reference_clause},
    {reference_section}, {reference_answer}, {context}, {look} (a word on checking the image),
    {low}, {example} and {high} (scores at a quarter, a half and three quarters of the scale) and
    {form} (the JSON object that is asked for).

    Pictures stand before the text, or at {images}; those of a response at {response_images},
    {response_a_images} or {response_b_images}, beside its text or in its place. A text that holds
    "<image>" as often as there are pictures has them there, where the body has their field.

    >>> from vjudge.prompts import VICUNA_V1, Template
    >>> body = "Q: {instruction} A: {response} End with [RESULT] and a score, such as [RESULT] 3"
    >>> Template("mine", "my paper", VICUNA_V1, body, scale=(1, 5)).scores()
    (1, 2, 3, 4, 5)

    Raises:
        ValueError: the body can't be filled, or no format reads its answers.
    """

    name: str  # its key in `TEMPLATES`
    source: str  # where the wording is published; "ours" where it is this project's own
    conversation: Conversation
    body: str
    scale: tuple[int, int] | None = None  # lowest and highest; None for the rubric's, or a choice
    sees_images: bool = True  # a text-only judge's prompt holds no images and says so
    marker: str = "[RESULT]"  # what stands before the verdict; "" where it has no single place
    format: str = "prometheus"  # how `vjudge.prompts.parse.parse` reads the answer
    # How the wording speaks of a reference answer, where there is one.
    reference_clause: str = ", a reference answer that gets a score of {highest}"
    reference_section: str = "###Reference Answer (Score {highest}):\n{reference_answer}\n\n"
    unread: str = "missing"  # an answer without a verdict is "missing", or "close": asked to close
    reply: str = ""  # "{response}" where the response is the assistant's turn: for a value head

    def __post_init__(self) -> None:
        # 1) every field of the body is known
        text = self.body + self.reply
        pictures = [RESPONSE_IMAGES[name] for name in self.responses]
        try:
            text.format(**dict.fromkeys((*FIELDS, *self.responses, *pictures), ""))
        except (ValueError, LookupError) as error:
            raise ValueError(
                f"template {self.name!r}: its body can't be filled ({error!r}); write a brace that"
                " is no field as {{ or }}"
            ) from error
        # 2) it shows each response
        for name in self.responses:
            if f"{{{name}}}" not in text and f"{{{RESPONSE_IMAGES[name]}}}" not in self.body:
                raise ValueError(f"template {self.name!r}: its body lacks {{{name}}}")
        # 3) its answers can be read
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
        """The columns of the responses that it shows."""
        return ("response_a", "response_b") if self.compares else ("response",)

    @property
    def gives(self) -> Literal["score", "choice", "value"]:
        """What its judge gives: a score, a choice of two, or a value without a scale."""
        if self.reply:
            return "value"
        return "choice" if self.compares else "score"

    @property
    def needs(self) -> frozenset[str]:
        """The columns that the wording can't do without, out of `NEEDS`."""
        return frozenset(column for column, field in NEEDS.items() if f"{{{field}}}" in self.body)

    @property
    def is_json(self) -> bool:
        """Whether it asks for a JSON object of its own form."""
        return "{form}" in self.body

    @property
    def takes_criterion(self) -> bool:
        """Whether it asks for a score of the rubric's criterion, on the rubric's scale."""
        return self.gives == "score" and self.scale is None and "{criteria}" in self.body

    def scores(self, rubric: Rubric | None = None) -> tuple[int, ...]:
        """List the whole numbers of the scale: the template's own, else the rubric's.

        Returns:
            () for what has no single scale: a choice, a value, several criteria.
        """
        if self.gives != "score" or (rubric and rubric.named):
            return ()
        if self.scale is not None:
            lowest, highest = self.scale
            return tuple(range(lowest, highest + 1))
        return rubric.scores if rubric else ()

    # --- the place of the verdict in an answer

    @property
    def forced(self) -> str:
        """What score mode appends to a prompt, so that one of `score_texts` comes next."""
        return f"{self.conversation.reply}{self._before_verdict}"

    @property
    def closing(self) -> str | None:
        """What closes an answer without a verdict, so that one of `score_texts` comes next.

        None where answers have no single place for a verdict: such a wording can't be closed.
        """
        return f"\n{self._before_verdict}" if self.marker else None

    @property
    def closing_criterion(self) -> str:
        """What closes an answer to read one of several criteria; {name} is its name in JSON."""
        return '\n{{"scores": {{{name}:'

    @property
    def _before_verdict(self) -> str:
        """The marker, behind the brace that opens a JSON answer."""
        return f"{{{self.marker}" if self.is_json else self.marker

    def score_texts(self, scores: Scale) -> dict[int, str]:
        """Map each score to what the judge writes after `marker`; of two responses 0 is the first.

        Returns:
            {} where the answers have no single place for the verdict, so that no distribution can
            be read there.
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
        """Fill the template for one item or pair; texts go in as they are, not escaped or scanned.

        Graded examples stand before it, each a turn with the answer that the wording asks for.

        Without a reference answer its section and its mention are left out, as in Prometheus 2's
        own templates. That Prometheus-Vision's does so, that "Score 5" follows the rubric's scale,
        and that a text-only judge is told of images that it can't see, are our choices.

        Raises:
            ValueError: an item for a pair or the reverse; a rubric of several criteria for a
                wording that asks for one score; what `faults` names.

        Source: prometheus-eval/prometheus-eval prometheus_eval/prompts.py (ABSOLUTE_PROMPT_WO_REF).
        """
        # 1) the wording fits the item
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
            raise ValueError("{}: {}; {}".format(*faults[0]))

        # 2) an example's turn and answer, for each example; then the turn to judge
        pieces: list[Piece] = []
        for example in examples:
            answer = answer_text(self, example.feedback or "", int(example.gold))
            pieces += [*self._parts(example), Reply(answer)]
        pieces += self._parts(item)
        # 3) the conversation around them; for a value head it holds the response as the reply
        reply = self.reply.format(**self._texts(item)) if self.reply else None
        return self.conversation.ask(pieces, answer=reply)

    def _parts(self, subject: Subject) -> list[Piece]:
        """Return the turn of an item or a pair, with `IMAGE` in the places of its pictures."""
        return [IMAGE if isinstance(piece, Placed) else piece for piece in self._turn(subject)]

    def pictures(self, item: Subject, examples: Sequence[Item] = ()) -> list[ImageSource]:
        """List the pictures of a prompt's `IMAGE` marks, in their order."""
        sources = []
        for subject in (*examples, item):
            for piece in self._turn(subject):
                if isinstance(piece, Placed):
                    sources.append(piece.source)
        return sources

    def faults(self, item: Subject) -> list[slots.Fault]:
        """List the pictures and texts of an item or a pair that this wording has no place for."""
        return list(slots.faults(self, item))

    def _turn(self, subject: Subject) -> Turn:
        """Return the texts and pictures of a turn, in reading order."""
        # 1) the question's pictures lead, unless the body has a place for them
        turn: Turn = []
        if self.sees_images and "{images}" not in self.body:
            for source in subject.images:
                turn += [Placed(source), self.conversation.behind_image]
        # 2) the body, and pictures in its places
        texts = self._texts(subject)
        if "images}" in self.body:
            return turn + slots.fill(self, subject, texts)
        return [*turn, self.body.format(**texts)]

    def _texts(self, item: Subject) -> dict[str, Any]:
        """Return what stands in the body's fields, by name."""
        # 1) the subject itself
        texts: dict[str, Any] = dict.fromkeys(FIELDS, "")
        texts["instruction"] = self._unseen_images(len(item.images)) + item.instruction
        for name in ("response", "response_a", "response_b", "context"):
            texts[name] = getattr(item, name, None) or ""
        if self.sees_images and item.images:
            texts["look"] = " Check what is said about an image against the image."

        # 2) the scale, and scores on it as examples
        rubric = item.rubric
        lowest, highest = rubric.bounds if rubric else self.scale or (1, 5)
        quarter = round((highest - lowest) / 4)
        texts |= {"lowest": lowest, "low": lowest + quarter}
        texts |= {"highest": highest, "high": highest - quarter}
        texts["example"] = self.middle((lowest, highest))
        if self.is_json:
            texts["form"] = forms.json_example(self, rubric)

        # 3) the criteria, which may replace the ends of the scale, and the reference answer
        texts |= _criteria_texts(item)
        if item.reference_answer and item.reference_answer.strip():
            texts["reference_answer"] = item.reference_answer
            texts["reference_clause"] = _filled(self.reference_clause, texts)
            texts["reference_section"] = _filled(self.reference_section, texts)
        return texts

    def middle(self, scale: Scale) -> int | str:
        """Return a verdict to show as an example: the middle of a scale, or a choice."""
        lowest, *_, highest = scale or (1, 5)
        return "B" if self.compares else (lowest + highest) // 2

    def _unseen_images(self, n_images: int) -> str:
        """Return a line about images that the judge can't see, if nothing else tells it of them."""
        if self.sees_images or n_images == 0 or "{context}" in self.body:
            return ""
        count = "an image" if n_images == 1 else f"{n_images} images"
        return f"(This instruction comes with {count} that you cannot see.)\n"

    # --- the conversation around it

    def as_messages(self) -> Template:
        """Return the wording for an engine that writes the conversation around it itself."""
        return replace(self, conversation=replace(MESSAGES, system=self.conversation.system))

    def bind(
        self, tokenizer: Any, *, image_token: str, otherwise: Conversation | None = None
    ) -> Template:
        """Return the wording in a checkpoint's own chat template.

        Args:
            tokenizer: a tokenizer, or a processor with one.
            image_token: what the chat template writes for an image; "" for a text-only judge.
            otherwise: the conversation for a checkpoint that has no chat template, or one that
                moves pictures from the places where the wording has them.

        Raises:
            ValueError: the checkpoint has no chat template, and no conversation was given.
        """
        chat = chat_of(tokenizer, image_token=image_token, system=self.conversation.system)
        if chat is not None:
            places_pictures = self.sees_images and "images}" in self.body
            if otherwise is None or not places_pictures or chat.keeps_order:
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
        """Return the wording on another day, where its chat template reads the date."""
        if not isinstance(self.conversation, Chat) or not self.day:
            return self
        return replace(self, conversation=replace(self.conversation, day=day))

    def fingerprint(self) -> str:
        """Return the SHA-256 (hex) of everything that shapes a prompt; a run records it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


# --- criteria, levels and reference answer, as a wording shows them


def _criteria_texts(subject: Subject) -> dict[str, str]:
    """Write what is judged, and the levels of its scale, for the fields of a body.

    Where some criterion of an item has levels of its own, each criterion stands above its levels,
    and no number is the lowest or the highest score of all.
    """
    rubric = subject.rubric
    criteria = rubric.criteria if rubric else ""
    # several criteria on scales of their own, then several on one scale, then a pair's own text
    if rubric and rubric.mixed and isinstance(subject, Item):
        lines = []
        for name, rubric_alone in rubric.by_name.items():
            lines += [f"{name}: {rubric_alone.criteria}", _levels_text(rubric_alone)]
        return {"criteria": "\n".join(lines), "lowest": "its lowest", "highest": _HIGHEST}
    if rubric and rubric.named:
        criteria = "\n".join(map(str, rubric.named))
    elif isinstance(subject, Pair) and subject.criteria:
        criteria = subject.criteria
    return {"criteria": criteria, "levels": _levels_text(rubric) if rubric else ""}


def _levels_text(rubric: Rubric) -> str:
    """Write the levels of a rubric, one a line."""
    return "\n".join(f"Score {score}: {text}" for score, text in rubric.levels)


def _filled(reference: str, texts: Mapping[str, object]) -> str:
    """Fill the clause or the section of a reference answer."""
    if texts["highest"] == _HIGHEST:  # "of score {highest}" becomes "of the highest scores"
        reference = reference.replace("score {highest}", "the highest scores")
    return reference.format(**texts)
