"""A device's other sealing key at its station and at a master: on disk, told upward, and never an older one again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

from device_agent.protocol.messages import encode_value
from device_agent.trust.device_certificate import read_device_certificate
from device_agent.trust.hpke import open_sealed, seal
from device_agent.trust.signed_job import open_single, read_job
from gateway.devices.authority import Authority
from gateway.jobs.open_jobs import LOCAL, OpenJob
from gateway.jobs.seal import IssuerSequence, Sealer
from tests.peers.central import a_master
from tests.peers.database import a_job
from tests.peers.fleet import Fleet, kem_key
from tests.peers.joining import a_device, opened_site
from upstream import frames

YEAR = 365 * 86_400


async def test_another_key_is_on_disk_in_the_certificate_and_in_what_masters_are_told(tmp_path: Path) -> None:
    kem = kem_key("another").public
    async with opened_site(tmp_path) as site:
        device = a_device("cam-1")
        await site.join(device, await site.token())
        before = site.enrollment.by_did(device.did)
        assert before is not None
        body = await site.enrollment.renew(device.did, kem)
        assert read_device_certificate(body).kem == kem != before.kem
        known = site.registry.own_device(before.name)
        assert known is not None
        assert known.certificate == body
        assert site.look("SELECT kem, certificate FROM enrolled") == [(kem, body)]
        # The next certificate, for another reason, is for the new key as well.
        assert read_device_certificate(await site.enrollment.renew(device.did)).kem == kem


def record(certificate: bytes, revision: int, **changed: Any) -> frames.DeviceRecord:
    given = {
        "id": "cam-1",
        "site": "lisbon",
        "link": "mqtt",
        "agent": "0.1.0",
        "grains": encode_value({}),
        "present": True,
        "first_seen": 1.0,
        "last_seen": 2.0,
        "state": "accepted",
        **changed,
    }
    return frames.DeviceRecord(certificate=certificate, revision=revision, **given)


async def test_a_record_from_before_a_change_does_not_bring_the_old_key_back_at_a_master(tmp_path: Path) -> None:
    fleet = Fleet()
    old, new = fleet.device(), fleet.device(kem=kem_key("another").public, issued=fleet.now + 60)
    replaced = fleet.device(issuer=fleet.b, issued=fleet.now - 60)
    async with AsyncExitStack() as stack:
        master = await stack.enter_async_context(a_master(tmp_path, "lisbon"))

        async def held(certificate: bytes, revision: int) -> bytes:
            await master.registry.keep_records("lisbon", [record(certificate, revision)], [])
            known = master.registry.known("lisbon", "cam-1")
            assert known is not None
            return known.certificate

        assert await held(old.certificate, 1) == old.certificate
        assert await held(new.certificate, 2) == new.certificate
        # Replayed by a relay, or told by a gateway that was restored from a backup.
        assert await held(old.certificate, 3) == new.certificate
        # By another signer it counts: a gateway that was replaced has another key, and maybe an earlier clock.
        assert await held(replaced.certificate, 4) == replaced.certificate
        assert await held(b"", 5) == b""


class Keys:
    """Implements the sealer's ``Keyring``: one device, whose key the test changes."""

    def __init__(self, kem: bytes) -> None:
        self.kem = kem

    def group_key(self, site: str) -> tuple[int, bytes] | None:
        return None

    def kem_of(self, site: str, device: str) -> tuple[str, bytes] | None:
        return Fleet().device().did, self.kem


class Signer:
    """As much of an ``Authority`` as seals a job: a master."""

    def __init__(self, fleet: Fleet) -> None:
        self.signing, self.master = fleet.a.key, fleet.a.as_master()

    def now(self) -> float:
        return 1_800_000_000.0


def sealed(sealer: Sealer, opened: OpenJob, names: Iterable[str] = ("cam-1",)) -> bytes:
    parcel = sealer.for_devices(opened, names)
    assert parcel is not None
    [entry] = parcel.sealed
    return entry.body


def test_a_job_that_waits_is_sealed_anew_once_its_device_has_another_key() -> None:
    fleet, first, second = Fleet(), kem_key("first"), kem_key("second")
    keys = Keys(first.public)
    authority = cast("Authority", Signer(fleet))
    sealer = Sealer(site="lisbon", authority=authority, keyring=keys, sequence=IssuerSequence())
    opened = OpenJob(job=a_job(sealed=True), body=b"", origin=LOCAL, accepted=0.0, deadline=60.0)
    before = sealed(sealer, opened)
    assert sealed(sealer, opened) == before
    keys.kem = second.public
    after = sealed(sealer, opened)
    assert sealed(sealer, opened) == after
    for body, kem in ((before, first), (after, second)):
        assert open_single(read_job(body).verified(fleet.a.key.public), kem).fun == "test.ping"
    assert open_sealed(second, b"", seal(second.public, b"", b"x")) == b"x"
