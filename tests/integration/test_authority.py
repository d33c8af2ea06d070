"""What a station is and may sign: files in its state folder, believed only as far as they prove themselves."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import ConfigInvalid, Refused, StationFailed, UsageInvalid
from device_agent.trust import codec
from device_agent.trust.floor import MASTER_LIMIT_SECONDS
from device_agent.trust.keys import KemKey, SigningKey
from device_agent.trust.revocations import sign_revocations
from device_agent.trust.root_list import sign_root_list
from device_agent.trust.site_request import open_site_request
from gateway.devices import authority as authority_module
from gateway.devices.authority import Authority
from gateway.fleet.station_files import KnownMaster, StationFiles
from tests.peers.clock import STARTED_WALL, HandClock
from tests.peers.fleet import Fleet, Party, signing_key
from tests.peers.rope import new_keys
from tests.peers.waiting import until
from upstream.curve import CurveKeys, key_bytes, key_text

DAY = 86_400


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


class Site:
    """A gateway's files in a folder, and its certificate by the fleet."""

    def __init__(self, folder: Path, clock: HandClock, fleet: Fleet) -> None:
        folder.mkdir()
        self.folder, self.clock, self.fleet = folder, clock, fleet
        self.curve: CurveKeys = new_keys()
        self.authority = self.opened()

    def opened(self) -> Authority:
        """As after a restart."""
        return Authority(self.folder, role="gateway", site="lisbon", curve=self.curve, clock=self.clock)

    def certificate(self, **changed: Any) -> bytes:
        own = self.authority
        party = Party(changed.pop("site", "lisbon"), own.signing, own.kem, key_bytes(self.curve.public))
        return self.fleet.certify_site(party, **changed)


@pytest.fixture
def site(tmp_path: Path, clock: HandClock, fleet: Fleet) -> Site:
    return Site(tmp_path / "state", clock, fleet)


def master_of(folder: Path, clock: HandClock, fleet: Fleet) -> Authority:
    """Master A of the fleet, with its keys and the root lists on disk."""
    folder.mkdir()
    files = StationFiles(folder)
    _put_keys(folder, fleet.a.key, fleet.a.kem)
    files.write_root_lists(fleet.chain)
    curve = CurveKeys(key_text(fleet.a.curve), "")
    return Authority(folder, role="master", site="master-a", curve=curve, clock=clock)


def _put_keys(folder: Path, key: SigningKey, kem: KemKey) -> None:
    (folder / "trust.keys").write_bytes(codec.encode({"sig": key.private, "kem": kem.private}))


async def test_keys_are_made_once_and_for_nobody_else_to_read(site: Site) -> None:
    path = site.folder / "trust.keys"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = site.opened()
    assert (again.signing.public, again.kem.public) == (site.authority.signing.public, site.authority.kem.public)
    request = open_site_request(again.request())
    assert (request.site, request.sig, request.kem) == ("lisbon", again.signing.public, again.kem.public)
    assert request.curve == key_bytes(site.curve.public)


async def test_a_gateway_is_what_its_certificate_says_for_as_long_as_it_counts(site: Site, clock: HandClock) -> None:
    authority = site.authority
    told: list[tuple[str, ...]] = []

    async def tell() -> None:
        told.append(authority.roles())

    authority.on_change(tell)
    assert (authority.joined, authority.roles(), authority.may("job")) == (False, (), False)
    assert await authority.install(root_lists=site.fleet.chain)
    body = site.certificate()
    assert await authority.install(certificate=body)
    assert not await authority.install(root_lists=site.fleet.chain, certificate=body)
    assert told == [(), ("enrol", "job", "revoke", "epoch")]
    assert authority.joined
    assert authority.may("epoch")
    assert not authority.may("site-ca")
    again = site.opened()
    assert again.certificate == authority.certificate
    clock.move(31 * DAY)
    assert not again.may("job")
    assert again.certificate is not None
    with pytest.raises(Refused, match="issuer_expired"):
        again.check_role("job")


async def test_an_older_certificate_does_not_come_back(site: Site) -> None:
    older, newer = site.certificate(), site.certificate(issued=site.fleet.now + 5)
    await site.authority.install(root_lists=site.fleet.chain, certificate=newer)
    assert not await site.authority.install(certificate=older)
    for authority in (site.authority, site.opened()):
        assert authority.certificate is not None
        assert authority.certificate.body == newer


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"site": "porto"}, "wrong_site"),
        ({"sig": bytes(32)}, "foreign_certificate"),
        ({"kem": bytes(32)}, "foreign_certificate"),
        ({"curve": bytes(32)}, "foreign_certificate"),
        ({"issued": 1, "expires": 2}, "expired"),
        ({"master": Fleet().site}, "unknown_issuer"),
    ],
    # The same in every process that tests run in: not the keys.
    ids=lambda value: "+".join(value) if isinstance(value, dict) else value,
)
async def test_a_certificate_for_somebody_else_is_refused(changed: dict[str, Any], reason: str, site: Site) -> None:
    await site.authority.install(root_lists=site.fleet.chain)
    with pytest.raises(Refused) as refusal:
        await site.authority.install(certificate=site.certificate(**changed))
    assert refusal.value.reason == reason
    assert not (site.folder / "site-certificate").exists()


async def test_a_root_list_that_rolls_back_or_was_signed_by_too_few_is_refused(site: Site) -> None:
    fleet = site.fleet
    fleet.next_root()
    await site.authority.install(root_lists=fleet.chain)
    with pytest.raises(Refused, match="rollback"):
        await site.authority.install(root_lists=fleet.chain[:1])
    forged = fleet.next_root(keys=fleet.roots[:1])
    with pytest.raises(Refused, match="too_few_signatures"):
        await site.authority.install(root_lists=[forged])
    for authority in (site.authority, site.opened()):
        assert authority.anchor.root is not None
        assert authority.anchor.root.version == 2


async def test_what_was_taken_counts_and_is_told_even_when_what_came_with_it_is_refused(site: Site) -> None:
    told = []

    async def tell() -> None:
        told.append(site.authority.anchor.root)

    site.authority.on_change(tell)
    with pytest.raises(Refused, match="wrong_site"):
        await site.authority.install(root_lists=site.fleet.chain, certificate=site.certificate(site="porto"))
    assert told == [site.fleet.root]
    assert site.opened().anchor.root == site.fleet.root


async def test_a_full_disk_is_said_and_what_was_on_it_is_whole(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.authority.install(root_lists=site.fleet.chain)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    site.fleet.next_root()
    with pytest.raises(StationFailed) as error:
        await site.authority.install(root_lists=site.fleet.chain)
    assert error.value.found == "No space left on device"
    monkeypatch.undo()
    assert _version(site.opened()) == 1
    # It counts all the same, and goes to disk with the next word.
    assert _version(site.authority) == 2
    assert not await site.authority.install(root_lists=site.fleet.chain)
    assert _version(site.opened()) == 2


def _version(authority: Authority) -> int:
    return authority.anchor.root.version if authority.anchor.root is not None else 0


async def test_a_master_is_what_the_root_list_says_and_knows_when_it_is_dropped(
    tmp_path: Path, clock: HandClock, fleet: Fleet
) -> None:
    master = master_of(tmp_path / "a", clock, fleet)
    assert master.master is not None
    assert (master.master.name, master.joined) == ("master-a", True)
    assert master.may("site-ca")
    assert not master.may("root-shell")
    fleet.next_root(masters=(fleet.b.as_master(),))
    await master.install(root_lists=fleet.chain)
    after = Authority(tmp_path / "a", role="master", site="master-a", curve=master.curve, clock=clock)
    for authority in (master, after):
        assert (authority.master, authority.joined, authority.roles()) == (None, False, ())
    assert not any(master.may(role) for role in ("job", "enrol", "site-ca", "revoke", "epoch"))


async def test_the_first_root_list_of_a_master_must_name_it(tmp_path: Path, clock: HandClock, fleet: Fleet) -> None:
    stranger = Authority(tmp_path, role="master", site="other", curve=new_keys(), clock=clock)
    with pytest.raises(Refused, match="master-a, master-b"):
        await stranger.install(root_lists=fleet.chain)
    assert stranger.anchor.root is None


async def test_revoked_keys_are_remembered_with_the_sites_that_become_known_later(
    tmp_path: Path, clock: HandClock, fleet: Fleet
) -> None:
    master = master_of(tmp_path / "a", clock, fleet)
    device, foreign = fleet.device("cam-1"), fleet.device("cam-2")
    by_master = sign_revocations(fleet.b.key, version=1, kids=[foreign.kid], issued=fleet.now)
    by_site = sign_revocations(fleet.site.key, version=1, kids=[device.kid], issued=fleet.now, site="lisbon")
    master.anchor.take_site_certificate(fleet.site_certificate, fleet.now)
    assert await master.install(revocations=[by_master, by_site])
    assert master.anchor.device_revoked(device.kid, "lisbon")
    # After a restart the site is not known yet when the lists are read.
    again = Authority(tmp_path / "a", role="master", site="master-a", curve=master.curve, clock=clock)
    assert again.anchor.device_revoked(foreign.kid)
    assert not again.anchor.device_revoked(device.kid, "lisbon")
    again.anchor.take_site_certificate(fleet.site_certificate, fleet.now)
    again.reconsider()
    assert again.anchor.device_revoked(device.kid, "lisbon")
    assert not await again.install(revocations=[by_site])


async def test_the_time_is_never_before_what_was_signed_and_no_jump_ahead_is_kept_for_good(
    site: Site, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority_module, "FLOOR_SECONDS", 0.01)
    await site.authority.install(root_lists=site.fleet.chain, certificate=site.certificate())
    clock.step_wall(-STARTED_WALL)
    assert site.authority.now() == site.fleet.now
    # Without a wall clock time goes on all the same: what is signed an hour later is not of an hour ago.
    clock.move(3600.0)
    assert site.authority.now() == site.fleet.now + 3600.0
    clock.move(-3600.0)
    clock.step_wall(STARTED_WALL + 5 * DAY)
    path = site.folder / "time-floor"
    async with site.opened():
        await until(lambda: path.exists() and path.read_text() == f"{site.fleet.now + 5 * DAY}\n", what="the time")
        clock.step_wall(50 * 365 * DAY)
        kept = site.fleet.now + MASTER_LIMIT_SECONDS
        await until(lambda: path.read_text() == f"{kept}\n", what="the bounded time")
    clock.step_wall(-80 * 365 * DAY)
    assert site.opened().now() == kept


async def test_a_certificate_that_came_while_the_clock_was_ahead_counts_when_that_is_right(
    site: Site, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority_module, "OVERDUE_SECONDS", 0.01)
    clock.step_wall(10 * 365 * DAY)
    with pytest.raises(Refused, match="expired"):
        await site.authority.install(root_lists=site.fleet.chain, certificate=site.certificate())
    said = site.authority.view()
    assert (said["joined"], said["lapsed"]) == (False, "expired")
    assert said["expires"] < site.authority.now()
    async with site.authority:
        clock.step_wall(-10 * 365 * DAY)
        await until(lambda: site.authority.joined, what="it belongs to its fleet")
        assert site.authority.may("job")
        await until(lambda: site.opened().joined, what="it is on disk")
    assert (site.authority.lapsed, site.authority.view()["expires"]) == ("", said["expires"])


async def test_a_join_is_remembered_and_its_masters_come_first(site: Site) -> None:
    mine = KnownMaster("tcp://192.0.2.1:4510", key_text(bytes(range(32))))
    await site.authority.join(site.fleet.fingerprint, [mine])
    assert json.loads((site.folder / "masters").read_text())["root"] == site.fleet.fingerprint.hex()
    assert site.opened().masters() == [mine]
    with pytest.raises(Refused, match="wrong_root"):
        await site.authority.install(root_lists=[_other_fleet()])
    await site.authority.install(root_lists=site.fleet.chain)
    named = [KnownMaster(f"tcp://{name}.example:4510", key_text(party.curve)) for name, party in _masters(site.fleet)]
    assert site.authority.masters() == [mine, *named]
    second = KnownMaster("tcp://192.0.2.2:4510", mine.key)
    await site.authority.join(site.fleet.fingerprint, [second])
    assert site.opened().masters() == [second, mine, *named]
    with pytest.raises(UsageInvalid, match="another fleet"):
        await site.authority.join(bytes(16), [mine])
    assert site.opened().masters() == [second, mine, *named]


def _masters(fleet: Fleet) -> list[tuple[str, Party]]:
    return [("master-a", fleet.a), ("master-b", fleet.b)]


def _other_fleet() -> bytes:
    other = Fleet()
    keys = [signing_key(f"other root {number}") for number in range(3)]
    return sign_root_list(replace(other.root, roots=tuple(key.public for key in keys)), keys)


@pytest.mark.parametrize(
    ("name", "body", "found"),
    [
        ("trust.keys", b"\xa1", "malformed"),
        ("trust.keys", b"\xa0", "something else"),
        ("root-lists", b"nothing of ours", "something else"),
        ("root-lists", b"\x81\x41x", "malformed"),
        ("masters", b"{}", "something else"),
        ("masters", b'{"root": "00", "masters": []}', "something else"),
        ("masters", b'{"root": "%s", "masters": [{"address": "x", "key": "y"}]}' % (b"0" * 32), "something else"),
        ("revocations", b"\xf6", "something else"),
    ],
)
async def test_a_damaged_file_stops_the_station_and_is_named(name: str, body: bytes, found: str, site: Site) -> None:
    (site.folder / name).write_bytes(body)
    with pytest.raises(ConfigInvalid) as error:
        site.opened()
    assert error.value.where == str(site.folder / name)
    assert found in str(error.value.found)
    assert error.value.hint


async def test_a_certificate_that_counts_no_more_is_no_reason_not_to_start(site: Site) -> None:
    await site.authority.install(root_lists=site.fleet.chain, certificate=site.certificate())
    site.fleet.next_root(masters=(site.fleet.b.as_master(),))
    StationFiles(site.folder).write_root_lists(site.fleet.chain)
    again = site.opened()
    assert (again.certificate, again.joined) == (None, False)
    assert await again.install(certificate=site.certificate(master=site.fleet.b, issued=site.fleet.now + 1))
    assert again.may("job")
