"""The events of a station for what must not miss any: read from its disk, with a place in them that is on disk too.

A cursor says up to where they were carried. After any end of the engine, kill -9 as well, it goes on from there, so
each event is carried at least once. Returns are their jobs' outcomes and not kept as events: they come while the engine
hears them, and not again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import Struct

from device_agent.backoff import Backoff
from device_agent.durable import read_regular
from device_agent.errors import StationFailed
from gateway.cli.client import UnixConnection
from gateway.engines.context import Context

log = logging.getLogger(__name__)

SILENCE_SECONDS: Final = 60.0
"""The station says something every ten seconds."""

AHEAD: Final = 1000
LINGER_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 5.0
"""Whoever needs longer for a batch hears from a fresh connection afterwards: no one waits for him meanwhile."""

CEILING_SECONDS: Final = 10.0
ALL: Final = 10_000
LINE_BYTES: Final = 4 * 1024 * 1024


class Heard(Struct, frozen=True):
    """An event. ``id`` is its number in the store of the station; empty for what is not kept.

    ``origin`` is the identity of an event that came from a site; empty for others.
    """

    id: str
    tag: str
    data: dict[str, Any]
    stamp: str
    site: str
    origin: str = ""

    @property
    def key(self) -> str:
        """The same for the same event, however often it is carried."""
        if self.id:
            return self.id
        return "-".join(str(self.data.get(name, "")) for name in ("jid", "id")) or self.stamp


class Feed:
    """The events that match a glob, in batches, from the cursor on."""

    def __init__(self, context: Context, tag: str = "*") -> None:
        self._context = context
        self._tag = tag
        self._place = context.folder / "cursor"
        self._at = self._restored()
        """The id of the last event that was carried; empty where there was none to begin with, None before that."""

    @property
    def at(self) -> str:
        """The id of the last event that was carried."""
        return self._at or ""

    def batches(self, most: int) -> Iterator[list[Heard]]:
        """For ever. Say ``done`` for one before the next is asked for, or it comes again."""
        pauses = Backoff(0.5, CEILING_SECONDS, floor=0.1)
        while True:
            at = self._begun()
            # Where there was no event at all, all that come are new.
            line = _Line(self._context.api, self._tag, at, history=0 if at else ALL)
            try:
                while (batch := line.batch(most, self._lost)) is not None:
                    asked = time.monotonic()
                    if batch:
                        yield batch
                        pauses.reset()
                    if batch and (self._behind(batch) or time.monotonic() - asked > PATIENCE_SECONDS):
                        break
            finally:
                line.close()
            if line.failure:
                log.warning("the station's events do not come, asking again: %s", line.failure)
                time.sleep(pauses.next())

    def done(self, batch: list[Heard]) -> None:
        """This batch was carried: it is on disk when this returns."""
        ids = [event.id for event in batch if event.id]
        if ids:
            self._keep(ids[-1])

    def _behind(self, batch: list[Heard]) -> bool:
        ids = [event.id for event in batch if event.id]
        return bool(ids) and self._at != ids[-1]

    def _lost(self, count: int | None, why: str) -> None:
        self._context.report.add("lost", count or 1)
        log.error("events were lost before they could be carried count=%s why=%r", count, why)

    def _begun(self) -> str:
        """Where to go on; at the very first, from the newest event on. Empty where there is no event at all."""
        pauses = Backoff(0.5, CEILING_SECONDS, floor=0.1)
        while self._at is None:
            newest = ""
            line = _Line(self._context.api, "*", "", history=1, follow=False)
            try:
                while (batch := line.batch(1, self._lost)) is not None:
                    if batch:
                        newest = batch[-1].id
            finally:
                line.close()
            if not line.failure:
                # That there was none is on disk as well: after a kill all that came since is new, not old.
                self._keep(newest)
                break
            # No answer does not mean that there is no event: all that is kept would be carried as if it were new.
            log.warning("the station does not say which event is its newest, asking again: %s", line.failure)
            time.sleep(pauses.next())
        return self.at

    def _restored(self) -> str | None:
        try:
            return read_regular(self._place).decode("ascii").strip()[:128]
        except FileNotFoundError:
            return None

    def _keep(self, at: str) -> None:
        self._at = at
        self._place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._place.with_suffix(".new")
        with fresh.open("w", encoding="ascii") as file:
            file.write(at)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._place)


class _Line:
    """One connection to the station, read by a thread of its own, so far ahead and no further."""

    def __init__(self, api: Path, tag: str, last: str, *, history: int = 0, follow: bool = True) -> None:
        self.failure = ""
        self._queue: queue.Queue[Heard | tuple[int | None, str] | None] = queue.Queue(AHEAD)
        self._connection = UnixConnection(api, SILENCE_SECONDS)
        self._closed = threading.Event()
        query = urlencode({"tag": tag, "history": history, "follow": "true" if follow else "false"})
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        threading.Thread(target=self._read, args=(f"/events?{query}", headers), name="feed", daemon=True).start()

    def batch(self, most: int, lost: Any) -> list[Heard] | None:
        """What there is, at least one, at most so many; None when the connection has ended."""
        found: list[Heard] = []
        wait: float | None = None
        with contextlib.suppress(queue.Empty):
            while len(found) < most:
                piece = self._queue.get(timeout=wait)
                wait = LINGER_SECONDS
                if piece is None:
                    self._queue.put_nowait(None)
                    return found or None
                if isinstance(piece, Heard):
                    found.append(piece)
                else:
                    lost(*piece)
                    wait = 0.0
        return found

    def close(self) -> None:
        """Hear no more."""
        self._closed.set()
        if self._connection.sock is not None:
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(2)
        with contextlib.suppress(queue.Empty):
            while True:
                self._queue.get_nowait()

    def _read(self, target: str, headers: dict[str, str]) -> None:
        try:
            self._connection.request("GET", target, headers=headers)
            with self._connection.getresponse() as response:
                if response.status != 200:
                    raise StationFailed(f"status {response.status}: {response.read(500)!r}")
                self._take(response)
        except (OSError, HTTPException, StationFailed, ValueError) as error:
            self.failure = "" if self._closed.is_set() else f"{type(error).__name__}: {error}"
        finally:
            self._connection.close()
            self._put(None)

    def _take(self, response: HTTPResponse) -> None:
        fields: dict[str, str] = {}
        while (line := response.readline(LINE_BYTES)) and not self._closed.is_set():
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(": ")
                fields[name] = value
                continue
            if "data" in fields:
                told = json.loads(fields["data"])
                if fields.get("event") == "missed":
                    self._put((told["missed"], told["why"]))
                else:
                    site, stamp, origin = told["site"], told["_stamp"], told.get("origin", "")
                    self._put(Heard(fields.get("id", ""), told["tag"], told["data"], stamp, site, origin))
            fields = {}

    def _put(self, piece: Heard | tuple[int | None, str] | None) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(piece, timeout=0.2)
                return
