"""One of two masters is in a stranger's hands, and one of three root keys: what that is worth, and until when."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from device_agent.identity import IdentityFile
from device_agent.protocol import topics
from device_agent.protocol.links import Sealed
from device_agent.protocol.messages import Job, encode
from device_agent.trust import codec
from device_agent.trust.deliveries import JobDelivery, read_delivery
from device_agent.trust.keys import SigningKey
from device_agent.trust.notices import bundle, read_bundle
from device_agent.trust.root_list import MASTER_ROLES, MasterKey, RootList, sign_root_list
from device_agent.trust.sessions import sign_prekey
from device_agent.trust.site_certificate import sign_site_certificate
from gateway.cli.key_client import KeyClient
from gateway.fleet.bundle import Bundle
from gateway.fleet.root_keys import read_root_key
from tests.peers.broker import free_port
from tests.peers.fleet import Party, party
from tests.peers.rope import played_master
from tests.peers.stolen_disk import WILLING, StolenDisk, now, run_changed
from tests.peers.stranger import Stranger, stranger
from tests.peers.system import System, whole_system
from upstream import frames
from upstream.curve import key_bytes

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

LYING = """\
import msgspec, pathlib
import gateway.devices.site_trust
honest = gateway.devices.site_trust.SiteTrust.tells
forged = pathlib.Path({path!r})
def tells(self, site):
    told = honest(self, site)
    more = [forged.read_bytes()] if forged.exists() else []
    return msgspec.structs.replace(told, root_lists=[*told.root_lists, *more])
gateway.devices.site_trust.SiteTrust.tells = tells
"""
"""A change to a master's program: it tells its sites of one root list more, once there is one."""


async def test_a_compromised_master_has_what_its_roles_allow_until_a_root_list_without_it() -> None:
    with whole_system() as system:
        evil = a_site_in_his_hands(system)
        async with stranger(system, "lisbon") as somebody:
            await somebody.listen("lisbon")
            assert_no_root_shell(system)
            await assert_no_root_list(system, somebody, evil)
            await takes_a_camera_away(system, somebody, evil)
            group = evil.told_group_key("lisbon")
            is_dropped(system)
            await signs_for_nobody(system, somebody, evil, group)
            await is_not_heard_on_the_link(system, evil, group)


def a_site_in_his_hands(system: System) -> StolenDisk:
    """Lisbon was accepted by the master ``evil``, and is connected to it."""
    system.add_master()
    listen = f"tcp://127.0.0.1:{free_port()}"
    system.fleet.add_master("evil", system.state_of("evil"), address=listen, root_shell=False)
    system.publish_fleet("central")
    change = WILLING + LYING.format(path=str(system.folder / "forged"))
    run_changed(system, "evil", "master", change, {"sites": {"listen": listen}})
    system.add_gateway("lisbon", "evil", "central", broker=system.add_broker())
    system.join("lisbon", "evil")
    system.add_agent("cam-1", "lisbon")
    system.present(1, "lisbon", "evil")
    return StolenDisk(system.state_of("evil"), "lisbon")


def touching(path: Path) -> str:
    """A command that leaves a trace."""
    return f"/bin/sh -c 'echo ran >> {path}'"


def assert_no_root_shell(system: System) -> None:
    """It orders what masters may; a command is refused by the device itself."""
    jids = [
        system.issue("evil", "*", *words) for words in (["test.ping"], ["cmd.run", touching(system.folder / "harm")])
    ]
    looked, ordered = (system.ended("evil", jid).by_device()["cam-1"] for jid in jids)
    assert (looked.outcome, ordered.outcome) == ("ok", "refused")
    assert ordered.why == "not_granted: cmd.run needs a master with the role root-shell"
    assert not (system.folder / "harm").exists()


# --- root lists ------------------------------------------------------------------------------------------------------


def next_list(system: System, evil: StolenDisk, *keys: SigningKey) -> bytes:
    """A root list in which there is no other master, and this one may everything."""
    current = system.fleet.ceremony.current()
    fields = {name: getattr(current, name) for name in current.__slots__}
    only = MasterKey("evil", evil.signing.public, evil.kem.public, b"", roles=(*MASTER_ROLES, "root-shell"))
    return sign_root_list(RootList(**{**fields, "version": current.version + 1, "masters": (only,)}), keys)


async def assert_no_root_list(system: System, somebody: Stranger, evil: StolenDisk) -> None:
    """Neither its own signature nor that of one root holder makes a root list: for a master, a gateway, a device."""
    chain = system.fleet.ceremony.chain()
    stolen = read_root_key(system.fleet.ceremony.folder / "root-1.key").key
    forged = [next_list(system, evil, evil.signing), next_list(system, evil, stolen)]
    version = system.view("central", "/fleet")["root_version"]
    for body in forged:
        given = json.dumps({"root_lists": base64.b64encode(codec.encode([*chain, body])).decode()})
        for station in ("central", "lisbon"):
            status, answer = system.ask(station, "POST", "/fleet", given.encode())
            assert status != 200, answer
    honest = read_bundle(await somebody.hears("/trust", bool))
    for body in forged:
        told = bundle([*chain, body], honest.site_certificates, honest.prekey, [])
        await somebody.say([(topics.trust("lisbon"), told)])
    refuses(system, "cam-1", "unknown_issuer", "too_few_signatures")
    # And by the link that the site has to it: a changed grant is the occasion to tell.
    (system.folder / "forged").write_bytes(forged[1])
    KeyClient(system.stations["evil"]).decide("lisbon", "accept", {"grants": ["camera.reboot"]})
    system.until(lambda: system.refusals("lisbon")["uplink", "too_few_signatures"], "the gateway refuses it")
    system.until(lambda: "camera.reboot" in system.view("lisbon", "/fleet")["grants"], "the rest of it is taken")
    granted = StolenDisk(system.state_of("lisbon"), "lisbon").certificate
    await somebody.hears("/trust", lambda said: granted in said)
    assert [system.view(station, "/fleet")["root_version"] for station in ("central", "lisbon")] == [version] * 2


def follows(system: System) -> bytes:
    """Whose group keys the camera takes, as its flash has it."""
    found = IdentityFile(system.folder / "cam-1").load()
    assert found is not None
    return found.groups.site_kid


# --- certificates ----------------------------------------------------------------------------------------------------


def rogue_bundle(system: System, evil: StolenDisk, rogue: Party) -> bytes:
    """Another gateway for Lisbon, certified by this master, newer than the one there is."""
    issued = now() + 60
    certificate = sign_site_certificate(
        evil.signing,
        site="lisbon",
        sig=rogue.key.public,
        kem=rogue.kem.public,
        curve=rogue.curve,
        issued=issued,
        expires=issued + 86_400,
    )
    prekey = sign_prekey(rogue.key, site="lisbon", public=rogue.kem.public, issued=now(), instance=b"instance")
    return bundle(system.fleet.ceremony.chain(), [certificate], prekey, [])


async def takes_a_camera_away(system: System, somebody: Stranger, evil: StolenDisk) -> None:
    """While it is a master, its certificates count: a device goes over to a gateway that it made up."""
    rogue = party("rogue")
    await somebody.say([(topics.trust("lisbon"), rogue_bundle(system, evil, rogue))])
    system.until(lambda: follows(system) == rogue.kid, "the camera follows another gateway")


# --- after it was dropped --------------------------------------------------------------------------------------------


def is_dropped(system: System) -> None:
    """A root list without it reaches the gateway by hand: the site leaves it; the other master certifies it anew."""
    system.fleet.ceremony.drop_master("evil", [], now())
    for station in ("central", "lisbon"):
        system.publish_fleet(station)
    system.connected("lisbon", "central")
    central = [system.address("central")["address"]]
    system.until(lambda: system.view("lisbon")["uplink"]["masters"] == central, "the site has left the dropped master")
    system.until(lambda: system.is_here("cam-1"), "the camera has come back by itself")
    jid = system.issue("central", "*", "cmd.run", touching(system.folder / "order"))
    assert system.ended("central", jid).words() == {"cam-1": "ok"}


async def signs_for_nobody(system: System, somebody: Stranger, evil: StolenDisk, group: tuple[int, bytes]) -> None:
    """Neither a device nor the gateway takes its jobs and certificates; and it reads no further what all may read."""
    lisbon = StolenDisk(system.state_of("lisbon"), "lisbon")
    assert max(lisbon.group_keys()) > group[0]
    await somebody.say(
        [
            (topics.trust("lisbon"), rogue_bundle(system, evil, party("rogue"))),
            (topics.group_job("lisbon"), evil.job("test.ping", group=max(lisbon.group_keys().items()))),
        ]
    )
    refuses(system, "cam-1", "issuer_revoked")
    fields: dict[str, Any] = {
        "sig": lisbon.signing.public,
        "kem": lisbon.kem.public,
        "curve": key_bytes(lisbon.curve.public),
    }
    certificate = sign_site_certificate(
        evil.signing, site="lisbon", issued=now() + 60, expires=now() + 86_400, **fields
    )
    offered = Bundle(tuple(system.fleet.ceremony.chain()), certificate).text()
    status, answer = system.ask("lisbon", "POST", "/join", json.dumps({"bundle": offered}).encode())
    assert (status, b"issuer_revoked" in answer) == (400, True), answer
    jid = system.issue("central", "*", "test.ping")
    assert system.ended("central", jid).words() == {"cam-1": "ok"}


async def is_not_heard_on_the_link(system: System, evil: StolenDisk, group: tuple[int, bytes]) -> None:
    """Whoever the settings of the gateway lead to, a job is that of its signer."""
    job = Job(jid="2" + "0" * 19, tgt="*", fun="test.ping", user="evil", issued=float(now()), expires=now() + 300.0)
    delivery = read_delivery(evil.job("test.ping", group=group, jid=job.jid, expires=now() + 300))
    assert isinstance(delivery, JobDelivery)
    async with played_master() as link:
        address = {"address": link.address.address, "key": link.address.key}
        system.change("lisbon", masters=[address])
        system.children["lisbon"].process.send_signal(signal.SIGHUP)
        await asyncio.to_thread(
            system.until,
            lambda: (
                system.view("lisbon")["uplink"]["master"] == address["address"]
                and system.view("lisbon")["uplink"]["state"] == "connected"
            ),
            "lisbon is with somebody else",
        )
        await link.say(frames.SiteJob(encode(job), 300.0, [Sealed("lisbon", "", delivery.job)]))
        await asyncio.to_thread(
            system.until, lambda: system.refusals("lisbon")["uplink", "issuer_revoked"], "the gateway refuses it"
        )
    assert job.jid not in system.ask("lisbon", "GET", "/jobs")[1].decode()


def refuses(system: System, device: str, *reasons: str) -> None:
    """Wait until a device has said that it refused something for each of these reasons."""
    system.until(lambda: all(f"refused reason={reason} " in system.log(device) for reason in reasons), f"{reasons}")
