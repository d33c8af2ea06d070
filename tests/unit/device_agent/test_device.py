"""A device and its connection: hello, welcome, beats, goodbyes, and bytes that are no message."""

from __future__ import annotations

from itertools import pairwise

import pytest

from device_agent.errors import Refused
from device_agent.heard import Heard, Renamed
from device_agent.protocol.messages import (
    Beat,
    Gone,
    Hello,
    Return,
    Welcome,
    decode_upward,
    encode,
)
from tests.peers.device_bench import GROUP, INDEX, MINE, SESSION, Bench, Gate, Lost, Opened, deliver, job


async def test_a_device_says_hello_as_soon_as_it_has_a_session_and_not_before(bench: Bench) -> None:
    bench.device.will()
    bench.device.connected()
    assert bench.tick(100.0) == []
    bench.give(Opened(), MINE)
    [hello] = bench.taken()
    assert isinstance(hello, Hello)
    assert hello.session == SESSION
    assert hello.grains == {"id": "cam-7", "kind": "camera"}


async def test_hello_is_repeated_ever_more_slowly_until_the_welcome(bench: Bench) -> None:
    bench.device.will()
    bench.device.connected()
    bench.give(Opened(), MINE)
    bench.taken()
    hellos = [0, *(second for second in range(1, 300) if bench.tick(1.0))]
    waits = [late - early for early, late in pairwise(hellos)]
    assert waits[0] <= 2
    assert max(waits) > 5
    assert max(waits) <= 31
    bench.give(Welcome(SESSION, INDEX, 3600.0), MINE)
    assert not any(isinstance(message, Hello) for _ in range(100) for message in bench.tick(1.0))


async def test_a_welcome_of_another_session_is_refused_and_counted(bench: Bench) -> None:
    bench.device.will()
    bench.device.connected()
    bench.give(Opened(), MINE)
    bench.give(Welcome("0" * 16, 3, 60.0), MINE)
    assert not bench.device.welcomed
    assert bench.counters.refusals == {"stale_welcome": 1}


async def test_a_device_without_a_session_says_nothing_and_says_it_all_in_the_next(bench: Bench, gate: Gate) -> None:
    bench.join()
    bench.give(deliver(job(1)))
    gate.open.set()
    await bench.settle()
    [told] = [message for message in bench.taken() if isinstance(message, Return)]
    bench.give(Lost(), MINE)
    assert bench.tick(100.0) == []
    bench.give(Opened("f" * 16), MINE)
    [hello] = bench.taken()
    assert isinstance(hello, Hello)
    assert hello.session == "f" * 16
    bench.give(Welcome("f" * 16, INDEX, 60.0), MINE)
    assert bench.tick() == [told]


async def test_beats_come_once_per_interval_and_name_the_jobs_under_way(bench: Bench, gate: Gate) -> None:
    bench.join()
    bench.give(deliver(job(1)))
    beats = [message for _ in range(240) for message in bench.tick(1.0) if isinstance(message, Beat)]
    assert len(beats) == 4
    assert all(beat.running == [job(1).jid] for beat in beats)
    gate.open.set()
    await bench.settle()


async def test_a_beat_tells_what_the_device_has_refused(bench: Bench) -> None:
    bench.join()
    bench.counters.refused("bad_signature", "", bench.device.name)
    bench.counters.refused("bad_signature", "", "another device of this process")
    for number in range(40):
        bench.counters.refused(f"reason_{number}", "", bench.device.name)
    [beat] = [message for _ in range(70) for message in bench.tick(1.0) if isinstance(message, Beat)][:1]
    assert (beat.refused["bad_signature"], len(beat.refused)) == (1, 16)
    assert decode_upward(encode(beat)) == beat


async def test_a_stopped_device_says_so_and_a_lost_one_is_silent(bench: Bench) -> None:
    bench.join()
    bench.device.stop()
    assert bench.taken() == [Gone(SESSION, "stopped")]
    bench.join()
    bench.device.lost()
    bench.device.stop()
    assert bench.tick(100.0) == []


async def test_new_grains_are_told_at_once_and_only_when_they_differ(bench: Bench) -> None:
    bench.join()
    grains = {**bench.device.grains, "roles": ["edge"]}
    assert bench.device.regrain(grains) == ["roles"]
    [hello] = bench.taken()
    assert isinstance(hello, Hello)
    assert hello.grains["roles"] == ["edge"]
    assert bench.device.regrain(grains) == []
    grains["roles"].append("door")
    assert bench.device.regrain(grains) == ["roles"], "a change in place is a change"
    [hello] = bench.taken()
    assert isinstance(hello, Hello)
    assert hello.grains["roles"] == ["edge", "door"]


async def test_new_grains_of_a_device_without_a_connection_are_told_with_the_next_hello(bench: Bench) -> None:
    bench.join()
    bench.device.lost()
    assert bench.device.regrain({"id": "cam-7", "floor": 3}) == ["floor", "kind"]
    assert bench.taken() == []
    bench.device.will()
    bench.device.connected()
    bench.give(Opened(), MINE)
    [hello] = bench.taken()
    assert isinstance(hello, Hello)
    assert hello.grains["floor"] == 3


async def test_a_device_with_another_name_says_so_and_answers_to_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.join()

    def renamed(topic: str, payload: bytes) -> Heard:
        bench.guard.name = "gate-north"
        return Renamed()

    with monkeypatch.context() as patch:
        patch.setattr(bench.guard, "receive", renamed)
        bench.device.receive(MINE, b"")
    [hello] = bench.tick()
    assert isinstance(hello, Hello)
    assert hello.grains["id"] == "gate-north"
    bench.give(deliver(job(1, tgt="gate-*", fun="grains.get", arg=["id"])))
    await bench.settle()
    [told] = bench.taken()
    assert isinstance(told, Return)
    assert told.value == "gate-north"


async def test_what_the_guard_refuses_is_counted_and_does_no_harm(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.join()

    def refusing(topic: str, payload: bytes) -> Heard:
        raise Refused("bad_signature")

    with monkeypatch.context() as patch:
        patch.setattr(bench.guard, "receive", refusing)
        bench.device.receive(GROUP, b"")
    assert bench.counters.refusals == {"bad_signature": 1}
    assert bench.taken() == []
