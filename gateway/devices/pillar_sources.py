"""Pillar from outside the tree: SQL and HTTP, asked in threads, each answer bounded, and kept for bad times.

An answer counts for what was asked: a device whose grains lead to another address, or a query that was changed, is
asked for anew. A source that takes all its time and does not answer is left alone for a while.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, Final
from urllib.parse import quote, unquote, urlsplit

import msgspec
from msgspec import Struct

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.protocol.carried import carried, escape
from device_agent.traverse import ABSENT, traversed
from gateway import render_yaml
from gateway.devices.pillar_kept import PillarKept
from gateway.devices.pillar_rows import shaped
from gateway.devices.pillar_settings import External
from gateway.devices.pillar_threads import SourceThreads
from gateway.metrics import Metrics
from gateway.render import Renderer
from gateway.render_frames import Task, Tree

BODY_BYTES: Final = 1024 * 1024
ROWS: Final = 10_000
STEPS: Final = 10_000
"""Steps of SQLite between two looks at the clock."""

REMEMBERED_BYTES: Final = 32 * 1024 * 1024
AGAIN_SECONDS: Final = 15.0
"""A source that used up its time is asked again after so long."""

MARK_BYTES: Final = 16


class Away(Exception):
    """A source did not answer as it should; the text is for the log, and has no value in it."""


class Slow(Away):
    """It used up its time."""


class Said(Struct, frozen=True):
    """What the sources say of a device, in order, and errors of those that are left out."""

    pillars: list[dict[Any, Any]]
    errors: list[str]

    def __repr__(self) -> str:
        """How much there is of it."""
        return f"Said({len(self.pillars)} pillars, {len(self.errors)} errors)"


class _Answer(Struct, frozen=True):
    """An answer, what it is an answer to, and when it came: ``heard`` in monotonic seconds, in this process alone."""

    mark: bytes
    body: bytes
    told: float
    heard: float | None = None

    def __repr__(self) -> str:
        """Nothing of what it says."""
        return f"_Answer({len(self.body)} bytes)"


class PillarSources:
    """All outside sources of this station."""

    def __init__(
        self,
        sources: Sequence[External],
        *,
        site: str,
        kept: PillarKept,
        renderer: Renderer,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._sources = list(sources)
        self._site = site
        self._kept = kept
        self._renderer = renderer
        self._clock = clock
        self._metrics = metrics
        self._last: dict[tuple[str, str, str], _Answer] = {}
        self._bytes = 0
        self._threads = [SourceThreads() for _ in self._sources]
        self._away: dict[int, float] = {}

    async def of(self, site: str, device: str, grains: Mapping[str, Any]) -> Said:
        """What they say. Raises ``Refused`` where one is away and the settings refuse a pillar without it."""
        pillars, errors = [], []
        for number, source in enumerate(self._sources):
            try:
                pillars.append(await self._one(number, source, site, device, grains))
            except Away as away:
                self._metrics.refused("pillar", "source_away", source.label, str(away))
                if source.when_away == "refuse":
                    raise Refused("source_away", f"{source.label}: {away}") from None
                errors.append(f"Failed to load ext_pillar {source.label}: {away}")
        return Said(pillars, errors)

    def forget(self, site: str, device: str) -> None:
        """Let go of what they said of a device."""
        for key in [key for key in self._last if key[1:] == (site, device)]:
            self._bytes -= len(self._last.pop(key).body)

    async def _one(self, number: int, source: External, site: str, device: str, grains: Mapping[str, Any]) -> Any:
        address = _address(source, device, grains)
        key, mark = (f"{number} {source.label}", site, device), _mark(source, address)
        last = self._last.get(key) or await self._kept_before(key)
        if last is not None and last.mark != mark:
            last = None
        age = None if last is None else self._age(last)
        if last is not None and age is not None and 0 <= age < source.fresh_seconds:
            return msgspec.msgpack.decode(last.body, strict=False)
        try:
            body = await self._asked(number, source, address, device)
        except (Away, TimeoutError) as error:
            if last is None or age is None or age > source.max_age_seconds:
                known = "it never answered" if age is None else f"its last answer is {age:.0f} s old"
                why = error if isinstance(error, Away) else "no answer in time"
                raise Away(f"{why}; {known}") from None
            self._metrics.add("pillar_sources_served_from_before")
            return msgspec.msgpack.decode(last.body, strict=False)
        self._remember(key, _Answer(mark, body, self._clock.wall(), self._clock.monotonic()))
        await self._kept.keep(*key, mark + body)
        return msgspec.msgpack.decode(body, strict=False)

    async def _kept_before(self, key: tuple[str, str, str]) -> _Answer | None:
        found = await self._kept.find(*key)
        return None if found is None else _Answer(found.body[:MARK_BYTES], found.body[MARK_BYTES:], found.told)

    def _age(self, answer: _Answer) -> float:
        """By the clock that nobody sets, where this process heard it; below 0 where the clock was set back."""
        if answer.heard is not None:
            return self._clock.monotonic() - answer.heard
        return self._clock.wall() - answer.told

    def _remember(self, key: tuple[str, str, str], answer: _Answer) -> None:
        before = self._last.pop(key, None)
        self._bytes += len(answer.body) - (len(before.body) if before is not None else 0)
        if self._bytes > REMEMBERED_BYTES:
            # All of it is kept on the disk.
            self._last.clear()
            self._bytes = len(answer.body)
        self._last[key] = answer

    async def _asked(self, number: int, source: External, address: str, device: str) -> bytes:
        """Its answer. Raises ``Away`` and ``TimeoutError``."""
        self._refuse_away(number)
        try:
            value = await self._value(number, source, address, device)
        except (Slow, TimeoutError):
            self._away[number] = self._clock.monotonic() + AGAIN_SECONDS
            raise
        if not isinstance(value, dict):
            raise Away(f"it answered with a {type(value).__name__}, not with a mapping")
        try:
            render_yaml.check(value)
            return msgspec.msgpack.encode(carried(value, escape, depth=render_yaml.DEPTH, text_keys=False))
        except (render_yaml.TooLarge, Refused) as error:
            raise Away(f"its answer cannot be used: {error}") from None

    async def _value(self, number: int, source: External, address: str, device: str) -> Any:
        def work() -> Any:
            # Somebody may have found out while we waited for our turn.
            self._refuse_away(number)
            if source.sql is not None:
                return _queried(source, device, self._clock)
            return _fetched(source, address, self._clock)

        found = await self._threads[number].run(work, 2 * source.seconds + 1)
        return found if source.sql is not None else await self._read(found, device)

    def _refuse_away(self, number: int) -> None:
        left = self._away.get(number, 0.0) - self._clock.monotonic()
        if left > 0:
            raise Away(f"it did not answer in time, and is asked again in {left:.0f} s")

    async def _read(self, text: bytes, device: str) -> Any:
        if text.lstrip()[:1] == b"{":
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                raise Away("its answer is no JSON") from None
        # YAML can be small and endless at once: it is read where that does no harm.
        files = {"base": {"answer.sls": b"#!yaml\n" + text}}
        tree = Tree(f"answer {hashlib.sha256(text).hexdigest()}", files)
        rendered = await self._renderer.render(tree, Task(tree.digest, device, {}, env="base", path="answer.sls"))
        if rendered.refused:
            raise Away(f"its answer is no YAML: {rendered.refused}")
        return rendered.value()


def _address(source: External, device: str, grains: Mapping[str, Any]) -> str:
    address = (source.http or "").replace("%s", quote(device, safe=""))
    while "<" in address and ">" in address.partition("<")[2]:
        before, _, rest = address.partition("<")
        name, _, after = rest.partition(">")
        value = traversed(dict(grains), name)
        # The device says what its grains are: they are a part of an address, and no way about in it.
        if value is ABSENT or isinstance(value, (dict, list)) or str(value) in {"", ".", ".."}:
            raise Away(f"the device has no grain {name} that fits into an address")
        address = f"{before}{quote(str(value), safe='')}{after}"
    return address


def _mark(source: External, address: str) -> bytes:
    """What is asked of a source, in short: it is kept beside the answer, sealed as that is."""
    asked = [source.sql, source.query, source.root, source.depth, source.as_list, source.ignore_null, address]
    return hashlib.blake2b(msgspec.msgpack.encode(asked), digest_size=MARK_BYTES).digest()


class _SameHost(urllib.request.HTTPRedirectHandler):
    max_redirections = 3

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if _door(newurl) != _door(req.full_url):
            fp.close()
            raise Away("it sends us to another host")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _door(address: str) -> tuple[str, str]:
    parts = urlsplit(address)
    return parts.scheme, parts.netloc


def _request(address: str) -> urllib.request.Request:
    """A name and a password in an address are said in the way of HTTP."""
    parts = urlsplit(address)
    who, _, door = parts.netloc.rpartition("@")
    asked = urllib.request.Request(parts._replace(netloc=door).geturl())  # noqa: S310 - the settings take http and https alone
    if who:
        asked.add_header("Authorization", f"Basic {base64.b64encode(unquote(who).encode()).decode()}")
    return asked


def _fetched(source: External, address: str, clock: Clock) -> bytes:
    opener = urllib.request.build_opener(_SameHost, urllib.request.ProxyHandler({}))
    until = clock.monotonic() + source.seconds
    try:
        with opener.open(_request(address), timeout=source.seconds) as answer:
            body = bytearray()
            while piece := answer.read1(65_536):
                body += piece
                if len(body) > BODY_BYTES:
                    raise Away(f"it answered with more than {BODY_BYTES} bytes")
                if clock.monotonic() > until:
                    raise Slow(f"its answer took longer than {source.seconds:g} s")
            return bytes(body)
    except urllib.error.HTTPError as error:
        error.close()
        raise Away(f"it answered with status {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        late = isinstance(cause, TimeoutError) or clock.monotonic() > until
        raise (Slow if late else Away)(f"it cannot be asked: {type(cause).__name__}") from None


def _queried(source: External, device: str, clock: Clock) -> dict[Any, Any]:
    path = (source.sql or "").removeprefix("sqlite3://")
    until = clock.monotonic() + source.seconds
    try:
        connection = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=source.seconds)
        try:
            connection.set_progress_handler(lambda: int(clock.monotonic() > until), STEPS)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, BODY_BYTES)
            cursor = connection.execute(source.query, (device,))
            rows = _bounded(cursor)
            columns = [column[0] for column in cursor.description or ()]
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise (Slow if clock.monotonic() > until else Away)(f"it cannot be asked: {type(error).__name__}") from None
    return shaped(columns, rows, source)


def _bounded(rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    found, size = [], 0
    for row in rows:
        size += sum(len(value) if isinstance(value, (str, bytes)) else 8 for value in row)
        found.append(row)
        if len(found) > ROWS:
            raise Away(f"it answered with more than {ROWS} rows")
        if size > BODY_BYTES:
            raise Away(f"it answered with more than {BODY_BYTES} bytes")
    return found
