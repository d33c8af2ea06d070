"""What operators decide about devices, and that a wrong word changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import NotFound, PolicyRefused, UsageInvalid
from device_agent.trust.device_certificate import read_device_certificate
from device_agent.trust.join_answer import Accepted, NotYet
from gateway.devices.enrollment_journal import Asker
from gateway.store.writer import Statement, StoreFailed
from tests.peers.joining import ALICE, JoiningDevice, JoinSite, a_device, opened_site
from tests.peers.waiting import until

BOB = Asker("bob", "api")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[JoinSite]:
    async with opened_site(tmp_path) as opened:
        await opened.window()
        yield opened


async def waiting(site: JoinSite, *names: str, **changes: Any) -> list[JoiningDevice]:
    """Devices that wait."""
    devices = [a_device(name, **changes) for name in names]
    for device in devices:
        answer = await site.ask(device)
        assert isinstance(answer, NotYet)
        assert answer.state == "pending"
    return devices


def everything(site: JoinSite) -> dict[str, list[Any]]:
    """Every row of every table."""
    tables = [name for (name,) in site.look("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {name: site.look(f"SELECT * FROM {name}") for name in tables if not name.startswith("sqlite_")}


def newest(site: JoinSite, device: JoiningDevice) -> Accepted | NotYet:
    return device.opened(site.answers[device.did][-1], site.fleet)


# --- accept -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("called", ["did", "serial", "fingerprint"])
async def test_a_device_is_accepted_by_its_fingerprint_and_hears_at_once(called: str, site: JoinSite) -> None:
    (device,) = await waiting(site, "cam-1")
    typed = device.fingerprint.replace("-", " ").upper()
    accepted = await site.enrollment.verdicts.accept(getattr(device, called), typed, "gate", BOB)
    assert (accepted.name, accepted.proof, accepted.accepted_by) == ("gate", "fingerprint", "bob")
    answer = newest(site, device)
    assert isinstance(answer, Accepted)
    assert answer.certificate.name == "gate"
    await site.confirm(device)
    await until(lambda: device.did in site.broker.users, what="the broker knows it")
    assert [event["act"] for event in site.events("salt/auth")] == ["pend", "accept"]
    assert [(event["id"], event["act"]) for event in site.events("salt/key")] == [("gate", "accept")]
    assert site.deeds()[-1] == ("bob", "keys.accept", "allow")


async def test_another_fingerprint_changes_nothing_and_says_what_was_typed_and_what_the_device_has(
    site: JoinSite,
) -> None:
    device, other = await waiting(site, "cam-1", "cam-2")
    before = everything(site)
    with pytest.raises(UsageInvalid) as error:
        await site.enrollment.verdicts.accept("cam-1", other.fingerprint, None, ALICE)
    assert other.fingerprint in str(error.value.found)
    assert device.fingerprint in str(error.value.found)
    with pytest.raises(UsageInvalid, match="fingerprint of a device is needed"):
        await site.enrollment.verdicts.accept("cam-1", None, None, ALICE)
    assert everything(site) == before
    assert site.registry.own_device("cam-1") is None
    assert isinstance(newest(site, device), NotYet)


async def test_of_two_devices_with_one_serial_number_the_one_with_the_fingerprint_is_accepted(site: JoinSite) -> None:
    real, pretender = await waiting(site, "cam-1", "mallory", serial="B8A44F")
    await site.enrollment.verdicts.accept("B8A44F", real.fingerprint, None, ALICE)
    assert site.states() == {real.did: "accepted", pretender.did: "pending"}
    before = everything(site)
    with pytest.raises(UsageInvalid, match="is the device"):
        await site.enrollment.verdicts.accept(pretender.did, pretender.fingerprint, None, ALICE)
    assert everything(site) == before
    accepted = await site.enrollment.verdicts.accept(pretender.did, pretender.fingerprint, "other", ALICE)
    assert accepted.name == "other"


async def test_nobody_is_accepted_twice_or_after_a_revocation_or_unheard(site: JoinSite) -> None:
    (device,) = await waiting(site, "cam-1")
    await site.enrollment.verdicts.accept("cam-1", device.fingerprint, None, ALICE)
    with pytest.raises(UsageInvalid, match="accepted already"):
        await site.enrollment.verdicts.accept("cam-1", device.fingerprint, None, ALICE)
    await site.enrollment.verdicts.revoke("cam-1", "stolen", ALICE)
    with pytest.raises(UsageInvalid, match="revoked"):
        await site.enrollment.verdicts.accept(device.did, device.fingerprint, None, ALICE)
    with pytest.raises(NotFound):
        await site.enrollment.verdicts.accept("cam-9", device.fingerprint, None, ALICE)


async def test_an_acceptance_that_could_not_be_written_does_not_count(site: JoinSite) -> None:
    (device,) = await waiting(site, "cam-1")
    trigger = "CREATE TRIGGER full BEFORE UPDATE ON enrolled BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    await site.writer.commit([(trigger, [()])])
    with pytest.raises(StoreFailed):
        await site.enrollment.verdicts.accept("cam-1", device.fingerprint, None, ALICE)
    assert site.states() == {device.did: "pending"}
    assert site.registry.own_device("cam-1") is None
    assert isinstance(newest(site, device), NotYet)
    await site.writer.commit([("DROP TRIGGER full", [()])])
    assert (await site.enrollment.verdicts.accept("cam-1", device.fingerprint, None, ALICE)).name == "cam-1"


async def test_a_station_that_may_not_let_devices_in_says_so(tmp_path: Path) -> None:
    async with opened_site(tmp_path, joined=False) as site:
        await site.window()
        device = a_device()
        await site.ask(device)
        with pytest.raises(PolicyRefused, match="no certificate"):
            await site.enrollment.verdicts.accept(device.did, device.fingerprint, None, ALICE)
        assert site.states() == {device.did: "pending"}


# --- many at once -----------------------------------------------------------------------------------------------------


async def test_what_a_pattern_lets_in_is_marked_for_ever(site: JoinSite) -> None:
    devices = await waiting(site, *(f"cam-{number}" for number in range(5)))
    (stranger,) = await waiting(site, "stranger")
    seen = site.enrollment.verdicts.matching("cam-*")
    (late,) = await waiting(site, "cam-late")
    outcome = await site.enrollment.verdicts.accept_matching("cam-*", None, [device.did for device in seen], ALICE)
    assert {device.did for device in outcome.accepted} == {device.did for device in devices}
    assert all(device.unproven and device.proof == "pattern" for device in outcome.accepted)
    answer = newest(site, devices[0])
    assert isinstance(answer, Accepted)
    assert answer.certificate.unproven
    assert read_device_certificate(await site.enrollment.renew(devices[0].did)).unproven
    # For ever: also when it is accepted again, whoever compares its fingerprint then.
    await site.enrollment.verdicts.quarantine(devices[0].did, "two of them")
    assert (await site.enrollment.verdicts.accept(devices[0].did, devices[0].fingerprint, None, ALICE)).unproven
    # Who came after the operator had looked is not in.
    assert (site.states()[late.did], site.states()[stranger.did]) == ("pending", "pending")


async def test_a_pattern_needs_an_open_window_and_no_more_devices_than_it_is_for(site: JoinSite) -> None:
    await waiting(site, "cam-1", "cam-2")
    await site.enrollment.doors.close_window(ALICE)
    with pytest.raises(PolicyRefused):
        site.enrollment.verdicts.matching("*")
    await site.window(most=1)
    # Those that waited before count from the moment they are heard in it.
    assert site.enrollment.verdicts.matching("*") == []
    await waiting(site, "cam-1", "cam-2")
    with pytest.raises(UsageInvalid) as error:
        site.enrollment.verdicts.matching("*")
    assert (error.value.found, error.value.allowed) == ("2 devices", "1")


async def test_expected_keys_that_wait_already_are_let_in_and_the_others_when_they_come(site: JoinSite) -> None:
    here, taken = await waiting(site, "cam-1", "cam-2")
    coming = a_device("cam-3")
    listed = [(here.fingerprint, "gate"), (taken.fingerprint, "door"), (coming.fingerprint, "")]
    await site.join(a_device("door"), await site.token())
    outcome = await site.enrollment.verdicts.expect(listed, ALICE)
    assert [device.name for device in outcome.accepted] == ["gate"]
    assert list(outcome.waiting) == [taken.did]
    assert "door" in outcome.waiting[taken.did]
    assert (await site.join(coming)).certificate.name == "cam-3"


@pytest.mark.parametrize(
    "listed",
    [
        [("not a key", "")],
        [("aaaa-bbbb-cccc", "")],
        [("aaaa-bbbb-cccc-dddd", "a b")],
        [("aaaa-bbbb-cccc-dddd", ""), ("aaaabbbbccccdddd", "")],
        [("aaaa-bbbb-cccc-dddd", "x"), ("bbbb-bbbb-cccc-dddd", "x")],
    ],
)
async def test_a_list_with_a_mistake_in_it_changes_nothing(listed: list[tuple[str, str]], site: JoinSite) -> None:
    before = everything(site)
    with pytest.raises(UsageInvalid):
        await site.enrollment.verdicts.expect([("cccc-bbbb-cccc-dddd", ""), *listed], ALICE)
    assert everything(site) == before


# --- reject -----------------------------------------------------------------------------------------------------------


async def test_a_rejected_device_hears_so_and_does_not_wait_again_until_it_is_accepted_after_all(
    site: JoinSite,
) -> None:
    (device,) = await waiting(site, "cam-1")
    await site.enrollment.verdicts.reject("cam-1", None, ALICE)
    answer = newest(site, device)
    assert isinstance(answer, NotYet)
    assert answer.state == "rejected"
    again = await site.ask(device, await site.token())
    assert isinstance(again, NotYet)
    assert again.state == "rejected"
    assert site.deeds()[-1] == (device.did, "keys.join", "deny")
    await site.enrollment.verdicts.accept("cam-1", device.fingerprint, None, ALICE)
    assert isinstance(await site.ask(device), Accepted)


async def test_who_is_rejected_is_said_exactly_where_several_claim_a_serial_number(site: JoinSite) -> None:
    real, pretender = await waiting(site, "cam-1", "mallory", serial="B8A44F")
    with pytest.raises(UsageInvalid, match="several"):
        await site.enrollment.verdicts.reject("B8A44F", None, ALICE)
    await site.enrollment.verdicts.reject("B8A44F", pretender.fingerprint, ALICE)
    assert site.states() == {real.did: "pending", pretender.did: "rejected"}
    with pytest.raises(NotFound):
        await site.enrollment.verdicts.reject("nobody", None, ALICE)
    await site.enrollment.verdicts.accept("B8A44F", real.fingerprint, None, ALICE)
    with pytest.raises(UsageInvalid, match="revoked") as error:
        await site.enrollment.verdicts.reject("B8A44F", None, ALICE)
    assert error.value.hint == "outstation keys revoke B8A44F"


# --- revoke and quarantine --------------------------------------------------------------------------------------------


async def test_a_revoked_device_is_out_and_its_place_is_nobody_elses(tmp_path: Path) -> None:
    async with opened_site(tmp_path) as site:
        device = a_device("cam-1")
        await site.join(device, await site.token())
        revoked = await site.enrollment.verdicts.revoke("cam-1", "stolen", BOB)
        assert (revoked.state, revoked.detail) == ("revoked", "stolen")
        assert site.enrollment.by_name("cam-1") is None
        assert site.registry.own_device("cam-1") is None
        await site.registry.flush()
        assert site.look("SELECT state, present FROM devices") == [("revoked", 0)]
        await until(lambda: site.broker.users == {}, what="the broker knows it no more")
        answer = await site.ask(device, await site.token())
        assert isinstance(answer, NotYet)
        assert answer.state == "revoked"
        assert ("bob", "keys.revoke", "allow") in site.deeds()
        assert [event["act"] for event in site.events("salt/key")] == ["delete"]
        assert "revoke" in [event["act"] for event in site.events("salt/auth")]
        # Its successor may have the name, and another place.
        assert (await site.join(a_device("new", serial="cam-1"), await site.token())).terms.index == 1
        await site.enrollment.verdicts.revoke("cam-1", "stolen as well", ALICE)
    # Also when the registry's own rows did not reach the disk before the end.
    async with opened_site(tmp_path, before=[("DELETE FROM devices", [()])]) as site:
        assert list(site.registry.own()) == []
        assert (await site.join(a_device("cam-3"), await site.token())).terms.index == 2


async def test_a_revocation_is_one_fact_with_what_the_site_says_of_it(site: JoinSite) -> None:
    device = a_device("cam-1")
    await site.join(device, await site.token())
    add = "INSERT INTO revoked_devices (kid, version, revoked) VALUES (?, 1, 0)"
    seen: list[str] = []

    async def put_out(dids: Sequence[str], beside: Sequence[Statement]) -> None:
        known = site.enrollment.by_did(dids[0])
        assert known is not None
        seen.append(known.state)
        await site.writer.commit([(add, [(device.key.kid,)]), *beside])

    site.enrollment.verdicts.revoke_with(put_out)
    trigger = "CREATE TRIGGER full BEFORE INSERT ON revoked_devices BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    await site.writer.commit([(trigger, [()])])
    with pytest.raises(StoreFailed):
        await site.enrollment.verdicts.revoke("cam-1", "stolen", ALICE)
    assert site.states() == {device.did: "accepted"}
    assert site.enrollment.by_name("cam-1") is not None
    await site.writer.commit([("DROP TRIGGER full", [()])])
    await site.enrollment.verdicts.revoke("cam-1", "stolen", ALICE)
    assert site.look("SELECT kid FROM revoked_devices") == [(device.key.kid,)]
    assert site.states() == {device.did: "revoked"}
    # While it is carried out the device counts as out already.
    assert seen == ["revoked", "revoked"]


async def test_a_successor_of_the_same_name_waits_until_the_revocation_is_carried_out(site: JoinSite) -> None:
    await site.join(a_device("cam-1"), await site.token())
    successor, token = a_device("new", serial="cam-1"), await site.token()
    early: list[Accepted | NotYet | None] = []

    async def put_out(_: Sequence[str], beside: Sequence[Statement]) -> None:
        await site.writer.commit(beside)
        early.append(await site.ask(successor, token))

    site.enrollment.verdicts.revoke_with(put_out)
    await site.enrollment.verdicts.revoke("cam-1", "broken", ALICE)
    assert isinstance(early[0], NotYet)
    answer = await site.join(successor, token)
    known = site.registry.own_device("cam-1")
    assert known is not None
    assert (known.place, known.certificate) == (answer.terms.index, answer.certificate.body)


async def test_who_was_let_in_while_it_was_being_rejected_stays_in(site: JoinSite) -> None:
    (device,) = await waiting(site, "cam-1")
    verdicts = site.enrollment.verdicts
    async with asyncio.TaskGroup() as group:
        group.create_task(verdicts.accept("cam-1", device.fingerprint, None, BOB))
        await asyncio.sleep(0)
        with pytest.raises(UsageInvalid, match="changed meanwhile"):
            await verdicts.reject("cam-1", None, ALICE)
    assert site.states() == {device.did: "accepted"}


async def test_a_device_that_a_list_from_above_revokes_is_written_down_as_revoked(site: JoinSite) -> None:
    device = a_device("cam-1")
    await site.join(device, await site.token())
    await site.enrollment.verdicts.mark_revoked([device.did, a_device("unknown").did], "by a master")
    assert site.states() == {device.did: "revoked"}
    assert site.registry.own_device("cam-1") is None


async def test_who_waits_is_not_revoked(site: JoinSite) -> None:
    await waiting(site, "cam-1")
    with pytest.raises(NotFound) as error:
        await site.enrollment.verdicts.revoke("cam-1", "", ALICE)
    assert "pending" in str(error.value.found)


async def test_a_cloned_device_is_out_until_an_operator_decides(site: JoinSite) -> None:
    device = a_device("cam-1")
    first = await site.join(device, await site.token())
    await site.enrollment.verdicts.quarantine(device.did, "two of them")
    await until(lambda: site.broker.users == {}, what="the broker lets neither in")
    answer = await site.ask(device)
    assert isinstance(answer, NotYet)
    assert answer.state == "rejected"
    known = site.registry.own_device("cam-1")
    assert known is not None
    assert known.state == "quarantined"
    # Nobody takes its name meanwhile.
    twin = await site.ask(a_device("twin", serial="cam-1"), await site.token())
    assert isinstance(twin, NotYet)
    await site.enrollment.verdicts.accept("cam-1", device.fingerprint, None, ALICE)
    again = await site.join(device)
    assert (again.certificate.name, again.terms.index) == ("cam-1", first.terms.index)
    assert known.state == "accepted"
