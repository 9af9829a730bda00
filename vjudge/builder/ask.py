"""Asking the generator: an answer is recorded before it is used, and only what the record lacks is asked for. Whether
one is kept follows from the answers alone, so that a build that was killed takes the same path again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tqdm.auto import tqdm

from vjudge.builder.faults import Fault, read_object
from vjudge.builder.prompts import SYSTEM, Stage
from vjudge.engines import Answer, Ask, Engine
from vjudge.prompts import Chat, Conversation, Messages, Prompt
from vjudge.runs import Run

KEYS = ("call", "try", "prompt_digest")
FIELDS = ("text", "failure", "stopped", "n_prompt_tokens", "n_new_tokens")
TOP_P = 0.95
SKIPPED = "given up without an answer"


class BuildError(RuntimeError):
    """A build can't go on; the message says why and what to do. What was answered is in the record."""


@dataclass(frozen=True, eq=False)
class Call:
    """One thing to ask the generator for."""

    id: str  # such as "response/cat-r0-i1-s3"
    stage: Stage
    image: str
    given: Mapping[str, Any]  # plain JSON values
    read: Callable[[dict[str, Any]], Any]  # of the answer's fields; raises `Fault`
    subject: Any = None  # what the build knows the call by


@dataclass
class Asker:
    """Puts calls to a generator, and counts what comes back in `log`; the options are those of `build`."""

    engine: Engine
    conversation: Conversation
    images: Mapping[str, Any]
    run: Run
    options: Mapping[str, Any]
    skip_unanswered: bool
    progress: bool
    log: list[dict[str, Any]] = field(default_factory=list, init=False)

    def ask(self, calls: Sequence[Call]) -> dict[Call, Any]:
        """Ask, try by try: call -> what its `read` made of the answer, in the order of `calls`, unless given up."""
        accepted: dict[Call, Any] = {}
        notes = dict.fromkeys(calls, "")
        for number in range(self.options["tries"]):
            wave = [call for call in notes if call not in accepted]
            for call, row in zip(wave, self._answers(wave, number, notes) if wave else (), strict=True):
                try:
                    accepted[call] = self._read(call, row)
                    self.count(call, None, number)
                except Fault as fault:
                    self.count(call, fault, number)
                    notes[call] = fault.note
                    if fault.kind == "no answer":
                        del notes[call]
        return {call: accepted[call] for call in calls if call in accepted}

    def count(self, call: Call, fault: Fault | None, number: int | None = None) -> None:
        """Count an answer, or with no number something that is taken out although its own answer was sound."""
        entry = {"call": call.id, "stage": call.stage.name, "image": call.image, "try": number}
        self.log.append(entry | {"fault": fault and fault.kind, "detail": fault and fault.detail})

    def _read(self, call: Call, row: Mapping[str, Any]) -> Any:
        """What a recorded answer holds."""
        if failure := row["failure"]:
            if failure == SKIPPED:
                raise Fault("no answer", failure)
            if "refused" in failure or "filter" in failure:
                raise Fault("refusal", failure, "it was refused, and the task is harmless.")
            raise Fault("turned down", failure, "")
        try:
            answer = read_object(row["text"], call.stage.schema)
        except Fault as fault:
            if not row["stopped"] and fault.kind == "not JSON":
                limit = self.options["max_new_tokens"]
                raise Fault("cut off", f"at {limit} new tokens", "it was too long.") from None
            raise
        return call.read(answer)

    def _answers(self, wave: Sequence[Call], number: int, notes: Mapping[Call, str]) -> list[Mapping[str, Any]]:
        """The recorded answers of a wave, after asking for those that are missing."""
        prompts = [self._prompt(call, notes[call]) for call in wave]
        keys = [(call.id, number, _digest(f"{p.system}\0{p.text}", 16)) for call, p in zip(wave, prompts, strict=True)]

        def record(answers: Sequence[Answer]) -> None:
            heads = [dict(zip(KEYS, keys[answer.index], strict=True)) for answer in answers]
            rows = [{name: getattr(answer, name) for name in FIELDS} for answer in answers]
            self.run.append(head | row for head, row in zip(heads, rows, strict=True))

        missing = {place for place, key in enumerate(keys) if key not in self.run.done}
        silent: dict[int, str] = {}
        if missing:
            seeds = [int(_digest(f"{self.options['seed']}/{number}/{call.id}", 7), 16) for call in wave]
            decoding = {name: self.options[name] for name in ("temperature", "max_new_tokens")}
            ask = Ask(seeds=seeds, top_p=TOP_P, **decoding)
            pictures = [[self.images[call.image]] for call in wave]
            with tqdm(total=len(missing), desc=wave[0].stage.name, disable=not self.progress, leave=False) as bar:
                for batch in self.engine.answer(prompts, pictures, ask, missing):
                    record([answer for answer in batch if not answer.transient])
                    silent |= {answer.index: str(answer.failure)[:200] for answer in batch if answer.transient}
                    bar.update(len(batch))
        stopped = any(reason.startswith("not asked") for reason in silent.values())
        if silent and (stopped or not self.skip_unanswered):
            reasons = ", ".join(f"{reason} ({n})" for reason, n in Counter(silent.values()).most_common(3))
            raise BuildError(
                f"{len(silent)} calls got no answer ({wave[min(silent)].id}, for example): {reasons}. Everything else"
                f" is in {self.run.path}: repeat the call to ask for them again"
                + ("" if stopped else "; skip_unanswered=True goes on without them and counts them")
            )
        record([Answer(place, failure=SKIPPED) for place in silent])
        return [self.run.done[key] for key in keys]

    def _prompt(self, call: Call, note: str) -> Prompt:
        text = call.stage.text(call.given, note=note)
        text = text if isinstance(self.conversation, (Messages, Chat)) else f"{SYSTEM}\n\n{text}"
        # Conversations that a family fixed in training keep their own opening.
        return replace(self.conversation, system=SYSTEM).wrap(text, 1)


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]
