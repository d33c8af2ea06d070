"""A swarm on a real mosquitto: each of its devices answers for itself, and it counts truthfully."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from device_agent import swarm as swarm_module
from device_agent import swarm_member
from device_agent.errors import UsageInvalid
from device_agent.host import Completed
from device_agent.local_host import LocalHost
from device_agent.protocol import bitmap, topics
from device_agent.swarm import Swarm, SwarmSettings
from device_agent.swarm_member import simulated_grains
from tests.peers.broker import Broker
from tests.peers.fleet import signing_key
from tests.peers.played_station import PlayedStation, a_job, played_station
from tests.peers.ruled_broker import as_gateway, ruled_broker
from tests.peers.waiting import until

DEVICES = 30
NAMES = [f"cam-{number:05d}" for number in range(DEVICES)]


@pytest.fixture
async def station(broker: Broker) -> AsyncIterator[PlayedStation]:
    async with played_station(broker.address) as made:
        yield made


def of(station: PlayedStation, **fields: object) -> SwarmSettings:
    given = {"devices": DEVICES, "token": station.token, **fields}
    return SwarmSettings(**given)  # type: ignore[arg-type] # the fields of the test at hand


async def ready(swarm: Swarm) -> None:
    async with asyncio.timeout(60):
        await swarm.ready()


async def test_every_device_joins_for_itself_with_keys_of_its_own(station: PlayedStation) -> None:
    async with Swarm(of(station)) as swarm:
        await ready(swarm)
        assert sorted(request.serial for request in station.site.requests.values()) == NAMES
        assert len({request.sig for request in station.site.requests.values()}) == DEVICES
        assert len({request.kem for request in station.site.requests.values()}) == DEVICES
        assert sorted(station.site.confirmed) == sorted(station.site.requests)
        assert len(station.site.sessions) == DEVICES
        assert swarm.report()["joined"] == DEVICES
        assert not swarm.counters.refusals


async def test_devices_that_wait_to_be_accepted_ask_again_until_they_are(station: PlayedStation) -> None:
    station.site.state = "pending"
    async with Swarm(of(station, devices=3)) as swarm:
        await until(lambda: swarm.counters.refusals["not_accepted_yet"] >= 3, what="the first answers")
        station.site.state = None
        await ready(swarm)


async def test_every_device_of_a_broadcast_runs_it_once_and_a_repeat_comes_from_its_journal(
    station: PlayedStation,
) -> None:
    async with Swarm(of(station)) as swarm:
        await ready(swarm)
        job = a_job(1)
        for times in (1, 2):
            await station.deliver(job)
            for name in NAMES:
                await station.returned(job.jid, name, times)
        assert {message.outcome for told in station.returns[job.jid].values() for message in told} == {"ok"}
        assert {message.executions for told in station.returns[job.jid].values() for message in told} == {1}
        report = swarm.report()
        assert report["executed"] == {job.jid: {"devices": DEVICES, "executions": DEVICES, "most": 1}}
        assert report["repeats_answered_from_journal"] == DEVICES
        assert (report["devices"], report["connected"], report["welcomed"]) == (DEVICES, DEVICES, DEVICES)


async def test_a_bitmap_chooses_and_the_others_count_that_they_were_not_meant(station: PlayedStation) -> None:
    async with Swarm(of(station)) as swarm:
        await ready(swarm)
        job = a_job(1, fun="grains.get", arg=["number"])
        chosen = NAMES[3:7]
        await station.deliver(job, bits=bitmap.pack(station.indices[name] for name in chosen))
        await until(lambda: len(station.returns[job.jid]) == len(chosen), what="the chosen ones' answers")
        await until(lambda: swarm.counters.ignored == DEVICES - len(chosen), what="the others' count")
        assert {name: told[0].value for name, told in station.returns[job.jid].items()} == {
            name: int(name[4:]) for name in chosen
        }


class Untouched(LocalHost):
    """This machine, of which a test lets nothing be changed."""

    async def run(self, *given: Any, **named: Any) -> Completed:
        raise AssertionError(f"{given} was run with {named}")

    async def write(self, path: str, data: bytes, **named: Any) -> None:
        raise AssertionError(f"{path} was written: {data!r} {named}")


async def test_no_simulated_device_writes_the_grains_of_the_machine_it_is_simulated_on(
    station: PlayedStation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swarm_member, "LocalHost", Untouched)
    async with Swarm(of(station, devices=2)) as swarm:
        await ready(swarm)
        job = a_job(1, fun="grains.set", arg=["place", "dock"])
        await station.deliver(job)
        await until(lambda: len(station.returns[job.jid]) == 2, what="both answers")
        told = [message for each in station.returns[job.jid].values() for message in each]
        assert {(message.outcome, message.why) for message in told} == {
            ("failed", "this device is simulated: it keeps no grains of its own")
        }


async def test_what_proves_nothing_is_counted_by_each_device_and_does_no_harm(station: PlayedStation) -> None:
    async with Swarm(of(station)) as swarm:
        await ready(swarm)
        await station.link.publish(topics.group_job("lisbon"), b"\xc1 nonsense")
        await station.link.publish(topics.device_job("lisbon", station.did(NAMES[0])), b"")
        await until(lambda: swarm.counters.refusals["malformed"] == DEVICES + 1, what="every device's refusal")
        await station.deliver(a_job(1), key=signing_key("thief"))
        await until(lambda: swarm.counters.refusals["unknown_issuer"] == DEVICES, what="every device's own judgement")
        await station.deliver(a_job(1))
        await until(lambda: len(station.returns[a_job(1).jid]) == DEVICES, what="every device's answer")


async def test_after_a_restart_of_the_broker_all_devices_are_back_and_nothing_ran_twice(
    broker: Broker, station: PlayedStation
) -> None:
    async with Swarm(of(station)) as swarm:
        await ready(swarm)
        job = a_job(1)
        await station.deliver(job)
        await until(lambda: len(station.returns[job.jid]) == DEVICES, what="the answers before")
        await broker.kill()
        await until(lambda: swarm.report()["connected"] == 0, what="the loss of every connection")
        assert swarm.report()["connections_lost"] >= DEVICES
        await broker.start()
        await station.joined(NAMES, times=2)
        # Nobody confirmed: each device says it again, from its journal.
        await until(lambda: all(len(station.returns[job.jid][name]) >= 2 for name in NAMES), what="the answers again")
        assert swarm.report()["executed"][job.jid]["most"] == 1


async def test_a_device_that_the_broker_keeps_out_asks_for_another_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swarm_member, "LOGIN_REFUSED_SECONDS", 0.5)
    async with ruled_broker(tmp_path / "broker") as broker, played_station(broker.station) as station:
        as_gateway(station, broker)
        async with Swarm(of(station, devices=2)) as swarm:
            await ready(swarm)
            out = swarm.members[0].identity
            did, password = out.did, out.password
            # As if its word that it has this password had been lost.
            broker.admit(did, "another")
            await station.joined([NAMES[0]], times=2)
            assert (out.did, out.password != password) == (did, True)
            assert broker.devices[did] == out.password
            assert swarm.report()["joined"] == 2


async def test_a_swarm_process_reports_on_request_and_at_its_end_and_says_goodbye(
    station: PlayedStation, tmp_path: Path
) -> None:
    report = tmp_path / "swarm.json"
    code = (
        "import sys, msgspec, device_agent.swarm as swarm\n"
        "swarm.main(msgspec.json.decode(sys.argv[1], type=swarm.SwarmSettings))"
    )
    settings = {"devices": 5, "token": station.token, "report": str(report), "prefix": "p-"}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, json.dumps(settings))
    names = [f"p-{number:05d}" for number in range(5)]
    try:
        await station.joined(names)
        job = a_job(1)
        await station.deliver(job, *names)
        for name in names:
            await station.returned(job.jid, name)
        process.send_signal(signal.SIGUSR1)
        await until(report.exists, what="the report")
        assert json.loads(report.read_text())["executed"][job.jid]["executions"] == 5
        report.unlink()
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() == 0
        assert json.loads(report.read_text())["connected"] == 5
        await until(lambda: all(station.gone[name] for name in names), what="the goodbyes")
        assert {gone.why for name in names for gone in station.gone[name]} == {"stopped"}
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_a_swarm_that_does_not_fit_is_refused_with_the_number_that_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1000, 2000))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, _limits: None)
    swarm_module.allow_open_files(1500)
    with pytest.raises(UsageInvalid) as raised:
        swarm_module.allow_open_files(1501)
    assert raised.value.hint == "--devices 1500"
    assert "2000" in (raised.value.allowed or "")


def test_simulated_cameras_differ_in_what_targets_match() -> None:
    grains = [simulated_grains(f"cam-{number:05d}", number, f"SN-{number}") for number in range(9)]
    assert {each["kind"] for each in grains} == {"camera"}
    assert len({each["model"] for each in grains}) == 3
    assert len({each["serial"] for each in grains}) == 9


def test_memory_in_use_is_measured() -> None:
    assert 1_000_000 < swarm_module.rss_bytes() < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
