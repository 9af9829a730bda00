"""Asking the generator: every answer is recorded before it is used, and a build replays its record.

The stages are an ordinary program. Whatever it asks for is looked up in the record first, and only what is missing
there goes to the generator. Whether an answer is kept follows from the answers alone, so that a build that was killed
and started again takes the same path and ends in the same collection.
"""

from __future__ import annotations

import datetime
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tqdm.auto import tqdm

from vjudge.builder.faults import Fault, read_object
from vjudge.builder.prompts import SYSTEM, Stage
from vjudge.engines import Answer, Ask, Engine
from vjudge.prompts import Chat, Conversation, Messages, Prompt
from vjudge.runs import Run

KEYS = ("call", "try")
SILENCE = "(silence)"  # a line of the record that counts requests without an answer
SKIPPED = "given up without an answer"


class BuildError(RuntimeError):
    """A build can't go on; the message says why and what to do. What was answered is in the record."""


@dataclass(frozen=True, eq=False)
class Call:
    """One thing to ask the generator for.

    Args:
        id: unique in a build, such as "response/cat-r0-i1-s3".
        stage: the kind of call.
        image: the name of the image that it shows.
        given: what it is about, as plain JSON values.
        read: makes of the answer's fields what the build goes on with; raises `Fault`.
        subject: what the build knows the call by.
    """

    id: str
    stage: Stage
    image: str
    given: Mapping[str, Any]
    read: Callable[[dict[str, Any]], Any]
    subject: Any = None


Review = Callable[[dict[Call, Any], dict[Call, Any]], dict[Call, Fault]]


class Asker:
    """Puts calls to a generator, and counts what comes back.

    Args:
        engine: what runs the generator.
        conversation: the words that its engine needs around a turn.
        name: of the generator.
        images: name -> what `open_image` opens.
        run: the open record, with the keys `KEYS`.
        tries: answers at most to one call; requests at most for one answer.
        seed: of the draws.
        decoding: `max_new_tokens`, `temperature` and `top_p`.
        skip_unanswered: give calls up that got no answer, instead of stopping.
        progress: whether to show a bar for each wave of calls.

    Attributes:
        log: one entry an answer, and one for what a check across calls took out: call, stage, image, try, fault and
            detail (None where it was kept).
        silences: (stage, reason) -> requests without an answer.
        repeated: reason -> requests that the engine itself repeated.
    """

    def __init__(
        self,
        engine: Engine,
        conversation: Conversation,
        *,
        name: str,
        images: Mapping[str, Any],
        run: Run,
        tries: int,
        seed: int,
        decoding: Mapping[str, Any],
        skip_unanswered: bool = False,
        progress: bool = True,
    ) -> None:
        self.engine, self.name, self.images, self.run = engine, name, images, run
        # Conversations that a family fixed in training keep their own opening.
        self.conversation = replace(conversation, system=SYSTEM)
        self.tries, self.seed, self.decoding = tries, seed, decoding
        self.skip_unanswered, self.progress = skip_unanswered, progress
        self.log: list[dict[str, Any]] = []
        self.silences: Counter[tuple[str, str]] = Counter()
        self.repeated: Counter[str] = Counter()
        self._n_silences = 0
        for row in run.done.values():
            if row["call"] == SILENCE:
                self._count(row)
        self._retries = self._engine_retries()

    def ask(self, calls: Sequence[Call], *, review: Review | None = None) -> dict[Call, Any]:
        """Ask for everything, try by try, until it is accepted or given up.

        Args:
            calls: in the order that decides which of two like answers came first.
            review: for what shows only in several answers together. Takes what was accepted in earlier tries and what
                is sound in this one, and says what of the latter to ask for again.

        Returns:
            Call -> what `Call.read` made of the answer, in the order of `calls`; what was given up is not there.

        Raises:
            BuildError: the generator does not answer.
        """
        accepted: dict[Call, Any] = {}
        notes: dict[Call, str] = {}
        silent: set[Call] = set()
        for number in range(self.tries):
            wave = [call for call in calls if call not in accepted and call not in silent]
            rows = self._answers(wave, number, notes)
            entries: dict[Call, dict[str, Any]] = {}
            faults: dict[Call, Fault] = {}
            fresh: dict[Call, Any] = {}
            for call in wave:
                if rows[call]["failure"] == SKIPPED:
                    silent.add(call)
                    continue
                entries[call] = self._entry(call, number)
                try:
                    fresh[call] = self._read(call, rows[call])
                except Fault as fault:
                    faults[call] = fault
            faults |= review(accepted, fresh) if review else {}
            for call, why in faults.items():
                fresh.pop(call, None)
                entries[call].update(fault=why.kind, detail=why.detail)
                notes[call] = why.note
            accepted |= fresh
        return {call: accepted[call] for call in calls if call in accepted}

    def remove(self, call: Call, fault: Fault) -> None:
        """Count something that is taken out although its own answer was sound."""
        self._entry(call, None).update(fault=fault.kind, detail=fault.detail)

    def _entry(self, call: Call, number: int | None) -> dict[str, Any]:
        entry = {"call": call.id, "stage": call.stage.name, "image": call.image, "try": number}
        self.log.append(entry | {"fault": None, "detail": None})
        return self.log[-1]

    def _read(self, call: Call, row: Mapping[str, Any]) -> Any:
        """What a recorded answer holds."""
        if row["failure"] is not None:
            declined = "refused" in row["failure"] or "filter" in row["failure"]
            kind = "refusal" if declined else "turned down"
            raise Fault(kind, row["failure"], "it was refused, and the task is harmless." if declined else "")
        try:
            answer = read_object(row["text"], call.stage.schema)
        except Fault as fault:
            if not row["stopped"] and fault.kind == "not JSON":
                limit = self.decoding["max_new_tokens"]
                raise Fault("cut off", f"at {limit} new tokens", "it was too long.") from None
            raise
        return call.read(answer)

    def _answers(self, wave: Sequence[Call], number: int, notes: Mapping[Call, str]) -> dict[Call, Mapping[str, Any]]:
        """The recorded answers of a wave, after asking for those that are missing."""
        prompts = [self._prompt(call, notes.get(call, "")) for call in wave]
        rows: dict[Call, Mapping[str, Any]] = {}
        for call, prompt in zip(wave, prompts, strict=True):
            if row := self.run.done.get((call.id, number)):
                if row["prompt_digest"] != _digest(prompt):
                    raise BuildError(
                        f"{self.run.path}: the record of {call.id} answers another prompt than this build asks; use"
                        " another folder"
                    )
                rows[call] = row
        for _ in range(self.tries):
            missing = {place for place, call in enumerate(wave) if call not in rows}
            if missing:
                self._put(wave, number, prompts, missing, rows)
        silent = [place for place, call in enumerate(wave) if call not in rows]
        if silent and not self.skip_unanswered:
            reasons = ", ".join(f"{reason} ({n})" for (_, reason), n in self.silences.most_common(3))
            raise BuildError(
                f"{len(silent)} calls got no answer in {self.tries} requests ({wave[silent[0]].id}, for example):"
                f" {reasons}. Everything else is in {self.run.path}: the same call asks for them again, and"
                " skip_unanswered=True goes on without them and counts them"
            )
        for place in silent:
            row = self._row(wave[place], number, prompts[place], Answer(place, failure=SKIPPED))
            self.run.append([row])
            rows[wave[place]] = row
        return rows

    def _put(
        self,
        wave: Sequence[Call],
        number: int,
        prompts: Sequence[Prompt],
        missing: set[int],
        rows: dict[Call, Mapping[str, Any]],
    ) -> None:
        """Put the missing calls of a wave to the generator once, and record what comes as it comes."""
        ask = Ask(seeds=[self._seed(call, number) for call in wave], **self.decoding)
        answers = self.engine.answer(prompts, [[self.images[call.image]] for call in wave], ask, missing)
        stopped = None
        with tqdm(total=len(missing), desc=wave[0].stage.name, disable=not self.progress, leave=False) as bar:
            for batch in answers:
                answered = [(wave[answer.index], answer) for answer in batch if not answer.transient]
                fresh = {call: self._row(call, number, prompts[answer.index], answer) for call, answer in answered}
                silent = Counter(str(answer.failure)[:200] for answer in batch if answer.transient)
                stopped = next((reason for reason in silent if reason.startswith("not asked")), stopped)
                reasons = {reason: n for reason, n in silent.items() if not reason.startswith("not asked")}
                self.run.append([*fresh.values(), *self._silence(wave[0].stage.name, reasons)])
                rows.update(fresh)
                bar.update(len(batch))
        if stopped:
            raise BuildError(
                f"the generator stopped answering ({stopped}). {len(self.run.done)} lines are in {self.run.path}:"
                " repeat the call to go on"
            )

    def _prompt(self, call: Call, note: str) -> Prompt:
        text = call.stage.text(call.given, note=note)
        text = text if isinstance(self.conversation, (Messages, Chat)) else f"{SYSTEM}\n\n{text}"
        return self.conversation.wrap(text, 1)

    def _seed(self, call: Call, number: int) -> int:
        return int(hashlib.sha256(f"{self.seed}/{number}/{call.id}".encode()).hexdigest()[:7], 16)

    def _row(self, call: Call, number: int, prompt: Prompt, answer: Answer) -> dict[str, Any]:
        """A line of the record."""
        return {
            "call": call.id,
            "try": number,
            "text": answer.text,
            "failure": answer.failure,
            "stopped": answer.stopped,
            "n_prompt_tokens": answer.n_prompt_tokens,
            "n_new_tokens": answer.n_new_tokens,
            "seed": self._seed(call, number),
            "prompt": call.stage.version,
            "prompt_digest": _digest(prompt),
            "model": self.name,
            "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        }

    def _silence(self, stage: str, reasons: Mapping[str, int]) -> list[dict[str, Any]]:
        """A line of the record on requests without an answer and those that the engine repeated since the last."""
        now = self._engine_retries()
        repeated, self._retries = now - self._retries, now
        if not reasons and not repeated:
            return []
        row = {"call": SILENCE, "try": self._n_silences, "stage": stage, "silent": reasons, "repeated": dict(repeated)}
        self._count(row)
        return [row]

    def _count(self, row: Mapping[str, Any]) -> None:
        self._n_silences += 1
        self.silences.update({(row["stage"], reason): n for reason, n in row["silent"].items()})
        self.repeated.update(row["repeated"])

    def _engine_retries(self) -> Counter[str]:
        return Counter(getattr(getattr(self.engine, "usage", None), "retries", None) or {})


def _digest(prompt: Prompt) -> str:
    return hashlib.sha256(f"{prompt.system}\0{prompt.text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
