"""Devices that ask without a token: in a window, as an expected one, in floods; and whom the broker lets ask at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.trust.join_answer import Accepted, NotYet
from gateway.devices import enrolled_book, enrollment
from gateway.devices.client_addresses import ClientAddresses
from gateway.devices.enrollment_journal import EnrollmentJournal
from gateway.store.writer import StoreFailed
from tests.peers.joining import ALICE, JoinSite, a_device, hand, opened_site, told
from tests.peers.waiting import until

DAY = 86_400.0


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[JoinSite]:
    async with opened_site(tmp_path) as opened:
        yield opened


# --- without a token --------------------------------------------------------------------------------------------------


async def test_without_a_window_nobody_waits(site: JoinSite) -> None:
    assert await told(site) == "window_closed"
    assert site.states() == {}


async def test_in_a_window_a_device_waits_and_goes_on_waiting_when_it_closes(site: JoinSite) -> None:
    await site.window()
    assert await told(site) == "pending"
    await site.enrollment.doors.close_window(ALICE)
    assert await told(site) == "pending"
    assert await told(site, "cam-2") == "window_closed"
    assert [event["act"] for event in site.events("salt/auth")] == ["pend"]


async def test_a_window_closes_when_as_many_came_as_it_was_open_for(site: JoinSite) -> None:
    await site.window(most=3)
    assert [await told(site, f"cam-{number}") for number in range(5)] == ["pending"] * 3 + ["window_closed"] * 2
    assert site.look("SELECT taken, closed IS NOT NULL FROM join_windows") == [(3, 1)]
    assert site.enrollment.doors.window.open is None


async def test_a_device_that_asks_again_is_counted_once(site: JoinSite) -> None:
    await site.window(most=2)
    for _ in range(4):
        assert await told(site) == "pending"
    assert site.look("SELECT taken FROM join_windows") == [(1,)]


async def test_a_window_is_over_in_time_whatever_becomes_of_the_clock(site: JoinSite) -> None:
    await site.window(seconds=600.0)
    hand(site).step_wall(-DAY)
    hand(site).move(601.0)
    assert await told(site) == "window_closed"
    await until(lambda: site.look("SELECT count(*) FROM join_windows WHERE closed IS NOT NULL") == [(1,)])


async def test_a_window_for_a_model_takes_no_other(site: JoinSite) -> None:
    await site.window(model="P32*")
    assert await told(site) == "window_closed"
    answer = await site.ask(a_device("cam-2", model="P3245"))
    assert isinstance(answer, NotYet)
    assert answer.state == "pending"


async def test_a_window_for_a_subnet_takes_only_who_was_seen_to_connect_from_there(site: JoinSite) -> None:
    addresses = site.enrollment.doors.addresses = ClientAddresses()
    await site.window(subnet="192.0.2.0/24")
    inside, outside, unseen = a_device("cam-1"), a_device("cam-2"), a_device("cam-3")
    for device, address in ((inside, "192.0.2.7"), (outside, "198.51.100.7")):
        addresses.line(f"New client connected from {address}:4123 as {device.did} (p2, c1, k60, u'enroll').")
    states = {}
    for device in (inside, outside, unseen):
        answer = await site.ask(device)
        assert isinstance(answer, NotYet)
        states[device.name] = answer.state
    assert states == {"cam-1": "pending", "cam-2": "window_closed", "cam-3": "window_closed"}
    waiting = site.enrollment.by_did(inside.did)
    assert waiting is not None
    assert waiting.address == "192.0.2.7"


async def test_an_expected_key_is_in_at_once_with_its_name_and_is_expected_no_more(site: JoinSite) -> None:
    by_fingerprint, by_did = a_device("cam-1"), a_device("cam-2")
    await site.enrollment.verdicts.expect([(by_fingerprint.fingerprint, "gate"), (by_did.did.upper(), "")], ALICE)
    assert (await site.join(by_fingerprint)).certificate.name == "gate"
    assert (await site.join(by_did)).certificate.name == "cam-2"
    assert site.look("SELECT count(*) FROM expected_keys") == [(0,)]
    assert {device.proof for device in site.enrollment.all()} == {"expected"}


# --- floods -----------------------------------------------------------------------------------------------------------


async def test_the_table_of_those_who_wait_is_bounded_and_the_oldest_gives_way(
    site: JoinSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrolled_book, "PENDING_DEVICES", 3)
    await site.window()
    faithful = a_device("faithful")
    for number in range(6):
        await site.ask(faithful)
        await site.ask(a_device(f"cam-{number}"))
    assert set(site.states()) == {faithful.did, a_device("cam-4").did, a_device("cam-5").did}
    assert site.metrics.refusals["enrollment", "pending_full"] == 4


async def test_a_flood_of_strangers_stays_bounded(site: JoinSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enrolled_book, "PENDING_DEVICES", 100)
    await site.window(most=10_000)
    for number in range(5_000):
        await site.enrollment.request(a_device(f"stranger-{number % 500}-{number // 500}").request())
        if number % 1000 == 0:
            hand(site).move(1.0)
    await site.enrollment.settled()
    states = site.states()
    assert len(states) == 100
    looked_at = 5_000 - sum(site.metrics.refusals["enrollment", reason] for reason in ("rate", "busy"))
    assert looked_at <= enrollment.REQUESTS_BURST + 5 * enrollment.REQUESTS_PER_SECOND
    assert site.metrics.refusals["enrollment", "pending_full"] == looked_at - 100
    assert len(site.events("salt/auth")) == looked_at


async def test_strangers_who_ask_without_end_do_not_keep_the_word_of_an_accepted_device_away(site: JoinSite) -> None:
    token = await site.token()
    device = a_device("cam-1")
    assert isinstance(await site.ask(device, token), Accepted)
    stranger = a_device("stranger").request()
    for _ in range(int(enrollment.REQUESTS_BURST) + 10):
        await site.enrollment.request(stranger)
    other = a_device("cam-2")
    other.request()

    def refused() -> int:
        return sum(site.metrics.refusals["enrollment", reason] for reason in ("rate", "busy"))

    before = refused()
    assert before > 0
    for word in (stranger, other.confirmation(), device.confirmation()):
        await site.enrollment.request(word)
    await site.enrollment.settled()
    assert refused() == before + 2
    assert device.did in site.enrollment.users()
    await site.enrollment.request(device.confirmation())
    assert refused() == before + 3


async def test_a_device_that_asks_all_the_time_is_looked_at_once_a_second(site: JoinSite) -> None:
    await site.window()
    device = a_device()
    for _ in range(10):
        await site.enrollment.request(device.request())
    await site.enrollment.settled()
    assert len(site.answers[device.did]) == 1
    assert site.metrics.refusals["enrollment", "too_often"] == 9


async def test_a_device_that_asks_a_little_too_often_is_heard_nevertheless(site: JoinSite) -> None:
    await site.window()
    device = a_device()
    for _ in range(10):
        await site.enrollment.request(device.request())
        await site.enrollment.settled()
        hand(site).move(enrollment.LOOK_SECONDS * 0.6)
    assert len(site.answers[device.did]) == 5


async def test_nobody_uses_up_the_turn_of_a_device_whose_key_he_has_not(site: JoinSite) -> None:
    await site.window()
    device = a_device()
    payload = bytearray(device.request())
    payload[-2] ^= 1
    for _ in range(5):
        await site.enrollment.request(bytes(payload))
    await site.enrollment.settled()
    assert site.metrics.refusals["enrollment", "bad_signature"] == 5
    assert await told(site) == "pending"


@pytest.mark.parametrize(
    "payload", [b"", b"\xff" * 100, b"\xd2", b"\x82@@", bytes(5000)], ids=lambda each: repr(each)[:20]
)
async def test_what_is_no_request_is_counted_and_ends_nothing(payload: bytes, site: JoinSite) -> None:
    await site.enrollment.request(payload)
    await site.enrollment.settled()
    assert sum(site.metrics.refusals.values()) == 1
    await site.window()
    assert await told(site) == "pending"


async def test_a_full_disk_lets_nobody_in_and_takes_nothing(site: JoinSite) -> None:
    token = await site.token()
    trigger = "CREATE TRIGGER full BEFORE INSERT ON enrolled BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    await site.writer.commit([(trigger, [()])])
    await site.window(most=1)
    assert await site.ask(a_device("cam-1"), token) is None
    assert await site.ask(a_device("cam-2")) is None
    assert (list(site.enrollment.all()), site.registry.own_device("cam-1")) == ([], None)
    await site.writer.commit([("DROP TRIGGER full", [()])])
    await site.join(a_device("cam-1"), token)
    assert await told(site, "cam-2") == "pending"
    assert site.writer.failures >= 2
    with pytest.raises(StoreFailed):
        await site.writer.commit([("INSERT INTO join_tokens (id) VALUES (?)", [("x",)])])


# --- the broker's enrollment user -------------------------------------------------------------------------------------


async def test_the_enrollment_user_is_let_in_only_while_somebody_may_come(site: JoinSite) -> None:
    assert site.broker.is_open is False
    device = a_device()
    token = await site.token()
    await until(lambda: site.broker.is_open, what="open for the token")
    await site.ask(device, token)
    await site.confirm(device)
    await until(lambda: site.broker.is_open is False, what="closed when it is used")
    await site.window(seconds=60.0)
    await until(lambda: site.broker.is_open, what="open for the window")
    hand(site).move(61.0)
    await until(lambda: site.broker.is_open is False, what="closed when it is over")
    await site.enrollment.verdicts.expect([(a_device("cam-2").did, "")], ALICE)
    await until(lambda: site.broker.is_open, what="open for an expected key")
    await site.enrollment.doors.expect_no_more(a_device("cam-2").did, ALICE)
    await until(lambda: site.broker.is_open is False, what="closed when none is expected")


async def test_the_door_stays_open_for_a_device_that_was_accepted_and_has_not_said_so(site: JoinSite) -> None:
    await site.window()
    device = a_device()
    await site.ask(device)
    await site.enrollment.doors.close_window(ALICE)
    await site.enrollment.verdicts.accept(device.did, device.fingerprint, None, ALICE)
    assert site.enrollment.doors.reasons() == {"window": 0, "tokens": 0, "expected": 0, "rejoining": 1}
    await until(lambda: site.broker.is_open, what="open for its answer")
    await site.ask(device)
    await site.confirm(device)
    await until(lambda: site.broker.is_open is False, what="closed when it has its answer")


async def test_the_door_stays_open_while_the_last_use_of_a_token_is_being_written(
    site: JoinSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await site.token()
    seen: list[dict[str, int]] = []
    commit = EnrollmentJournal.commit

    async def look(self: EnrollmentJournal, *given: Any) -> None:
        seen.append(site.enrollment.doors.reasons())
        await commit(self, *given)

    monkeypatch.setattr(EnrollmentJournal, "commit", look)
    await site.join(a_device(), token)
    # Whoever is just let in needs its connection for the answer and for its word that it has it.
    assert [reasons["tokens"] for reasons in seen] == [1]
    await until(lambda: site.broker.is_open is False, what="closed when it has its answer")


async def test_the_door_is_open_for_a_device_that_was_told_another_password_and_has_not_said_so(
    site: JoinSite,
) -> None:
    device = a_device()
    await site.join(device, await site.token())
    await until(lambda: site.broker.is_open is False, what="closed when it has its answer")
    # Its word is lost. By now it may have thrown the old password away.
    await site.ask(device)
    await until(lambda: site.broker.is_open, what="open for its word, or for another request")
    await site.confirm(device)
    await until(lambda: site.broker.is_open is False, what="closed when it has the new one")
