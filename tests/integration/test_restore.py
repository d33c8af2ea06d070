"""Backups of a gateway, put back on new hardware: with its keys after a fire, with new ones after a theft."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agent.clock import iso
from device_agent.errors import ConfigInvalid
from device_agent.protocol.messages import AuditRecord, decode_item, encode
from device_agent.trust.device_certificate import read_device_certificate
from device_agent.trust.epochs import GroupKeys, open_epoch
from gateway.backup import contents
from gateway.backup.take import _salt_masters
from gateway.checks import store as store_check
from gateway.devices.epochs import Epochs
from gateway.devices.recertify import Recertification
from gateway.devices.sessions import Sessions
from tests.peers.backed_up import KNOWN_EPOCH, SECRET, Gateway, again, furnished, unpacked
from tests.peers.clock import STARTED_WALL, HandClock
from tests.peers.database import a_job, look, opened_rooms
from tests.peers.joining import JoinSite, a_device
from tests.peers.salt_double import SaltDouble
from tests.peers.waiting import until
from upstream.salt.pins import Pins
from upstream.salt.rsa_keys import MasterKey


@pytest.fixture
def old(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "old")


@pytest.fixture
def new(tmp_path: Path) -> Gateway:
    """New hardware: there are settings, and nothing else."""
    gateway = Gateway(tmp_path / "new")
    gateway.configure()
    return gateway


@pytest.fixture
async def backup(old: Gateway) -> Path:
    return await furnished(old)


def recertification(site: JoinSite) -> Recertification:
    async def nobody(_: str, __: str) -> None:
        raise AssertionError("nobody was cloned")

    sessions = Sessions(
        site="lisbon",
        authority=site.authority,
        by_did=site.enrollment.by_did,
        quarantine=nobody,
        bus=site.bus,
        metrics=site.metrics,
        clock=site.clock,
    )
    return Recertification(
        authority=site.authority, sessions=sessions, renew=site.enrollment.renew, metrics=site.metrics
    )


def wants_another(site: JoinSite, name: str) -> bool:
    """Whether the device gets another certificate when it comes."""
    device = site.enrollment.by_name(name)
    assert device is not None
    return recertification(site)._needs_another(device)


def issuer_of(site: JoinSite, name: str) -> bytes:
    """Who signed the device's certificate."""
    device = site.enrollment.by_name(name)
    assert device is not None
    return read_device_certificate(device.certificate).issuer


# --- putting back with the keys ---------------------------------------------------------------------------------------


async def test_after_a_fire_the_gateway_is_the_one_it_was(old: Gateway, new: Gateway, backup: Path) -> None:
    restored = new.put_back(backup)
    assert (restored.names, restored.new_keys, restored.aside) == (("cam-1", "cam-2"), False, None)
    assert restored.devices == {"accepted": 2, "pending": 1, "rejected": 1}
    assert restored.fingerprint
    assert new.state.stat().st_mode & 0o777 == 0o700
    assert not [path for path in new.state.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    for name in ("trust.keys", "curve.key", "root-lists", "site-certificate", "masters"):
        assert new.files()[name] == old.files()[name]
    async with again(old, joined=False) as before, again(new, joined=False) as after:
        assert after.authority.signing.kid == before.authority.signing.kid
        assert after.authority.may("enrol")
        assert sorted(after.enrollment.all(), key=lambda d: d.did) == sorted(
            before.enrollment.all(), key=lambda d: d.did
        )
        assert after.broker.users == before.broker.users
        assert len(after.broker.users) == 2
        first = after.registry.own_device("cam-1")
        assert first is not None
        assert first.place == 0
        assert not wants_another(after, "cam-1")


async def test_the_key_that_salt_masters_accepted_comes_back_and_never_without_the_others(
    old: Gateway, new: Gateway, backup: Path
) -> None:
    (old.state / "salt").mkdir()
    (old.state / "salt/gateway.pem").write_bytes(b"a key")
    old.take(overwrite=True)
    new.put_back(backup)
    assert new.files()["salt/gateway.pem"] == b"a key"
    assert ((new.state / "salt/gateway.pem").stat().st_mode & 0o777) == 0o600
    new.put_back(backup, new_keys=True, force=True)
    assert "salt/gateway.pem" not in new.files()


@pytest.mark.parametrize("new_keys", [False, True])
async def test_the_keys_of_salt_masters_come_back_and_with_them_whom_to_believe(
    old: Gateway, new: Gateway, backup: Path, new_keys: bool
) -> None:
    known, voucher = MasterKey(SaltDouble().pem), MasterKey(SaltDouble("signing").pem)
    pins = Pins(old.state / "salt" / "masters", 4506)
    pins.keep("[2001:db8::1]", known)
    pins.set_aside("[2001:db8::1]", SaltDouble("other").pem)
    pins.signing_place("master_sign").write_text(voucher.pem)
    old.take(overwrite=True)
    new.put_back(backup, new_keys=new_keys)
    back = Pins(new.state / "salt" / "masters", 4506)
    found = [back.known("[2001:db8::1]"), back.signing("master_sign")]
    assert [key and key.pem for key in found] == [known.pem, voucher.pem]
    assert not list(new.state.rglob("*.refused")), "a key that nobody believed"
    assert {path.stat().st_mode & 0o777 for path in (new.state / "salt").rglob("*") if path.is_dir()} == {0o700}


def test_too_many_keys_of_salt_masters_are_said(old: Gateway) -> None:
    folder = old.state / "salt" / "masters"
    folder.mkdir(parents=True)
    for number in range(contents.SALT_MASTERS_MOST + 1):
        (folder / f"{number}.pub").write_text("a key")
    with pytest.raises(ConfigInvalid, match="too many keys"):
        _salt_masters(old.state)


@pytest.mark.parametrize("name", ["salt/masters/../x.pub", "salt/masters/.x.pub", "salt/x/y.pub", "salt/masters/x.pem"])
def test_a_key_of_a_salt_master_leads_nowhere_else(name: str) -> None:
    assert not contents.is_salt_master(name)


async def test_doors_that_were_open_are_shut_and_tokens_are_void(new: Gateway, backup: Path) -> None:
    new.put_back(backup)
    async with again(new, joined=False) as site:
        assert site.enrollment.doors.window.open is None
        assert site.enrollment.doors.tokens.open_count(site.authority.now()) == 0
        assert site.look("SELECT count(*) FROM join_tokens WHERE secret <> x''") == [(0,)]
        assert not site.broker.is_open


async def test_a_restored_store_numbers_under_another_name_each_time(
    old: Gateway, new: Gateway, backup: Path, tmp_path: Path
) -> None:
    third = Gateway(tmp_path / "third")
    third.configure()
    for gateway in (new, third):
        gateway.put_back(backup)
    names = [
        look(gateway.state / "station.sqlite", "SELECT value FROM station WHERE key = 'epoch'")[0][0]
        for gateway in (old, new, third)
    ]
    assert len(set(names)) == 3
    assert all(len(name) == 16 for name in names)


async def test_a_restored_store_is_in_doubt_and_has_a_witness_of_its_own(new: Gateway, backup: Path) -> None:
    new.put_back(backup)
    for _ in range(2):
        async with opened_rooms(new.state, clock=new.clock, working=True) as rooms:
            trust = rooms.aftermath.trust
            assert (trust.state, trust.in_doubt, trust.missing) == ("restored", True, {})
            assert "restored from a backup" in trust.reason
            assert [each.severity for each in await store_check.check(rooms.facts)] == ["info"]
    assert look(new.state / "station.sqlite", "SELECT count(*) FROM events WHERE tag LIKE '%/damaged'") == [(0,)]


async def test_the_group_key_is_a_new_one_that_devices_take_which_went_on_without_us(
    new: Gateway, backup: Path
) -> None:
    new.put_back(backup)
    assert isinstance(new.clock, HandClock)
    async with again(new, joined=False) as site:
        epochs = Epochs(
            site="lisbon",
            authority=site.authority,
            writer=site.writer,
            reader=site.enrollment._reader,
            metrics=site.metrics,
        )
        async with epochs:
            device, camera = site.enrollment.by_name("cam-1"), a_device("cam-1")
            assert device is not None
            assert epochs.epoch > KNOWN_EPOCH + 1000
            assert epochs.key not in {SECRET, bytes(32)}
            kid, now = site.authority.signing.kid, site.authority.now()
            opened = open_epoch(
                epochs.sealed_for(device),
                lambda signer: site.authority.anchor.issuer(signer, "epoch", "lisbon", now),
                camera.kem,
                device=camera.did,
                site="lisbon",
            )
        held = GroupKeys()
        # The old gateway changed the key a few times after the backup.
        held.hold(kid, KNOWN_EPOCH + 3, b"k" * 32)
        held.take(opened, 0.0)
        assert held.newest == epochs.key


async def test_jobs_that_were_open_start_nowhere_any_more(old: Gateway, new: Gateway) -> None:
    async with opened_rooms(old.state, clock=old.clock) as rooms:
        job = a_job()
        row = (job.jid, encode(job), "local", STARTED_WALL + 3600, STARTED_WALL)
        await rooms.writer.commit(
            [("INSERT INTO jobs (jid, body, origin, deadline, accepted) VALUES (?, ?, ?, ?, ?)", [row])]
        )
        old.take()
    new.put_back(old.backup)
    async with opened_rooms(new.state, clock=new.clock) as rooms:
        opened = rooms.open_jobs.get(job.jid)
        assert opened is not None
        assert opened.deadline <= new.clock.monotonic()


async def test_who_restored_what_is_in_the_audit_and_goes_up(new: Gateway, backup: Path) -> None:
    new.put_back(backup)
    store = new.state / "station.sqlite"
    (row,) = look(store, "SELECT site, user, subject, why FROM audit WHERE action = 'gateway.restore'")
    taken = iso(unpacked(backup)[0].taken)
    assert row == ("lisbon", "alice", f"site lisbon, backup of {taken}", "with its keys")
    items = [decode_item(body) for (body,) in look(store, "SELECT body FROM spool_audit ORDER BY sequence")]
    assert isinstance(items[-1], AuditRecord)
    assert items[-1].action == "gateway.restore"


# --- putting back with new keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_keys", [True, False], ids=["new keys asked for", "no keys in the backup"])
async def test_after_a_theft_devices_are_known_and_get_certificates_by_the_new_key(
    old: Gateway, new: Gateway, backup: Path, *, with_keys: bool
) -> None:
    old.take(with_keys=with_keys, overwrite=True)
    restored = new.put_back(backup, new_keys=with_keys)
    assert restored.new_keys
    assert restored.names == ("cam-1", "cam-2")
    assert "site-certificate" not in new.files()
    stolen = unpacked(backup)[1] if with_keys else {}
    assert all(new.files()[name] != body for name, body in stolen.items() if name in contents.KEYS)
    assert look(new.state / "station.sqlite", "SELECT count(*) FROM epochs") == [(0,)]
    async with again(old, joined=False) as before:
        private, kid, users = before.authority.signing.private, before.authority.signing.kid, before.broker.users
        assert before.enrollment.by_name("cam-1") is not None
    assert all(private not in body for body in new.files().values())
    async with again(new, joined=False) as site:
        # It believes its fleet, and the fleet has still to accept it.
        assert site.authority.anchor.root is not None
        assert site.authority.certificate is None
        assert not site.authority.may("enrol")
        assert site.authority.signing.kid != kid
    async with again(new, joined=True) as site:
        device = site.enrollment.by_name("cam-1")
        assert device is not None
        assert device.state == "accepted"
        assert issuer_of(site, "cam-1") == kid
        # The broker lets it in, its session may open, and then it gets its new certificate.
        assert site.broker.users == users
        recertifying = recertification(site)
        assert recertifying._sessions.may_open(device.did) == device
        assert wants_another(site, "cam-1")
        async with recertifying:
            recertifying.look_at(device.did)
            await until(lambda: issuer_of(site, "cam-1") == site.authority.signing.kid, what="the new certificate")
        assert not wants_another(site, "cam-1")
        assert wants_another(site, "cam-2")
