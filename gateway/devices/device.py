"""One device as a station knows it, and as a row of the store."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from device_agent.protocol import limits
from device_agent.protocol.messages import encode_value

PATIENCE_SECONDS = limits.BEAT_SECONDS * limits.SILENT_BEATS
PUT_DEVICE = (
    "INSERT INTO devices (site, id, link, place, agent, grains, present, first_seen, last_seen, revision,"
    " certificate, state, accepted_by, accepted_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (site, id) DO UPDATE SET link=excluded.link, place=excluded.place, agent=excluded.agent,"
    " grains=excluded.grains, present=excluded.present, last_seen=excluded.last_seen, revision=excluded.revision,"
    " certificate=excluded.certificate, state=excluded.state, accepted_by=excluded.accepted_by,"
    " accepted_at=excluded.accepted_at"
)


@dataclass(slots=True)
class Device:
    """One device. ``heard`` and ``gone`` are monotonic seconds of this process, the others wall seconds.

    ``certificate``, ``state`` and who accepted it when are what its site's enrollment says, here or from below.
    """

    site: str
    id: str
    link: str
    place: int | None
    agent: str
    grains: dict[str, Any]
    present: bool
    first_seen: float
    last_seen: float
    revision: int
    certificate: bytes = b""
    state: str = ""
    accepted_by: str = ""
    accepted_at: float = 0.0
    unheard: bool = False
    session: str = ""
    heard: float = 0.0
    gone: float = 0.0
    answered: float = -math.inf
    """When it last returned any job, monotonic."""
    away: str = ""
    """Why it is not here, where its link knows; while it is here it says nothing."""
    patience: float = PATIENCE_SECONDS
    """Seconds of silence after which it is taken for gone."""
    refused: dict[str, int] = field(default_factory=dict)
    """What the device says that it refused since it started, by reason."""

    def row(self) -> tuple[Any, ...]:
        """The device as a row of the store."""
        return (
            self.site,
            self.id,
            self.link,
            self.place,
            self.agent,
            encode_value(self.grains),
            # On disk an unheard device stays present: after another restart it is still expected back.
            int(self.present or self.unheard),
            self.first_seen,
            self.last_seen,
            self.revision,
            self.certificate,
            self.state,
            self.accepted_by,
            self.accepted_at,
        )
