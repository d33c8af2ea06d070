"""A real agent on a real mosquitto, mostly as a process of its own: running, crashing, stopping."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from device_agent import running
from device_agent.agent import Agent
from device_agent.errors import ConfigInvalid
from device_agent.grains import check_grains
from device_agent.parts import leaves
from device_agent.protocol import limits, topics
from device_agent.protocol.messages import Gone
from tests.peers.agent_process import NAME, AgentProcess, agent_settings, joined
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


# --- in a process of its own -----------------------------------------------------------------------------------------


async def test_an_agent_joins_with_its_grains_runs_a_job_and_stops_in_order(
    station: PlayedStation, process: AgentProcess
) -> None:
    await station.joined([NAME])
    [hello] = station.hellos[NAME]
    assert (hello.grains["id"], hello.grains["floor"]) == (NAME, 3)
    assert hello.grains["kernel"] == "Linux"
    await station.deliver(a_job(1, fun="cmd.run", arg=["echo out"]))
    [told] = await station.returned(a_job(1).jid, NAME)
    assert (told.outcome, told.executions) == ("ok", 1)
    assert "out" in str(told.value)
    assert await process.end(signal.SIGTERM) == 0
    await until(lambda: station.gone[NAME], what="the goodbye")
    assert station.gone[NAME] == [Gone(hello.session, "stopped")]


async def test_an_agent_that_is_killed_is_lost_by_its_last_will(station: PlayedStation, process: AgentProcess) -> None:
    await station.joined([NAME])
    await process.end(signal.SIGKILL)
    await until(lambda: station.gone[NAME], what="the last will")
    assert station.gone[NAME] == [Gone(station.hellos[NAME][0].session, "lost")]


async def test_a_job_under_way_at_a_kill_is_unknown_after_the_restart_and_never_runs_again(
    station: PlayedStation, process: AgentProcess, tmp_path: Path
) -> None:
    await station.joined([NAME])
    marks = tmp_path / "marks"
    job = a_job(1, fun="cmd.run", arg=[f"/bin/sh -c 'echo ran >> {marks}; exec sleep 600'"])
    await station.deliver(job)
    await until(marks.exists, what="the job under way")
    await process.end(signal.SIGKILL)
    await process.start()
    [told] = await station.returned(job.jid, NAME)
    assert (told.outcome, told.executions) == ("unknown", 1)
    assert "stopped while it ran" in told.why
    await station.joined([NAME], 2)
    await station.deliver(job)
    again = await station.returned(job.jid, NAME, 2)
    assert again == [told, told]
    assert marks.read_text() == "ran\n"
    # Once confirmed it is not said again, not even by the next process.
    await station.confirm([job.jid], NAME)
    await station.deliver(a_job(2))
    await station.returned(a_job(2).jid, NAME)
    assert await process.end(signal.SIGTERM) == 0
    await process.start()
    await station.joined([NAME], 3)
    await station.deliver(a_job(3))
    await station.returned(a_job(3).jid, NAME)
    assert len(station.returns[job.jid][NAME]) == 2


async def test_a_return_that_nobody_confirmed_is_said_again_by_the_next_process(
    station: PlayedStation, process: AgentProcess
) -> None:
    await station.joined([NAME])
    await station.deliver(a_job(1))
    [told] = await station.returned(a_job(1).jid, NAME)
    await process.end(signal.SIGKILL)
    await process.start()
    assert await station.returned(a_job(1).jid, NAME, 2) == [told, told]


async def test_a_running_job_may_finish_when_the_agent_is_stopped(
    station: PlayedStation, process: AgentProcess, tmp_path: Path
) -> None:
    await station.joined([NAME])
    go = tmp_path / "go"
    started = tmp_path / "started"
    script = f"touch {started}; while [ ! -e {go} ]; do sleep 0.02; done; echo finished"
    await station.deliver(a_job(1, fun="cmd.run", arg=[f"/bin/sh -c '{script}'"]))
    await until(started.exists, what="the job under way")
    assert process.process is not None
    process.process.send_signal(signal.SIGTERM)
    await until(lambda: "agent stops" in process.log, what="the drain")
    await station.deliver(a_job(2), NAME)
    go.touch()
    [told] = await station.returned(a_job(1).jid, NAME)
    assert told.outcome == "ok"
    async with asyncio.timeout(60):
        assert await process.process.wait() == 0
    assert station.gone[NAME][-1].why == "stopped"
    assert station.returns[a_job(2).jid][NAME] == []


async def test_a_second_signal_does_not_wait_for_a_running_job(station: PlayedStation, process: AgentProcess) -> None:
    await station.joined([NAME])
    await station.deliver(a_job(1, fun="test.sleep", arg=[600]))
    await until(lambda: station.running[NAME], what="word of the running job")
    assert process.process is not None
    process.process.send_signal(signal.SIGTERM)
    await until(lambda: "agent stops" in process.log, what="the drain")
    assert await process.end(signal.SIGTERM) == 0
    assert station.returns[a_job(1).jid][NAME] == []
    await process.start()
    [told] = await station.returned(a_job(1).jid, NAME)
    assert told.outcome == "unknown"


async def test_changed_grains_are_told_after_a_reload_and_a_wrong_file_changes_nothing(
    station: PlayedStation, process: AgentProcess
) -> None:
    await station.joined([NAME])
    assert process.process is not None
    process.configure(grains={"floor": 4}, log_level="loud")
    process.process.send_signal(signal.SIGHUP)
    await until(lambda: "settings not reloaded" in process.log, what="the complaint")
    process.configure(grains={"floor": 5}, log_level="warning")
    process.process.send_signal(signal.SIGHUP)
    await station.joined([NAME], 2)
    assert station.hellos[NAME][-1].grains["floor"] == 5
    await station.deliver(a_job(1, tgt="floor:5", tgt_type="grain", fun="grains.get", arg=["floor"]))
    [told] = await station.returned(a_job(1).jid, NAME)
    assert told.value == 5


async def test_a_file_of_the_device_adds_grains_and_what_changes_in_it_is_told_when_asked_for(
    station: PlayedStation, tmp_path: Path
) -> None:
    own = tmp_path / "grains"
    own.write_text("floor: 1\nroom: lobby\n")
    process = AgentProcess(station, tmp_path)
    process.configure(grains_file=str(own), grains_refresh_seconds=0)
    await process.start()
    try:
        await station.joined([NAME])
        grains = station.hellos[NAME][-1].grains
        assert (grains["floor"], grains["room"]) == (3, "lobby")  # The settings win.
        own.write_text("room: dock\n")
        await station.deliver(a_job(1, fun="saltutil.refresh_grains"))
        [told] = await station.returned(a_job(1).jid, NAME)
        assert (told.outcome, told.value) == ("ok", True)
        await station.joined([NAME], 2)
        assert station.hellos[NAME][-1].grains["room"] == "dock"
    finally:
        await process.end(signal.SIGKILL)


async def test_an_agent_looks_at_itself_again_by_itself(station: PlayedStation, tmp_path: Path) -> None:
    own = tmp_path / "grains"
    process = AgentProcess(station, tmp_path)
    process.configure(grains_file=str(own), grains_refresh_seconds=0.2)
    await process.start()
    try:
        await station.joined([NAME])
        own.write_text("room: dock\n")
        await station.joined([NAME], 2)
        assert station.hellos[NAME][-1].grains["room"] == "dock"
    finally:
        await process.end(signal.SIGKILL)


async def test_a_second_agent_on_the_same_state_is_refused(
    station: PlayedStation, process: AgentProcess, tmp_path: Path
) -> None:
    await station.joined([NAME])
    (tmp_path / "second").mkdir()
    second = AgentProcess(station, tmp_path / "second")
    second.configure(serial="cam-8", state_dir=process.settings["state_dir"])
    await second.start()
    assert second.process is not None
    async with asyncio.timeout(60):
        assert await second.process.wait() != 0
    assert "StartDeferred: another agent runs with this state directory" in second.log
    assert station.hellos["cam-8"] == []
    await station.deliver(a_job(1))
    await station.returned(a_job(1).jid, NAME)


# --- in this process -------------------------------------------------------------------------------------------------


async def test_after_a_restart_of_the_broker_the_agent_is_back(
    broker: Broker, station: PlayedStation, tmp_path: Path
) -> None:
    async with joined(station, agent_settings(station, tmp_path)):
        await broker.kill()
        await broker.start()
        await station.joined([NAME], 2)
        sessions = {hello.session for hello in station.hellos[NAME]}
        assert len(sessions) >= 2
        await station.deliver(a_job(1))
        [told] = await station.returned(a_job(1).jid, NAME)
        assert told.outcome == "ok"


async def test_a_job_that_ended_while_the_broker_was_away_is_returned_when_it_is_back(
    broker: Broker, station: PlayedStation, tmp_path: Path
) -> None:
    ended = tmp_path / "ended"
    go = tmp_path / "go"
    async with joined(station, agent_settings(station, tmp_path)) as agent:
        script = f"while [ ! -e {go} ]; do sleep 0.02; done; touch {ended}"
        await station.deliver(a_job(1, fun="cmd.run", arg=[f"/bin/sh -c '{script}'"]))
        await until(lambda: station.running[NAME], what="word of the running job")
        await broker.kill()
        link = agent._link
        assert link is not None
        await until(lambda: not link.state.connected, what="the loss")
        go.touch()
        await until(ended.exists, what="the job's end")
        await broker.start()
        told = await station.returned(a_job(1).jid, NAME)
        assert {(message.outcome, message.executions) for message in told} == {("ok", 1)}


async def test_frames_that_are_no_message_are_counted_and_do_no_harm(
    broker: Broker, station: PlayedStation, tmp_path: Path
) -> None:
    async with joined(station, agent_settings(station, tmp_path)) as agent:
        mine = topics.device_job("lisbon", station.did(NAME))
        for payload in (b"", b"\xc1", b"\x01\x02 of no session", b"x" * (limits.MESSAGE_BYTES + 1)):
            await station.link.publish(mine, payload)
        await until(
            lambda: agent.counters.refusals == {"malformed": 3, "oversized": 1},
            what="four refusals, each under its reason",
        )
        await station.deliver(a_job(1))
        [told] = await station.returned(a_job(1).jid, NAME)
        assert told.outcome == "ok"


async def test_a_cancelled_job_stays_cancelled_across_a_restart(
    broker: Broker, station: PlayedStation, tmp_path: Path
) -> None:
    async with joined(station, agent_settings(station, tmp_path)):
        await station.cancel(a_job(1).jid, NAME)
        await station.returned(a_job(1).jid, NAME)
    async with joined(station, agent_settings(station, tmp_path)) as agent:
        await station.deliver(a_job(1), NAME)
        told = await station.returned(a_job(1).jid, NAME, 2)
        assert {message.outcome for message in told} == {"cancelled"}
        assert agent._device is not None
        assert agent._device.jobs.executions == {}


async def test_a_state_directory_that_cannot_be_made_is_named(station: PlayedStation, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    table = agent_settings(station, tmp_path, state_dir=str(tmp_path / "file" / "state"))
    with pytest.raises(ExceptionGroup) as raised:
        await Agent(table).__aenter__()
    [error] = leaves(raised.value)
    assert isinstance(error, ConfigInvalid)
    assert error.found == str(tmp_path / "file" / "state")


@pytest.mark.parametrize(
    ("grains", "words"),
    [
        ({"when": {1: "a key that is no text"}}, "cannot be sent"),
        ({"big": "x" * limits.GRAINS_BYTES}, "too large"),
        ({"huge": 2**70}, "cannot be sent"),
        ({"object": object()}, "cannot be sent"),
    ],
)
def test_grains_that_no_hello_can_carry_are_a_setting_to_mend(grains: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words):
        check_grains(grains)


def test_a_settings_file_that_is_wrong_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("site: lisbon\nbrocker: {}\n")
    with pytest.raises(ConfigInvalid) as raised:
        running.main(tmp_path / "agent.yaml")
    assert "broker" in str(raised.value)
