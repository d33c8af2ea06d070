"""What Salt masters ordered, on disk: each jid once, whom to answer, and what defines the job for another master."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from device_agent.protocol.messages import decode_stored, encode_value
from gateway.salt.kept import KeptOrders
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer
from upstream.salt.order import SaltOrder

KEPT_SECONDS: Final = 14 * 86_400.0
"""A jid is remembered for so long at least: its answers may still wait."""

ZONE_SECONDS: Final = 14 * 3600.0
"""Farthest that a time zone is from UTC: masters may make jids in local time."""

TAKEN_SECONDS: Final = 86_400.0 + ZONE_SECONDS
TAKEN_AHEAD_SECONDS: Final = 600.0 + ZONE_SECONDS
"""An order is taken when its jid is no older, and no farther in the future, than this."""

AHEAD_SECONDS: Final = 2 * 86_400.0
"""Of a master's clock, and of its time zone where jids are made in local time."""

DEFINES: Final = ("jid", "fun", "arg", "tgt", "tgt_type", "user", "ret", "metadata")
"""What of a publish makes sense to a master that did not send it."""

DEFINES_BYTES: Final = 32 * 1024
"""Most that is kept of each of them, encoded: a refused order costs no more than that on disk."""

_ADD = "INSERT INTO salt_jobs (jid, master, master_id, fun, load, ids, taken, told_as) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
# The index of parts has those alone, so each question has to say that it means no other.
KNOWN: Final = (
    "SELECT ids FROM salt_jobs WHERE jid = ? UNION ALL SELECT ids FROM salt_jobs WHERE told_as = ? AND told_as <> ''"
)
PARTS: Final = "SELECT jid FROM salt_jobs WHERE told_as = ? AND told_as <> '' ORDER BY jid"
_PRUNE = "DELETE FROM salt_jobs WHERE taken < ? AND NOT EXISTS (SELECT 1 FROM jobs WHERE jid = salt_jobs.jid)"


@dataclass(frozen=True)
class Ordered:
    """One order: the master that gave it, and its definition as Salt has it.

    ``told_as`` is the jid it is answered under: for the later parts of a batch it is another than its own.
    """

    jid: str
    told_as: str
    master: str
    master_id: str
    fun: str
    load: dict[str, Any]
    size: int
    """Bytes of the definition as it is kept."""

    @property
    def called(self) -> str | list[str]:
        """What the master called: the name of a function, or a list of names."""
        fun = self.load.get("fun")
        return fun if isinstance(fun, list) else self.fun


class SaltBook:
    """Reads and writes the table ``salt_jobs``."""

    def __init__(self, writer: Writer, reader: Reader, kept: KeptOrders | None = None) -> None:
        self._writer = writer
        self._reader = reader
        self.kept = kept or KeptOrders(writer, reader)

    def adding(
        self, order: SaltOrder, fun: str, master: str, ids: Sequence[str], now: float, told_as: str = ""
    ) -> list[Statement]:
        """The statements that keep an order; they fail where the jid is kept already."""
        load, names = encode_value(defines(order.load)), encode_value(list(ids))
        row = (order.jid, master, order.master_id, fun, load, names, now, told_as)
        return [(_ADD, [row]), self.kept.adding(order.jid, told_as, master, len(load) + len(names), len(ids), now)]

    async def room(self, order: SaltOrder, master: str, ids: Sequence[str], now: float) -> bool:
        """Whether an order can be kept. Raises ``StationFailed``."""
        return await self.kept.room(master, len(encode_value(defines(order.load))) + len(encode_value(list(ids))), now)

    async def known(self, jid: str) -> set[str] | None:
        """The devices that were ordered anything under this jid; None for a new one. Raises ``StoreUnreadable``."""
        rows = await self._reader.rows(KNOWN, (jid, jid))
        return {device for (ids,) in rows for device in decode_stored(ids)} if rows else None

    async def parts(self, jid: str) -> list[str]:
        """The jobs of this station that are answered under this jid, beside the one of that jid itself."""
        rows = await self._reader.rows(PARTS, (jid,))
        return [part for (part,) in rows]

    async def get(self, jid: str) -> Ordered | None:
        """The order with this jid. Raises ``StoreUnreadable``."""
        rows = await self._reader.rows(
            "SELECT master, master_id, fun, load, told_as FROM salt_jobs WHERE jid = ?", (jid,)
        )
        for master, master_id, fun, load, told_as in rows:
            return Ordered(jid, told_as or jid, master, master_id, fun, decode_stored(load), len(load))
        return None

    async def to_announce(self, master: str, since: float) -> list[tuple[str, list[str]]]:
        """The orders of a master that are open, or were taken since then: each with the devices that are meant."""
        rows = await self._reader.rows(
            "SELECT CASE told_as WHEN '' THEN jid ELSE told_as END, ids FROM salt_jobs WHERE master = ? AND (taken >= ?"
            " OR EXISTS (SELECT 1 FROM jobs WHERE jobs.jid = salt_jobs.jid AND jobs.closed IS NULL)) ORDER BY taken",
            (master, since),
        )
        return [(jid, decode_stored(ids)) for jid, ids in rows]

    async def prune(self, now: float) -> None:
        """Forget what is old enough. Raises ``StoreFailed``."""
        await self._writer.commit([(_PRUNE, [(now - KEPT_SECONDS - AHEAD_SECONDS,)]), self.kept.pruned()])
        self.kept.forget_counts()


def defines(load: Mapping[str, Any]) -> dict[str, Any]:
    """What of a publish is kept. The same of two publishes is the same here, also where it is too long to be kept."""
    return {key: _bounded(value) for key, value in load.items() if key in DEFINES}


def _bounded(value: Any) -> Any:
    """The value, or words that say what it was, in the shape that a master expects there."""
    body = encode_value(value)
    if len(body) <= DEFINES_BYTES:
        return value
    says = f"({len(body)} bytes, too many to be kept; SHA-256 {hashlib.sha256(body).hexdigest()})"
    if isinstance(value, dict):
        return {"outstation": says}
    return [says] if isinstance(value, (list, tuple)) else says


def too_old(jid: str, now: float) -> bool:
    """Whether a jid is, by its digits, from another day than this: a publish that somebody kept would run again."""
    return jid[:14] < _digits(now - TAKEN_SECONDS)


def too_early(jid: str, now: float) -> bool:
    """Whether a jid is, by its digits, of a time to come: it could be kept and published again for so long."""
    return jid[:14] > _digits(now + TAKEN_AHEAD_SECONDS)


def _digits(at: float) -> str:
    return datetime.fromtimestamp(max(0.0, at), UTC).strftime("%Y%m%d%H%M%S")
