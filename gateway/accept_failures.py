"""A door that cannot accept connections, since the process has no descriptor left: one log line, and a counter."""

from __future__ import annotations

import errno
import logging
import os
import resource
from collections.abc import Callable
from typing import Any

from device_agent.clock import Clock

log = logging.getLogger(__name__)

LOG_EVERY_SECONDS = 60.0
OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
COUNTER = "accept_failed"


class AcceptFailures:
    """Told by every door; ``check`` reads what it was told."""

    def __init__(self, add: Callable[[str], None], clock: Clock) -> None:
        self._add = add
        self._clock = clock
        self._logged: dict[str, float] = {}
        self.last: dict[str, tuple[float, str]] = {}
        """When each door could not accept last (wall time), and why."""

    def views(self) -> list[dict[str, Any]]:
        """When each door could not accept last, and why, as the API shows it."""
        return [{"door": door, "at": at, "why": why} for door, (at, why) in self.last.items()]

    def failed(self, door: str, code: int) -> None:
        """A door could not accept a connection. ``code`` is the error's number (errno(3))."""
        why = os.strerror(code)
        self._add(COUNTER)
        self.last[door] = (self._clock.wall(), why)
        now = self._clock.monotonic()
        if now - self._logged.get(door, -LOG_EVERY_SECONDS) >= LOG_EVERY_SECONDS:
            self._logged[door] = now
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            log.error("no connection can be accepted door=%s error=%r open_files_limit=%d", door, why, limit)
