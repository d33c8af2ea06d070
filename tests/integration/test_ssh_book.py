"""The book of SSH devices on a real store: members of the site like agents, with secrets only this station opens."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from device_agent.errors import NotFound, PolicyRefused, Refused, UsageInvalid
from device_agent.trust.device_certificate import read_device_certificate
from gateway.devices.enrollment_journal import Asker
from gateway.devices.ssh_book import SshBook, Wanted
from gateway.devices.ssh_device import SshDevice, host_key_fingerprint, identity
from gateway.devices.ssh_secrets import COLUMNS, Sealed, Sealing, Secret, SecretLost
from gateway.store.reader import Reader
from tests.peers.clock import HandClock
from tests.peers.fleet import Party
from tests.peers.joining import ALICE, JoinSite, a_device, opened_site
from tests.peers.waiting import until
from upstream.curve import key_bytes

PASSWORD = "correct horse battery staple"
LOGIN = Secret(password=PASSWORD)


@asynccontextmanager
async def opened_book(folder: Path, *, joined: bool = True) -> AsyncIterator[tuple[JoinSite, SshBook]]:
    async with opened_site(folder, joined=joined) as site, Reader(site.path) as reader:
        book = SshBook(site="lisbon", authority=site.authority, enrollment=site.enrollment, reader=reader, bus=site.bus)
        async with book:
            yield site, book


def a_host_key() -> str:
    """A line as OpenSSH has it."""
    blob = b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + os.urandom(32)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"


def a_wish(name: str = "cam-1", secret: Secret | None = LOGIN, **changes: object) -> Wanted:
    key = a_host_key()
    facts = {"user": "root", "host": "192.0.2.7", "host_keys": (key,), "fingerprints": (host_key_fingerprint(key),)}
    return Wanted(SshDevice(name, **{**facts, **changes}), secret)  # type: ignore[arg-type] # facts of a struct


async def test_a_device_that_is_added_is_a_member_of_the_site_like_an_agent(tmp_path: Path) -> None:
    async with opened_book(tmp_path) as (site, book):
        told: list[str] = []
        book.on_change(told.append)
        wish = a_wish()
        sorted_ = await book.put([wish], ALICE)
        assert (sorted_.added, sorted_.changed, sorted_.left) == (["cam-1"], [], [])
        assert told == ["cam-1"]
        device = book.by_name("cam-1")
        assert device is not None
        assert device.fingerprints == wish.device.fingerprints
        assert book.secret("cam-1") == LOGIN
        known = site.registry.own_device("cam-1")
        assert known is not None
        assert (known.link, known.state, known.place) == ("ssh", "accepted", 0)
        certificate = site.authority.anchor.open_device_certificate(known.certificate, site.authority.now())
        assert certificate.kem == site.authority.kem.public
        assert not certificate.unproven
        ((nonce,),) = site.look("SELECT nonce FROM ssh_devices")
        assert certificate.sig == identity("lisbon", "cam-1", nonce, device.fingerprints)
        assert [event["act"] for event in site.events("salt/key")] == ["accept"]
        assert [event["act"] for event in site.events("outstation/device/cam-1/ssh")] == ["added"]
        assert site.deeds() == [("alice", "devices.add", "allow")]
        assert site.enrollment.users() == {}, "the broker lets nobody in by it"
        assert not site.enrollment.doors.wanted, "and no door is kept open for its answer"


async def test_after_a_restart_everything_is_as_it_was(tmp_path: Path) -> None:
    async with opened_book(tmp_path) as (_, book):
        await book.put([a_wish(), a_wish("cam-2", Secret(private_key="k", passphrase="p"), login="key")], ALICE)
        before = {device.name: device for device in book.all()}
        did = book.identity("cam-1")
    async with opened_site(tmp_path) as site, Reader(site.path) as reader:
        book = SshBook(site="lisbon", authority=site.authority, enrollment=site.enrollment, reader=reader, bus=site.bus)
        async with book:
            assert {device.name: device for device in book.all()} == before
            assert book.secret("cam-2") == Secret(private_key="k", passphrase="p")
            again = book.identity("cam-1")
            assert did is not None
            assert again is not None
            assert again.did == did.did
            assert site.registry.own_device("cam-1") is not None


async def test_secrets_are_nowhere_but_sealed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with opened_book(tmp_path) as (site, book):
        await book.put([a_wish()], ALICE)
        await book.put([a_wish(user="admin")], ALICE)
        assert PASSWORD not in repr(book.secret("cam-1")) + str([a_wish()]) + caplog.text
        device = book.by_name("cam-1")
        assert device is not None
        assert PASSWORD not in str(device.view())
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
        assert PASSWORD.encode() not in kept
        assert site.look("SELECT count(*) FROM ssh_devices") == [(1,)]


def test_what_is_sealed_opens_for_its_device_its_column_and_its_station_only() -> None:
    sealing, device, both = Sealing(bytes(32)), bytes(32), Secret(password="p", private_key="k")
    sealed = sealing.seal(device, both)
    assert sealing.open("cam-1", device, sealed) == both
    assert sealing.seal(device, both) != sealed, "the same secret is never sealed to the same bytes"
    swapped = Sealed(password=sealed.private_key, private_key=sealed.password)
    flipped = Sealed(password=sealed.password[:-1] + bytes([sealed.password[-1] ^ 1]))
    other = bytes(31) + b"1"
    for place, (key, whose, what) in enumerate(
        [
            (bytes(32), other, sealed),
            (bytes(32), device, swapped),
            (bytes(32), device, flipped),
            (bytes(32), device, Sealed(password=b"\x01short")),
            (bytes(32), device, Sealed(password=b"\x02" + sealed.password[1:])),
            (other, device, sealed),
        ]
    ):
        with pytest.raises(SecretLost) as lost:
            Sealing(key).open("cam-1", whose, what)
        assert "devices set cam-1" in str(lost.value), place
    assert all(not getattr(sealing.seal(device, Secret()), column) for column in COLUMNS)


@pytest.mark.parametrize("part", [0, 1, 2, 3])
def test_an_identity_is_of_all_its_parts(part: int) -> None:
    said: list[tuple[str, str, bytes, list[str]]] = [
        ("lisbon", "cam-1", bytes(16), ["SHA256:a", "SHA256:b"]),
        ("porto", "cam-2", bytes(15) + b"1", ["SHA256:a"]),
    ]
    changed = [said[1 if place == part else 0][place] for place in range(4)]
    assert identity(*changed) != identity(*said[0])  # type: ignore[arg-type] # its parts in their order
    assert identity("lisbon", "cam-1", bytes(16), ["SHA256:b", "SHA256:a"]) == identity(*said[0])


async def test_saying_the_same_again_changes_nothing(tmp_path: Path) -> None:
    async with opened_book(tmp_path) as (site, book):
        wish = a_wish()
        await book.put([wish], ALICE)
        before = site.deeds()
        again = await book.put([wish], ALICE)
        assert again.left == ["cam-1"]
        assert site.deeds() == before
        moved = Wanted(SshDevice("cam-1", "root", "192.0.2.8", fingerprints=wish.device.fingerprints), None)
        assert (await book.put([moved], ALICE)).changed == ["cam-1"]
        assert book.secret("cam-1") == LOGIN, "what is not said stays"
        assert (await book.put([Wanted(moved.device, Secret(password="new"))], ALICE)).changed == ["cam-1"]
        assert book.secret("cam-1").password == "new"


async def test_another_host_key_is_another_identity_in_the_same_place(tmp_path: Path) -> None:
    async with opened_book(tmp_path) as (site, book):
        await book.put([a_wish(), a_wish("cam-2")], ALICE)
        before, key = book.identity("cam-1"), a_host_key()
        await book.accept_key("cam-1", [host_key_fingerprint(key)], [key], ALICE)
        after, device = book.identity("cam-1"), book.by_name("cam-1")
        assert before is not None
        assert after is not None
        assert device is not None
        assert (after.place, after.name) == (before.place, before.name)
        assert after.did != before.did
        assert device.host_keys == (key,)
        assert book.secret("cam-1") == LOGIN, "and its secret is sealed to the new pin"
        assert site.states()[before.did] == "revoked"
        known = site.registry.own_device("cam-1")
        assert known is not None
        assert read_device_certificate(known.certificate).did_text == after.did
        assert site.deeds()[-1] == ("alice", "devices.key", "allow")
        with pytest.raises(NotFound):
            await book.accept_key("nobody", [host_key_fingerprint(key)], [key], ALICE)


async def test_a_pinned_fingerprint_gets_its_host_key_when_it_is_met(tmp_path: Path) -> None:
    async with opened_book(tmp_path) as (_, book):
        key, other = a_host_key(), a_host_key()
        await book.put([a_wish(host_keys=(), fingerprints=(host_key_fingerprint(key),))], ALICE)
        before = book.identity("cam-1")
        with pytest.raises(Refused):
            await book.met("cam-1", other)
        await book.met("cam-1", f"{key} comment")
        await book.met("cam-1", key)
        device = book.by_name("cam-1")
        assert device is not None
        assert device.host_keys == (key,)
        assert book.identity("cam-1") == before, "the pin was its fingerprint all along"


@pytest.mark.parametrize("by", ["remove", "revoke"])
async def test_who_is_put_out_is_out_at_once_and_may_come_back_as_another(by: str, tmp_path: Path) -> None:
    async with opened_book(tmp_path) as (site, book):
        wish = a_wish()
        told: list[str] = []
        await book.put([wish], ALICE)
        first = book.identity("cam-1")
        book.on_change(told.append)
        if by == "remove":
            await book.remove("cam-1", "scrapped", ALICE)
        else:
            await site.enrollment.verdicts.revoke("cam-1", "scrapped", ALICE)
        assert told == ["cam-1"]
        assert book.by_name("cam-1") is None
        assert book.identity("cam-1") is None
        assert site.registry.own_device("cam-1") is None
        assert site.look("SELECT * FROM ssh_devices") == []
        assert site.deeds()[-1] == ("alice", "keys.revoke", "allow")
        with pytest.raises(NotFound):
            book.secret("cam-1")
        await book.put([wish], ALICE)
        again = book.identity("cam-1")
        assert first is not None
        assert again is not None
        assert again.did != first.did
        assert again.place != first.place


async def test_a_jump_host_stays_while_others_need_it(tmp_path: Path) -> None:
    async with opened_book(tmp_path) as (_, book):
        await book.put([a_wish("gate"), a_wish("cam-1", jump="gate")], ALICE)
        with pytest.raises(UsageInvalid) as refused:
            await book.remove("gate", "", ALICE)
        assert refused.value.found == "cam-1"
        await book.remove("cam-1", "", ALICE)
        await book.remove("gate", "", ALICE)
        assert book.all() == []


async def test_an_agent_of_the_same_name_is_the_same_device_by_a_second_way(tmp_path: Path) -> None:
    async with opened_book(tmp_path) as (site, book):
        device = a_device("cam-1")
        await site.join(device, await site.token())
        agent = book.identity("cam-1")
        assert agent is not None
        assert agent.link == "mqtt"
        await book.put([a_wish()], ALICE)
        assert book.identity("cam-1") == agent, "its certificate stays that of its agent"
        await book.remove("cam-1", "", ALICE)
        assert book.identity("cam-1") == agent
        assert site.deeds()[-1] == ("alice", "devices.remove", "allow")
        await book.put([a_wish()], ALICE)
        await site.enrollment.verdicts.revoke("cam-1", "stolen", ALICE)
        assert book.by_name("cam-1") is None, "who is out is out by every way"


async def test_a_station_of_no_fleet_lets_nobody_in(tmp_path: Path) -> None:
    async with opened_book(tmp_path, joined=False) as (site, book):
        with pytest.raises(PolicyRefused) as refused:
            await book.put([a_wish()], ALICE)
        assert refused.value.error_id == "station.not_joined"
        assert book.all() == []
        assert site.look("SELECT * FROM ssh_devices") == []


async def test_a_key_of_the_first_meeting_stays_marked_as_unproven(tmp_path: Path) -> None:
    async with opened_book(tmp_path) as (site, book):
        await book.put([Wanted(a_wish().device, LOGIN, "first_use")], Asker("bob", "api"))
        known = site.registry.own_device("cam-1")
        assert known is not None
        assert read_device_certificate(known.certificate).unproven


async def test_thousands_come_in_batches_of_one_commit_each(tmp_path: Path) -> None:
    async with opened_book(tmp_path) as (site, book):
        for start in range(0, 5000, 500):
            await book.put([a_wish(f"cam-{number}") for number in range(start, start + 500)], ALICE)
        assert len(book.all()) == 5000
        assert site.look("SELECT count(*) FROM enrolled WHERE link = 'ssh'") == [(5000,)]


async def test_with_other_keys_the_secrets_are_lost_and_that_is_told(tmp_path: Path) -> None:
    async with opened_book(tmp_path) as (site, book):
        await book.put([a_wish(), a_wish("cam-2", Secret(), login="agent")], ALICE)
        assert book.lost() == []
        # As after a restore with new keys: the store is the same, the station's own key another.
        other = SshBook(
            site="porto", authority=site.authority, enrollment=site.enrollment, reader=Reader(site.path), bus=site.bus
        )
        other._entries = book._entries
        assert other.lost() == ["cam-1"]
        with pytest.raises(SecretLost):
            other.secret("cam-1")


async def test_certificates_are_renewed_before_they_end_though_nobody_asks(tmp_path: Path) -> None:
    async with opened_book(tmp_path) as (site, book):
        await book.put([a_wish(), a_wish("cam-2")], ALICE)
        known = site.registry.own_device("cam-1")
        assert known is not None
        before = read_device_certificate(known.certificate)
        assert isinstance(site.clock, HandClock)
        site.clock.move((before.expires - before.issued) * 0.9)
        now = int(site.authority.now())
        party = Party("lisbon", site.authority.signing, site.authority.kem, key_bytes(site.authority.curve.public))
        renewed = site.fleet.certify_site(party, issued=now, expires=now + 30 * 86_400)
        await site.authority.install(certificate=renewed)

        def after() -> bool:
            certificates = [device.certificate for device in site.registry.own()]
            return all(read_device_certificate(each).expires > before.expires for each in certificates)

        await until(after, what="every certificate is another one")
        again = read_device_certificate(known.certificate)
        assert (again.did, again.name, again.kem) == (before.did, before.name, before.kem)
        stored = site.look("SELECT certificate FROM enrolled WHERE name = 'cam-1'")
        assert stored == [(known.certificate,)]
