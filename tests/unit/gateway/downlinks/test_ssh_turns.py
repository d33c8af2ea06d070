"""Turns to log in."""

from __future__ import annotations

import asyncio

from gateway.downlinks.ssh_turns import DOUBTED_PLACES, Turns
from tests.peers.clock import HandClock


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def held(turns: Turns, go: asyncio.Event, *, doubted: bool, said: list[str]) -> None:
    async with turns.turn(doubted=doubted) as turn:
        said.append("doubted" if doubted else "trusted")
        await go.wait()
        turn.made = True


async def test_no_more_at_once_than_the_width_and_the_rest_follow() -> None:
    turns, go, said = Turns(4, HandClock()), asyncio.Event(), list[str]()
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(held(turns, go, doubted=False, said=said))
        await settle()
        assert (len(said), turns.under_way) == (4, 4)
        go.set()
    assert (len(said), turns.under_way) == (10, 0)


async def test_those_that_did_not_answer_wait_in_a_lane_of_their_own() -> None:
    turns, go, said = Turns(32, HandClock()), asyncio.Event(), list[str]()
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(held(turns, go, doubted=True, said=said))
        await settle()
        group.create_task(held(turns, go, doubted=False, said=said))
        await settle()
        assert said == ["doubted"] * DOUBTED_PLACES + ["trusted"]
        go.set()


async def test_one_who_gives_up_waiting_takes_no_turn() -> None:
    turns, go, said = Turns(1, HandClock()), asyncio.Event(), list[str]()
    async with asyncio.TaskGroup() as group:
        group.create_task(held(turns, go, doubted=False, said=said))
        waiting = group.create_task(held(turns, go, doubted=False, said=said))
        await settle()
        waiting.cancel()
        await settle()
        group.create_task(held(turns, go, doubted=False, said=said))
        go.set()
    assert (said, turns.under_way) == (["trusted", "trusted"], 0)
