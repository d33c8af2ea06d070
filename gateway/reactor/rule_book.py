"""What was added to the reactor map and taken from it while the station ran, and whether it leads: all on disk.

Salt forgets both when its master ends. A rule that was taken away stays away, also when the settings name it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from msgspec.structs import replace

from device_agent.clock import Clock
from device_agent.protocol.messages import encode_value
from gateway.reactor.rules import Rule, RuleMap
from gateway.store.reader import Reader
from gateway.store.writer import Writer

MOST: Final = 10_000
LEADER: Final = "reactor_leader"

_PUT = "INSERT OR REPLACE INTO reactor_rules (event, change, paths, at) VALUES (?, ?, ?, ?)"
_REMOVE = "DELETE FROM reactor_rules WHERE event = ? AND change = 'added'"
_ALL = "SELECT event, change, paths FROM reactor_rules ORDER BY rowid"
_SET = "INSERT OR REPLACE INTO station (key, value) VALUES (?, ?)"

_paths = msgspec.msgpack.Decoder(list[str])


class RuleBook:
    """The changes. In memory after ``open``; each is on disk before it counts."""

    def __init__(self, *, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._added: dict[str, tuple[str, ...]] = {}
        self._deleted: set[str] = set()
        self._leads = True
        self.changed = asyncio.Event()
        """Set with the first rule that is added."""

    async def open(self) -> None:
        """Read what is kept. Raises ``StoreUnreadable``."""
        for event, change, paths in await self._reader.rows(_ALL):
            if change == "added":
                self._added[event] = tuple(_paths.decode(paths))
            else:
                self._deleted.add(event)
        rows = await self._reader.rows("SELECT value FROM station WHERE key = ?", (LEADER,))
        self._leads = not rows or rows[0][0] == "true"

    @property
    def leads(self) -> bool:
        """Whether this station reacts: true until somebody says otherwise."""
        return self._leads

    @property
    def any(self) -> bool:
        """Whether rules were added."""
        return bool(self._added)

    @property
    def full(self) -> bool:
        """Whether there is no room for another change."""
        return len(self._added) + len(self._deleted) >= MOST

    def taken_away(self, rules: RuleMap) -> list[str]:
        """The tag globs that the settings name, and that do not count."""
        return list(dict.fromkeys(rule.glob for rule in rules.rules if rule.glob in self._deleted))

    def changing(self, rules: RuleMap) -> RuleMap:
        """The rules of the settings with what was changed since."""
        if not self._added and not self._deleted:
            return rules
        kept = [rule for rule in rules.rules if rule.glob not in self._deleted]
        first = max((rule.number for rule in rules.rules), default=0) + 1
        added = [
            Rule(first + place, glob, paths, added=True) for place, (glob, paths) in enumerate(self._added.items())
        ]
        return replace(rules, rules=(*kept, *added))

    async def add(self, glob: str, paths: tuple[str, ...]) -> None:
        """Add a rule for good. Raises ``StoreFailed``."""
        await self._writer.commit([(_PUT, [(glob, "added", encode_value(list(paths)), self._clock.wall())])])
        self._added[glob] = paths
        self.changed.set()

    async def delete(self, glob: str, *, of_settings: bool) -> None:
        """Take a rule away for good. Raises ``StoreFailed``."""
        gone = [(glob, "deleted", encode_value([]), self._clock.wall())] if of_settings else []
        await self._writer.commit([(_REMOVE, [(glob,)]), (_PUT, gone)])
        self._added.pop(glob, None)
        if of_settings:
            self._deleted.add(glob)

    async def lead(self, value: bool) -> None:
        """React, or leave it to others. Raises ``StoreFailed``."""
        await self._writer.commit([(_SET, [(LEADER, "true" if value else "false")])])
        self._leads = value
