"""Jobs in the stead of SSH devices are judged as an agent judges them, with the same reasons."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.clock import Clock
from device_agent.protocol.links import Parcel, Sealed
from device_agent.trust.keys import SigningKey
from device_agent.trust.signed_job import ALL, JobHeader, Order, seal_for_device, seal_for_group
from gateway.devices.ssh_secrets import Secret
from tests.peers.fleet import SITE, Fleet, signing_key
from tests.peers.ssh_played import PASSWORD, PlayedDevice, played_device
from tests.peers.ssh_site import SshSite, ssh_site
from tests.peers.waiting import until

NAME = "cam-1"


class Bench:
    """One device that is here, and a master that orders."""

    def __init__(self, site: SshSite, fleet: Fleet, camera: PlayedDevice) -> None:
        self.site, self.fleet, self.camera = site, fleet, camera
        self.seq = int(Clock().wall() * 1000) - 1_000_000
        self.said: dict[str, str] = {}

    @property
    def did(self) -> str:
        enrolled = self.site.site.ssh_book.identity(NAME)
        assert enrolled is not None
        return enrolled.did

    def sealed(self, number: int, key: SigningKey | None = None, fun: str = "test.echo", **fields: Any) -> bytes:
        """A job by master A, or by another key, for the group or for one device."""
        now, epochs = int(Clock().wall()), self.site.rooms.epochs
        self.seq += 1
        header = JobHeader(
            **{
                "sub": ALL,
                "site": SITE,
                "issued": now,
                "expires": now + 300,
                "jid": f"{number:020d}",
                "seq": self.seq,
                "tgt": "*",
                "epoch": epochs.epoch if fields.get("sub", ALL) == ALL else None,
                **fields,
            }
        )
        order, signer = Order(fun=fun, arg=[f": marked {number}"], user="ops"), key or self.fleet.a.key
        if header.sub == ALL:
            return seal_for_group(signer, header, order, epochs.key, os.urandom(16))
        return seal_for_device(signer, header, order, self.site.rooms.authority.kem.public)

    async def give(self, body: bytes, *, site: str = SITE) -> None:
        await self.site.ssh.deliver(Parcel(b"", (Sealed(site, "", body),)), 300.0, [NAME])

    async def refused(self, reason: str) -> None:
        refusals = self.site.rooms.metrics.refusals
        await until(lambda: refusals["ssh", reason] == 1, what=f"{reason}: {refusals}")

    async def answers(self, number: int, outcome: str) -> None:
        """Wait until this is said in the device's stead: the outcome, and how its reason begins."""
        jid = f"{number:020d}"
        await until(lambda: self.said.get(jid, "").startswith(outcome), what=f"{outcome}: {self.said}")


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    fleet = Fleet(now=Clock().wall())
    async with played_device() as camera, ssh_site(tmp_path, fleet=fleet) as site:
        await site.add(NAME, camera.port, camera.host_keys, Secret(password=PASSWORD))
        await site.here(NAME)
        made = Bench(site, fleet, camera)
        collect = site.rooms.collection.returned

        async def returned(device: str, message: Any, size: int) -> None:
            made.said[message.jid] = f"{message.outcome} {message.why}"
            await collect(device, message, size)

        monkeypatch.setattr(site.rooms.collection, "returned", returned)
        yield made


async def test_what_a_master_signed_runs_for_all_or_for_the_one(bench: Bench) -> None:
    await bench.give(bench.sealed(1))
    await bench.answers(1, "ok")
    await bench.give(bench.sealed(2, sub=bench.did))
    await bench.answers(2, "ok")


@pytest.mark.parametrize(
    ("reason", "fields"),
    [
        ("unknown_issuer", {"key": signing_key("a stranger")}),
        ("wrong_site", {"site": "porto"}),
    ],
)
async def test_what_is_not_proven_is_counted_and_not_answered(
    bench: Bench, reason: str, fields: dict[str, Any]
) -> None:
    await bench.give(bench.sealed(1, **fields))
    await bench.refused(reason)
    assert bench.said == {}


async def test_a_site_has_no_shell_that_was_not_granted_to_it_by_its_name(bench: Bench) -> None:
    for number, fun in enumerate(("file.write", "cron.raw_cron", "pkg.install", "ssh.set_auth_key"), start=1):
        await bench.give(bench.sealed(number, key=bench.site.rooms.authority.signing, fun=fun))
        await bench.answers(number, f"refused not_granted: {fun}")
    assert not any("marked" in command for command in bench.camera.commands)


async def test_a_job_for_another_device_is_not_taken(bench: Bench) -> None:
    other = bench.fleet.device("cam-9")
    await bench.give(bench.sealed(1, sub=other.did))
    await bench.refused("not_for_us")


async def test_a_bent_job_is_not_taken(bench: Bench) -> None:
    body = bytearray(bench.sealed(1))
    body[-1] ^= 1
    await bench.give(bytes(body))
    await bench.refused("bad_signature")


@pytest.mark.parametrize(
    ("outcome", "fields"),
    [
        ("refused not_targeted", {"tgt": "door-*"}),
        ("expired at ", {"issued": -1000, "expires": -700}),
        ("refused unknown_function", {"fun": "camera.explode"}),
    ],
)
async def test_what_is_proven_and_not_to_be_run_is_answered(bench: Bench, outcome: str, fields: dict[str, Any]) -> None:
    now = int(Clock().wall())
    fields = {key: now + value if type(value) is int else value for key, value in fields.items()}
    await bench.give(bench.sealed(1, **fields))
    await bench.answers(1, outcome)


async def test_the_same_number_under_another_jid_is_a_replay(bench: Bench) -> None:
    await bench.give(bench.sealed(1, seq=bench.seq))
    await bench.answers(1, "ok")
    await bench.give(bench.sealed(2, seq=bench.seq - 1))
    await bench.answers(2, "refused replayed")


async def test_a_repeat_runs_once(bench: Bench) -> None:
    body = bench.sealed(1, fun="cmd.run")
    for _ in range(3):
        await bench.give(body)
    await bench.answers(1, "ok")
    assert sum("marked 1" in command for command in bench.camera.commands) == 1


async def test_a_job_under_an_old_group_key_is_sealed_anew_and_not_lost(bench: Bench) -> None:
    body = bench.sealed(1)
    await bench.site.rooms.epochs.rotate(revocation=True)
    asked: list[str] = []

    async def reseal(_device: str, jid: str, reason: str) -> None:
        asked.append(f"{jid} {reason}")

    bench.site.ssh._outgoing._reseal = reseal
    await bench.give(body)
    await until(lambda: asked == [f"{1:020d} stale_epoch"], what=f"{asked}")
    assert bench.said == {}
