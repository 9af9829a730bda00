"""A template is one wording of a judging task; filled with an item or a pair it gives a prompt."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

from vjudge.prompts.conversation import MESSAGES, Chat, Conversation, Prompt
from vjudge.prompts.parse import FORMATS
from vjudge.records import Item, Pair, Rubric

FIELDS = frozenset(
    "instruction criteria levels lowest highest reference_answer reference_clause reference_section"
    " context look form example low high".split()
)
"""What a wording may show beside its responses."""
NEEDS = {
    "criteria": "criteria",
    "descriptions": "levels",
    "reference_answer": "reference_answer",
    "context": "context",
}
"""The columns that a wording can't do without -> the fields that show them."""
_BRACES = "write a brace that is no field as {{ or }}"


@dataclass(frozen=True)
class Template:
    """One wording of a judging task.

    Fields of the body: {instruction}, and {response} or {response_a} and {response_b}; where the
    wording has them {criteria}, {levels}, {lowest}, {highest}, {reference_clause},
    {reference_section}, {reference_answer}, {context}, {look} (a word on checking the image),
    {low}, {example} and {high} (scores at a quarter, a half and three quarters of the scale) and
    {form} (the JSON object that is asked for).

    ValueError: the body can't be filled, or its answers can't be read.

    >>> from vjudge.prompts import VICUNA_V1, Template
    >>> body = "Q: {instruction} A: {response} End with [RESULT] and a score, such as [RESULT] 3"
    >>> Template("mine", "my paper", VICUNA_V1, body, scale=(1, 5)).scores()
    (1, 2, 3, 4, 5)
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
        text = self.body + self.reply
        responses = ("response_a", "response_b") if self.compares else ("response",)
        try:
            text.format(**dict.fromkeys((*FIELDS, *responses), ""))
        except (ValueError, LookupError) as error:
            raise ValueError(
                f"template {self.name!r}: its body can't be filled ({error!r}); {_BRACES}"
            ) from error
        for field in responses:
            if f"{{{field}}}" not in text:
                raise ValueError(f"template {self.name!r}: its body lacks {{{field}}}")
        formats = [name for name, rule in FORMATS.items() if rule.gives == self.gives]
        if self.gives != "value" and self.format not in formats:
            raise ValueError(
                f"template {self.name!r}: format {self.format!r} gives no {self.gives}; one of"
                f" {', '.join(formats)}"
            )

    @property
    def compares(self) -> bool:
        """Whether it puts two responses, not one."""
        return "{response_a}" in self.body

    @property
    def gives(self) -> str:
        """What its judge gives: a "score", a "choice" of two, or a "value" without a scale."""
        if self.reply:
            return "value"
        return "choice" if self.compares else "score"

    @property
    def needs(self) -> frozenset:
        """What the wording can't do without: columns of `NEEDS`."""
        return frozenset(column for column, field in NEEDS.items() if f"{{{field}}}" in self.body)

    @property
    def is_json(self) -> bool:
        """Whether it asks for a JSON object of its own form."""
        return "{form}" in self.body

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
    def _before_verdict(self) -> str:
        return f"{{{self.marker}" if self.is_json else self.marker

    def scores(self, rubric: Rubric | None = None) -> tuple:
        """The whole numbers of the scale: the template's own, else the rubric's; () for others."""
        if self.gives != "score":
            return ()
        if self.scale is not None:
            lowest, highest = self.scale
            return tuple(range(lowest, highest + 1))
        return rubric.scores if rubric else ()

    def score_texts(self, scores: Sequence) -> dict:
        """What the judge writes after `marker`, by score; of two responses 0 is the first.

        Empty where the answers have no single place for the verdict, so that no distribution can
        be read there.
        """
        if not self.marker:
            return {}
        if not self.compares:
            return {score: f" {score}" for score in scores}
        return {0: ' "A', 1: ' "B'} if self.is_json else {0: " A", 1: " B"}

    def schema(self, rubric: Rubric | None = None) -> dict | None:
        """The JSON schema of an answer, for a server to enforce; None for other wordings."""
        if not self.is_json:
            return None
        if self.compares:
            verdict: dict = {"type": "string", "enum": ["A", "B", "tie"]}
        else:
            verdict = {"type": "integer", "enum": list(self.scores(rubric))}
        properties = self._form(rubric, verdict)
        properties["feedback"] = {"type": "string"}
        if "scores" in properties:
            properties["scores"] = json_object(properties["scores"])
        return json_object(properties)

    def _form(self, rubric: Rubric | None, verdict: Any) -> dict:
        """The JSON object that is asked for, with `verdict` in the verdict's places."""
        form: dict = {"feedback": "One or two sentences on what is right and wrong."}
        if self.compares:
            form["choice"] = verdict
        elif rubric and rubric.named:
            form["scores"] = {criterion.name: verdict for criterion in rubric.named}
        else:
            form["score"] = verdict
        return form

    def render(self, item: Item | Pair) -> Prompt:
        """Fill the template for one item or pair; texts go in as they are, not escaped or scanned.

        Without a reference answer its section and its mention are left out, as in Prometheus 2's
        own templates. That Prometheus-Vision's does so, that "Score 5" follows the rubric's scale,
        and that a text-only judge is told of images that it can't see, are our choices.

        ValueError: an item for a pair or the reverse; a rubric of several criteria for a wording
        that asks for one score.

        Source: prometheus-eval/prometheus-eval prometheus_eval/prompts.py (ABSOLUTE_PROMPT_WO_REF).
        """
        if isinstance(item, Pair) != self.compares:
            kind = type(item).__name__
            raise ValueError(f"template {self.name!r} does not judge a {kind} such as {item.id!r}")
        if item.rubric and item.rubric.named and self.gives == "score" and not self.is_json:
            raise ValueError(
                f"template {self.name!r} asks for one score, and {item.id!r} has several criteria:"
                " use template='chat-json'"
            )
        texts = self._texts(item)
        body = self.body.format(**texts)
        answer = self.reply.format(**texts) if self.reply else None
        n_images = len(item.images) if self.sees_images else 0
        return self.conversation.wrap(body, n_images, answer=answer)

    def _texts(self, item: Item | Pair) -> dict:
        """What stands in the body's fields."""
        rubric = item.rubric
        levels = rubric.levels if rubric else []
        lowest, highest = self.scale or (1, 5)
        if rubric:
            lowest = rubric.lowest
            highest = rubric.highest
        example = "B" if self.compares else (lowest + highest) // 2
        quarter = round((highest - lowest) / 4)
        texts: dict = dict.fromkeys(FIELDS, "")
        texts |= {
            "instruction": self._unseen(len(item.images)) + item.instruction,
            "lowest": lowest,
            "highest": highest,
            "criteria": _criteria(item),
            "levels": "\n".join(f"Score {score}: {text}" for score, text in levels),
            "example": example,
            "low": lowest + quarter,
            "high": highest - quarter,
            "form": json.dumps(self._form(rubric, example), ensure_ascii=False),
        }
        if self.sees_images and item.images:
            texts["look"] = " Check what is said about an image against the image."
        if item.reference_answer and item.reference_answer.strip():
            texts["reference_answer"] = item.reference_answer
            texts["reference_clause"] = self.reference_clause.format(**texts)
            texts["reference_section"] = self.reference_section.format(**texts)
        for name in ("response", "response_a", "response_b", "context"):
            texts[name] = getattr(item, name, None) or ""
        return texts

    def _unseen(self, n_images: int) -> str:
        """A line about images that the judge can't see, where nothing else tells it of them."""
        if self.sees_images or n_images == 0 or "{context}" in self.body:
            return ""
        count = "an image" if n_images == 1 else f"{n_images} images"
        return f"(This instruction comes with {count} that you cannot see.)\n"

    def as_messages(self) -> Template:
        """The same wording for an engine that writes the conversation around it itself."""
        return replace(self, conversation=replace(MESSAGES, system=self.conversation.system))

    def bind(
        self, tokenizer: Any, *, image_token: str, otherwise: Conversation | None = None
    ) -> Template:
        """The same wording in a checkpoint's own chat template.

        Args:
            tokenizer: a tokenizer, or a processor with one.
            image_token: what the chat template writes for an image; "" for a text-only judge.
            otherwise: the conversation of a checkpoint that has no chat template.

        ValueError: the checkpoint has no chat template, and no conversation was given.
        """
        inner = getattr(tokenizer, "tokenizer", tokenizer)
        source = getattr(tokenizer, "chat_template", None) or inner.chat_template
        if isinstance(source, dict):
            source = source.get("default")
        if not source:
            if otherwise is not None:
                return replace(self, conversation=otherwise)
            raise ValueError(
                "this checkpoint has no chat template: give load_judge a template= that fits its"
                " training"
            )
        controls = set(inner.all_special_tokens)
        for token in inner.added_tokens_decoder.values():
            if token.special:
                controls.add(str(token))
        start = ""  # the token that the tokenizer puts before every text by itself
        if inner.bos_token_id in inner("").input_ids[:1]:
            start = inner.bos_token
        variables = {name: str(token) for name, token in inner.special_tokens_map.items()}
        chat = Chat(
            name="chat",
            controls=tuple(sorted(controls - {image_token})),
            reply="",
            system=self.conversation.system,
            jinja=source,
            image_token=image_token,
            variables=tuple(variables.items()),
            start=start,
            day=date.today().isoformat() if "strftime_now" in source else "",
        )
        return replace(self, conversation=replace(chat, reply=_blank_before_answer(chat)))

    @property
    def day(self) -> str:
        """What its chat template is told is today, as "2026-11-28"; "" where it asks for none."""
        return getattr(self.conversation, "day", "")

    def dated(self, day: str) -> Template:
        """The same wording on another day, where its chat template asks for the day."""
        if not isinstance(self.conversation, Chat) or not self.day:
            return self
        return replace(self, conversation=replace(self.conversation, day=day))

    def fingerprint(self) -> str:
        """SHA-256 (hex) over everything that shapes a prompt; a run records it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


def _blank_before_answer(chat: Chat) -> str:
    """The blank that a chat template writes before an answer and leaves out of a question's end."""
    try:
        question = chat.ask(["question"]).text
        _, _, written = chat.ask(["question"], answer="answer").text.partition(question)
    except ValueError:  # a template for questions alone
        return ""
    return written[: len(written) - len(written.lstrip())]


def _criteria(item: Item | Pair) -> str:
    """What is judged: named criteria one a line, else the pair's own text, else the rubric's."""
    rubric = item.rubric
    if rubric and rubric.named:
        return "\n".join(f"{each.name}: {each.description}" for each in rubric.named)
    if isinstance(item, Pair) and item.criteria:
        return item.criteria
    return rubric.criteria if rubric else ""


def json_object(properties: dict) -> dict:
    """The schema of an object that has exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def target(feedback: str, score: int) -> str:
    """The answer a judge is trained to give: feedback, its closing sentence, and the verdict.

    The sentence is added unless the feedback ends so. ValueError: the feedback closes with another
    score, or holds the verdict marker already.

    >>> target("The caption names every box.", 5)
    'The caption names every box. So the overall score is 5.\\n[RESULT] 5'

    Source: kaistAI/prometheus-vision sample_train_data.json.
    """
    feedback = feedback.strip()
    if "[RESULT]" in feedback.upper():
        raise ValueError("the feedback already holds a [RESULT] marker: pass the text before it")
    closing = f"So the overall score is {score}."
    if not feedback.endswith(closing):
        if re.search(r"So the overall score is [^.]*\.$", feedback):
            raise ValueError(
                f"the feedback closes with another score than {score}: {feedback[-40:]!r}"
            )
        feedback = f"{feedback} {closing}".lstrip()
    return f"{feedback}\n[RESULT] {score}"
