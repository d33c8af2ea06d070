"""Questions over real links: a device asks over a real broker, a site over a real rope; askers that are too many."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.errors import NotFound, Refused, StationFailed
from device_agent.protocol.questions import ANSWER_BYTES, Answer, Question
from device_agent.questions import Unanswered
from gateway import answers as answers_module
from gateway.answers import Answers, Within
from gateway.metrics import Metrics
from tests.peers.broker import Broker
from tests.peers.clock import HandClock
from tests.peers.ports import Above, Below
from tests.peers.rope import Master, accept_all, connected, master_of, uplink_part
from tests.peers.site import Scene, opened_scene
from tests.peers.waiting import until
from upstream.uplink import Uplink


async def greet(asker: str, body: bytes) -> bytes:
    match body:
        case b"nothing":
            raise NotFound("there is nothing of that name")
        case b"hostile":
            raise Refused("malformed", "that is no body")
        case b"broken":
            raise StationFailed("the disk is full")
        case b"large":
            return bytes(ANSWER_BYTES + 1)
        case _:
            return f"{asker}: ".encode() + body


@pytest.fixture
async def scene(broker: Broker, tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened_scene(tmp_path / "state", broker.address, HandClock()) as made:
        made.gateway.answers.about("test.greet", greet)
        yield made


async def test_a_device_asks_its_station_and_is_known_by_its_session(scene: Scene) -> None:
    cam, other = await scene.join("cam", "other")
    await scene.devices.say("cam", Question(7, "test.greet", b"hello"))
    await scene.devices.say("other", Question(7, "test.greet", b"hello"))
    await until(lambda: Answer(7, b"cam: hello") in cam.told, what="the answer to one")
    await until(lambda: Answer(7, b"other: hello") in other.told, what="the answer to the other")
    for number, (body, reason) in enumerate(
        {b"nothing": "not_found", b"hostile": "malformed", b"broken": "failed", b"large": "not_found"}.items()
    ):
        await scene.devices.say("cam", Question(number, "test.greet", body))
        await until(lambda: any(isinstance(each, Answer) and each.refused == reason for each in cam.told), what=reason)  # noqa: B023 - awaited before the next turn
        cam.told.clear()
    # What is not there is no offence; bytes that are no body are.
    await scene.refuses("malformed", "cam", link="questions_of_devices")
    assert scene.gateway.metrics.refusals["questions_of_devices", "not_found"] == 0
    await scene.devices.say("cam", Question(9, "test.other"))
    await scene.refuses("unknown_question", "cam", link="questions_of_devices")


async def test_too_many_questions_are_answered_with_busy_and_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers_module, "EACH_AT_ONCE", 2)
    monkeypatch.setattr(answers_module, "ALL_AT_ONCE", 3)
    metrics, gate, replies = Metrics(HandClock()), asyncio.Event(), list[tuple[str, Answer]]()

    async def slow(_: str, body: bytes) -> bytes:
        await gate.wait()
        return body

    async with Answers("here", metrics) as answers:
        answers.about("test.slow", slow)

        def offer(asker: str, number: int) -> None:
            async def reply(answer: Answer) -> None:
                replies.append((asker, answer))

            answers.offer(asker, Question(number, "test.slow", b"x"), reply)

        for number in range(3):
            offer("greedy", number)
        await until(lambda: len(replies) == 1, what="the first refusal")
        offer("modest", 1)
        offer("late", 1)
        await until(lambda: len(replies) == 2, what="the second refusal")
        assert [(asker, answer.number, answer.refused) for asker, answer in replies] == [
            ("greedy", 2, "busy"),
            ("late", 1, "busy"),
        ]
        gate.set()
        await until(lambda: len(replies) == 5, what="the answers")
        offer("late", 2)
        await until(lambda: ("late", Answer(2, b"x")) in replies, what="room again")
        assert await Within(answers, "near").ask("test.slow", b"y") == b"y"
        with pytest.raises(Refused, match="unknown_question"):
            await Within(answers, "near").ask("test.none")
    # One asked too much by itself; the other met a station that had too much to do.
    assert metrics.peers == {
        ("here", "too_many_questions", "greedy"): 1,
        ("here", "busy", "late"): 1,
        ("here", "unknown_question", "near"): 1,
    }


async def test_a_disk_that_fails_under_an_answer_leaves_the_others_answered() -> None:
    async def failing(_: str, _body: bytes) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    replies: list[Answer] = []

    async def reply(answer: Answer) -> None:
        replies.append(answer)

    async with Answers("here", Metrics(HandClock())) as answers:
        answers.about("test.failing", failing)
        answers.about("test.greet", greet)
        answers.offer("cam", Question(1, "test.failing"), reply)
        await until(lambda: len(replies) == 1, what="the answer")
        assert (replies[0].refused, replies[0].why) == ("failed", "the station's disk: Input/output error")
        answers.offer("cam", Question(2, "test.greet", b"cam"), reply)
        await until(lambda: len(replies) == 2, what="the other answer")


# --- upward --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def answers() -> AsyncIterator[Answers]:
    async with Answers("questions_of_sites", Metrics(HandClock())) as made:
        made.about("test.greet", greet)
        yield made


@pytest.fixture
async def master(answers: Answers) -> AsyncIterator[Master]:
    async with master_of(Above(), answers=answers) as made:
        yield made


async def welcome(master: Master, uplink: Uplink) -> None:
    await until(lambda: uplink.status()["state"] == "pending", what="the pending key")
    accept_all(master.above)
    await master.part.keys_changed()
    await until(lambda: connected(uplink), what="the welcome")


async def test_a_site_asks_its_master(master: Master) -> None:
    async with uplink_part(Below(), master.address) as uplink:
        with pytest.raises(Unanswered, match="no master"):
            await uplink.ask("test.greet", b"too early")
        await welcome(master, uplink)
        assert await uplink.ask("test.greet", b"hello") == b"lisbon: hello"
        with pytest.raises(Refused, match="not_found"):
            await uplink.ask("test.greet", b"nothing")


async def test_whoever_asks_a_station_that_has_stopped_is_told_so(master: Master) -> None:
    async with uplink_part(Below(), master.address) as uplink:
        await welcome(master, uplink)
        (ask,) = uplink.askable().values()
    with pytest.raises(Unanswered, match="no master"):
        await uplink.ask("test.greet", b"too late")
    with pytest.raises(Unanswered, match="is down"):
        await ask("test.greet", b"too late")


async def test_a_link_that_is_lost_ends_what_was_asked_over_it(master: Master, answers: Answers) -> None:
    begun, never = asyncio.Event(), asyncio.Event()

    async def hangs(_: str, __: bytes) -> bytes:
        begun.set()
        await never.wait()
        return b""

    answers.about("test.hangs", hangs)
    async with uplink_part(Below(), master.address) as uplink:
        await welcome(master, uplink)

        async def asks() -> str:
            with pytest.raises(Unanswered) as error:
                await uplink.ask("test.hangs")
            return error.value.what

        async with asyncio.TaskGroup() as group:
            task = group.create_task(asks())
            await begun.wait()
            uplink.cut(60.0)
        assert task.result() == "no master is there to be asked"
        uplink.mend()
