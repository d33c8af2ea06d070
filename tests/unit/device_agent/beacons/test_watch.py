"""A beacon at work: what goes wrong with it is told and stays its own, and nothing is said twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from device_agent.beacons import kinds
from device_agent.beacons.given import Given
from device_agent.beacons.port import Around, Found, Looking
from device_agent.beacons.watch import Watch
from device_agent.errors import OutstationError, Refused
from device_agent.events import Handed
from device_agent.outbox import JournalUnavailable
from tests.peers.beacon_bench import NAME, Bench, around
from tests.peers.waiting import until

Look = Callable[[Around], Awaitable[list[Found]]]
QUICK: list[dict[str, Any]] = [{"interval": 0.1}]


class Played(Looking):
    """Looks as a test says."""

    looks: int = 0
    closed: int = 0

    def __init__(self, given: Given) -> None:
        self.given = given

    async def look(self, around: Around) -> list[Found]:
        type(self).looks += 1
        return await now(around)

    async def close(self) -> None:
        type(self).closed += 1


async def now(_around: Around) -> list[Found]:
    return []


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Look], type[Played]]:
    def begin(look: Look) -> type[Played]:
        monkeypatch.setitem(globals(), "now", look)
        made = type("Played", (Played,), {"looks": 0, "closed": 0})
        monkeypatch.setitem(kinds.KINDS, "load", made)
        return made

    return begin


async def test_what_a_beacon_finds_is_an_event_under_its_tag(
    play: Callable[[Look], type[Played]], tmp_path: Path
) -> None:
    async def look(_around: Around) -> list[Found]:
        return [Found({"a": 1}), Found({"b": 2}, tag="/etc/x"), Found({"id": "other"}, tag="t")]

    play(look)
    bench = Bench(tmp_path, {"load": QUICK})
    async with bench.running():
        await until(lambda: len(bench.kept.events) >= 3)
    assert bench.kept.events == [
        (f"salt/beacon/{NAME}/load/", {"id": NAME, "a": 1}),
        (f"salt/beacon/{NAME}/load//etc/x", {"id": NAME, "b": 2}),
        (f"salt/beacon/{NAME}/load/t", {"id": "other"}),
    ]


async def test_a_beacon_that_hangs_or_raises_says_so_once_and_the_others_go_on(
    play: Callable[[Look], type[Played]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_around: Around) -> list[Found]:
        await asyncio.Event().wait()
        raise AssertionError

    class Raising(Looking):
        def __init__(self, given: Given) -> None:
            pass

        async def look(self, around: Around) -> list[Found]:
            raise ExceptionGroup("two", [ValueError("no number"), OSError(5, "bad sector")])

    hanging = play(hang)
    monkeypatch.setitem(kinds.KINDS, "ps", Raising)
    settings = {
        "load": [{"interval": 0.1, "timeout": 0.1}],
        "ps": QUICK,
        "memusage": [{"interval": 0.1, "percent": 0, "fold": 0}],
    }
    bench = Bench(tmp_path, settings)
    async with bench.running():
        await until(lambda: len(bench.kept.of("memusage")) >= 5 and hanging.looks >= 3)
    assert bench.kept.of("load") == [{"id": NAME, "error": "it did not end within 0.1 s"}]
    assert bench.kept.of("ps") == [{"id": NAME, "error": "ValueError: no number; OSError: [Errno 5] bad sector"}]
    assert [reason for reason, _ in bench.counted].count("beacon_failed") >= 4
    assert hanging.closed == 1


async def test_an_event_that_is_lost_is_counted_told_with_the_next_and_said_again(
    play: Callable[[Look], type[Played]], tmp_path: Path
) -> None:
    async def look(_around: Around) -> list[Found]:
        return [Found({"a": 1})]

    made = play(look)
    bench = Bench(tmp_path, {"load": QUICK})
    bench.kept.fails = OutstationError("nobody is there")
    async with bench.running():
        await until(lambda: made.looks >= 3)
        bench.kept.fails = None
        [event] = await until(lambda: bench.kept.of("load"))
    assert event["a"] == 1
    assert event["_lost"] >= 3
    lost = [detail for reason, detail in bench.counted if reason == "beacon_event_lost"]
    assert len(lost) == event["_lost"]
    assert set(lost) == {"load: nobody is there"}


async def test_what_the_devices_disk_does_not_take_is_handed_to_the_station_at_once(
    play: Callable[[Look], type[Played]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[tuple[str, dict[str, Any]]] = []

    async def take(_self: Handed, _device: str, tag: str, data: dict[str, Any]) -> None:
        if not handed:
            handed.append(("", {}))
            raise Refused("store_failed", "full as well")
        handed.append((tag, dict(data)))

    async def look(_around: Around) -> list[Found]:
        return [Found({"diskusage": 100.0})]

    play(look)
    monkeypatch.setattr(Handed, "fire", take)
    bench = Bench(tmp_path, {"load": QUICK})
    bench.kept.fails = JournalUnavailable("the event cannot be kept: No space left on device")
    async with bench.running():
        await until(lambda: len(handed) > 1)
    assert handed[1] == (f"salt/beacon/{NAME}/load/", {"id": NAME, "diskusage": 100.0, "_lost": 1})


async def test_what_no_station_takes_is_counted_and_not_tried_again(
    play: Callable[[Look], type[Played]], tmp_path: Path
) -> None:
    async def look(_around: Around) -> list[Found]:
        return [Found({"a": "x" * 100_000})]

    made = play(look)
    bench = Bench(tmp_path, {"load": QUICK})
    async with bench.running():
        await until(lambda: made.looks >= 3)
    assert bench.kept.events == []
    [(reason, detail)] = bench.counted
    assert reason == "beacon_event_lost"
    assert detail.startswith("load: event_too_large")


async def test_a_beacon_that_runs_once_is_disabled_then(play: Callable[[Look], type[Played]], tmp_path: Path) -> None:
    async def look(_around: Around) -> list[Found]:
        return [Found({"a": 1})]

    made = play(look)
    bench = Bench(tmp_path, {"load": [*QUICK, {"run_once": True}]})
    async with bench.running():
        await until(lambda: {"enabled": False} in bench.beacons.listed()["load"])
    assert made.looks == made.closed == 1
    assert len(bench.kept.events) == 1


async def test_a_beacon_that_is_made_wrong_says_so_and_harms_no_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"load": [{"averages": {}}], "memusage": [{"interval": 0.1, "percent": 0}]})
    async with bench.running():
        await until(lambda: bench.kept.of("memusage") and bench.kept.of("load"))
    [event] = bench.kept.of("load")
    assert event["error"].startswith("Averages configuration for load beacon must contain 1m, 5m or 15m items.")
    assert ("beacon_invalid", event["error"]) in bench.counted


@pytest.mark.parametrize(
    ("running", "looks"),
    [
        ([], 1),
        (["test.ping", "estate.apply"], 1),
        (["state.apply"], 0),
        (["test.ping", "state.single,test.ping"], 0),
        (["test.ping,state.apply"], 0),
    ],
)
async def test_a_beacon_that_is_not_to_disturb_waits_for_states_also_among_several_functions(
    running: list[str], looks: int, play: Callable[[Look], type[Played]]
) -> None:
    played = play(now)
    watch = Watch(
        kinds.begun("load", [{"disable_during_state_run": True}]),
        around(),
        device=lambda: NAME,
        fires=fires,
        running=lambda: running,
        count=lambda *_: None,
    )
    assert await watch.turn() is bool(looks)
    assert (played.looks, played.closed) == (looks, 1 - looks)


async def fires(tag: str, data: dict[str, Any]) -> None:
    raise AssertionError((tag, data))
