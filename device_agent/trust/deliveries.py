"""What stands beside a proof on the topics of jobs: how long the job still has, and whom it is for.

Both are hints that nobody signed. They may only shorten or withhold: a time that ends earlier, a bit that is clear.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.trust import codec
from device_agent.trust.notices import BITS_BYTES

REMAINING_MAX = int(limits.JOB_EXPIRY_MAX_SECONDS * 1000)


@dataclass(frozen=True, slots=True)
class JobDelivery:
    """An ``os-job`` on its way. ``remaining`` is seconds; ``bitmap`` is None for a job to one device."""

    job: bytes = field(repr=False)
    remaining: float
    bitmap: bytes | None


@dataclass(frozen=True, slots=True)
class CancelDelivery:
    """An ``os-can`` on its way."""

    cancel: bytes = field(repr=False)
    bitmap: bytes | None


def job_delivery(job: bytes, remaining: float, bitmap: bytes | None) -> bytes:
    """The payload that carries a job."""
    milliseconds = min(REMAINING_MAX, max(0, round(remaining * 1000)))
    return codec.encode([job, milliseconds, bitmap])


def cancel_delivery(cancel: bytes, bitmap: bytes | None) -> bytes:
    """The payload that carries a cancellation."""
    return codec.encode([cancel, bitmap])


def read_delivery(payload: bytes) -> JobDelivery | CancelDelivery:
    """What a payload carries, unchecked. Raises ``Refused``."""
    parts = codec.decode(payload)
    if type(parts) is not list or len(parts) not in {2, 3} or type(parts[0]) is not bytes:
        raise Refused("malformed", "neither a job nor a cancellation")
    bitmap = _bitmap(parts[-1])
    if len(parts) == 2:
        return CancelDelivery(parts[0], bitmap)
    remaining = parts[1]
    if type(remaining) is not int or not 0 <= remaining <= REMAINING_MAX:
        raise Refused("malformed", "the time that a job has left")
    return JobDelivery(parts[0], remaining / 1000, bitmap)


def _bitmap(part: Any) -> bytes | None:
    if part is not None and (type(part) is not bytes or len(part) > BITS_BYTES):
        raise Refused("malformed", "a bitmap")
    return part
