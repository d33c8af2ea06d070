"""What may hang in the kernel, in a thread of its own: a dead network disk holds up one beacon and nobody else.

A thread that hangs cannot be ended. It is left to itself, and no second one is begun beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import ClassVar, TypeVar

from device_agent.errors import OutstationError

T = TypeVar("T")


class Hangs(OutstationError):
    """What was begun at an earlier look is not over yet."""

    default_id: ClassVar[str] = "beacon.hangs"


class Aside:
    """Calls of one beacon, one at a time, each in a thread that holds up nobody. ``name`` is that of its threads."""

    def __init__(self, name: str = "beacon") -> None:
        self._name = name
        self._busy = False
        self._after: Callable[[], None] | None = None
        self._turn = threading.Lock()

    def last(self, what: Callable[[], None]) -> None:
        """Call what lets go of a descriptor: now, or behind a call that is not over, in its thread.

        Closed under a thread that reads, its number could be another file by then.
        """
        with self._turn:
            if self._busy:
                self._after = what
                return
        what()

    async def call(self, what: Callable[[], T]) -> T:
        """What it returns or raises. Raises ``Hangs`` while an earlier one is not over."""
        if self._busy:
            raise Hangs("the look before hangs still, no other is begun")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(value: T | None, error: BaseException | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(value)  # type: ignore[arg-type]  # without an error there is a value

        def run() -> None:
            value, raised = None, None
            try:
                value = what()
            except Exception as error:  # noqa: BLE001 - whatever it is, whoever asked gets it
                raised = error
            while (after := self._over()) is not None:
                with contextlib.suppress(OSError):
                    after()
            # The loop may have ended before a call that hung.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, value, raised)

        self._busy = True
        try:
            threading.Thread(target=run, name=self._name, daemon=True).start()
        except RuntimeError:
            # The system gives no thread now; it may for the next call.
            self._busy = False
            raise
        return await done

    def _over(self) -> Callable[[], None] | None:
        """What is to be called behind the call that ended; with nothing more, the next may begin."""
        with self._turn:
            after, self._after = self._after, None
            self._busy = after is not None
            return after
