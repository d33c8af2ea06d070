"""The enrollment of sites: which keys may speak for which names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.errors import NotFound, UsageInvalid
from device_agent.protocol import limits
from gateway.rooms import Rooms
from gateway.store.writer import StoreFailed
from tests.peers.clock import HandClock
from tests.peers.database import look, opened_rooms
from tests.peers.rope import new_keys
from upstream.curve import fingerprint


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def rooms(tmp_path: Path, clock: HandClock) -> AsyncIterator[Rooms]:
    async with opened_rooms(tmp_path, name="central", clock=clock) as opened:
        yield opened


def a_key() -> str:
    return new_keys().public


def states(rooms: Rooms) -> dict[str, str]:
    """The state of each key, as on disk."""
    found = dict(look(rooms.writer._path, "SELECT key, state FROM keys"))
    assert found == {view["key"]: view["state"] for view in rooms.site_keys.views()}
    return found


async def test_a_key_is_pending_until_it_is_accepted_and_stays_so_after_a_restart(tmp_path: Path) -> None:
    key = a_key()
    async with opened_rooms(tmp_path, name="central") as rooms:
        assert await rooms.site_keys.judge("lisbon", key, "192.0.2.1") == "pending"
        assert await rooms.site_keys.judge("lisbon", key, "192.0.2.1") == "pending"
        assert not rooms.site_keys.known(key)
        (view,) = await rooms.site_keys.accept("lisbon", None)
        assert (view["state"], view["fingerprint"]) == ("accepted", fingerprint(key))
        assert rooms.site_keys.known(key)
    async with opened_rooms(tmp_path, name="central") as rooms:
        assert await rooms.site_keys.judge("lisbon", key, "192.0.2.9") == "accepted"
        assert rooms.site_keys.accepted_sites() == ["lisbon"]
        assert states(rooms) == {key: "accepted"}


async def test_a_second_key_for_an_accepted_name_is_denied_and_shown(rooms: Rooms) -> None:
    first, second = a_key(), a_key()
    await rooms.site_keys.judge("lisbon", first, "192.0.2.1")
    await rooms.site_keys.accept("lisbon", None)
    assert await rooms.site_keys.judge("lisbon", second, "192.0.2.66") == "denied"
    assert await rooms.site_keys.judge("lisbon", first, "192.0.2.1") == "accepted"
    assert states(rooms) == {first: "accepted", second: "denied"}
    assert rooms.metrics.peers["uplink", "name_taken", "lisbon@192.0.2.66"] == 1
    with pytest.raises(UsageInvalid, match="another key is accepted") as error:
        await rooms.site_keys.accept("lisbon", fingerprint(second))
    assert fingerprint(first) in str(error.value.hint)
    assert states(rooms)[second] == "denied"


async def test_a_denied_key_takes_the_place_only_after_the_first_was_rejected(rooms: Rooms) -> None:
    first, second = a_key(), a_key()
    await rooms.site_keys.judge("lisbon", first, "192.0.2.1")
    await rooms.site_keys.accept("lisbon", None)
    await rooms.site_keys.judge("lisbon", second, "192.0.2.2")
    await rooms.site_keys.reject("lisbon", fingerprint(first))
    assert await rooms.site_keys.judge("lisbon", second, "192.0.2.2") == "pending"
    await rooms.site_keys.accept("lisbon", None)
    assert states(rooms) == {first: "rejected", second: "accepted"}
    assert await rooms.site_keys.judge("lisbon", first, "192.0.2.1") == "rejected"


async def test_two_pending_keys_for_a_name_are_told_apart_by_their_fingerprints(rooms: Rooms) -> None:
    first, second = a_key(), a_key()
    for key in (first, second):
        assert await rooms.site_keys.judge("lisbon", key, "192.0.2.1") == "pending"
    with pytest.raises(UsageInvalid, match="several keys") as error:
        await rooms.site_keys.accept("lisbon", None)
    assert all(fingerprint(key) in str(error.value.found) for key in (first, second))
    await rooms.site_keys.accept("lisbon", fingerprint(second).upper())
    assert rooms.site_keys.known(second)
    assert not rooms.site_keys.known(first)


async def test_an_accepted_key_that_claims_another_name_keeps_its_own(rooms: Rooms) -> None:
    key = a_key()
    await rooms.site_keys.judge("lisbon", key, "192.0.2.1")
    await rooms.site_keys.accept("lisbon", None)
    assert await rooms.site_keys.judge("madrid", key, "192.0.2.1") == "denied"
    assert rooms.metrics.refusals["uplink", "other_name"] == 1
    assert await rooms.site_keys.judge("lisbon", key, "192.0.2.1") == "accepted"
    assert states(rooms) == {key: "accepted"}
    assert rooms.site_keys.accepted_sites() == ["lisbon"]


async def test_a_rejected_key_does_not_wash_itself_by_another_name(rooms: Rooms) -> None:
    key = a_key()
    await rooms.site_keys.judge("lisbon", key, "192.0.2.1")
    await rooms.site_keys.reject("lisbon", None)
    assert await rooms.site_keys.judge("madrid", key, "192.0.2.1") == "rejected"
    assert await rooms.site_keys.judge("lisbon", key, "192.0.2.1") == "rejected"
    assert states(rooms) == {key: "rejected"}


async def test_a_rejected_key_can_be_accepted_after_all_by_its_fingerprint(rooms: Rooms) -> None:
    key = a_key()
    await rooms.site_keys.judge("lisbon", key, "192.0.2.1")
    await rooms.site_keys.reject("lisbon", None)
    with pytest.raises(NotFound):
        await rooms.site_keys.accept("lisbon", None)
    await rooms.site_keys.accept("lisbon", fingerprint(key))
    assert rooms.site_keys.known(key)


@pytest.mark.parametrize("wanted", [None, "aaaa-bbbb-cccc-dddd"])
async def test_a_key_that_is_not_there_is_not_decided_about(wanted: str | None, rooms: Rooms) -> None:
    await rooms.site_keys.judge("madrid", a_key(), "192.0.2.1")
    with pytest.raises(NotFound) as error:
        await rooms.site_keys.accept("lisbon", wanted)
    assert error.value.found == "madrid (pending)"
    with pytest.raises(NotFound):
        await rooms.site_keys.reject("lisbon", wanted)


async def test_a_decision_is_told_when_it_is_on_disk(rooms: Rooms) -> None:
    told = []

    async def tell() -> None:
        told.append(states(rooms))

    key = a_key()
    rooms.site_keys.on_change(tell)
    await rooms.site_keys.judge("lisbon", key, "192.0.2.1")
    await rooms.site_keys.accept("lisbon", None)
    await rooms.site_keys.reject("lisbon", None)
    assert told == [{key: "accepted"}, {key: "rejected"}]


async def test_a_decision_that_could_not_be_written_does_not_count(rooms: Rooms) -> None:
    key = a_key()
    await rooms.site_keys.judge("lisbon", key, "192.0.2.1")
    trigger = "CREATE TRIGGER full BEFORE UPDATE ON keys BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    await rooms.writer.commit([(trigger, [()])])
    with pytest.raises(StoreFailed):
        await rooms.site_keys.accept("lisbon", None)
    assert not rooms.site_keys.known(key)
    assert states(rooms) == {key: "pending"}


async def test_the_table_of_undecided_keys_is_bounded_and_the_oldest_gives_way(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PENDING_KEYS", 5)
    accepted, rejected = a_key(), a_key()
    async with opened_rooms(tmp_path, name="central", clock=clock) as rooms:
        await rooms.site_keys.judge("lisbon", accepted, "192.0.2.1")
        await rooms.site_keys.accept("lisbon", None)
        await rooms.site_keys.judge("porto", rejected, "192.0.2.1")
        await rooms.site_keys.reject("porto", None)
        flood = [a_key() for _ in range(20)]
        for number, key in enumerate(flood):
            clock.move(1)
            # Some of them claim a name that is taken.
            await rooms.site_keys.judge(f"site-{number}" if number % 2 else "lisbon", key, "192.0.2.66")
        assert states(rooms) == {
            accepted: "accepted",
            rejected: "rejected",
            **{key: "pending" if place % 2 else "denied" for place, key in list(enumerate(flood))[-5:]},
        }
        assert rooms.metrics.refusals["uplink", "pending_keys_full"] == 15


async def test_every_step_of_a_key_is_an_event_as_salt_fires_it(rooms: Rooms) -> None:
    key = a_key()
    with rooms.bus.subscribe("salt/auth") as heard, rooms.bus.subscribe("salt/key") as decided:
        await rooms.site_keys.judge("lisbon", key, "192.0.2.1")
        await rooms.site_keys.accept("lisbon", None)
        await rooms.site_keys.judge("lisbon", a_key(), "192.0.2.2")
        await rooms.site_keys.reject("lisbon", fingerprint(key))
    events = [heard.queue.get_nowait().data for _ in range(heard.queue.qsize())]
    assert [(event["act"], event["result"]) for event in events] == [
        ("pend", True),
        ("accept", True),
        ("denied", False),
        ("reject", False),
    ]
    decisions = [decided.queue.get_nowait().data for _ in range(decided.queue.qsize())]
    assert decisions == [{"id": "lisbon", "act": act, "result": True} for act in ("accept", "reject")]
