"""An agent as a service: what its unit is told of it, and how it joins while it runs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from device_agent.agent import Agent
from device_agent.config import AgentSettings
from tests.peers.agent_process import NAME, joined
from tests.peers.notified import played_supervisor
from tests.peers.played_station import PlayedStation, played_station
from tests.peers.ruled_broker import RuledBroker, as_gateway, ruled_broker
from tests.peers.waiting import until

PROGRAM = [sys.executable, "-m", "device_agent"]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RuledBroker]:
    async with ruled_broker(tmp_path / "broker") as made:
        yield made


@pytest.fixture
async def station(broker: RuledBroker) -> AsyncIterator[PlayedStation]:
    async with played_station(broker.station) as made:
        as_gateway(made, broker)
        yield made


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "agent.yaml"
    own = {"serial": NAME, "state_dir": str(tmp_path / "state"), "grains_file": str(tmp_path / "own.grains")}
    path.write_text(yaml.safe_dump(own))
    return path


@asynccontextmanager
async def running(*words: str | Path, environment: Mapping[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *map(str, words),
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said(*words: str | Path) -> tuple[int | None, str, str]:
    """What the program says in a terminal, and its exit status."""
    async with running(*words, environment={}) as process:
        out, error = await process.communicate()
        return process.returncode, out.decode(), error.decode()


async def test_a_service_waits_for_its_token_and_joins_while_it_runs(station: PlayedStation, config: Path) -> None:
    with played_supervisor() as unit:
        environment = unit.environment(watchdog_seconds=60)
        async with running("run", "--config", config, environment=environment) as agent:
            await unit.until_ready()
            await unit.until_status("not joined yet: outstation-agent join TOKEN")
            status, out, _ = await said("status", "--config", config)
            assert status == 1
            assert "not joined yet" in out
            status, out, error = await said("join", station.token, "--config", config)
            assert (status, "site:              lisbon" in out) == (0, True), (out, error)
            assert "the agent that runs here has the token" in error
            await station.joined([NAME])
            assert f"{NAME} of lisbon" in await unit.until_status("connected to ")
            assert unit.fed() > 0
            status, out, _ = await said("status", "--config", config)
            assert status == 0, out
            status, _, error = await said("join", station.token, "--config", config)
            assert (status, "belongs to a site already" in error) == (0, True)
            agent.send_signal(signal.SIGTERM)
            await agent.communicate()
            assert agent.returncode == 0
        assert any("STOPPING=1" in message for message in unit.heard)


async def test_settings_that_are_wrong_are_the_last_word_of_the_unit(config: Path) -> None:
    config.write_text("brokr: {}\n")
    with played_supervisor() as unit:
        async with running("run", "--config", config, environment=unit.environment()) as agent:
            await agent.communicate()
            assert agent.returncode == 6
        assert "brokr" in unit.status
        assert not unit.ready


async def test_a_hung_journal_is_a_reason_not_to_feed_the_watchdog(station: PlayedStation, tmp_path: Path) -> None:
    table = AgentSettings(
        serial=NAME,
        state_dir=str(tmp_path / "state"),
        token_file=str(tmp_path / "token"),
        grains_file=str(tmp_path / "own.grains"),
    )
    (tmp_path / "token").write_text(station.token)
    async with joined(station, table) as agent:
        await until(lambda: agent.standing.said.startswith("connected"), what="a sentence about the connection")
        judges = agent.judges()
        assert {name: await judge() for name, judge in judges.items()} == {"journal": None, "link": None}
        # As a write that never ends has it.
        async with agent._journal._turn:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await judges["journal"]()
        assert await judges["journal"]() is None


async def test_a_loop_that_does_not_turn_is_a_reason_too(
    station: PlayedStation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("device_agent.agent.STUCK_SECONDS", -1.0)
    agent = Agent(AgentSettings(state_dir=str(tmp_path / "state")), waits=True)
    async with agent:
        await until(lambda: "not joined yet" in agent.standing.said, what="a sentence about joining")
        assert await agent.judges()["link"]() is None
        (tmp_path / "state" / "token").write_text(station.token)
        await until(lambda: agent.identity.joined and agent._link is not None, what="the site to have it")
        assert "no turn for" in (await agent.judges()["link"]() or "")
