"""tests/peers/waiting.py: the wait that every other test relies on."""

from __future__ import annotations

import asyncio

import pytest

from tests.peers.waiting import until


async def test_the_answer_that_was_waited_for_is_returned() -> None:
    answers = iter([0, None, "", 42])
    assert await until(lambda: next(answers)) == 42


async def test_a_coroutine_function_can_be_asked() -> None:
    answers = iter([[], [], ["here"]])

    async def probe() -> list[str]:
        await asyncio.sleep(0)
        return next(answers)

    assert await until(probe) == ["here"]


async def test_a_wait_in_vain_says_what_for_and_what_was_last_seen() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.01 s for the moon; the last answer was \[\]"):
        await until(list, seconds=0.01, what="the moon")


async def test_a_probe_that_never_answers_is_given_up() -> None:
    async def probe() -> bool:
        never: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        return await never

    with pytest.raises(AssertionError, match=r"waited 0\.01 s"):
        await until(probe, seconds=0.01)


async def test_an_error_of_the_probe_is_raised_at_once() -> None:
    def probe() -> bool:
        raise TimeoutError("the probe's own")

    with pytest.raises(TimeoutError, match="the probe's own"):
        await until(probe)
