"""device_agent/questions.py: an asker gets its answer, or is told that nobody answers."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from device_agent import questions
from device_agent.errors import Refused
from device_agent.protocol.questions import QUESTION_BYTES, Answer, Question
from device_agent.questions import AT_ONCE, NoStation, Questions, Unanswered
from tests.peers.waiting import until


class Line:
    """Keeps what is asked."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.questions = Questions(self.send)

    async def send(self, question: Question) -> None:
        self.asked.append(question)

    async def has(self, count: int) -> None:
        await until(lambda: len(self.asked) >= count, what=f"{count} questions")


async def test_each_asker_gets_its_own_answer() -> None:
    line = Line()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(line.questions.ask("mine.get", b"1"))
        second = group.create_task(line.questions.ask("mine.get", b"2"))
        await line.has(2)
        for question in reversed(line.asked):
            line.questions.answered(Answer(question.number, b"to " + question.body))
    assert (first.result(), second.result()) == (b"to 1", b"to 2")
    # Whoever answers twice, or what nobody asked, changes nothing.
    line.questions.answered(Answer(line.asked[0].number))
    line.questions.answered(Answer(1_000))


async def test_a_refusal_is_raised_with_its_reason() -> None:
    line = Line()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(refused(line.questions))
        await line.has(1)
        line.questions.answered(Answer(line.asked[0].number, refused="not_found", why="no such file"))
    assert (task.result().reason, task.result().detail) == ("not_found", "no such file")


async def refused(asker: Questions) -> Refused:
    with pytest.raises(Refused) as error:
        await asker.ask("file.find")
    return error.value


async def test_what_is_not_answered_is_asked_again_under_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "AGAIN_FIRST_SECONDS", 0.001)
    line = Line()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(line.questions.ask("mine.get", b"x"))
        await line.has(3)
        line.questions.answered(Answer(line.asked[0].number, b"late"))
    assert task.result() == b"late"
    assert len(set(line.asked)) == 1


async def test_nobody_answers() -> None:
    line = Line()
    with pytest.raises(Unanswered, match=r"nobody answered mine\.get in 0\.01 s"):
        await line.questions.ask("mine.get", patience=0.01)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(unanswered(line.questions))
        await line.has(2)
        line.questions.lost("the link was lost")
    assert task.result() == "the link was lost"
    with pytest.raises(Unanswered, match="no station here"):
        await NoStation().ask("mine.get")


async def unanswered(asker: Questions) -> str:
    with pytest.raises(Unanswered) as error:
        await asker.ask("mine.get")
    return error.value.what


async def test_only_so_many_are_asked_at_once() -> None:
    line = Line()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(line.questions.ask("mine.get", bytes([number]))) for number in range(AT_ONCE + 3)]
        await line.has(AT_ONCE)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(line.asked) == AT_ONCE
        answered = 0
        while answered < len(tasks):
            await line.has(answered + 1)
            line.questions.answered(Answer(line.asked[answered].number, line.asked[answered].body))
            answered += 1
    assert [task.result() for task in tasks] == [bytes([number]) for number in range(AT_ONCE + 3)]


async def test_a_question_has_a_size() -> None:
    with pytest.raises(Refused, match="question_too_large"):
        await Line().questions.ask("mine.send", bytes(QUESTION_BYTES + 1))


@pytest.mark.parametrize("reason", ['x"} 1\noutstation_up{', "two words", "x" * 65, "not_found\n"])
def test_a_reason_is_one_word(reason: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(Answer(1, refused=reason)), type=Answer)
