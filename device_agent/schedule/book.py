"""Which entries a device's schedule has: those of its pillar, of its settings, and what was changed while it ran. Pure.

As in Salt an entry of the settings counts before one of the same name in the pillar. What is changed is kept at once,
or with ``persist=False`` until the next start or ``schedule.reload``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import tzinfo
from typing import Any, Final, Literal

import msgspec

from device_agent.schedule.entries import (
    ENTRIES,
    GLOBAL,
    Entry,
    ScheduleInvalid,
    entry,
    overall,
    with_common,
)
from device_agent.schedule.kept import Changes

Where = Literal["opts", "pillar"]

HIDDEN: Final = "__"
"""Salt's own entries begin so, and are not shown unless asked for."""


class ScheduleBook:
    """The entries of one device, as they were written and as they are meant."""

    def __init__(self, settings: Mapping[str, Any], zone: tzinfo) -> None:
        self.zone: Final = zone
        self.errors: dict[str, str] = {}
        """What is wrong with entries of the pillar, which are left out."""
        self.live = Changes()
        self.saved = Changes()
        self._settings = dict(settings)
        self._pillar: dict[str, Any] = {}

    def restore(self, changes: Changes, pillar: dict[str, Any]) -> None:
        """Go on from what was kept."""
        self.saved = changes
        self._pillar = pillar
        self.revert()

    def revert(self) -> None:
        """Only what was kept counts."""
        self.live = _copied(self.saved)

    def save(self) -> None:
        """All that counts is kept."""
        self.saved = _copied(self.live)

    @property
    def pillar(self) -> dict[str, Any]:
        """The schedule in the pillar, as it came."""
        return self._pillar

    def take_pillar(self, schedule: object) -> bool:
        """The pillar has this schedule now; whether that is another one."""
        if not isinstance(schedule, Mapping):
            self.errors["schedule"] = "the schedule in the pillar is no mapping of entries"
            schedule = {}
        taken = {str(name): value for name, value in list(schedule.items())[:ENTRIES]}
        changed = taken != self._pillar
        self._pillar = taken
        return changed

    @property
    def enabled(self) -> bool:
        """Whether the schedule as a whole runs."""
        if self.live.enabled is not None:
            return self.live.enabled
        told = self._settings.get("enabled", self._pillar.get("enabled", True))
        return told if isinstance(told, bool) else True

    def written(self, where: Where | None = None) -> dict[str, dict[str, Any]]:
        """The entries as they were written, with ``enabled`` as it is now."""
        found: dict[str, dict[str, Any]] = {}
        if where != "opts":
            found |= _entries(self._pillar)
        if where != "pillar":
            found |= {name: value for name, value in _entries(self._settings).items() if name not in self.live.removed}
            found |= self.live.entries
        for name in found:
            if name in self.live.switched and not (where == "pillar" or self.is_pillar(name)):
                found[name] = {**found[name], "enabled": self.live.switched[name]}
        return copy.deepcopy(found)

    def is_pillar(self, name: str) -> bool:
        """Whether an entry is one of the pillar, which nobody changes here."""
        if name in self.live.entries:
            return False
        return name in _entries(self._pillar) and (name not in self._settings or name in self.live.removed)

    def entries(self) -> dict[str, Entry]:
        """The entries that can be used; ``errors`` says why others cannot."""
        self.errors = {}
        try:
            common = overall(self._settings) or overall(self._pillar)
        except ScheduleInvalid as error:
            common, self.errors["schedule"] = {}, str(error)
        found: dict[str, Entry] = {}
        for name, value in self.written().items():
            place = "pillar schedule" if self.is_pillar(name) else "schedule"
            try:
                found[name] = entry(name, with_common(value, common), self.zone, place=place)
            except ScheduleInvalid as error:
                self.errors[name] = str(error)
        return found

    # --- changes -------------------------------------------------------------------------------------------------

    def put(self, name: str, value: dict[str, Any], reach: str, *, persist: bool) -> None:
        """Add an entry or change it. Raises ``ScheduleInvalid``."""
        entry(name, value, self.zone)
        if name not in self.written() and len(self.written()) >= ENTRIES:
            raise ScheduleInvalid("too many entries", where="schedule", allowed=f"at most {ENTRIES}")
        for changes in self._layers(persist=persist):
            changes.entries[name] = copy.deepcopy(value)
            changes.switched.pop(name, None)
            changes.reach.pop(name, None)
            if reach:
                changes.reach[name] = reach

    def remove(self, name: str, *, persist: bool) -> None:
        """Take an entry away, also one of the settings."""
        for changes in self._layers(persist=persist):
            changes.entries.pop(name, None)
            changes.switched.pop(name, None)
            changes.reach.pop(name, None)
            if name in self._settings and name not in changes.removed:
                changes.removed.append(name)

    def switch(self, name: str | None, *, on: bool, persist: bool) -> None:
        """Switch an entry on or off, or the whole schedule."""
        for changes in self._layers(persist=persist):
            if name is None:
                changes.enabled = on
            else:
                changes.switched[name] = on

    def _layers(self, *, persist: bool) -> list[Changes]:
        return [self.live, self.saved] if persist else [self.live]


def _entries(schedule: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: value for name, value in schedule.items() if name not in GLOBAL}


def _copied(changes: Changes) -> Changes:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(changes), type=Changes)
