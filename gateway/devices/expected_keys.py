"""Keys that are expected: a list of dids or fingerprints, as a maker or an installer hands it over, perhaps with names.

A device that proves to hold one of them is let in at once, and the key is expected no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from device_agent.errors import PolicyRefused, UsageInvalid
from device_agent.protocol import limits
from device_agent.trust import keys
from gateway.devices.naming import is_name
from gateway.store.writer import Statement

LOAD = "SELECT key, name, added, added_by FROM expected_keys"
_ADD = (
    "INSERT INTO expected_keys (key, name, added, added_by) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (key) DO UPDATE SET name=excluded.name, added=excluded.added, added_by=excluded.added_by"
)
_DELETE = "DELETE FROM expected_keys WHERE key = ?"

_did = re.compile(keys.DID_PATTERN)
_fingerprint = re.compile(r"[a-z2-7]{16}\Z")


class ExpectedKey(msgspec.Struct, frozen=True):
    """One of them: ``key`` is a did, or a fingerprint without its dashes."""

    key: str
    name: str
    added: float
    added_by: str


class ExpectedKeys:
    """All of them. Decided in memory; the statements make it true on disk."""

    def __init__(self) -> None:
        self._keys: dict[str, ExpectedKey] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def load(self, rows: Iterable[Sequence[Any]]) -> None:
        """Take the rows of ``LOAD``."""
        self.keep(ExpectedKey(*row) for row in rows)

    def adding(
        self, listed: Sequence[tuple[str, str]], now: float, by: str
    ) -> tuple[list[ExpectedKey], list[Statement]]:
        """Entries from (key, name) pairs, and statements; commit them, then ``keep``. Raises ``UsageInvalid``."""
        entries = [ExpectedKey(normal(key), _name(name), now, by) for key, name in listed]
        names = [entry.name for entry in entries if entry.name]
        if len(names) != len(set(names)) or len(entries) != len({entry.key for entry in entries}):
            raise UsageInvalid("a key or a name is in this list twice", error_id="expected.doubled")
        if len(self._keys.keys() | {entry.key for entry in entries}) > limits.DEVICES_PER_STATION:
            raise PolicyRefused(
                "this station expects no more keys",
                error_id="expected.full",
                found=f"{len(self._keys)} are expected already",
                allowed=f"{limits.DEVICES_PER_STATION}",
            )
        rows = [(entry.key, entry.name, entry.added, entry.added_by) for entry in entries]
        return entries, [(_ADD, rows)]

    def keep(self, entries: Iterable[ExpectedKey]) -> None:
        """These are on disk."""
        self._keys.update({entry.key: entry for entry in entries})

    def of(self, did: str, public: bytes) -> ExpectedKey | None:
        """The entry that a key fits."""
        return self._keys.get(did) or self._keys.get(keys.fingerprint(public).replace("-", ""))

    def find(self, text: str) -> ExpectedKey | None:
        """The entry that somebody typed, by its key or its name."""
        typed = text.replace("-", "").lower()
        return self._keys.get(typed) or next((entry for entry in self._keys.values() if entry.name == text), None)

    @staticmethod
    def taking(entry: ExpectedKey) -> Statement:
        """The statement that expects a key no more; commit it, then ``drop``."""
        return (_DELETE, [(entry.key,)])

    def drop(self, entry: ExpectedKey) -> None:
        """This is on disk no more."""
        self._keys.pop(entry.key, None)

    def views(self) -> list[dict[str, Any]]:
        """As the API shows them."""
        return [
            {"key": entry.key, "name": entry.name, "added": entry.added, "added_by": entry.added_by}
            for entry in sorted(self._keys.values(), key=lambda entry: (entry.added, entry.key))
        ]


def normal(text: str) -> str:
    """A did or a fingerprint as it is kept. Raises ``UsageInvalid``."""
    typed = re.sub(r"[\s-]", "", text).lower()
    if not _did.match(typed) and not _fingerprint.match(typed):
        raise UsageInvalid(
            "neither a did nor a fingerprint",
            error_id="expected.key",
            found=text[:60],
            allowed="26 letters and digits, or 4 groups of 4, as `outstation-agent show` says them on the device",
        )
    return typed


def _name(text: str) -> str:
    name = text.strip()
    if name and not is_name(name):
        raise UsageInvalid("no device can be called that", error_id="expected.name", found=name[:130])
    return name
