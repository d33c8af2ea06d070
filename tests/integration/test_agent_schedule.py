"""The schedule of a real agent on a real mosquitto: killed, cut off, and told by its pillar."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from device_agent.clock import Clock
from device_agent.protocol.device_events import KEEP, Fired, Heard, decode_page, encode
from device_agent.protocol.messages import encode_value
from device_agent.protocol.pillar import ITEMS, PillarTold
from device_agent.protocol.questions import Answer
from device_agent.schedule.kept import Kept
from device_agent.schedule.returns import TAG
from tests.peers.agent_process import NAME, AgentProcess
from tests.peers.broker import Broker
from tests.peers.played_station import PlayedStation, a_job, played_station
from tests.peers.waiting import until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def station(broker: Broker) -> AsyncIterator[PlayedStation]:
    async with played_station(broker.address) as made:
        yield made


@pytest.fixture
async def process(station: PlayedStation, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    made = AgentProcess(station, tmp_path)
    try:
        yield made
    finally:
        if made.process is not None and made.process.returncode is None:
            await made.end(signal.SIGKILL)


def told(station: PlayedStation) -> list[Fired]:
    """The returns of scheduled runs that were offered, each once."""
    pages = [decode_page(question.body) for _, question in station.questions if question.about == KEEP]
    return list({each.sequence: each for page in pages for each in page.events if each.tag == TAG}.values())


def by_name(station: PlayedStation) -> dict[str, dict[str, Any]]:
    return {event.data["schedule"]: event.data for event in told(station)}


def kept(process: AgentProcess) -> Kept:
    return msgspec.msgpack.decode((process.folder / "state" / "schedule").read_bytes(), type=Kept)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def soon(seconds: float) -> str:
    return datetime.fromtimestamp(Clock().wall() + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def write(file: Path, word: str) -> dict[str, Any]:
    return {"function": "cmd.run", "args": [f"echo {word} >> {file}"]}


async def test_a_run_returns_as_an_event_in_salts_words(station: PlayedStation, process: AgentProcess) -> None:
    process.configure(
        schedule={"look": {"function": "test.echo", "args": ["hi"], "seconds": 600, "metadata": {"a": 1}}}
    )
    await process.start()
    await station.joined([NAME])
    [event] = await until(lambda: told(station), what="it returned")
    data = event.data
    assert (data["cmd"], data["id"], data["fun"], data["fun_args"]) == ("_return", NAME, "test.echo", ["hi"])
    assert (data["schedule"], data["return"], data["retcode"], data["success"]) == ("look", "hi", 0, True)
    assert (data["outcome"], data["metadata"]) == ("ok", {"a": 1})
    assert len(data["jid"]) == 20


async def test_once_is_neither_forgotten_nor_repeated_by_a_kill(
    station: PlayedStation, process: AgentProcess, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    once = {**write(file, "once"), "once": soon(45), "run_missed": True}
    process.configure(timezone="UTC", schedule={"once": once})
    await process.start()
    await station.joined([NAME])
    await process.end(signal.SIGKILL)
    assert lines(file) == []
    await until(lambda: soon(-1) > once["once"], seconds=60, what="its time is over")
    await process.start()
    await until(lambda: lines(file), what="it ran")
    await process.end(signal.SIGKILL)
    for _ in range(2):
        await process.start()
        # The pillar is asked for by an agent that ticks, and the ticks are what would run it.
        before = len(station.questions)
        await until(lambda: len(station.questions) > before, what="it works")  # noqa: B023 - called at once
        await process.end(signal.SIGKILL)
    assert lines(file) == ["once"]
    assert kept(process).states["once"].runs == 1


async def test_a_run_that_a_kill_ends_is_unknown_and_is_not_repeated(
    station: PlayedStation, process: AgentProcess, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    # However long the agent takes to start, it runs.
    once = {"once": soon(3), "run_missed": True}
    entry = {"function": "cmd.run", "args": [f"echo begun >> {file}; sleep 600"], **once}
    process.configure(timezone="UTC", schedule={"long": entry})
    await process.start()
    await until(lambda: lines(file), what="it runs")
    await process.end(signal.SIGKILL)
    await process.start()
    [event] = await until(lambda: told(station), what="it is told")
    assert (event.data["outcome"], event.data["success"]) == ("unknown", False)
    assert event.data["why"] == "the agent stopped while it ran"
    assert lines(file) == ["begun"]
    await until(lambda: not kept(process).running, what="it is over")


async def test_with_nobody_to_reach_it_goes_on_and_all_of_it_is_told_later(
    station: PlayedStation, process: AgentProcess, broker: Broker, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    process.configure(schedule={"often": {**write(file, "x"), "seconds": 1}})
    await process.start()
    await station.joined([NAME])
    # From here on nobody confirms anything, and then there is nobody at all.
    await broker.stop()
    before = len(lines(file))
    await until(lambda: len(lines(file)) >= before + 4, what="it goes on")
    ran = len(lines(file))
    await broker.start()
    await until(lambda: len(told(station)) >= ran, seconds=60, what="all of it is told")
    assert len({event.data["jid"] for event in told(station)}) == len(told(station))


async def test_functions_change_it_and_a_kill_keeps_what_was_changed(
    station: PlayedStation, process: AgentProcess, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    process.configure(schedule={"set": {"function": "test.ping", "hours": 5, "run_on_start": False}})
    await process.start()
    await station.joined([NAME])
    call = {"function": "cmd.run", "job_args": [f"echo added >> {file}"], "hours": 3, "run_on_start": False}
    await station.deliver(a_job(1, fun="schedule.add", arg=["added"], kwarg=call))
    [done] = await station.returned(a_job(1).jid, NAME)
    assert (done.outcome, done.value["comment"]) == ("ok", "Added job: added to schedule."), done
    await station.deliver(a_job(2, fun="schedule.delete", arg=["set"]))
    assert (await station.returned(a_job(2).jid, NAME))[0].outcome == "ok"
    await process.end(signal.SIGKILL)
    await process.start()
    await station.joined([NAME], 2)
    await station.deliver(a_job(3, fun="schedule.list", kwarg={"return_yaml": False}))
    [listed] = await station.returned(a_job(3).jid, NAME)
    assert list(listed.value) == ["added"]
    await station.deliver(a_job(4, fun="schedule.run_job", arg=["added"]))
    [run] = await station.returned(a_job(4).jid, NAME)
    await until(lambda: lines(file) == ["added"], what="it ran")
    [event] = await until(lambda: told(station), what="it is told")
    assert event.data["jid"] == run.value["jid"]


async def test_what_the_pillar_names_runs_within_what_the_site_may_order_and_is_kept(
    station: PlayedStation, process: AgentProcess, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    pillar = {
        "schedule": {
            "look": {"function": "test.ping", "seconds": 2},
            "shell": {**write(file, "shell"), "seconds": 2},
            "wrong": {"function": "test.ping", "cron": "x"},
        }
    }
    station.replies[ITEMS] = Answer(0, msgspec.msgpack.encode(PillarTold(encode_value(pillar))))
    await process.start()
    await station.joined([NAME])
    await until(lambda: by_name(station).keys() >= {"look", "shell"}, what="both are told")
    found = by_name(station)
    assert found["look"]["outcome"] == "ok"
    assert (found["shell"]["outcome"], found["shell"]["return"]) == ("refused", None)
    assert "the pillar names it, and this site may not order it" in found["shell"]["why"]
    assert lines(file) == []
    await until(lambda: "pillar schedule.wrong.cron" in process.log, what="the wrong one is named")
    station.replies[KEEP] = Answer(0, encode(Heard(max(event.sequence for event in told(station)))))
    await process.end(signal.SIGKILL)
    del station.replies[ITEMS]
    began = Clock().wall()
    await process.start()
    await until(
        lambda: any(event.at > began and event.data["schedule"] == "look" for event in told(station)),
        what="it runs without the pillar",
    )
