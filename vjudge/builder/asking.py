"""Asking the generator: every answer is recorded before it is used, and a build replays its record.

The stages are an ordinary program. Whatever it asks for is looked up in the record first, and only what is missing
there goes to the generator. Whether an answer is kept follows from the answers alone, so that a build that was killed
and started again takes the same path and ends in the same collection.
"""

from __future__ import annotations

import datetime
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tqdm.auto import tqdm

from vjudge.builder.checks import Fault, read_object
from vjudge.builder.plan import Plan
from vjudge.builder.prompts import SYSTEM, Stage
from vjudge.engines import Answer, Ask, Engine
from vjudge.prompts import Chat, Conversation, Messages, Prompt
from vjudge.runs import Run

KEYS = ("call", "try", "ask")
TRANSPORT = "(transport)"
SKIPPED = "not asked again"


class BuildError(RuntimeError):
    """A build can't go on; the message says why and what to do. What was answered is in the record."""


@dataclass(frozen=True)
class Call:
    """One thing to ask the generator for.

    Args:
        id: unique in a build, such as "response/cat/r0-i1-s3".
        stage: the kind of call.
        image: the name of the image that it shows.
        given: what it is about, as plain JSON values.
        read: makes of the answer's fields what the build goes on with; raises `Fault`.
    """

    id: str
    stage: Stage
    image: str
    given: Mapping[str, Any]
    read: Callable[[dict[str, Any]], Any]


class Asker:
    """Puts calls to a generator, and keeps account.

    Args:
        engine: what runs the generator.
        conversation: the words that its engine needs around a turn.
        name: of the generator.
        images: name -> what `open_image` opens.
        plan: the limits.
        run: the open record, with the keys `KEYS`.
        skip_unanswered: give calls up that got no answer `plan.asks` times, instead of stopping.
        progress: whether to show a bar for each wave of calls.

    Attributes:
        attempts: every try at a call: call, stage, image, try, ask, fault and detail (None where the answer was kept),
            and the tokens, seed, prompt version, model, time and seconds of its answer.
        removed: what a check took out that spans several calls: stage, image, fault, detail.
        transport: reason -> repetitions inside the engine.
    """

    def __init__(
        self,
        engine: Engine,
        conversation: Conversation,
        *,
        name: str,
        images: Mapping[str, Any],
        plan: Plan,
        run: Run,
        skip_unanswered: bool = False,
        progress: bool = True,
    ) -> None:
        self.engine, self.name = engine, name
        # Conversations that a family fixed in training keep their own opening.
        self.conversation = replace(conversation, system=SYSTEM)
        self.images, self.plan, self.run = images, plan, run
        self.skip_unanswered, self.progress = skip_unanswered, progress
        self.attempts: list[dict[str, Any]] = []
        self.removed: list[dict[str, Any]] = []
        self.transport: Counter[str] = Counter()
        for row in run.done.values():
            if row["call"] == TRANSPORT:
                self.transport.update(row["retries"])
        self._n_transport = sum(row["call"] == TRANSPORT for row in run.done.values())
        self._seen = Counter(_retries(engine))

    def ask(
        self,
        calls: Sequence[Call],
        *,
        review: Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Fault]] | None = None,
    ) -> dict[str, Any]:
        """Ask for everything, try by try, until it is accepted or given up.

        Args:
            calls: in the order that decides which of two like answers came first.
            review: for what shows only in several answers together. Takes what was accepted in earlier tries and what
                is sound in this one, both by call id in the order of `calls`, and says what of the latter to ask for
                again.

        Returns:
            Call id -> what `Call.read` made of the answer; a call that was given up is not there.

        Raises:
            BuildError: the generator does not answer.
        """
        accepted: dict[str, Any] = {}
        notes: dict[str, str] = {}
        given_up: set[str] = set()
        for number in range(self.plan.tries):
            wave = [call for call in calls if call.id not in accepted and call.id not in given_up]
            if not wave:
                break
            rows = self._answers(wave, number, notes)
            entries, fresh = {}, {}
            for call in wave:
                if call.id not in rows:
                    given_up.add(call.id)
                    continue
                entries[call.id] = self._entry(call, rows[call.id])
                try:
                    fresh[call.id] = self._read(call, rows[call.id])
                except Fault as fault:
                    _note(entries[call.id], fault, notes, call.id)
            for id, found in (review(accepted, fresh) if review else {}).items():
                del fresh[id]
                _note(entries[id], found, notes, id)
            both = accepted | fresh
            accepted = {call.id: both[call.id] for call in calls if call.id in both}
        return accepted

    def remove(self, stage: str, image: str, fault: Fault) -> None:
        """Count something that is taken out although its own answer was sound."""
        self.removed.append({"stage": stage, "image": image, "fault": fault.kind, "detail": fault.detail})

    def _read(self, call: Call, row: Mapping[str, Any]) -> Any:
        """What a recorded answer holds."""
        if row["failure"] is not None:
            declined = "refused" in row["failure"] or "filter" in row["failure"]
            kind = "refusal" if declined else "turned down"
            raise Fault(kind, row["failure"], "it was refused, and the task is harmless." if declined else "")
        try:
            found = read_object(row["text"], call.stage.schema)
        except Fault as fault:
            if not row["stopped"] and fault.kind == "not JSON":
                limit = self.plan.max_new_tokens
                raise Fault("cut off", f"at {limit} new tokens", "it was too long.") from None
            raise
        return call.read(found)

    def _answers(self, wave: Sequence[Call], number: int, notes: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
        """The recorded answers of a wave, after asking for those that are missing; what was skipped is not there."""
        prompts = [self._prompt(call, notes.get(call.id, "")) for call in wave]
        digests = [_digest(prompt) for prompt in prompts]
        found: dict[str, Mapping[str, Any]] = {}
        asked: Counter[str] = Counter()  # how often each call has been asked without an answer, by the record
        skipped: set[str] = set()
        for call, digest in zip(wave, digests, strict=True):
            while (row := self.run.done.get((call.id, number, asked[call.id]))) is not None:
                if row["asked"] != digest:
                    raise BuildError(
                        f"{self.run.path}: the record of {call.id} answers another prompt than this build asks"
                        f" ({row['asked']}, not {digest}); use another folder"
                    )
                if not row["transient"]:
                    found[call.id] = row
                    break
                self._silence(call, row)
                if row["failure"] == SKIPPED:
                    skipped.add(call.id)
                    break
                asked[call.id] += 1
        for _ in range(self.plan.asks):
            wanted = {i for i, call in enumerate(wave) if call.id not in found and call.id not in skipped}
            if not wanted:
                break
            self._round(wave, number, prompts, digests, wanted, found, asked)
        silent = [call for call in wave if call.id not in found and call.id not in skipped]
        if silent and not self.skip_unanswered:
            last = self.attempts[-1]["detail"]
            raise BuildError(
                f"{len(silent)} calls got no answer in {self.plan.asks} rounds ({silent[0].id}, for example; the last"
                f" reason: {last}). Everything else is in {self.run.path}: the same call asks for them again, and"
                " skip_unanswered=True goes on without them and counts them"
            )
        for call, digest in zip(wave, digests, strict=True):
            if call in silent:
                row = self._row(call, number, asked[call.id], digest, Answer(0, failure=SKIPPED, transient=True))
                self.run.append([row])
                self._silence(call, row)
        return found

    def _round(
        self,
        wave: Sequence[Call],
        number: int,
        prompts: Sequence[Prompt],
        digests: Sequence[str],
        wanted: set[int],
        found: dict[str, Mapping[str, Any]],
        asked: Counter[str],
    ) -> None:
        """Put the wanted calls of a wave to the generator once, and record what comes as it comes."""
        ask = Ask(
            seeds=[self._seed(call.id, number) for call in wave],
            max_new_tokens=self.plan.max_new_tokens,
            temperature=self.plan.temperature,
            top_p=self.plan.top_p,
        )
        answers = self.engine.answer(prompts, [[self.images[call.image]] for call in wave], ask, wanted)
        stopped = None
        bar = tqdm(total=len(wanted), desc=wave[0].stage.name, disable=not self.progress, leave=False)
        for batch in answers:
            fresh = []
            for answer in batch:
                call = wave[answer.index]
                if answer.transient and str(answer.failure).startswith("not asked"):
                    stopped = answer.failure
                    continue
                row = self._row(call, number, asked[call.id], digests[answer.index], answer)
                fresh.append(row)
                if answer.transient:
                    asked[call.id] += 1
                    self._silence(call, row)
                else:
                    found[call.id] = row
            self.run.append([*fresh, *self._repetitions()])
            bar.update(len(batch))
        bar.close()
        if stopped:
            raise BuildError(
                f"the generator stopped answering ({stopped}). {len(self.run.done)} lines are in {self.run.path}:"
                " repeat the call to go on"
            )

    def _prompt(self, call: Call, note: str) -> Prompt:
        text = call.stage.text(call.given, note=note)
        text = text if isinstance(self.conversation, (Messages, Chat)) else f"{SYSTEM}\n\n{text}"
        return self.conversation.wrap(text, 1)

    def _seed(self, id: str, number: int) -> int:
        return int(hashlib.sha256(f"{self.plan.seed}/{number}/{id}".encode()).hexdigest()[:7], 16)

    def _row(self, call: Call, number: int, ask: int, digest: str, answer: Answer) -> dict[str, Any]:
        """A line of the record."""
        return {
            "call": call.id,
            "try": number,
            "ask": ask,
            "stage": call.stage.name,
            "image": call.image,
            "text": answer.text,
            "failure": answer.failure,
            "transient": answer.transient,
            "stopped": answer.stopped,
            "n_prompt_tokens": answer.n_prompt_tokens,
            "n_new_tokens": answer.n_new_tokens,
            "seconds": answer.seconds,
            "seed": self._seed(call.id, number),
            "prompt": call.stage.version,
            "asked": digest,
            "model": self.name,
            "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        }

    def _repetitions(self) -> Iterable[dict[str, Any]]:
        """What the engine itself repeated since the last line, as a line of the record."""
        now = Counter(_retries(self.engine))
        fresh = now - self._seen
        self._seen = now
        if not fresh:
            return []
        self.transport.update(fresh)
        self._n_transport += 1
        return [{"call": TRANSPORT, "try": 0, "ask": self._n_transport - 1, "retries": dict(fresh)}]

    def _entry(self, call: Call, row: Mapping[str, Any]) -> dict[str, Any]:
        """A try in the account, so far without a fault."""
        names = (*KEYS, "stage", "image", "seed", "prompt", "model", "time", "seconds")
        entry = {name: row[name] for name in names} | {"fault": None, "detail": None}
        counted = row["n_prompt_tokens"] or row["n_new_tokens"]
        entry |= {name: row[name] if counted else None for name in ("n_prompt_tokens", "n_new_tokens")}
        self.attempts.append(entry)
        return entry

    def _silence(self, call: Call, row: Mapping[str, Any]) -> None:
        """Count a request without an answer."""
        self._entry(call, row).update(fault="no answer", detail=row["failure"][:200])


def _note(entry: dict[str, Any], fault: Fault, notes: dict[str, str], id: str) -> None:
    entry.update(fault=fault.kind, detail=fault.detail)
    notes[id] = fault.note or "it could not be used."


def _retries(engine: Engine) -> Mapping[str, int]:
    usage = getattr(engine, "usage", None)
    return dict(getattr(usage, "retries", {}) or {})


def _digest(prompt: Prompt) -> str:
    return hashlib.sha256(f"{prompt.system}\0{prompt.text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
