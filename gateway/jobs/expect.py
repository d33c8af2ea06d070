"""Who is expected to answer a job: decided from the registry, once, when the job is accepted. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from device_agent.protocol import limits
from device_agent.protocol.messages import Job, Manifest
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.targeting import Target

NOBODY: Mapping[str, str] = {}


class Candidate(Protocol):
    """What of a device matters here."""

    id: str
    grains: dict[str, Any]
    present: bool
    unheard: bool
    last_seen: float
    away: str


@dataclass(frozen=True)
class Ended:
    """A device that has its outcome before anything was sent."""

    id: str
    outcome: Outcome
    why: str
    seen: float


@dataclass
class Expectation:
    """The expected set: ``present`` get the job now, ``absent`` when they are back, ``ended`` never."""

    present: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)

    def ids(self) -> list[str]:
        """Everybody who is expected, in order of their names."""
        return sorted([*self.present, *self.absent, *(ended.id for ended in self.ended)])


def expect(
    job: Job,
    target: Target,
    devices: Iterable[Candidate],
    remaining: float,
    *,
    cancelled: bool = False,
    held: bool = False,
    refused: Mapping[str, str] = NOBODY,
) -> Expectation:
    """Sort the devices that are meant by how the job starts for them. ``remaining`` is seconds to its expiry.

    A ``held`` job starts for nobody until it is released; ``refused`` are devices it never starts for, and why.
    """
    expected = Expectation()
    for device in devices:
        if not target.matches(device.id, device.grains):
            continue
        if cancelled:
            why = "it was cancelled before it reached the site"
            expected.ended.append(Ended(device.id, Outcome.CANCELLED, why, device.last_seen))
        elif remaining <= 0:
            expected.ended.append(
                Ended(device.id, Outcome.EXPIRED, "the job had expired when it reached the site", device.last_seen)
            )
        elif device.id in refused:
            expected.ended.append(Ended(device.id, Outcome.REFUSED, refused[device.id], device.last_seen))
        elif held:
            expected.absent.append(device.id)
        elif device.present:
            expected.present.append(device.id)
        elif device.unheard or job.late == "run":
            expected.absent.append(device.id)
        else:
            expected.ended.append(
                Ended(device.id, Outcome.UNREACHABLE, device.away or "not connected", device.last_seen)
            )
    return expected


def pages(jid: str, site: str, ids: Sequence[str], revision: int, *, final: bool) -> list[Manifest]:
    """The manifest for these ids, in pages that fit a message; at least one page, and only the last may be final."""
    chunks: list[list[str]] = [[]]
    size = 0
    for device in ids:
        if len(chunks[-1]) >= limits.MANIFEST_PAGE or size + len(device) + 2 > limits.MANIFEST_PAGE_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(device)
        size += len(device) + 2
    return [
        Manifest(
            jid=jid,
            site=site,
            ids=chunk,
            count=len(chunk),
            digest=digest(chunk),
            revision=revision,
            final=final and place == len(chunks) - 1,
        )
        for place, chunk in enumerate(chunks)
    ]


def digest(ids: Sequence[str]) -> bytes:
    """SHA-256 over the ids, one a line: two stations that disagree on a page see it."""
    return hashlib.sha256("\n".join(ids).encode("utf-8")).digest()
