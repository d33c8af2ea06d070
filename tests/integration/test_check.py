"""`outstation check` from end to end: the timer's command, the event, the rule that hears it, and its end."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.broker import free_port
from tests.peers.station import RUN, SECONDS, StationProcess, ask, station_process
from tests.peers.waiting import until

RULE = """\
tell:
  runner.event.send:
    - args:
      - tag: desk/{{ data['check'] }}
      - data:
          severity: {{ data['severity'] }}
          was: {{ data['was'] }}
"""


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[StationProcess]:
    """A gateway with a rule for whatever a check finds."""
    rule = tmp_path / "tell.sls"
    rule.write_text(RULE, encoding="utf-8")
    reactor = [{"outstation/check/permissions": [str(rule)]}]
    broker = {"mode": "embedded", "port": free_port()}
    async with station_process(tmp_path, "gateway", broker=broker, reactor=reactor) as station:
        yield station


async def typed(station: StationProcess, *words: str) -> tuple[int, str]:
    """A command as the timer's service runs it: its status, and what the journal gets."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        RUN,
        *words,
        "--config",
        str(station.config),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(3 * SECONDS):
        out, error = await process.communicate()
    assert process.returncode is not None
    assert b"Traceback" not in error, error.decode()
    return process.returncode, out.decode()


async def kept(station: StationProcess, tag: str) -> list[dict[str, Any]]:
    heard = await ask(station.socket, "GET", f"/events?tag={tag}&history=100&follow=false")
    return [json.loads(line)["data"] for line in heard.body.decode().splitlines() if line]


async def rule_heard(station: StationProcess, count: int) -> list[dict[str, Any]]:
    async def there() -> list[dict[str, Any]]:
        found = await kept(station, "desk/permissions")
        return found if len(found) >= count else []

    return await until(there, 3 * SECONDS, f"the rule has made {count} events")


async def test_what_the_timer_finds_is_an_event_that_a_rule_hears_and_so_is_its_end(gateway: StationProcess) -> None:
    folder = gateway.folder / "state"
    folder.chmod(0o755)
    status, journal = await typed(gateway, "check", "--tell")
    assert status == 1
    assert "error     permissions: was ok" in journal
    (event,) = await kept(gateway, "outstation/check/permissions")
    assert (event["check"], event["severity"], event["was"]) == ("permissions", "error", "ok")
    assert "outstation check --fix" in event["findings"][0]["fix"]
    (told,) = await rule_heard(gateway, 1)
    assert (told["severity"], told["was"]) == ("error", "ok")

    # The next run of the timer finds the same, and tells nothing of it.
    _, journal = await typed(gateway, "check", "--tell")
    assert "permissions" not in journal
    assert len(await kept(gateway, "outstation/check/permissions")) == 1

    gateway.config.chmod(0o666)
    _, said = await typed(gateway, "check")
    assert "other users may write what the station obeys" in said
    await typed(gateway, "check", "--fix", "--yes")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert gateway.config.stat().st_mode & 0o777 == 0o644
    _, journal = await typed(gateway, "check", "--tell")
    assert "ok        permissions: was error" in journal
    assert [each["severity"] for each in await rule_heard(gateway, 2)] == ["error", "ok"]


async def test_a_real_station_finds_nothing_broken_in_itself(gateway: StationProcess) -> None:
    findings = (await ask(gateway.socket, "GET", "/check")).json()["findings"]
    assert [each for each in findings if each["about"] == "broken"] == []
    assert {each["check"]: each["severity"] for each in findings} | {"clock": "ok", "disk": "ok"} == {
        "disk": "ok",
        "clock": "ok",
        "permissions": "ok",
        "store": "ok",
        "broker": "ok",
        "ports": "ok",
        "trust": "warning",
        "keys": "ok",
        "open-files": "ok",
        "versions": "ok",
        "refusals": "ok",
    }


async def test_a_master_finds_nothing_broken_in_itself_either(tmp_path: Path) -> None:
    listen = f"tcp://127.0.0.1:{free_port()}"
    async with station_process(tmp_path, "master", sites={"listen": listen}) as station:
        status, said = await typed(station, "check", "--all")
        assert (status, "could not be made" in said) == (0, False)
        assert "outstation master init" in said
        assert f"listening at {listen.rpartition(':')[2]} (sites.listen)" in said
        assert (await typed(station, "check", "--tell"))[1].startswith("warning ")


async def test_after_its_end_the_same_command_says_so(gateway: StationProcess) -> None:
    assert await gateway.stop() == 0
    status, said = await typed(gateway, "check")
    assert status == 7
    assert said.startswith("error     station       the gateway does not run")
    assert "permissions" in said.splitlines()[-2], "its files are as they should be"
