"""What may be too much for one frame, as several; and of what is told again and again, only what is new. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Many
from typing import TypeVar

from msgspec.structs import replace

from device_agent.protocol import limits
from device_agent.protocol.links import Parcel
from upstream.frames import MasterRevocations, SiteJob, SiteTells, SiteTrust, Told, encode_told

NAMES_BYTES = 256
"""Names and lengths around one entry of a list."""

T = TypeVar("T")


def job_frames(parcel: Parcel, remaining: float) -> Iterator[SiteJob]:
    """A parcel as frames."""
    for part in _parts(parcel.sealed, lambda sealed: len(sealed.body)) or [[]]:
        yield SiteJob(parcel.definition, remaining, part)


def trust_frames(trust: SiteTrust) -> Iterator[SiteTrust]:
    """What a site is told of whom to believe, as frames: its own concerns in the first."""
    head, *others = _parts(trust.leaves, lambda leaf: len(leaf[1])) or [[]]
    yield replace(trust, leaves=head)
    for part in others:
        yield SiteTrust(leaves=part)


def trust_news(now: SiteTrust, before: SiteTrust) -> SiteTrust | None:
    """What somebody who was told ``before`` does not know yet; None when that is nothing."""
    known = dict(before.leaves)
    news = SiteTrust(
        root_lists=now.root_lists if now.root_lists != before.root_lists else [],
        certificate=now.certificate if now.certificate != before.certificate else b"",
        revocations=[body for body in now.revocations if body not in before.revocations],
        leaves=[(site, body) for site, body in now.leaves if known.get(site) != body],
        group_epoch=now.group_epoch if now.group_epoch != before.group_epoch else 0,
        time_beacons=[body for body in now.time_beacons if body not in before.time_beacons],
    )
    return news if news != SiteTrust() else None


def subject(entry: Told) -> tuple[type, str | bytes]:
    """Whom an entry is about: it takes the place of the one of its kind before it that was about the same."""
    return type(entry), entry.signer if isinstance(entry, MasterRevocations) else entry.site


def told_frames(entries: Many[Told]) -> Iterator[SiteTells]:
    """What a master is told, as frames."""
    for part in _parts(entries, lambda entry: len(encode_told(entry))):
        yield SiteTells(part)


def _parts(entries: Many[T], size_of: Callable[[T], int]) -> list[list[T]]:
    """Entries in their order, cut into parts of a batch's size: a frame has room for that and for what is beside."""
    parts: list[list[T]] = []
    room = 0
    for entry in entries:
        size = size_of(entry) + NAMES_BYTES
        if not parts or size > room:
            parts.append([])
            room = limits.BATCH_BYTES
        parts[-1].append(entry)
        room -= size
    return parts
