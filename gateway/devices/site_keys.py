"""Which keys may speak for which sites: pending until an operator accepts, as Salt's keys are.

One key can be accepted for a site. Another key that claims the same name is denied and shown as such; it can take the
place of the first only after an operator rejected that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from device_agent.clock import Clock
from device_agent.errors import NotFound, UsageInvalid
from device_agent.parts import Part
from device_agent.protocol import limits, tags
from gateway.bus import Bus
from gateway.metrics import Metrics
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer
from upstream.curve import fingerprint
from upstream.ports import KeyState

_PUT = (
    "INSERT INTO keys (key, site, state, address, first_seen, last_seen) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (key) DO UPDATE SET site=excluded.site, state=excluded.state, address=excluded.address,"
    " last_seen=excluded.last_seen"
)
_SITE = "INSERT OR IGNORE INTO sites (site) VALUES (?)"


@dataclass
class SiteKey:
    """A site's CURVE key and its standing. Times are wall seconds."""

    key: str
    site: str
    state: KeyState
    address: str
    first_seen: float
    last_seen: float

    def view(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "site": self.site,
            "state": self.state,
            "fingerprint": fingerprint(self.key),
            "key": self.key,
            "first_seen": self.first_seen,
            "last_seen": self.last_seen,
            "address": self.address,
        }


async def _nobody() -> None:
    """Until somebody asks to be told."""


class SiteKeys(Part):
    """Implements ``upstream.ports.Admission``; every change is on disk before it counts."""

    name: ClassVar[str] = "site_keys"

    def __init__(
        self, *, station: str, writer: Writer, reader: Reader, bus: Bus, metrics: Metrics, clock: Clock
    ) -> None:
        self._station = station
        self._writer = writer
        self._reader = reader
        self._bus = bus
        self._metrics = metrics
        self._clock = clock
        self._keys: dict[str, SiteKey] = {}
        self._deciding = asyncio.Lock()
        self._on_change: Callable[[], Awaitable[None]] = _nobody

    async def open(self) -> None:
        """Load the keys."""
        for row in await self._reader.rows("SELECT key, site, state, address, first_seen, last_seen FROM keys"):
            self._keys[row[0]] = SiteKey(*row)

    def on_change(self, call: Callable[[], Awaitable[None]]) -> None:
        """Call after keys were accepted or rejected."""
        self._on_change = call

    def known(self, key: str) -> bool:
        """Whether the key is accepted for some site."""
        entry = self._keys.get(key)
        return entry is not None and entry.state == "accepted"

    def accepted_sites(self) -> list[str]:
        """The names of the sites that may connect."""
        return sorted(entry.site for entry in self._keys.values() if entry.state == "accepted")

    def of_site(self, site: str) -> SiteKey | None:
        """The accepted key of a site."""
        return next((entry for entry in self._keys.values() if entry.site == site and entry.state == "accepted"), None)

    def views(self) -> list[dict[str, Any]]:
        """Every key, by site and first sight."""
        return [entry.view() for entry in sorted(self._keys.values(), key=lambda entry: (entry.site, entry.first_seen))]

    async def judge(self, site: str, key: str, address: str) -> KeyState:
        """The standing of a key that claims a site now."""
        async with self._deciding:
            return await self._judge(site, key, address)

    async def _judge(self, site: str, key: str, address: str) -> KeyState:
        now = self._clock.wall()
        entry = self._keys.get(key)
        if site == self._station:
            self._metrics.refused("uplink", "own_name", f"{site}@{address}", f"key {fingerprint(key)}")
            return "denied"
        if entry is not None and entry.state == "rejected":
            # Whatever name it takes now: an operator has decided about this key.
            return "rejected"
        if entry is not None and (entry.site == site or entry.state == "accepted"):
            if entry.site != site:
                # An accepted site that calls itself by another name: its key stays what it is, the claim is refused.
                self._metrics.refused("uplink", "other_name", f"{entry.site}@{address}", f"it claims {site}")
                return "denied"
            holder = self.of_site(site)
            if entry.state == "pending" and holder is not None:
                return await self._judged(SiteKey(key, site, "denied", address, entry.first_seen, now))
            if entry.state == "denied" and holder is None:
                return await self._judged(SiteKey(key, site, "pending", address, entry.first_seen, now))
            entry.last_seen, entry.address = now, address
            return entry.state
        state: KeyState = "denied" if self.of_site(site) is not None else "pending"
        if state == "denied":
            self._metrics.refused("uplink", "name_taken", f"{site}@{address}", f"key {fingerprint(key)}")
        return await self._judged(SiteKey(key, site, state, address, entry.first_seen if entry else now, now))

    async def accept(self, site: str, wanted: str | None) -> list[dict[str, Any]]:
        """Accept the pending key of a site. Raises ``NotFound`` and, when several claim the name, ``UsageInvalid``."""
        async with self._deciding:
            changed = await self._accept(site, wanted)
        await self._on_change()
        return changed

    async def _accept(self, site: str, wanted: str | None) -> list[dict[str, Any]]:
        candidates = [entry for entry in self._named(site, wanted) if entry.state != "accepted"]
        if wanted is None:
            candidates = [entry for entry in candidates if entry.state == "pending"]
        if not candidates:
            decided = [entry for entry in self._named(site, wanted) if entry.state != "accepted"]
            known = sorted({f"{entry.site} ({entry.state})" for entry in self._keys.values()})
            raise NotFound(
                f"no key of site {site!r} waits to be accepted",
                found=", ".join(known) or "no keys",
                allowed="a pending key by its name, any other one by its fingerprint",
                hint=f"outstation keys accept {site} --fingerprint {fingerprint(decided[0].key)}"
                if decided
                else "outstation keys list",
            )
        if len(candidates) > 1:
            raise UsageInvalid(
                f"several keys claim site {site!r}",
                found=", ".join(fingerprint(entry.key) for entry in candidates),
                allowed="the one whose fingerprint the gateway itself shows: outstation keys list (there)",
                hint=f"outstation keys accept {site} --fingerprint {fingerprint(candidates[0].key)}",
            )
        holder = self.of_site(site)
        if holder is not None:
            raise UsageInvalid(
                f"another key is accepted for site {site!r}",
                found=fingerprint(holder.key),
                allowed="one accepted key for a site",
                hint=f"outstation keys reject {site} --fingerprint {fingerprint(holder.key)}",
            )
        return await self._set(candidates, "accepted")

    async def reject(self, site: str, wanted: str | None) -> list[dict[str, Any]]:
        """Reject the keys of a site, accepted ones too. Raises ``NotFound``."""
        async with self._deciding:
            chosen = [entry for entry in self._named(site, wanted) if entry.state != "rejected"]
            if not chosen:
                raise NotFound(f"no key of site {site!r} to reject", hint="outstation keys list")
            changed = await self._set(chosen, "rejected")
        await self._on_change()
        return changed

    def _named(self, site: str, wanted: str | None) -> list[SiteKey]:
        return [
            entry
            for entry in self._keys.values()
            if entry.site == site and (wanted is None or fingerprint(entry.key) == wanted.lower())
        ]

    async def _set(self, chosen: list[SiteKey], state: KeyState) -> list[dict[str, Any]]:
        now = self._clock.wall()
        changed = [SiteKey(entry.key, entry.site, state, entry.address, entry.first_seen, now) for entry in chosen]
        for entry in changed:
            await self._judged(entry)
        return [entry.view() for entry in changed]

    async def _judged(self, entry: SiteKey) -> KeyState:
        statements: list[Statement] = [
            (_PUT, [(entry.key, entry.site, entry.state, entry.address, entry.first_seen, entry.last_seen)])
        ]
        if entry.state == "accepted":
            statements.append((_SITE, [(entry.site,)]))
        waiting = [other for other in self._keys.values() if other.state in ("pending", "denied")]
        crowded_out = None
        if entry.key not in self._keys and len(waiting) >= limits.PENDING_KEYS:
            crowded_out = min(waiting, key=lambda other: other.last_seen)
            statements.append(("DELETE FROM keys WHERE key = ?", [(crowded_out.key,)]))
        await self._writer.commit(statements)
        if crowded_out is not None:
            self._keys.pop(crowded_out.key, None)
            self._metrics.refused("uplink", "pending_keys_full", f"{crowded_out.site}@{crowded_out.address}")
        self._keys[entry.key] = entry
        act = {"accepted": "accept", "rejected": "reject", "denied": "denied", "pending": "pend"}[entry.state]
        await self._bus.fire(
            [
                self._bus.event(
                    tags.AUTH,
                    {
                        "id": entry.site,
                        "act": act,
                        "pub": entry.key,
                        "result": entry.state not in ("rejected", "denied"),
                    },
                )
            ]
        )
        return entry.state
