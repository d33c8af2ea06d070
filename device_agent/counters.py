"""What happened to messages, counted once for all devices of a process."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

LOG_EVERY = 1000


@dataclass(slots=True)
class Counters:
    """Counts, and the first refusal of each reason in the log."""

    refusals: Counter[str] = field(default_factory=Counter)
    repeats: int = 0
    """Deliveries of a job that was known here, answered without running it."""
    ignored: int = 0
    """Deliveries whose bitmap does not name the device."""
    dropped: int = 0
    """Messages that could not be handed over for want of a connection; what matters is sent again."""

    def refused(self, reason: str, detail: str = "", device: str = "") -> None:
        """Count bytes that were not an acceptable message; the first of a reason and each thousandth is logged."""
        self.refusals[reason] += 1
        if self.refusals[reason] % LOG_EVERY == 1:
            log.warning("refused reason=%s device=%s detail=%r", reason, device, detail[:200])
