"""Salt's event bus, as its documented interface has it, over the sockets of a station.

It listens on the station's ZeroMQ socket (``gateway/event_socket.py``) and fires through its API. What came while its
queue was full is counted by the numbers in ``_sequence``.
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import zmq

from device_agent.errors import NotRunning
from gateway.engines.context import Context, current

log = logging.getLogger(__name__)

END_OF_TAG: Final = b"\n\n"
QUEUE: Final = 1000
PENDING: Final = 1000
FIRE_SECONDS: Final = 30.0
AGAIN_SECONDS: Final = 0.5
ALL: Final = ""

Found = dict[str, Any]
Match = Callable[[str, str], bool]

MATCHES: Final[Mapping[str, Match]] = {
    "startswith": lambda tag, wanted: tag.startswith(wanted),
    "endswith": lambda tag, wanted: tag.endswith(wanted),
    "find": lambda tag, wanted: wanted in tag,
    "regex": lambda tag, wanted: re.search(wanted, tag) is not None,
    "fnmatch": fnmatchcase,
}


class EventBus:
    """One listener, who may fire as well. A context manager."""

    def __init__(self, context: Context, *, listen: bool = True) -> None:
        self._context = context
        self._zmq: zmq.Context[zmq.Socket[bytes]] | None = None
        self._line: zmq.Socket[bytes] | None = None
        self._last: int | None = None
        self._subscribed: list[tuple[str, Match]] = []
        self._pending: deque[tuple[str, Found]] = deque()
        if listen:
            self.connect_pub()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()

    # --- hearing -----------------------------------------------------------------------------------------------------

    def connect_pub(self, timeout: float | None = None) -> bool:
        """Listen from now on; whether it does."""
        if self._line is not None:
            return True
        if self._context.events is None:
            raise RuntimeError("the station does not publish its events: set events.publish: true")
        self._zmq = zmq.Context()
        line = self._line = self._zmq.socket(zmq.SUB)
        line.linger, line.rcvhwm = 0, QUEUE
        line.connect(f"ipc://{self._context.events}")
        line.subscribe(b"")
        self._last = None
        return True

    def connect_pull(self, timeout: float = 1) -> bool:
        """Firing needs no connection that stays open."""
        return True

    def close_pub(self) -> None:
        """Listen no longer."""
        line, context, self._line, self._zmq = self._line, self._zmq, None, None
        if line is not None:
            line.close()
        if context is not None:
            context.term()

    def destroy(self) -> None:
        """Let everything go."""
        self.close_pub()
        self._pending.clear()

    def subscribe(self, tag: str = ALL, match_type: str | None = None) -> None:
        """Keep events with this tag, though another one is waited for first."""
        self._subscribed.append((tag, self._match(match_type)))

    def unsubscribe(self, tag: str = ALL, match_type: str | None = None) -> None:
        """Keep them no longer."""
        wanted = (tag, self._match(match_type))
        if wanted in self._subscribed:
            self._subscribed.remove(wanted)
            kept = [each for each in self._pending if any(match(each[0], of) for of, match in self._subscribed)]
            self._pending = deque(kept)

    def get_event(
        self,
        wait: float = 5,
        tag: str = ALL,
        full: bool = False,
        match_type: str | None = None,
        no_block: bool = False,
        auto_reconnect: bool = False,
    ) -> Found | None:
        """The data of the next event with this tag, or None after ``wait`` seconds; 0 waits for ever.

        ``full``: its tag as well, as ``{"tag": …, "data": …}``. ``no_block``: what is there now, or None.
        """
        match = self._match(match_type)
        for waiting in self._pending:
            if match(waiting[0], tag):
                self._pending.remove(waiting)
                return _shaped(waiting, full)
        self.connect_pub()
        deadline = None if wait == 0 and not no_block else time.monotonic() + (0 if no_block else wait)
        while (event := self._next(deadline)) is not None:
            if match(event[0], tag):
                return _shaped(event, full)
            if any(of_match(event[0], of) for of, of_match in self._subscribed):
                if len(self._pending) >= PENDING:
                    self._pending.popleft()
                    self._context.report.add("missed")
                self._pending.append(event)
        return None

    def get_event_noblock(self) -> Found | None:
        """The next event with its tag, if there is one now."""
        return self.get_event(no_block=True, full=True)

    def get_event_block(self) -> Found | None:
        """The next event with its tag, however long that takes."""
        return self.get_event(wait=0, full=True)

    def iter_events(
        self, tag: str = ALL, full: bool = False, match_type: str | None = None, auto_reconnect: bool = False
    ) -> Iterator[Found]:
        """Every event with this tag, for ever."""
        while True:
            if (event := self.get_event(tag=tag, full=full, match_type=match_type)) is not None:
                yield event

    # --- firing ------------------------------------------------------------------------------------------------------

    def fire_event(self, data: Mapping[str, Any], tag: str, timeout: float = 1000) -> bool:
        """Fire an event of the station, which is on its disk when this returns.

        While the station does not answer it is asked again. Raises ``OutstationError`` when it refuses.
        """
        deadline = time.monotonic() + FIRE_SECONDS
        while True:
            try:
                self._context.client().fire(tag, data)
            except NotRunning:
                if time.monotonic() > deadline:
                    raise
                time.sleep(AGAIN_SECONDS)
            else:
                self._context.report.add("fired")
                return True

    def fire_master(self, data: Mapping[str, Any], tag: str, timeout: float = 1000) -> bool:
        """The same: an event of a gateway goes up to its masters by itself."""
        return self.fire_event(data, tag)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _match(self, match_type: str | None) -> Match:
        kind = match_type or str(self._context.opts.get("event_match_type", "startswith"))
        if kind not in MATCHES:
            raise ValueError(f"match_type {kind!r} is none of {', '.join(MATCHES)}")
        return MATCHES[kind]

    def _next(self, deadline: float | None) -> tuple[str, Found] | None:
        assert self._line is not None
        left = None if deadline is None else int(max(0.0, deadline - time.monotonic()) * 1000)
        if not self._line.poll(left):
            return None
        head, _, body = self._line.recv(zmq.NOBLOCK).partition(END_OF_TAG)
        data: Found = msgspec.msgpack.decode(body)
        self._count(data.pop("_sequence", {}).get(""))
        return head.decode(errors="replace"), data

    def _count(self, number: int | None) -> None:
        self._context.report.add("heard")
        if number is None:
            return
        if self._last is not None and number > self._last + 1:
            missed = number - self._last - 1
            self._context.report.add("missed", missed)
            log.warning("this engine was too slow and missed %d events", missed)
        self._last = number


def _shaped(event: tuple[str, Found], full: bool) -> Found:
    return {"tag": event[0], "data": event[1]} if full else event[1]


def get_event(node: str, sock_dir: str | None = None, *given: Any, listen: bool = True, **more: Any) -> EventBus:
    """The bus of this station. ``node`` and the places of sockets are what Salt needs to find it, and are not used."""
    return EventBus(current(), listen=listen)


def get_master_event(
    opts: Mapping[str, Any],
    sock_dir: str | None = None,
    listen: bool = True,
    io_loop: Any = None,
    raise_errors: bool = False,
    keep_loop: bool = False,
) -> EventBus:
    """The same."""
    return EventBus(current(), listen=listen)


def tagify(suffix: str | list[str] = "", prefix: str = "", base: str = "salt") -> str:
    """The words of a tag with slashes between."""
    words = [base, prefix, *(suffix if isinstance(suffix, list) else [suffix])]
    return "/".join(str(word) for word in words if str(word))
