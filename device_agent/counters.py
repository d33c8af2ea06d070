"""What happened to messages, counted once for all devices of a process."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

LOG_EVERY = 1000
REASONS_TOLD = 16
"""Reasons of one device that its station is told; there are hardly more, and a beat has little room."""


@dataclass(slots=True)
class Counters:
    """Counts, and the first refusal of each reason in the log."""

    refusals: Counter[str] = field(default_factory=Counter)
    by_device: dict[str, Counter[str]] = field(default_factory=dict)
    """The same for each device of the process, by its name: what its station is told."""
    repeats: int = 0
    """Deliveries of a job that was known here, answered without running it."""
    ignored: int = 0
    """Deliveries whose bitmap does not name the device."""
    dropped: int = 0
    """Messages that could not be handed over for want of a connection; what matters is sent again."""

    def refused(self, reason: str, detail: str = "", device: str = "") -> None:
        """Count bytes that were not an acceptable message; the first of a reason and each thousandth is logged."""
        self.refusals[reason] += 1
        if device:
            own = self.by_device.setdefault(device, Counter())
            if reason in own or len(own) < REASONS_TOLD:
                own[reason] += 1
        if self.refusals[reason] % LOG_EVERY == 1:
            log.warning("refused reason=%s device=%s detail=%r", reason, device, detail[:200])

    def refused_by(self, device: str) -> dict[str, int]:
        """How often what was refused by a device of this process, by reason."""
        return dict(self.by_device.get(device, {}))
