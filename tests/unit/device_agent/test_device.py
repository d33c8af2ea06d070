"""A device and its connection: hello, welcome, beats, goodbyes, and bytes that are no message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from device_agent import loader
from device_agent.outbox import MemoryJournal
from device_agent.protocol import limits, topics
from device_agent.protocol.messages import (
    Beat,
    Deliver,
    Gone,
    Hello,
    RollCall,
    Welcome,
    decode_upward,
    encode,
)
from tests.peers.device_bench import GROUP, INDEX, MINE, Bench, Gate, deliver, job


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with asyncio.TaskGroup() as group:
        made = Bench(group, MemoryJournal())
        yield made
        for task in made.tasks:
            task.cancel()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    monkeypatch.setattr(loader, "call", made.call)
    return made


async def test_a_device_says_hello_with_the_session_of_its_will(bench: Bench) -> None:
    topic, payload = bench.device.will()
    assert topic == topics.device_up("lisbon", "cam-7", "gone")
    gone = decode_upward(payload)
    bench.device.connected()
    [hello] = bench.taken()
    assert isinstance(hello, Hello)
    assert gone == Gone(hello.session, "lost")
    assert hello.grains == {"id": "cam-7", "kind": "camera"}


async def test_each_connection_is_a_new_session(bench: Bench) -> None:
    assert len({bench.device.will()[1] for _ in range(10)}) == 10


async def test_hello_is_repeated_ever_more_slowly_until_the_welcome(bench: Bench) -> None:
    bench.device.will()
    bench.device.connected()
    hellos = [0, *(second for second in range(1, 300) if bench.tick(1.0))]
    waits = [late - early for early, late in pairwise(hellos)]
    assert waits[0] <= 2
    assert max(waits) > 5
    assert max(waits) <= 31
    bench.give(Welcome(bench.device._session, INDEX, 3600.0), MINE)
    assert not any(isinstance(message, Hello) for _ in range(100) for message in bench.tick(1.0))


async def test_a_welcome_of_another_session_is_refused_and_counted(bench: Bench) -> None:
    bench.device.will()
    bench.device.connected()
    bench.give(Welcome("0" * 16, 3, 60.0), MINE)
    assert not bench.device.welcomed
    assert bench.counters.refusals == {"stale_welcome": 1}


async def test_a_roll_call_is_answered_within_a_second_or_two(bench: Bench) -> None:
    bench.join()
    bench.give(RollCall())
    sent = bench.tick(0.0) + bench.tick(1.0)
    assert [type(message) for message in sent] == [Hello]


async def test_beats_come_once_per_interval_and_name_the_jobs_under_way(bench: Bench, gate: Gate) -> None:
    bench.join()
    bench.give(deliver(job(1)))
    beats = [message for _ in range(240) for message in bench.tick(1.0) if isinstance(message, Beat)]
    assert len(beats) == 4
    assert all(beat.running == [job(1).jid] for beat in beats)
    gate.open.set()
    await bench.settle()


async def test_a_stopped_device_says_so_and_a_lost_one_is_silent(bench: Bench) -> None:
    bench.join()
    session = bench.device._session
    bench.device.stop()
    assert bench.taken() == [Gone(session, "stopped")]
    bench.join()
    bench.device.lost()
    bench.device.stop()
    assert bench.tick(100.0) == []


async def test_new_grains_are_told_at_the_next_tick(bench: Bench) -> None:
    bench.join()
    bench.device.regrain({"id": "cam-7", "floor": 3})
    [hello] = bench.tick()
    assert isinstance(hello, Hello)
    assert hello.grains["floor"] == 3


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "malformed"),
        (b"\xc1", "malformed"),
        (b"\x81\xa4type\xa4nope", "wrong_type"),
        (b"x" * (limits.MESSAGE_BYTES + 1), "oversized"),
        (encode(Deliver(b"not a job", 1.0)), "wrong_type"),
        (encode(Deliver(encode(RollCall()), 1.0)), "wrong_type"),
        (encode(Deliver(encode(job(1)), float("nan"))), "wrong_type"),
    ],
)
async def test_bytes_that_are_no_message_are_counted_by_reason(bench: Bench, payload: bytes, reason: str) -> None:
    bench.join()
    bench.device.receive(GROUP, payload)
    assert bench.counters.refusals == {reason: 1}
    assert bench.taken() == []


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    payload=st.one_of(
        st.binary(max_size=100),
        st.builds(lambda body, remaining: encode(Deliver(body, remaining)), st.binary(max_size=60), st.floats()),
    )
)
async def test_no_bytes_make_a_device_raise(bench: Bench, payload: bytes) -> None:
    bench.device.receive(GROUP, payload)
