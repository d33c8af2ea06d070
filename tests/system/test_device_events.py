"""Events of devices over real processes: in Salt's shape here and above, once each however the gateway ends."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.event_file import EventFile
from device_agent.protocol.messages import decode_stored, encode_value
from tests.peers.database import look
from tests.peers.system import Ended, System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

MANY = 900


@pytest.fixture(scope="module")
def live() -> Iterator[System]:
    """A site with a broker that outlives its gateway, and one camera."""
    with whole_system() as system:
        system.add_master()
        system.add_gateway("lisbon", "central", broker=system.add_broker())
        system.join("lisbon", grants=["changes"])
        system.add_agent("cam-1", "lisbon")
        system.present(1, "central")
        yield system


def run(system: System, station: str, tgt: str, fun: str, *arg: Any, **kwarg: Any) -> Ended:
    return system.ended(station, system.issue(station, tgt, fun, *arg, kwarg=kwarg))


def seen(system: System, station: str, tag: str) -> list[dict[str, Any]]:
    """What the command line prints of past events."""
    done = system.command("events", tag, "--no-follow", "--json", station=station, status=0)
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_devices_event_is_seen_at_its_station_and_above(live: System) -> None:
    outcome = run(live, "central", "cam-1", "event.send", "site/door", {"door": "north"}, badge=7).by_device()["cam-1"]
    assert (outcome.outcome, outcome.value) == ("ok", True), outcome
    for station in ("lisbon", "central"):
        live.until(lambda: seen(live, station, "site/door"), f"{station} has it")  # noqa: B023 - called at once
        [event] = seen(live, station, "site/door")
        data = event["data"]
        assert (event["tag"], event["site"]) == ("site/door", "lisbon")
        assert (data["id"], data["tag"], data["cmd"], data["pretag"]) == ("cam-1", "site/door", "_minion_event", None)
        assert isinstance(data["ts"], int)
        assert isinstance(data["_stamp"], str)
        given = {key: value for key, value in data["data"].items() if not key.startswith("__pub_")}
        assert given == {"door": "north", "badge": 7}
        assert (data["data"]["__pub_fun"], data["data"]["__pub_tgt"]) == ("event.send", "cam-1")


def test_what_a_device_fires_on_its_own_bus_is_seen_at_its_station_and_not_above(live: System) -> None:
    """As ``salt-call event.fire '{door: north}' site/door/local``; one more behind it is seen above."""
    local = run(live, "central", "cam-1", "event.fire", {"door": "north"}, "site/door/local").by_device()["cam-1"]
    assert (local.outcome, local.value) == ("ok", True), local
    assert run(live, "central", "cam-1", "event.send", "site/door/after").by_device()["cam-1"].outcome == "ok"
    live.until(lambda: seen(live, "central", "site/door/after"), "what was fired after it is above")
    [event] = seen(live, "lisbon", "site/door/local")
    assert (event["site"], event["data"]["id"], event["data"]["data"]) == ("lisbon", "cam-1", {"door": "north"})
    assert seen(live, "central", "site/door/local") == []


def test_what_is_a_stations_is_refused_where_it_is_fired(live: System) -> None:
    before = len(seen(live, "lisbon", "salt/minion/cam-1/start"))
    outcome = run(live, "lisbon", "cam-1", "event.fire_master", {}, "salt/minion/cam-1/start").by_device()["cam-1"]
    assert (outcome.outcome, outcome.value) == ("failed", False)
    assert "event_own_tag" in str(outcome.why)
    assert len(seen(live, "lisbon", "salt/minion/cam-1/start")) == before


async def lay(path: Path) -> None:
    """What a device fired while nobody took it."""
    kept = EventFile(path)
    await kept.open()
    for number in range(MANY):
        await kept.add("site/many", encode_value({"n": number}), 1.0)


def numbers(system: System) -> list[int]:
    """What is on the gateway's disk, whether or not it runs."""
    rows = look(
        system.state_of("lisbon") / "station.sqlite", "SELECT data FROM events WHERE tag = 'site/many' ORDER BY id"
    )
    return [decode_stored(data)["data"]["n"] for (data,) in rows]


def test_a_gateway_that_is_killed_before_it_confirms_has_each_event_once_and_in_order(live: System) -> None:
    assert live.stop("cam-1") == 0
    asyncio.run(lay(live.state_of("cam-1") / "events"))
    live.add_agent("cam-1", "lisbon")
    live.until(lambda: numbers(live), "the first are on disk")
    # From now on no answer of the gateway arrives any more, whatever it still commits.
    live.children["broker"].process.send_signal(signal.SIGSTOP)
    live.kill("lisbon")
    live.stop("broker", signal.SIGKILL)
    assert numbers(live) == list(range(len(numbers(live))))
    live.add_broker()
    live.restart("lisbon")
    live.until(lambda: len(numbers(live)) >= MANY, "all are on disk")
    live.present(1, "lisbon")
    assert run(live, "lisbon", "cam-1", "event.send", "site/last").by_device()["cam-1"].outcome == "ok"
    live.until(lambda: seen(live, "lisbon", "site/last"), "one more is behind them")
    assert numbers(live) == list(range(MANY))
    live.until(lambda: seen(live, "central", "site/last"), "the master has all")
