"""Events have the tags and the keys that Salt gives them, for readers of the socket, the API and the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from gateway.event_socket import beside
from tests.peers.event_rows import ROWS, stamped
from tests.peers.system import SECONDS, System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 2

Event = tuple[str, dict[str, Any]]


@pytest.fixture(scope="module")
def live() -> Iterator[System]:
    with whole_system() as system:
        system.add_master(
            events={"syndic_tags": True},
            presence_events=True,
            loop_interval=1,
            rawfile_json={"filename": str(system.folder / "returns.json")},
            returner={"sqlite3": {"database": str(system.folder / "returns.db")}},
        )
        system.add_gateway("lisbon", "central", presence_events=True, loop_interval=1)
        system.join("lisbon")
        system.add_swarm(DEVICES, "lisbon")
        system.add_agent("gone", "lisbon")
        system.present(DEVICES + 1)
        system.stop("gone")
        system.command("keys", "revoke", "gone", "--why", "stolen", "--yes", station="lisbon", status=0)
        system.present(DEVICES)
        yield system


@contextmanager
def on_the_socket(live: System, station: str, *prefixes: bytes) -> Iterator[Callable[[], Event]]:
    """Read a station's socket for other processes."""
    path = beside(Path(live.socket_of(station)))
    assert path is not None
    with zmq.Context() as context, context.socket(zmq.SUB) as line:
        line.linger, line.rcvtimeo = 0, int(SECONDS * 1000)
        line.connect(f"ipc://{path}")
        for prefix in prefixes:
            line.subscribe(prefix)

        def following() -> Event:
            tag, _, body = line.recv().partition(b"\n\n")
            return tag.decode(), msgspec.msgpack.decode(body)

        live.until(lambda: heard(live, station, line), "the reader is heard")
        yield following


def heard(live: System, station: str, line: zmq.Socket[bytes]) -> bool:
    """Fire until something comes."""
    line.subscribe(b"site/ready")
    live.command("fire", "site/ready", station=station, status=0)
    if not line.poll(200):
        return False
    while line.poll(0):
        line.recv()
    line.unsubscribe(b"site/ready")
    return True


def kept(live: System, station: str, pattern: str) -> list[Event]:
    """What a station keeps, by its API."""
    lines = live.command("events", pattern, "--no-follow", "--history", "10000", "--json", station=station, status=0)
    return [(event["tag"], event["data"]) for event in lines.json("event")]


@pytest.fixture(scope="module")
def happened(live: System) -> dict[str, list[Event]]:
    """What the command line tells of each station, and the socket of the gateway's job and its returns."""
    with on_the_socket(live, "lisbon", b"salt/job/") as following:
        jid = live.issue("central", "*", "test.echo", "hello", ret="sqlite,file")
        live.ended("central", jid)
        found = [following()]
        while not found[-1][0].endswith("/close"):
            found.append(following())
    assert all(tag.startswith(f"salt/job/{jid}/") for tag, _ in found)
    assert [data["_sequence"]["salt/job/"] for _, data in found] == list(range(1, len(found) + 1))
    live.command("runner", "event.send", "site/flat", "{door: north}", station="lisbon", status=0)
    live.command("wheel", "minions.connected", station="lisbon", status=0)
    live.until(lambda: kept(live, "central", "site/flat"), "the master has the event as well")
    for station in ("lisbon", "central"):
        live.until(lambda: all_present(live, station), "it is told who is present")  # noqa: B023 - called at once
    return {"lisbon": [*kept(live, "lisbon", "*"), *found], "central": kept(live, "central", "*")}


def all_present(live: System, station: str) -> bool:
    """Whether a station has told that all devices are here."""
    told = kept(live, station, "salt/presence/present")
    return bool(told) and len(told[-1][1]["present"]) == DEVICES


@pytest.mark.parametrize(("station", "tag", "keys"), ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS])
def test_an_event_has_what_salt_puts_into_it(
    station: str, tag: str, keys: Mapping[str, Callable[[Any], bool]], happened: dict[str, list[Event]]
) -> None:
    found = [data for name, data in happened[station] if re.fullmatch(tag, name)]
    assert found, sorted({name for name, _ in happened[station]})
    for data in found:
        assert stamped(data["_stamp"])
        wrong = {key: data.get(key) for key, fits in keys.items() if key not in data or not fits(data[key])}
        assert not wrong, data


def test_the_new_event_names_who_is_expected(live: System, happened: dict[str, list[Event]]) -> None:
    devices = {device.id for device in live.stations["lisbon"].devices({"tgt": "*"})}
    (new,) = (data for name, data in happened["lisbon"] if name.endswith("/new") and "_sequence" in data)
    assert devices <= set(new["minions"])


def test_a_new_job_is_told_under_its_bare_jid_first_then_as_new_and_then_as_published(
    happened: dict[str, list[Event]],
) -> None:
    found = [(name, data) for name, data in happened["lisbon"] if "_sequence" not in data]
    (jid,) = (name for name, _ in found if re.fullmatch(r"\d{20}", name))
    assert [name for name, _ in found if jid in name][:3] == [jid, f"salt/job/{jid}/new", f"salt/job/{jid}/publish"]
    told = dict(found)
    assert told[jid]["minions"] == told[f"salt/job/{jid}/new"]["minions"]


def test_the_command_line_shows_them_as_salt_does(live: System) -> None:
    live.command("fire", "site/shown", "{door: north}", station="lisbon", status=0)
    shown = live.command("events", "site/shown", "--no-follow", "--pretty", station="lisbon", status=0)
    tag, _, data = shown.out.partition("\t")
    assert tag == "site/shown"
    assert data.startswith('{\n    "_stamp": "')
    assert json.loads(data)["door"] == "north"
