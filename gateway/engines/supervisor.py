"""Starts engines, and starts them again after they end, with growing pauses. None of them can harm the station.

Each has a bounded queue of events at the socket, bounds of memory, files and processes, and so many lines in the log
and no more. What it did, missed and why it ended is told by ``outstation engines list``, the metrics and the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from device_agent.backoff import Backoff
from device_agent.clock import Clock
from device_agent.errors import NotFound, Refused
from device_agent.parts import Part
from gateway.engines.child import END_SECONDS, Child, Said
from gateway.engines.running import Given
from gateway.engines.settings import Engine, EngineLimits
from gateway.engines.sources import Sources
from gateway.metrics import Labelled, Metrics

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 1.0
LEAST_PAUSE_SECONDS: Final = 0.2
STEADY_SECONDS: Final = 60.0
"""One that has run for so long begins with short pauses again."""

LINES: Final = 200
LINES_SECONDS: Final = 10.0
COUNTS: Final = 64
FAILING: Final = 3
"""So many ends in a row, and `outstation check` says so."""

State = Literal["starting", "running", "waiting", "stopped"]
_level = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) ")


@dataclass
class Kept:
    """An engine, and what is known of it."""

    engine: Engine
    state: State = "starting"
    source: str = ""
    pid: int | None = None
    since: float = 0.0
    starts: int = 0
    ends_in_a_row: int = 0
    why: str = ""
    until: float | None = None
    counts: Counter[str] = field(default_factory=Counter)
    again: asyncio.Event = field(default_factory=asyncio.Event)
    child: Child | None = None
    lines_since: float = 0.0
    lines: int = 0

    def view(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "name": self.engine.name,
            "module": self.engine.module,
            "state": self.state,
            "source": self.source,
            "pid": self.pid,
            "since": self.since,
            "starts": self.starts,
            "why": self.why,
            "again_at": self.until,
            "counts": dict(sorted(self.counts.items())),
        }


class Engines(Part):
    """Keeps the engines of the settings running, from when the API answers until the station stops."""

    name: ClassVar[str] = "engines"
    drain_seconds: ClassVar[float] = END_SECONDS + 1.0

    def __init__(
        self,
        engines: Sequence[Engine],
        *,
        limits: EngineLimits,
        sources: Sources,
        opts: Mapping[str, Any],
        api: Path,
        events: Path | None,
        state_dir: Path,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._limits = limits
        self._sources = sources
        self._opts = dict(opts)
        self._api = api
        self._events = events
        self._state_dir = state_dir
        self._metrics = metrics
        self._clock = clock
        self._kept = {engine.name: Kept(engine) for engine in engines}
        self._stopping = asyncio.Event()

    async def open(self) -> None:
        """Start every engine; whether one can be started is its own affair."""
        for kept in self._kept.values():
            self.spawn(self._keep(kept), kept.engine.name)

    async def drain(self) -> None:
        """Let all of them end at once."""
        self._stopping.set()
        for kept in self._kept.values():
            kept.again.set()
            if kept.child is not None:
                kept.child.ask_to_end()
        while any(kept.state != "stopped" for kept in self._kept.values()):  # noqa: ASYNC110 - a drain has a limit
            await asyncio.sleep(0.02)

    # --- what is told of them ----------------------------------------------------------------------------------------

    def views(self) -> list[dict[str, Any]]:
        """Every engine, in the order of the settings."""
        return [kept.view() for kept in self._kept.values()]

    def restart(self, name: str) -> dict[str, Any]:
        """End an engine, or its pause, and start it now. Raises ``NotFound``."""
        kept = self._kept.get(name)
        if kept is None:
            known = ", ".join(self._kept) or "none: there is no engines: in the settings"
            raise NotFound("no such engine", where="name", found=name[:80], allowed=known)
        kept.again.set()
        if kept.child is not None:
            kept.child.ask_to_end()
        return kept.view()

    def failing(self) -> list[tuple[str, str]]:
        """Engines that end again and again, with why."""
        return [
            (kept.engine.name, kept.why)
            for kept in self._kept.values()
            if kept.state != "running" and kept.ends_in_a_row >= FAILING
        ]

    def labelled(self) -> list[Labelled]:
        """Numbers with the name of the engine."""
        found: list[Labelled] = []
        for name, kept in self._kept.items():
            label = {"engine": name}
            found += [
                ("engine_running", label, int(kept.state == "running")),
                ("engine_starts_total", label, kept.starts),
            ]
            found += [("engine_counted_total", {**label, "what": what}, n) for what, n in sorted(kept.counts.items())]
        return found

    # --- one engine --------------------------------------------------------------------------------------------------

    async def _keep(self, kept: Kept) -> None:
        pauses = Backoff(FIRST_PAUSE_SECONDS, self._limits.restart_seconds, floor=LEAST_PAUSE_SECONDS)
        try:
            while not self._stopping.is_set():
                began = self._clock.monotonic()
                kept.again.clear()
                why = await self._once(kept)
                if self._stopping.is_set():
                    return
                if self._clock.monotonic() - began >= STEADY_SECONDS:
                    pauses.reset()
                    kept.ends_in_a_row = 0
                kept.ends_in_a_row += 1
                pause = 0.0 if kept.again.is_set() else pauses.next()
                self._enter(kept, "waiting", why)
                kept.until = kept.since + pause
                log.warning(
                    "engine ended name=%s why=%r, starting it again in %.1f s", kept.engine.name, why[:500], pause
                )
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await kept.again.wait()
        finally:
            self._enter(kept, "stopped", kept.why)

    async def _once(self, kept: Kept) -> str:
        """One life of an engine; why it ended, or did not begin."""
        engine = kept.engine
        self._enter(kept, "starting", kept.why)
        try:
            source = await self._sources.find(engine.module)
        except Refused as refused:
            self._metrics.refused("engines", refused.reason, engine.name, refused.detail)
            return str(refused)
        if self._stopping.is_set():
            return kept.why
        kept.source = source.path
        child = kept.child = Child(
            lambda line: self._line(kept, line),
            lambda said: self._said(kept, said),
        )
        given = Given(
            name=engine.name,
            module=engine.module,
            path=source.path,
            text=source.text,
            builtin=source.builtin,
            options=engine.options,
            opts=self._opts,
            api=str(self._api),
            events=str(self._events or ""),
            folder=str(self._state_dir / "engine-state" / engine.name),
            log_level=str(self._opts.get("log_level", "info")),
            memory_megabytes=self._limits.memory_megabytes,
            open_files=self._limits.open_files,
        )
        kept.starts += 1
        try:
            return await child.live(given, self._limits.processes, self._state_dir, self._environment())
        except OSError as error:
            return f"its process did not start: {error.strerror or error}"
        except Exception as error:
            # Whatever it is, it must not be the end of the station.
            log.exception("an engine could not be kept name=%s", engine.name)
            return f"{type(error).__name__}: {error}"
        finally:
            kept.child = None

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in {"NOTIFY_SOCKET", "LISTEN_FDS"}}
        return {**kept, "OUTSTATION_SOCKET": str(self._api)}

    def _enter(self, kept: Kept, state: State, why: str) -> None:
        kept.state, kept.why, kept.until = state, why, None
        kept.since = self._clock.wall()
        kept.pid = None if kept.child is None else kept.child.pid

    def _said(self, kept: Kept, said: Said) -> None:
        if said.state == "running":
            self._enter(kept, "running", "")
            log.info("engine running name=%s source=%s pid=%s", kept.engine.name, kept.source, kept.pid)
        for name, count in said.counts.items():
            if name in kept.counts or len(kept.counts) < COUNTS:
                kept.counts[name] += count

    def _line(self, kept: Kept, line: str) -> None:
        """Into the log, so many and no more."""
        now = self._clock.monotonic()
        if now - kept.lines_since >= LINES_SECONDS:
            if kept.lines > LINES:
                log.warning("engine said too much name=%s lines_left_out=%d", kept.engine.name, kept.lines - LINES)
            kept.lines_since, kept.lines = now, 0
        kept.lines += 1
        if kept.lines > LINES:
            self._metrics.add("engine_lines_left_out")
            return
        found = _level.match(line)
        level = logging.getLevelNamesMapping()[found[1]] if found else logging.INFO
        text = line[found.end() :] if found else line
        log.log(level, "engine %s: %s", kept.engine.name, "".join(c if c.isprintable() else "?" for c in text))
