"""gateway/engines/event_bus.py on a socket like that of a station: Salt's calls, and what was missed is counted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from gateway.engines import event_bus
from gateway.engines.context import Context
from gateway.engines.event_bus import EventBus
from gateway.engines.report import Report

Publish = Callable[..., None]


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[tuple[Path, zmq.Socket[bytes]]]:
    path = tmp_path / "events.sock"
    with zmq.Context() as context, context.socket(zmq.XPUB) as line:
        line.linger = 0
        line.rcvtimeo = 10_000
        line.bind(f"ipc://{path}")
        yield path, line


@pytest.fixture
def report() -> Iterator[tuple[Report, Callable[[], dict[str, int]]]]:
    read, write = os.pipe()
    told = Report(write)

    def counts() -> dict[str, int]:
        told.tell()
        found: dict[str, int] = json.loads(os.read(read, 4096).splitlines()[-1])["counts"]
        return found

    yield told, counts
    os.close(read)
    os.close(write)


@pytest.fixture
def bus(
    socket: tuple[Path, zmq.Socket[bytes]], report: tuple[Report, Callable[[], dict[str, int]]]
) -> Iterator[tuple[EventBus, Publish]]:
    path, line = socket
    context = Context("x", {}, path.with_name("api.sock"), path, path.parent, report[0])
    with EventBus(context) as listening:
        assert line.recv() == b"\x01"
        sent = iter(range(1, 1_000_000))

        def publish(tag: str, number: int | None = None, **data: Any) -> None:
            sequence = {"": next(sent) if number is None else number}
            line.send(tag.encode() + b"\n\n" + msgspec.msgpack.encode({**data, "_sequence": sequence}))

        yield listening, publish


def test_the_next_event_is_its_data_and_with_full_its_tag_as_well(bus: tuple[EventBus, Publish]) -> None:
    listening, publish = bus
    publish("site/a", id="cam-1")
    publish("site/b", id="cam-2")
    assert listening.get_event() == {"id": "cam-1"}
    assert listening.get_event(full=True) == {"tag": "site/b", "data": {"id": "cam-2"}}
    assert listening.get_event(no_block=True) is None
    assert listening.get_event(wait=0.01) is None


@pytest.mark.parametrize(
    ("wanted", "kind", "found"),
    [
        ("site/door", None, "site/door/1"),
        ("door/2", "find", "site/door/2"),
        ("/2", "endswith", "site/door/2"),
        (r"door/[3-9]$", "regex", "site/door/3"),
        ("site/*/3", "fnmatch", "site/door/3"),
    ],
)
def test_a_tag_is_matched_as_salt_does(
    bus: tuple[EventBus, Publish], wanted: str, kind: str | None, found: str
) -> None:
    listening, publish = bus
    for tag in ("other", "site/door/1", "site/door/2", "site/door/3"):
        publish(tag)
    assert listening.get_event(tag=wanted, match_type=kind, full=True) == {"tag": found, "data": {}}


def test_events_are_iterated_over(bus: tuple[EventBus, Publish]) -> None:
    listening, publish = bus
    for number in range(4):
        publish(f"site/{number % 2}", n=number)
    assert [event["n"] for event in islice(listening.iter_events(tag="site/1"), 2)] == [1, 3]


def test_what_was_subscribed_to_waits_while_another_is_asked_for(bus: tuple[EventBus, Publish]) -> None:
    listening, publish = bus
    listening.subscribe("site/kept")
    for tag in ("site/kept", "site/lost", "site/wanted"):
        publish(tag)
    assert listening.get_event(tag="site/wanted") is not None
    assert listening.get_event(tag="site/kept", no_block=True) is not None
    assert listening.get_event(tag="site/lost", no_block=True) is None


def test_what_was_missed_is_counted_by_its_numbers(
    bus: tuple[EventBus, Publish], report: tuple[Report, Callable[[], dict[str, int]]]
) -> None:
    listening, publish = bus
    # The last one is of a station that began anew.
    for number in (7, 8, 12, 1):
        publish("a", number)
    for _ in range(4):
        assert listening.get_event() == {}
    assert report[1]() == {"heard": 4, "missed": 3}


def test_a_match_that_does_not_exist_is_refused(bus: tuple[EventBus, Publish]) -> None:
    with pytest.raises(ValueError, match="none of startswith"):
        bus[0].get_event(match_type="glob")


def test_tags_are_made_as_in_salt() -> None:
    assert event_bus.tagify("123", "job") == "salt/job/123"
    assert event_bus.tagify(["123", "ret"], "job") == "salt/job/123/ret"
    assert event_bus.tagify("x", base="mine") == "mine/x"
