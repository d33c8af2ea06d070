"""Whether a job or a call still runs: a job without outcomes may be open, or closed because no device matched."""

from __future__ import annotations

from typing import Final, Literal

from gateway.store.reader import Reader

Progress = Literal["open", "closed", "gone"]
"""``gone``: the station no longer keeps the job."""

_CLOSED: Final = (
    "SELECT closed IS NOT NULL FROM jobs WHERE jid = ?1 UNION ALL SELECT state <> 'open' FROM calls WHERE jid = ?1"
)


async def progress_of(reader: Reader, jid: str) -> Progress:
    """How far a job or a call of this station is."""
    rows = await reader.rows(_CLOSED, (jid,))
    return "gone" if not rows else "closed" if rows[0][0] else "open"
