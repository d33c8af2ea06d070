"""The time that a task may use, seen from inside of the process that does it: it is stopped where it is.

So it is known which file and which line did not end. What cannot be stopped from inside, since it does not come back to
Python, is ended from outside a little later: by ``gateway.render``, and by the limit of the kernel on its work.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Final

AGAIN_SECONDS: Final = 1.0
"""Where the first stop was lost, as one in a destructor is, there comes another."""


class Late(BaseException):
    """The time is over. No ``except Exception`` on the way takes it for an error of its own."""


class TimeLimit:
    """So many seconds for each task, and so many of work."""

    def __init__(self, seconds: float, cpu_seconds: float) -> None:
        self._seconds = seconds
        self._cpu_seconds = cpu_seconds
        self._running = False
        self._speaking = False
        self._late = ""

    def listen(self) -> None:
        """Take the signals of both clocks."""
        signal.signal(signal.SIGALRM, self._over)
        signal.signal(signal.SIGPROF, self._over)

    def start(self) -> None:
        """A task begins."""
        self._late = ""
        self._running = True
        signal.setitimer(signal.ITIMER_REAL, self._seconds, AGAIN_SECONDS)
        signal.setitimer(signal.ITIMER_PROF, self._cpu_seconds, AGAIN_SECONDS)

    def stop(self) -> None:
        """It has ended. To be called once more behind what catches ``Late``, which may be raised in here too."""
        self._running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)

    def __enter__(self) -> None:
        """A message is on its way: it is not cut, and whoever is late is stopped behind it."""
        self._speaking = True

    def __exit__(self, *_: object) -> None:
        self._speaking = False
        if self._late and self._running:
            raise Late(self._late)

    def _over(self, number: int, frame: FrameType | None) -> Any:  # noqa: ARG002 - the signature of a handler
        of_work = number == signal.SIGPROF
        self._late = f"{self._cpu_seconds:g} s of work" if of_work else f"{self._seconds:g} s"
        if self._running and not self._speaking:
            raise Late(self._late)
