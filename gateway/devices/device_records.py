"""Devices as a site tells a station above of them, made of rows of the store and made into devices there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from device_agent.protocol import limits
from device_agent.protocol.messages import decode_value
from gateway.devices.device import Device
from upstream.frames import DeviceRecord

RECORDS_AFTER = (
    "SELECT site, id, link, agent, grains, present, first_seen, last_seen, revision, certificate, state, accepted_by,"
    " accepted_at, coalesce(proven, x'') FROM devices WHERE revision > ? ORDER BY revision LIMIT ?"
)


def record_of(row: Sequence[Any]) -> DeviceRecord:
    """A row of ``RECORDS_AFTER``."""
    site, device, link, agent, grains, present, first_seen, last_seen, revision, certificate, state, by, at, proven = (
        row
    )
    return DeviceRecord(
        site=site,
        id=device,
        link=link,
        agent=agent,
        grains=grains,
        present=bool(present),
        first_seen=first_seen,
        last_seen=last_seen,
        revision=revision,
        certificate=certificate,
        state=state,
        accepted_by=by,
        accepted_at=at,
        proven=proven,
    )


def away(device: Device) -> DeviceRecord:
    """What a site would say of this device if it were not here."""
    site, name, link, _, agent, grains, _, *rest = device.row()
    return record_of((site, name, link, agent, grains, False, *rest, b""))


def page_of(rows: Sequence[Sequence[Any]]) -> list[DeviceRecord]:
    """Rows of ``RECORDS_AFTER`` as records, as many as one frame holds."""
    page = [record_of(row) for row in rows]
    size = 0
    for place, record in enumerate(page):
        size += len(record.grains) + len(record.certificate) + len(record.proven)
        if size > limits.BATCH_BYTES and place:
            return page[:place]
    return page


def told_by(link: str, record: DeviceRecord, first_seen: float, revision: int) -> Device:
    """The device that the site at the other end of a link tells of."""
    return Device(
        record.site,
        record.id,
        link,
        None,
        record.agent,
        decode_value(record.grains),
        record.present,
        first_seen,
        record.last_seen,
        revision,
        record.certificate,
        record.state,
        record.accepted_by,
        record.accepted_at,
    )
