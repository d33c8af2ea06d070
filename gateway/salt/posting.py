"""Events, telemetry and the audit of the spool on a Salt master's bus, and what it does not take of them let go."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from device_agent.errors import Refused
from device_agent.protocol.messages import Item
from device_agent.questions import Unanswered
from gateway.metrics import Metrics
from gateway.salt.answers import event
from gateway.salt.line import CHUNK_BYTES
from gateway.salt.not_taken import NOT_TAKEN, NotTaken
from gateway.salt.scheduled import scheduled
from gateway.salt.told_otherwise import THERE_SECONDS, told_otherwise
from gateway.spool.queue import Spool
from upstream.frames import Stream
from upstream.salt.ports import ReturnsOfJob, SaltAbove

log = logging.getLogger(__name__)

Posted = tuple[str, dict[str, Any]]
"""A tag and its data."""


class Posting:
    """Tells the active master one message after another."""

    def __init__(
        self,
        spool: Spool,
        metrics: Metrics,
        not_taken: NotTaken,
        read: Callable[[bytes], Item | None],
        *,
        gateway: str,
        syndic_tags: bool,
    ) -> None:
        self._spool = spool
        self._metrics = metrics
        self._not_taken = not_taken
        self._read = read
        self._gateway = gateway
        self._syndic_tags = syndic_tags

    async def some(self, above: SaltAbove, master: str, stream: Stream) -> None:
        """Tell what stands first in a stream. Raises ``Unanswered`` and ``Refused``, and it is told again later."""
        rows = await self._spool.read(stream, 0, CHUNK_BYTES)
        rows = rows[: self._not_taken.fit(stream, [sequence for sequence, _ in rows])]
        sequences = [sequence for sequence, _ in rows]
        events: list[Posted] = []
        runs: list[ReturnsOfJob] = []
        for sequence, body in rows:
            item = self._read(body)
            mark = f"{self._spool.epoch}/{stream}/{sequence}"
            if (run := scheduled(item, mark)) is not None:
                runs.append(run)
            elif item is not None:
                events += event(item, mark=mark, gateway=self._gateway, twice=self._syndic_tags)
        try:
            await self._tell(above, events, runs)
        except (Unanswered, Refused):
            doubted = self._not_taken.refused(master, stream, sequences)
            if len(rows) > 1:
                self._metrics.add("salt_unconfirmed")
            elif doubted:
                await self._doubt(above, master, stream, sequences[0], events, runs)
            else:
                raise
            return
        if rows:
            await self._spool.confirm(stream, sequences[-1], master)
            self._not_taken.gone(stream, sequences)

    async def _tell(self, above: SaltAbove, events: list[Posted], runs: list[ReturnsOfJob]) -> None:
        if events:
            await above.events(events)
            self._metrics.add("salt_events_sent", len(events))
        if runs:
            await above.returns(runs)
            self._metrics.add("salt_answers_sent", len(runs))

    async def _doubt(
        self,
        above: SaltAbove,
        master: str,
        stream: Stream,
        sequence: int,
        events: list[Posted],
        runs: list[ReturnsOfJob],
    ) -> None:
        """What the master does not take holds all behind it; but it is to blame only if the master takes something."""
        mark = f"{self._spool.epoch}/{stream}/{sequence}"
        if await self._told_after_all(above, mark, events, runs):
            await self._spool.confirm(stream, sequence, master)
        else:
            log.error("an item that a Salt master does not take is let go master=%s item=%s", master, mark)
            await self._spool.drop(stream, sequence, NOT_TAKEN)
        self._not_taken.gone(stream, [sequence])

    async def _told_after_all(
        self, above: SaltAbove, mark: str, events: list[Posted], runs: list[ReturnsOfJob]
    ) -> bool:
        """Whether the master has it now; else it was told something else in its place."""
        if not runs:
            # It may have been slow, or starting anew, each time.
            await above.request("_file_envs", {}, patience=THERE_SECONDS)
            with suppress(Unanswered, Refused):
                await self._tell(above, events, runs)
                return True
            await above.events([(f"outstation/{self._gateway}/{NOT_TAKEN}", {"event": mark})])
            return False
        # A master with a full disk takes events, and stores no answer.
        taken = await told_otherwise(above, runs)
        self._metrics.add("salt_answers_sent", len(runs) if taken else 0)
        return taken
