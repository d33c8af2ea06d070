"""What systemd is told of a daemon: ready, one sentence about its state, alive, stopping (sd_notify(3)).

The protocol is a datagram of lines to a socket whose name stands in the environment, so it needs no library and works
where none is installed. Without that name, as in a terminal, everything here does nothing.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Final

from device_agent.errors import EXIT_CONFIG, OutstationError

log = logging.getLogger(__name__)

SEND_SECONDS: Final = 1.0
"""Longest that the loop waits for a socket which is full."""

STATUS_CHARACTERS: Final = 500


class Notifier:
    """The way to the service manager, taken out of the environment: what this process starts must not speak for it."""

    def __init__(self, environment: MutableMapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        self._address = given.pop("NOTIFY_SOCKET", "")
        microseconds, process = given.pop("WATCHDOG_USEC", ""), given.pop("WATCHDOG_PID", "")
        meant = self._address and microseconds.isdigit() and process in {"", str(os.getpid())}
        self.watchdog_seconds: Final = int(microseconds) / 1e6 if meant else 0.0
        """Without a word for so long, this process is ended; 0 where nobody watches."""
        self._status = ""
        self._deaf = False

    @property
    def listens(self) -> bool:
        """Whether there is anybody to tell."""
        return bool(self._address)

    def ready(self, sentence: str) -> None:
        """From now on this process serves."""
        self._status = _line(sentence)
        self._send("READY=1", f"STATUS={self._status}")

    def status(self, sentence: str) -> None:
        """How things are, in one sentence; said again only when it has changed."""
        line = _line(sentence)
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    def alive(self) -> None:
        """Feed the watchdog."""
        if self.watchdog_seconds:
            self._send("WATCHDOG=1")

    def extend(self, seconds: float, sentence: str) -> None:
        """Starting or stopping takes up to so many more seconds, and why."""
        self._status = _line(sentence)
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}", f"STATUS={self._status}")

    def stopping(self, sentence: str) -> None:
        """This process ends in order."""
        self._status = _line(sentence)
        self._send("STOPPING=1", f"STATUS={self._status}")

    def crashed(self, errors: Sequence[BaseException]) -> None:
        """What has ended this process, which is started again."""
        first = next((error for error in errors if isinstance(error, OutstationError)), None) or errors[0]
        said = one_sentence(first) if isinstance(first, OutstationError) else f"{type(first).__name__}: {first}"
        self.status(f"crashed: {said}")

    @contextmanager
    def told(self) -> Iterator[None]:
        """Whatever error leaves this block is the last status: what is wrong, and what to type."""
        try:
            yield
        except OutstationError as error:
            # Nothing else starts a unit that ended so (``RestartPreventExitStatus=``).
            stays_down = error.exit_status == EXIT_CONFIG and error.hint is not None
            self.status(one_sentence(error) + ("; then start this unit again" if stays_down else ""))
            raise
        except Exception as error:
            self.crashed([error])
            raise

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(SEND_SECONDS)
                channel.connect(address)
                channel.send("\n".join(lines).encode())
        except OSError as error:
            if not self._deaf:
                log.warning("the service manager cannot be told socket=%s error=%s", self._address, error)
            self._deaf = True
        else:
            self._deaf = False


def one_sentence(error: OutstationError) -> str:
    """An error in one line: what, where, what was found, and what to type."""
    text = f"{error.what} ({error.where})" if error.where else error.what
    if error.found is not None:
        text += f": {error.found}"
    return f"{text}; try: {error.hint}" if error.hint is not None else text


def _line(sentence: str) -> str:
    """On one line, without anything that a terminal would obey: ``systemctl status`` shows it as it is."""
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in sentence).split())
    return words if len(words) <= STATUS_CHARACTERS else f"{words[: STATUS_CHARACTERS - 1]}…"
