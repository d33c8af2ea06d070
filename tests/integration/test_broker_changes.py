"""How changes of who may come in are put in force at the broker: together, surely, and without throwing out others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import StationFailed
from device_agent.trust.keys import did_text
from gateway.broker import part, ruled
from gateway.broker.mosquitto import Mosquitto
from gateway.broker.part import BrokerPart
from gateway.broker.passwords import hash_password
from tests.peers.visitor import visit
from tests.peers.waiting import until
from tests.peers.walled import ADA, BEN, NOT_AUTHORISED, ada, ben, device, embedded, knowing_two, managed


@pytest.fixture(params=[managed, embedded])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BrokerPart]:
    """A broker that knows two devices."""
    make: Callable[[Path], BrokerPart] = request.param
    async with make(tmp_path) as made:
        await knowing_two(made)
        yield made


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Mosquitto]:
    """The same, and surely mosquitto."""
    async with managed(tmp_path) as made:
        await knowing_two(made)
        yield made


@contextmanager
def counted(broker: BrokerPart) -> Iterator[list[int]]:
    """How often something was put in force."""
    times: list[int] = []
    real = broker._apply

    async def apply() -> None:
        times.append(1)
        await real()

    broker._apply = apply  # type: ignore[method-assign]  # to look on
    yield times


async def test_many_changes_are_put_in_force_together(broker: BrokerPart) -> None:
    dids = [did_text(bytes(15) + bytes([number])) for number in range(200)]
    password_hash = hash_password("same")
    with counted(broker) as times:
        async with asyncio.TaskGroup() as group:
            for did in dids:
                group.create_task(broker.add_user(did, password_hash))
            group.create_task(broker.remove_user(BEN))
    assert len(times) == 1
    assert broker.status()["users"] == 201
    for did in dids[::50]:
        assert (await visit(device(broker, did, "same"), did)).inside
    assert (await ben(broker)).code == NOT_AUTHORISED


async def test_what_changes_nothing_is_not_put_in_force_again(broker: BrokerPart) -> None:
    with counted(broker) as times:
        await broker.set_enrollment(False)
        await broker.remove_user(did_text(bytes(16)))
    assert times == []


async def test_two_thousand_devices_are_read_again_and_nobody_is_thrown_out(process: Mosquitto) -> None:
    dids = [did_text(number.to_bytes(16, "big")) for number in range(2000)]
    await process.set_users(dict.fromkeys(dids, hash_password("same")))
    inside = [await visit(device(process, did, "same"), did) for did in dids[::10]]
    await process.remove_user(dids[1])
    await process.add_user(ADA, hash_password("ada"))
    for visitor in inside:
        await visitor.settled()
    assert [visitor.inside for visitor in inside] == [True] * 200
    assert (await ada(process)).inside
    assert (await visit(device(process, dids[1], "same"), dids[1])).code == NOT_AUTHORISED


class Deaf:
    """Signals on their way to a broker, of which some are lost: mosquitto forgets those that come while it reads."""

    def __init__(self, broker: Mosquitto, lost: int) -> None:
        self.lost = lost
        self.sent = 0
        self._send = broker._signal
        broker._signal = self.send  # type: ignore[method-assign]  # to lose some

    def send(self) -> None:
        self.sent += 1
        if self.sent > self.lost:
            self._send()


async def test_a_signal_that_was_forgotten_is_sent_again(process: Mosquitto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ruled, "SIGNAL_SECONDS", 0.05)
    deaf = Deaf(process, lost=2)
    gone = await ada(process)
    await process.remove_user(ADA)
    assert deaf.sent >= 3
    await until(lambda: gone.gone, what="the end of the connection")


async def test_a_change_the_broker_does_not_take_is_told_and_tried_until_it_does(
    process: Mosquitto, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ruled, "TAKE_SECONDS", 0.1)
    monkeypatch.setattr(part, "RETRY_SECONDS", 0.05)
    deaf = Deaf(process, lost=1_000_000)
    gone = await ada(process)
    with pytest.raises(StationFailed) as error:
        await process.remove_user(ADA)
    assert error.value.error_id == "broker.rules_not_taken"
    assert "not in force" in caplog.text
    with pytest.raises(StationFailed):
        # Asked for once more: it is no more in force than before.
        await process.remove_user(ADA)
    monkeypatch.undo()
    deaf.lost = 0
    await until(lambda: gone.gone, what="the end of the connection")


async def test_a_change_that_waits_when_the_broker_stops_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "GATHER_SECONDS", 3600.0)
    async with asyncio.TaskGroup() as group:
        async with embedded(tmp_path) as broker:
            waiting = group.create_task(_failure(broker.add_user(ADA, hash_password("ada"))))
            await asyncio.sleep(0)
        assert "stopped" in str((await waiting).found)


async def _failure(change: Coroutine[Any, Any, None]) -> StationFailed:
    with pytest.raises(StationFailed) as error:
        await change
    return error.value
