"""upstream/salt/serials.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused, StationFailed
from tests.peers.salt_double import new_box
from tests.peers.salt_sockets import SerialsInMemory
from upstream.salt.box import Box
from upstream.salt.serials import KEYS, LARGEST_GAP, SerialGuard

BOX, OTHER = new_box(), new_box()


async def said(guard: SerialGuard, serial: Any, box: Box = BOX) -> int | str:
    """How many were lost before it, or why it is refused."""
    try:
        heard = await guard.hear({"serial": serial}, box, "salt")
        await guard.keep(heard)
        return heard.lost
    except Refused as refusal:
        return refusal.reason


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=40))
def test_a_serial_is_taken_once_also_after_restarts_and_every_gap_is_counted(serials: list[tuple[int, bool]]) -> None:
    async def taking() -> None:
        kept, taken, lost = SerialsInMemory(), list[int](), 0
        guard = SerialGuard(kept)
        for serial, restarted in serials:
            guard = SerialGuard(kept) if restarted else guard
            found = await said(guard, serial)
            if taken and serial <= taken[-1]:
                assert found == "replayed"
            else:
                assert isinstance(found, int)
                lost += found
                taken.append(serial)
        assert lost == (taken[-1] - taken[0] + 1 - len(taken) if taken else 0)

    asyncio.run(taking())


async def test_serials_begin_anew_under_a_new_key() -> None:
    guard = SerialGuard(SerialsInMemory())
    assert await said(guard, 9) == 0
    assert await said(guard, 1, OTHER) == 0
    assert await said(guard, 10**18, OTHER) == LARGEST_GAP
    assert await said(guard, 9) == "replayed"
    for serial in (None, "2", True, 2.0, -1, 2**63):
        assert await said(guard, serial, OTHER) == "malformed"


async def test_a_key_that_is_not_at_hand_any_more_is_known_from_the_disk() -> None:
    guard = SerialGuard(SerialsInMemory())
    await said(guard, 5)
    for _ in range(KEYS):
        await said(guard, 1, new_box())
    assert len(guard._last) == KEYS
    assert await said(guard, 5) == "replayed"


async def test_what_could_not_be_kept_is_not_taken_again_while_the_program_runs() -> None:
    kept = SerialsInMemory()
    guard = SerialGuard(kept)
    kept.broken = True
    with pytest.raises(StationFailed):
        await said(guard, 5)
    kept.broken = False
    assert await said(guard, 5) == "replayed"
    assert await said(guard, 6) == 0


async def test_what_was_heard_and_not_kept_is_taken_after_a_restart_and_missed_when_it_does_not_come() -> None:
    kept = SerialsInMemory()
    assert await said(SerialGuard(kept), 4) == 0
    assert (await SerialGuard(kept).hear({"serial": 5}, BOX, "salt")).lost == 0
    assert (await SerialGuard(kept).hear({"serial": 6}, BOX, "salt")).lost == 1
    assert await said(SerialGuard(kept), 5) == 0
    assert await said(SerialGuard(kept), 5) == "replayed"


async def test_of_two_copies_that_come_at_once_one_is_taken() -> None:
    guard = SerialGuard(SerialsInMemory())
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(said(guard, 1)) for _ in range(3)]
    assert [task.result() for task in tasks] == [0, "replayed", "replayed"]
