"""A template is one wording of a judging task; filled with an item or a pair it gives a prompt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from string import Formatter
from typing import Any, NamedTuple

from vjudge.images import ImageSource
from vjudge.prompts.answers import answer_text
from vjudge.prompts.conversation import IMAGE, MESSAGES, Chat, Conversation, Prompt, Reply
from vjudge.prompts.parse import FORMATS
from vjudge.records import RESPONSE_IMAGES, Item, Pair, Rubric

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
_BRACES = "write a brace that is no field as {{ or }}"
_UNSEEN = "(an image that you cannot see)"


class Shown(NamedTuple):
    """A picture at its place in a turn."""

    source: ImageSource


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
        pictures = map(RESPONSE_IMAGES.__getitem__, self.responses)
        try:
            text.format(**dict.fromkeys((*FIELDS, *self.responses, *pictures), ""))
        except (ValueError, LookupError) as error:
            raise ValueError(
                f"template {self.name!r}: its body can't be filled ({error!r}); {_BRACES}"
            ) from error
        for field in self.responses:
            if f"{{{field}}}" not in text and f"{{{RESPONSE_IMAGES[field]}}}" not in self.body:
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
        return "{response_a}" in self.body or "{response_a_images}" in self.body

    @property
    def responses(self) -> tuple[str, ...]:
        """The columns of the responses that it puts."""
        return ("response_a", "response_b") if self.compares else ("response",)

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
    def takes_criterion(self) -> bool:
        """Whether it asks for a score of the rubric's criterion, on the rubric's scale."""
        return self.gives == "score" and self.scale is None and "{criteria}" in self.body

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

    @property
    def closing_criterion(self) -> str:
        """The same for one of several criteria; {name} is its name as JSON writes it."""
        return '\n{{"scores": {{{name}:'

    def scores(self, rubric: Rubric | None = None) -> tuple:
        """The whole numbers of the scale: the template's own, else the rubric's.

        () for what has none: a choice, a value, several criteria.
        """
        if self.gives != "score" or (rubric and rubric.named):
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

        def enumerated(scores: Sequence[int]) -> dict:
            if self.compares:
                return {"type": "string", "enum": ["A", "B", "tie"]}
            return {"type": "integer", "enum": list(scores)}

        properties = self._form(rubric, enumerated)
        properties["feedback"] = {"type": "string"}
        if "scores" in properties:
            properties["scores"] = json_object(properties["scores"])
        return json_object(properties)

    def _form(self, rubric: Rubric | None, verdict: Callable[[Sequence[int]], Any]) -> dict:
        """The JSON object that is asked for, with `verdict(scale)` in the verdict's places."""
        form: dict = {"feedback": "One or two sentences on what is right and wrong."}
        if self.compares:
            form["choice"] = verdict(())
        elif rubric and rubric.named:
            form["scores"] = {name: verdict(each.scores) for name, each in rubric.by_name.items()}
        else:
            form["score"] = verdict(self.scores(rubric))
        return form

    def render(self, item: Item | Pair, examples: Sequence[Item] = ()) -> Prompt:
        """Fill the template for one item or pair; texts go in as they are, not escaped or scanned.

        Graded examples stand before it, each a turn with the answer that the wording asks for.

        Without a reference answer its section and its mention are left out, as in Prometheus 2's
        own templates. That Prometheus-Vision's does so, that "Score 5" follows the rubric's scale,
        and that a text-only judge is told of images that it can't see, are our choices.

        ValueError: an item for a pair or the reverse; a rubric of several criteria for a wording
        that asks for one score; what `faults` names.

        Source: prometheus-eval/prometheus-eval prometheus_eval/prompts.py (ABSOLUTE_PROMPT_WO_REF).
        """
        if isinstance(item, Pair) != self.compares:
            kind = type(item).__name__
            raise ValueError(f"template {self.name!r} does not judge a {kind} such as {item.id!r}")
        named = item.rubric and item.rubric.named
        if named and self.gives == "score" and (not self.is_json or self.scale):
            raise ValueError(
                f"template {self.name!r} asks for one score, and {item.id!r} has several criteria:"
                " use template='chat-json', or criteria='apart'"
            )
        for fault in self.faults(item):
            raise ValueError("{}: {}; {}".format(*fault))
        parts: list = []
        for example in examples:
            answer = answer_text(self, example.feedback or "", int(example.gold))
            parts += [*self._parts(example), Reply(answer)]
        parts += self._parts(item)
        answered = self.reply.format(**self._texts(item)) if self.reply else None
        return self.conversation.ask(parts, answer=answered)

    def _parts(self, item: Item | Pair) -> list:
        """The turn of an item or a pair: texts, and `IMAGE`s in the places of its pictures."""
        leading, pieces = self._turn(item)
        turn = [IMAGE if isinstance(piece, Shown) else piece for piece in pieces]
        return [*self.conversation.leading(len(leading)), *turn]

    def pictures(self, item: Item | Pair, examples: Sequence[Item] = ()) -> list:
        """The pictures of a prompt's `IMAGE`s, in their order."""
        sources: list = []
        for shown in (*examples, item):
            leading, pieces = self._turn(shown)
            sources += leading
            sources += [piece.source for piece in pieces if isinstance(piece, Shown)]
        return sources

    def faults(self, item: Item | Pair) -> list[tuple[str, str, str]]:
        """What of an item has no place here: the column, the reason and the remedy of each."""
        faults = []
        if item.images and self.sees_images and self._shows_responses_alone:
            reason = f"template {self.name!r} shows a response's pictures, not the question's"
            faults.append(("images", reason, "leave them out, or use one with {images}"))
        for name in ("instruction", *self.responses):
            column = RESPONSE_IMAGES.get(name, "images")
            pictures = getattr(item, column)
            text = getattr(item, name)
            n_marks = text.count(str(IMAGE))
            shows_pictures = f"{{{column}}}" in self.body
            shows_text = f"{{{name}}}" in self.body + self.reply
            if pictures and shows_pictures and n_marks not in (0, len(pictures)):
                reason = f"{n_marks} times {IMAGE} for {len(pictures)} pictures"
                faults.append((name, reason, "write one a picture, or none"))
            if name == "instruction":
                continue
            if pictures and not shows_pictures:
                reason = f"template {self.name!r} has no place for a response's pictures"
                pictured = "chat-picture-relative" if self.compares else "chat-picture"
                faults.append((column, reason, f"use template={pictured!r}, or {{{column}}}"))
            elif not pictures and not shows_text:
                reason = f"is missing, and template {self.name!r} shows pictures alone"
                faults.append((column, reason, "fill it in or leave the row out"))
            if text.strip() and not shows_text:
                reason = f"template {self.name!r} shows a response's pictures without its text"
                faults.append((name, reason, f"leave the text out, or use one with {{{name}}}"))
        return faults

    @property
    def _shows_responses_alone(self) -> bool:
        """Whether its pictures are those of responses: it begins with them, or asks no question."""
        fields = [field for _, field, *_ in Formatter().parse(self.body)]
        pictured = [field for field in fields if field in RESPONSE_IMAGES.values()]
        opens = self.body.startswith(tuple(f"{{{field}}}" for field in pictured))
        return bool(pictured) and "images" not in fields and (opens or "instruction" not in fields)

    def _turn(self, item: Item | Pair) -> tuple[Sequence, list]:
        """The pictures before the text, and the turn behind them: texts and `Shown`s in order."""
        fields = {name: [text] for name, text in self._texts(item).items()}
        # 1) the pictures at their fields, or in the texts that mark their places
        leading = item.images if self.sees_images else ()
        if "{images}" in self.body:
            marked = _with_pictures(fields["instruction"][0], list(map(Shown, leading)))
            fields["instruction"], fields["images"] = marked
            leading = ()
        for name in self.responses:
            column = RESPONSE_IMAGES[name]
            pictures: list = list(map(Shown, getattr(item, column)))
            if not self.sees_images:
                pictures = [_UNSEEN] * len(pictures)
            fields[name], fields[column] = _with_pictures(fields[name][0], pictures)
        # 2) the body, filled
        pieces: list = []
        for literal, field, style, _ in Formatter().parse(self.body):
            pieces.append(literal)
            for piece in fields.get(field or "", ()):
                pieces.append(piece if isinstance(piece, Shown) else format(piece, style or ""))
        return leading, pieces

    def _texts(self, item: Item | Pair) -> dict:
        """What stands in the body's fields."""
        rubric = item.rubric
        lowest, highest = self.scale or (1, 5)
        if rubric:
            lowest, highest = rubric.bounds
        quarter = round((highest - lowest) / 4)
        texts: dict = dict.fromkeys(FIELDS, "")
        texts |= {
            "instruction": self._unseen(len(item.images)) + item.instruction,
            "lowest": lowest,
            "highest": highest,
            "criteria": _criteria(item),
            "levels": _levels(rubric) if rubric else "",
            "example": self._example((lowest, highest)),
            "low": lowest + quarter,
            "high": highest - quarter,
        }
        if self.is_json:
            texts["form"] = json.dumps(self._form(rubric, self._example), ensure_ascii=False)
        sections = {"clause": self.reference_clause, "section": self.reference_section}
        if rubric and rubric.mixed and not self.compares:
            # each criterion's levels stand below it, and no number is the lowest or highest of all
            texts |= {"lowest": "its lowest", "highest": "its highest score", "levels": ""}
            for name, text in sections.items():
                sections[name] = text.replace("score {highest}", "the highest scores")
        if self.sees_images and item.images:
            texts["look"] = " Check what is said about an image against the image."
        if item.reference_answer and item.reference_answer.strip():
            texts["reference_answer"] = item.reference_answer
            for name, text in sections.items():
                texts[f"reference_{name}"] = text.format(**texts)
        for name in ("response", "response_a", "response_b", "context"):
            texts[name] = getattr(item, name, None) or ""
        return texts

    def _example(self, scores: Sequence[int]) -> Any:
        """A verdict for the example of a form: the middle of a scale."""
        lowest, *_, highest = scores or (1, 5)
        return "B" if self.compares else (lowest + highest) // 2

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
        places_pictures = self.sees_images and "images}" in self.body
        if otherwise is not None and places_pictures and not chat.keeps_order:
            return replace(self, conversation=otherwise)
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


def _with_pictures(text: str, pictures: list) -> tuple[list, list]:
    """A text with pictures at their marks, and those that are left for their own field.

    >>> _with_pictures("First <image>, then <image>.", [1, 2]), _with_pictures("Look:", [1, 2])
    ((['First ', 1, ', then ', 2, '.'], []), (['Look:'], [1, 2]))
    """
    texts = text.split(str(IMAGE))
    if not pictures or len(texts) == 1:
        return [text], pictures
    pieces: list = [texts[0]]
    for picture, behind in zip(pictures, texts[1:], strict=True):
        pieces += [picture, behind]
    return pieces, []


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
    if rubric and rubric.mixed and isinstance(item, Item):
        blocks = []
        for name, each in rubric.by_name.items():
            blocks.append(f"{name}: {each.criteria}\n{_levels(each)}")
        return "\n".join(blocks)
    if rubric and rubric.named:
        return "\n".join(f"{criterion.name}: {criterion.description}" for criterion in rubric.named)
    if isinstance(item, Pair) and item.criteria:
        return item.criteria
    return rubric.criteria if rubric else ""


def _levels(rubric: Rubric) -> str:
    """The levels of a rubric, one a line."""
    return "\n".join(f"Score {score}: {text}" for score, text in rubric.levels)


def json_object(properties: dict) -> dict:
    """The schema of an object that has exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
