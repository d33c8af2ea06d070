"""The disk of a gateway is stolen: what the thief has is what its site was granted, and nothing beside it.

He runs a gateway of his own with all that was on the disk, at the site's broker, with a program that asks itself
nothing. Then the site is revoked, and another gateway takes its place with the devices of the backup and new keys.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from device_agent.errors import Refused
from device_agent.identity import Identity, IdentityFile
from device_agent.protocol import topics
from device_agent.protocol.messages import decode_stored
from device_agent.trust.device_certificate import DeviceCertificate, read_device_certificate
from device_agent.trust.epochs import EPOCH_MAX, seal_epoch
from device_agent.trust.notices import Bundle, bundle, read_bundle
from device_agent.trust.revocations import sign_revocations
from device_agent.trust.root_list import MASTER_ROLES, MasterKey, read_root_list, sign_root_list
from device_agent.trust.signed_job import open_group, open_single, read_job
from gateway.devices.site_entry import sign_group_keys
from tests.peers.rope import played_site
from tests.peers.stolen_disk import WILLING, StolenDisk, now, run_changed, stolen
from tests.peers.stranger import Stranger, stranger
from tests.peers.system import System, whole_system
from upstream import frames

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SECRET = "the-password-of-the-archive"
CAMERAS = ["cam-1", "cam-2"]


async def test_a_thief_has_what_his_site_was_granted_until_it_is_revoked_and_can_undo_nothing() -> None:
    with whole_system() as system:
        settings = two_sites(system)
        take_backup(system)
        sealed = sealed_job_that_waits(system)
        system.kill("lisbon")
        disk = stolen(system, "lisbon", "thief")
        assert_shut(disk, sealed)
        run_changed(system, "thief", "gateway", WILLING, settings)
        system.until(lambda: system.is_here("cam-1", "thief"), "cam-1 has come back to the thief")
        assert_inside_its_grant(system)
        async with stranger(system, "lisbon") as somebody:
            await as_another_site(system, somebody, disk)
            await as_the_fleet(system, somebody, disk)
            assert_the_master_still_commands(system)
            system.kill("thief")
            await as_the_fleet_to_the_master(system, disk)
            system.command("sites", "revoke", "lisbon", "--why", "stolen", "--yes", status=0)
            await assert_rejected(system, disk)
            replace_the_gateway(system, settings)
            await undo_nothing(system, somebody, disk)


def two_sites(system: System) -> dict[str, object]:
    """Two cameras at Lisbon, one door at Porto, all at one broker without rules; the settings of Lisbon's gateway."""
    system.add_master()
    broker = system.add_broker()
    for site, devices in (("lisbon", CAMERAS), ("porto", ["door-1"])):
        system.add_gateway(site, "central", broker=broker)
        system.join(site)
        for device in devices:
            system.add_agent(device, site)
    system.present(3, "central")
    own = system._settings["lisbon"]
    return {key: own[key] for key in ("name", "masters", "uplink", "broker")}


def take_backup(system: System) -> None:
    (system.folder / "passphrase").write_text("six words drawn by lot")
    (system.folder / "passphrase").chmod(0o600)
    words = ["gateway", "backup", "--passphrase-file", f"{system.folder}/passphrase", f"{system.folder}/lisbon.backup"]
    system.command(*words, "--config", f"{system.folder}/lisbon.yaml", status=0)


def sealed_job_that_waits(system: System) -> str:
    """A job for one device alone, which waits at its gateway until the device is back; its jid."""
    system.kill("cam-2")
    system.until(lambda: not system.is_here("cam-2"), "cam-2 has left")
    command = f"/bin/sh -c ': {SECRET}; echo ran >> {system.folder}/sealed'"
    jid = system.issue("central", "cam-2", "cmd.run", command, sealed=True, late="run")
    system.until(lambda: system.waiting("lisbon", jid), "the sealed job waits at the gateway")
    return jid


def touching(path: Path) -> str:
    """A command that leaves a trace."""
    return f"/bin/sh -c 'echo ran >> {path}'"


def identity(system: System, device: str) -> Identity:
    """What a device has on its flash."""
    found = IdentityFile(system.folder / device).load()
    assert found is not None
    return found


# --- with the disk alone ---------------------------------------------------------------------------------------------


def assert_shut(disk: StolenDisk, jid: str) -> None:
    """A master's job to one device is on the disk, and nothing on the disk opens it."""
    assert SECRET.encode() not in disk.contents()
    [(body,)] = disk.rows("SELECT body FROM job_seals WHERE jid = ?", jid)
    [(site, device, sealed)] = decode_stored(body)
    assert (site, device) == ("lisbon", "cam-2")
    read = read_job(sealed)
    [master] = [master for master in read_root_list(disk.root_lists[-1]).masters if master.kid == read.kid]
    for key in disk.opening_keys():
        with pytest.raises(Refused, match="not_sealed_to_us"):
            open_single(read.verified(master.sig), key)
    for group in disk.group_keys().values():
        with pytest.raises(Refused, match="wrong_seal"):
            open_group(read.verified(master.sig), group)


# --- with a gateway of his own ---------------------------------------------------------------------------------------


def assert_inside_its_grant(system: System) -> None:
    """The device itself holds the site to its certificate, since the program of the thief does not."""
    harm = system.folder / "harm"
    tried = {
        "look": system.issue("thief", "cam-1", "test.ping"),
        "command": system.issue("thief", "cam-1", "cmd.run", touching(harm)),
        "too long": system.issue("thief", "cam-1", "test.ping", expires_seconds=7200),
    }
    found = {what: system.ended("thief", jid).by_device()["cam-1"] for what, jid in tried.items()}
    assert {what: outcome.outcome for what, outcome in found.items()} == {
        "look": "ok",
        "command": "refused",
        "too long": "refused",
    }
    assert found["command"].why == "not_granted: cmd.run"
    assert str(found["too long"].why).startswith("not_granted: a life of")
    assert not harm.exists()


async def as_another_site(system: System, somebody: Stranger, disk: StolenDisk) -> None:
    """Nothing that he signs is anything to a device of Porto; even if he knew its keys, and showed it who he is."""
    door = device(StolenDisk(system.state_of("porto"), "porto"), "door-1")
    honest = await retained(somebody, "porto")
    shown = bundle(honest.root_lists, [*honest.site_certificates, disk.certificate], honest.prekey, [])
    mine = topics.device_job("porto", door.did_text)
    await somebody.say(
        [
            (topics.trust("porto"), shown),
            (mine, disk.job_for(door, "test.ping", site="porto")),
            (topics.group_job("porto"), disk.job("test.ping", site="porto")),
        ]
    )
    refuses(system, "door-1", "wrong_site", "unknown_issuer")


async def as_the_fleet(system: System, somebody: Stranger, disk: StolenDisk) -> None:
    """Neither a root list of his own nor a list of revoked masters is taken by a device."""
    honest = await retained(somebody, "lisbon")
    forged = [
        bundle([*honest.root_lists, root_list(disk)], honest.site_certificates, honest.prekey, []),
        bundle(honest.root_lists, honest.site_certificates, honest.prekey, [revoked_masters(disk)]),
        # This one is his to sign; its version is in the way of no other signer's list.
        bundle(honest.root_lists, honest.site_certificates, honest.prekey, [highest_list(disk)]),
    ]
    await somebody.say([(topics.trust("lisbon"), body) for body in forged])
    refuses(system, "cam-1", "unknown_issuer", "not_its_to_revoke")


def root_list(disk: StolenDisk) -> bytes:
    """The next root list, in which he is a master, signed by himself."""
    current = read_root_list(disk.root_lists[-1])
    thief = MasterKey("thief", disk.signing.public, disk.kem.public, b"", roles=(*MASTER_ROLES, "root-shell"))
    fields = {name: getattr(current, name) for name in current.__slots__}
    draft = type(current)(**{**fields, "version": current.version + 1, "masters": (*current.masters, thief)})
    return sign_root_list(draft, [disk.signing])


def revoked_masters(disk: StolenDisk) -> bytes:
    masters = [master.kid for master in read_root_list(disk.root_lists[-1]).masters]
    return sign_revocations(disk.signing, version=2**62, kids=masters, issued=now(), site="lisbon")


def highest_list(disk: StolenDisk) -> bytes:
    """His own list of revoked devices, in the last version that there can be; nobody is on it."""
    return sign_revocations(disk.signing, version=2**63 - 1, kids=[bytes(8)], issued=now(), site="lisbon")


def assert_the_master_still_commands(system: System) -> None:
    """Also through the thief's gateway, which may as well keep jobs to itself."""
    system.add_agent("cam-2", "lisbon")
    system.until((system.folder / "sealed").exists, "the sealed job has run")
    jid = system.issue("central", "cam-*", "cmd.run", touching(system.folder / "order"))
    assert system.ended("central", jid).words() == dict.fromkeys(CAMERAS, "ok")


async def as_the_fleet_to_the_master(system: System, disk: StolenDisk) -> None:
    """At the master he is Lisbon, and speaks for nobody else."""
    before = system.refusals("central")
    mine = system.address("central")
    epoch, key = max(disk.group_keys().items())
    porto = StolenDisk(system.state_of("porto"), "porto").certificate
    lies: list[frames.Told] = [
        frames.SiteRevocations("lisbon", revoked_masters(disk)),
        frames.GroupKeys(site="porto", certificate=porto, epoch=9, keys=[], signature=bytes(64)),
        sign_group_keys(disk.signing, site="lisbon", certificate=porto, epoch=epoch, keys=[(bytes(8), key)]),
    ]
    async with played_site(mine["address"], mine["key"], disk.curve) as rope:
        await rope.hello(certificate=disk.certificate, request=disk.request())
        await rope.hears(frames.SiteWelcome)
        await rope.say(frames.SiteTells([*lies, frames.SiteRevocations("lisbon", highest_list(disk))]))
        await asyncio.to_thread(
            system.until, lambda: (system.refusals("central") - before).total() >= len(lies), "all are refused"
        )
    reasons = {reason for _, reason in system.refusals("central") - before}
    assert reasons == {"not_its_to_revoke", "bad_signature", "wrong_site"}
    assert system.view("central", "/fleet")["joined"]


# --- after the site was revoked --------------------------------------------------------------------------------------


async def assert_rejected(system: System, disk: StolenDisk) -> None:
    """His certificate counts for three more weeks by its date, and for nothing at the master."""
    mine = system.address("central")
    async with played_site(mine["address"], mine["key"], disk.curve) as rope:
        await rope.hello(certificate=disk.certificate, request=disk.request())
        assert (await rope.hears(frames.SiteRefused)).state == "rejected"


def replace_the_gateway(system: System, settings: dict[str, object]) -> None:
    """Restore the backup with new keys, accept them; nobody touches a device."""
    places = {"state_dir": str(system.state_of("replaced")), "socket": str(system.socket_of("replaced"))}
    config = system._write("replaced", {**settings, **places})
    words = ["gateway", "restore", "--new-keys", "--passphrase-file", f"{system.folder}/passphrase"]
    system.command(*words, f"{system.folder}/lisbon.backup", "--config", config, status=0)
    system.ports["replaced"] = system.ports["lisbon"]
    system.add_station("replaced", "gateway", settings)
    fresh = system.stations["replaced"].station().fingerprint
    system.until(lambda: fresh in {key.fingerprint for key in system.stations["central"].keys().keys}, "it knocks")
    system.command("keys", "accept", "lisbon", "--fingerprint", fresh, status=0)
    kid = StolenDisk(system.state_of("replaced"), "lisbon").signing.kid

    def certified(device: str) -> bool:
        return read_device_certificate(identity(system, device).certificate).issuer == kid

    system.until(lambda: all(map(certified, CAMERAS)), "every camera has a certificate by the new gateway")
    system.until(lambda: all(map(system.is_here, CAMERAS)), "the master knows them again")
    jid = system.issue("central", "cam-*", "cmd.run", touching(system.folder / "order"))
    assert system.ended("central", jid).words() == dict.fromkeys(CAMERAS, "ok")


async def undo_nothing(system: System, somebody: Stranger, disk: StolenDisk) -> None:
    """What he signs is refused as that of somebody who was revoked, also by a device that starts anew beside him."""
    honest = await retained(somebody, "lisbon")
    kid = identity(system, "cam-1").groups.site_kid
    camera, harm = device(disk, "cam-1"), system.folder / "harm"
    list_of_his = sign_revocations(disk.signing, version=2**62, kids=[kid], issued=now(), site="lisbon")
    epoch = seal_epoch(
        disk.signing,
        device=camera.did_text,
        site="lisbon",
        issued=now(),
        epoch=EPOCH_MAX,
        revocation=True,
        group_key=bytes(32),
        kem_public=camera.kem,
    )
    shown = bundle(disk.root_lists, [disk.certificate], disk.prekey(), [list_of_his])
    await somebody.say([(topics.trust("lisbon"), shown)], retain=True)
    system.kill("cam-1")
    system.add_agent("cam-1", "lisbon")
    refuses(system, "cam-1", "issuer_revoked")
    await somebody.say(
        [
            (topics.device_ep("lisbon", camera.did_text), epoch),
            (topics.group_job("lisbon"), disk.job("test.ping")),
            (topics.device_job("lisbon", camera.did_text), disk.job_for(camera, "cmd.run", touching(harm))),
        ]
    )
    await somebody.say([(topics.trust("lisbon"), again(honest))], retain=True)
    jid = system.issue("central", "cam-*", "test.ping", late="run")
    assert system.ended("central", jid).words() == dict.fromkeys(CAMERAS, "ok")
    assert not harm.exists()
    assert identity(system, "cam-1").groups.site_kid == kid


def refuses(system: System, device: str, *reasons: str) -> None:
    """Wait until a device has said that it refused something for each of these reasons."""
    system.until(lambda: all(f"refused reason={reason} " in system.log(device) for reason in reasons), f"{reasons}")


def device(disk: StolenDisk, name: str) -> DeviceCertificate:
    return disk.devices()[name]


async def retained(somebody: Stranger, site: str) -> Bundle:
    """What a site tells whoever connects."""
    await somebody.listen(site)
    return read_bundle(await somebody.hears("/trust", bool, about=f"os/{site}/"))


def again(said: Bundle) -> bytes:
    return bundle(said.root_lists, said.site_certificates, said.prekey, said.revocations)
