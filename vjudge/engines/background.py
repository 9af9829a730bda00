"""Many waiting tasks at once, in a thread with an event loop of its own: a notebook's loop is running already."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
Outcome = TypeVar("Outcome")


class Background:
    """An event loop in a thread, as a context manager; leaving it cancels what still runs."""

    def __enter__(self) -> Background:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="vjudge requests", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        async def cancel() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.submit(cancel()).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def submit(self, work: Coroutine[Any, Any, Outcome]) -> Future[Outcome]:
        """Start a coroutine; its result is in the future."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)


def as_finished(
    ask: Callable[[Key], Awaitable[Value]],
    keys: Iterable[Key],
    *,
    width: int,
    around: AbstractAsyncContextManager[Any],
) -> Iterator[list[Value]]:
    """Run `ask` for every key, at most `width` at once, and hand on what has finished.

    The next one starts only when the caller has come back for more after a value: whoever stops, or dies, between two
    steps loses at most `width` of them.

    Args:
        ask: a coroutine function; what it raises ends everything and is raised here.
        keys: taken in order.
        width: running, or finished and not yet handed on.
        around: entered before the first and left after the last.
    """
    arrived: queue.SimpleQueue[_Arrival[Value]] = queue.SimpleQueue()
    slots = asyncio.Semaphore(width)

    async def one(key: Key) -> None:
        try:
            arrived.put(_Arrival([await ask(key)]))
        except Exception as error:
            arrived.put(_Arrival([], error=error))

    async def everything() -> None:
        async with around:
            tasks = set()
            for key in keys:
                await slots.acquire()
                task = asyncio.create_task(one(key))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.gather(*tasks)

    with Background() as background:
        running = background.submit(everything())
        running.add_done_callback(lambda _: arrived.put(_Arrival([], last=True)))
        last = False
        while not last:
            values, last = _take(arrived)
            if values:
                yield values
                for _ in values:
                    background.loop.call_soon_threadsafe(slots.release)
        running.result()


class _Arrival(Generic[Value]):
    """Something the thread hands over: values, what went wrong, or the end."""

    def __init__(self, values: list[Value], *, error: Exception | None = None, last: bool = False) -> None:
        self.values, self.error, self.last = values, error, last


def _take(arrived: queue.SimpleQueue[_Arrival[Value]]) -> tuple[list[Value], bool]:
    """Wait for a value, and take what else is there; and whether it was the last."""
    values: list[Value] = []
    while True:
        try:
            # A bounded wait: on Windows, Ctrl-C does not end one without bound.
            arrival = arrived.get(timeout=0.5) if not values else arrived.get_nowait()
        except queue.Empty:
            if values:
                return values, False
            continue
        if arrival.error is not None:
            if not values:
                raise arrival.error
            arrived.put(arrival)  # what was paid for goes first
            return values, False
        values += arrival.values
        if arrival.last:
            return values, True
