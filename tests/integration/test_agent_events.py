"""Events of a real agent on a real mosquitto: they outlive the agent, its station and the connection between them."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.protocol.device_events import KEEP, Heard, Page, decode_page, encode
from device_agent.protocol.questions import Answer
from tests.peers.agent_process import NAME, AgentProcess
from tests.peers.broker import Broker
from tests.peers.played_station import PlayedStation, a_job, played_station
from tests.peers.waiting import until


@pytest.fixture
async def station(broker: Broker) -> AsyncIterator[PlayedStation]:
    async with played_station(broker.address) as made:
        yield made


@pytest.fixture
async def process(station: PlayedStation, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    made = AgentProcess(station, tmp_path)
    await made.start()
    try:
        yield made
    finally:
        if made.process is not None and made.process.returncode is None:
            await made.end(signal.SIGKILL)


def pages(station: PlayedStation) -> list[Page]:
    return [decode_page(question.body) for _, question in station.questions if question.about == KEEP]


async def fire(station: PlayedStation, number: int) -> None:
    """One event, which the function says is kept."""
    await station.deliver(a_job(number, fun="event.send", arg=[f"site/{number}"], kwarg={"n": number}))
    [told] = await station.returned(a_job(number).jid, NAME)
    assert (told.outcome, told.value) == ("ok", True), told


async def test_what_is_not_confirmed_is_offered_again_by_the_next_process_until_it_is(
    station: PlayedStation, process: AgentProcess
) -> None:
    await station.joined([NAME])
    await fire(station, 1)
    await until(lambda: pages(station), what="the event is offered")
    [event] = pages(station)[0].events
    assert (event.tag, event.data["n"], event.data["__pub_fun"]) == ("site/1", 1, "event.send")
    assert event.data["__pub_jid"] == a_job(1).jid
    await process.end(signal.SIGKILL)
    before = len(pages(station))
    await process.start()
    await station.joined([NAME], 2)
    await until(lambda: len(pages(station)) > before, what="it is offered again")
    assert pages(station)[-1].events == [event]
    assert pages(station)[-1].outbox == pages(station)[0].outbox
    await fire(station, 2)
    # Confirmed is the first alone: the second comes by itself then, and nothing after it.
    station.replies[KEEP] = Answer(0, encode(Heard(event.sequence)))
    await until(lambda: [each.tag for each in pages(station)[-1].events] == ["site/2"], what="the second is offered")
    station.replies[KEEP] = Answer(0, encode(Heard(pages(station)[-1].events[0].sequence)))
    last = pages(station)[-1].events[0].sequence
    await fire(station, 3)
    await until(lambda: pages(station)[-1].events[-1].tag == "site/3", what="the third is offered")
    assert pages(station)[-1].events[-1].sequence > last


async def test_another_start_of_the_station_is_offered_what_the_one_before_did_not_confirm(
    station: PlayedStation, process: AgentProcess
) -> None:
    await station.joined([NAME])
    assert process.process is not None
    await fire(station, 1)
    await until(lambda: pages(station), what="the event is offered")
    before = len(pages(station))
    await station.restart()
    await station.joined([NAME], 2)
    await until(lambda: len(pages(station)) > before, what="it is offered in the next session")
    assert pages(station)[-1] == pages(station)[0]
