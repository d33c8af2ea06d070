"""How a real agent comes into its site, over a real broker with the product's rules."""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from device_agent import agent as agent_module
from device_agent import enroller as enroller_module
from device_agent.agent import Agent
from device_agent.authority import AuthorityUnknown
from device_agent.config import AgentSettings, BrokerSettings
from device_agent.errors import ConfigInvalid
from device_agent.identity import FILE, IdentityFile
from device_agent.parts import leaves
from tests.peers.agent_process import NAME, AgentProcess
from tests.peers.broker import shown_context
from tests.peers.fleet import signing_key
from tests.peers.played_station import PlayedStation, a_job, commanding_fleet, played_station
from tests.peers.ruled_broker import RuledBroker, as_gateway, ruled_broker
from tests.peers.trusted_site import TrustedSite
from tests.peers.waiting import until

PROGRAM = "from gateway.cli import main; main.STATION_ONLY = ('nothing_of_a_station',); main.entry()"
COMMAND = [sys.executable, "-c", PROGRAM, "agent"]
"""The program as a machine has it that is a device and nothing else."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RuledBroker]:
    async with ruled_broker(tmp_path / "broker") as made:
        yield made


@pytest.fixture
async def station(broker: RuledBroker) -> AsyncIterator[PlayedStation]:
    async with played_station(broker.station) as made:
        as_gateway(made, broker)
        yield made


def settings(folder: Path, **fields: Any) -> AgentSettings:
    given = {"serial": NAME, "state_dir": str(folder / "state"), "grains_file": str(folder / "own.grains"), **fields}
    return AgentSettings(**given)


def lay_token(station: PlayedStation, folder: Path) -> Path:
    (folder / "state").mkdir(exist_ok=True)
    path = folder / "state" / "token"
    path.write_text(station.token)
    return path


@asynccontextmanager
async def command(*words: str | Path, stdin: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *map(str, words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(stdin.encode())
    process.stdin.close()
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    async with asyncio.timeout(60):
        out, error = await process.communicate()
    return process.returncode, out.decode(), error.decode()


# --- joining ---------------------------------------------------------------------------------------------------------


async def test_a_token_in_the_state_directory_is_all_that_a_device_needs(
    station: PlayedStation, tmp_path: Path
) -> None:
    token = lay_token(station, tmp_path)
    async with Agent(settings(tmp_path)) as agent:
        await station.joined([NAME])
        await until(lambda: not token.exists(), what="the used token's end")
        await station.deliver(a_job(1))
        [told] = await station.returned(a_job(1).jid, NAME)
        assert told.outcome == "ok"
        did = agent.identity.did
    # It stays the device it is, without a token.
    async with Agent(settings(tmp_path)) as agent:
        await station.joined([NAME], 2)
        assert agent.identity.did == did
    assert station.site.confirmed == [did]


async def test_a_device_without_a_token_joins_by_its_root_when_it_is_accepted(
    broker: RuledBroker, station: PlayedStation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    station.site.state = "pending"
    table = settings(
        tmp_path,
        site="lisbon",
        root=station.site.fleet.fingerprint.hex(),
        broker=BrokerSettings(host="127.0.0.1", port=broker.join_port),
    )
    async with Agent(table) as agent:
        await until(lambda: "waits to be accepted" in caplog.text, what="word of the waiting")
        assert f"outstation keys accept {agent.identity.did} --fingerprint {agent.identity.fingerprint}" in caplog.text
        assert station.hellos[NAME] == []
        station.site.state = None
        await station.joined([NAME])


async def test_a_device_with_nothing_to_join_by_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        await Agent(settings(tmp_path)).__aenter__()
    [error] = leaves(raised.value)
    assert isinstance(error, ConfigInvalid)
    assert "belongs to no site yet" in str(error)


async def test_a_damaged_identity_stops_the_agent_and_is_not_replaced(station: PlayedStation, tmp_path: Path) -> None:
    lay_token(station, tmp_path)
    async with Agent(settings(tmp_path)):
        await station.joined([NAME])
    file = tmp_path / "state" / FILE
    file.write_bytes(file.read_bytes()[:-1])
    damaged = file.read_bytes()
    with pytest.raises(ExceptionGroup) as raised:
        await Agent(settings(tmp_path)).__aenter__()
    [error] = leaves(raised.value)
    assert isinstance(error, ConfigInvalid)
    assert error.where == str(file)
    assert file.read_bytes() == damaged


async def test_settings_of_another_site_do_not_move_a_device_that_belongs_to_one(
    station: PlayedStation, tmp_path: Path
) -> None:
    lay_token(station, tmp_path)
    async with Agent(settings(tmp_path)):
        await station.joined([NAME])
    with pytest.raises(ExceptionGroup) as raised:
        await Agent(settings(tmp_path, site="porto")).__aenter__()
    [error] = leaves(raised.value)
    assert isinstance(error, ConfigInvalid)
    assert (error.where, error.found) == ("site", "lisbon (joined), porto (the settings)")


async def test_the_identity_is_on_disk_before_the_gateway_hears_that_it_is(
    station: PlayedStation, tmp_path: Path
) -> None:
    lay_token(station, tmp_path)
    admit = station.confirmed
    on_disk: list[bool] = []

    def look(did: str) -> None:
        identity = IdentityFile(tmp_path / "state").load()
        on_disk.append(identity is not None and identity.joined)
        admit(did)

    station.confirmed = look
    async with Agent(settings(tmp_path)):
        await station.joined([NAME])
    assert on_disk == [True]


# --- the broker's door -----------------------------------------------------------------------------------------------


async def test_a_device_whose_password_the_broker_lost_asks_for_another_with_the_same_identity(
    broker: RuledBroker, station: PlayedStation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "LOGIN_REFUSED_SECONDS", 0.5)
    lay_token(station, tmp_path)
    async with Agent(settings(tmp_path)) as agent:
        await station.joined([NAME])
        did, password = agent.identity.did, agent.identity.password
    broker.admit(did, "of another gateway")
    station.site.replace_gateway()
    await station.publish_bundle()
    async with Agent(settings(tmp_path)) as agent:
        await station.joined([NAME], 2)
        assert agent.identity.did == did
        assert agent.identity.password != password
        assert broker.devices[did] == agent.identity.password


async def test_while_nobody_may_join_the_agent_says_so_and_goes_on(
    broker: RuledBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(enroller_module, "JOIN_USER", "nobody")
    async with played_station(broker.station) as station:
        as_gateway(station, broker)
        lay_token(station, tmp_path)
        async with Agent(settings(tmp_path)):
            await until(lambda: "lets no device join now" in caplog.text, what="the explanation")


# --- TLS -------------------------------------------------------------------------------------------------------------


async def test_with_tls_the_broker_must_show_the_authority_that_the_site_named(
    broker: RuledBroker, station: PlayedStation, tmp_path: Path
) -> None:
    station.site.terms |= {"tls_port": broker.tls_port, "authority": broker.authority.digest}
    lay_token(station, tmp_path)
    async with Agent(settings(tmp_path, broker=BrokerSettings(tls=True))) as agent:
        await station.joined([NAME])
        assert agent._link is not None
        assert agent._link.address.port == broker.tls_port
        await station.deliver(a_job(1))
        await station.returned(a_job(1).jid, NAME)


async def test_another_authority_is_not_connected_to(broker: RuledBroker) -> None:
    context = await asyncio.to_thread(shown_context, broker.tls_port, broker.authority.digest)
    assert context.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(AuthorityUnknown) as raised:
        await asyncio.to_thread(shown_context, broker.tls_port, b"\x00" * 32)
    assert broker.authority.digest.hex() in (raised.value.found or "")
    with pytest.raises(OSError):
        await asyncio.to_thread(shown_context, broker.port, broker.authority.digest)


# --- the commands ----------------------------------------------------------------------------------------------------


def configured(station: PlayedStation, folder: Path) -> AgentProcess:
    process = AgentProcess(station, folder)
    (folder / "state" / "token").unlink()
    process.configure()
    return process


async def test_join_takes_a_token_waits_and_shows_who_the_device_is(station: PlayedStation, tmp_path: Path) -> None:
    process = configured(station, tmp_path)
    async with command("show", "--config", process.config) as shown:
        assert (await ended(shown))[0] == 1
    async with command("join", "-", "--config", process.config, stdin=station.token) as joining:
        status, out, error = await ended(joining)
    assert (status, "joined site=lisbon name=cam-7" in error) == (0, True), error
    identity = IdentityFile(tmp_path / "state").load()
    assert identity is not None
    assert f"fingerprint:       {identity.fingerprint}\n" in out
    async with command("show", "--config", process.config) as shown:
        assert (await ended(shown))[:2] == (0, out)
    async with command("join", "--config", process.config) as again:
        status, _, error = await ended(again)
    assert (status, "belongs to a site already: cam-7 of lisbon" in error) == (0, True)
    await process.start()
    await station.joined([NAME])
    assert await process.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(("state", "status"), [("rejected", 8), ("token_used", 8), ("pending", 1)])
async def test_join_says_in_words_why_not(station: PlayedStation, tmp_path: Path, state: Any, status: int) -> None:
    process = configured(station, tmp_path)
    station.site.state = state
    (tmp_path / "usb").write_text(station.token)
    wait = "20s" if state == "pending" else "1m"
    words = ("join", "--token-file", tmp_path / "usb", "--config", process.config, "--wait", wait)
    async with command(*words) as joining:
        found, out, error = await ended(joining)
    assert (found, out) == (status, ""), error
    assert enroller_module.MEANING[state] in error
    assert "says the test" in error
    identity = IdentityFile(tmp_path / "state").load()
    assert identity is not None
    assert not identity.joined
    assert identity.fingerprint in error


async def test_a_token_that_is_none_is_a_mistake_on_the_command_line(station: PlayedStation, tmp_path: Path) -> None:
    process = configured(station, tmp_path)
    for words in (("join", station.token[:40]), ("join", "nonsense!"), ("join", "A", "--token-file", tmp_path / "x")):
        async with command(*words, "--config", process.config) as joining:
            status, out, error = await ended(joining)
        assert (status, out) == (2, ""), error
        assert "token" in error


async def test_a_site_with_other_roots_is_told_to_the_person_who_joins(
    broker: RuledBroker, station: PlayedStation, tmp_path: Path
) -> None:
    process = configured(station, tmp_path)
    fleet = commanding_fleet("lisbon")
    fleet.roots = [signing_key(f"other root {number}") for number in range(3)]
    fleet.next_root(
        roots=tuple(root.public for root in fleet.roots), keys=[*commanding_fleet("lisbon").roots[:2], *fleet.roots[:2]]
    )
    token = TrustedSite(fleet).token(f"127.0.0.1:{broker.join_port}").text()
    async with command("join", token, "--config", process.config, "--wait", "20s") as joining:
        status, _, error = await ended(joining)
    assert status == 1
    assert "an answer that proves nothing was ignored" in error
