"""Devices as a site tells a station above of them, made of rows of the store and made into devices there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.messages import decode_value
from device_agent.trust.device_certificate import read_device_certificate
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


def told_by(link: str, record: DeviceRecord, earlier: Device | None, revision: int) -> Device:
    """The device that the site at the other end of a link tells of; ``earlier`` is what it told before."""
    first_seen = earlier.first_seen if earlier else record.first_seen
    certificate = record.certificate
    if earlier is not None and _is_older(certificate, earlier.certificate):
        certificate = earlier.certificate
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
        certificate,
        record.state,
        record.accepted_by,
        record.accepted_at,
    )


def _is_older(certificate: bytes, known: bytes) -> bool:
    """Whether a certificate is one from before, of the same device by the same signer: a relay may have kept it, and
    with it comes a sealing key that the device has no more.
    """
    if not certificate or not known or certificate == known:
        return False
    try:
        told, had = read_device_certificate(certificate), read_device_certificate(known)
    except Refused:
        return False
    return (told.did, told.issuer) == (had.did, had.issuer) and told.issued < had.issued
