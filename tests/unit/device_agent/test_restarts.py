"""device_agent/restarts.py and what Jobs makes of it: a job that restarts its device ends when the device is back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from device_agent import loader
from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.ended import Ended, FunctionFailed, Restart
from device_agent.jobs import QUIET_SECONDS, Jobs
from device_agent.journal_file import FileJournal
from device_agent.local_host import LocalHost
from device_agent.outbox import MemoryJournal, Place, Restarting
from device_agent.protocol.messages import Return, Running, decode_upward
from device_agent.restarts import judge
from tests.peers.device_bench import Bench, deliver, job
from tests.peers.waiting import until


@pytest.mark.parametrize(
    ("before", "now", "waited", "within", "outcome", "why"),
    [
        ("a", "b", 0.0, 10.0, "ok", ""),
        ("a", "b", 99.0, 10.0, "ok", ""),
        ("a", "a", 9.9, 10.0, None, ""),
        ("a", "", 9.9, 10.0, None, ""),
        ("a", "a", 10.0, 10.0, "timed_out", "did not restart within 10 s"),
        ("a", "", 10.0, 10.0, "timed_out", "was not back within 10 s"),
    ],
)
def test_only_another_boot_id_ends_a_restart_well(
    before: str, now: str, waited: float, within: float, outcome: str | None, why: str
) -> None:
    ended = judge(before, now, waited, within)
    assert (None if ended is None else ended.outcome) == outcome
    assert ended is None or why in ended.why


class Machine:
    """A device whose boot id is a file, and an agent's jobs on it, with a journal on disk."""

    def __init__(self, folder: Path, group: asyncio.TaskGroup) -> None:
        self.folder = folder
        self.journal = FileJournal(folder / "journal")
        self.sent: list[object] = []
        self.jobs = Jobs(
            lend=lambda: nullcontext(LocalHost({})),
            journal=self.journal,
            send=lambda body: self.sent.append(decode_upward(body)),
            spawn=group.create_task,
            clock=Clock(),
            counters=Counters(),
        )

    def returns(self) -> list[Return]:
        return [message for message in self.sent if isinstance(message, Return)]


@pytest.fixture
def boot_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "boot_id"
    path.write_text("before\n")
    monkeypatch.setattr("device_agent.restarts.BOOT_ID", str(path))
    return path


JID = "20261122190000000001"


async def test_an_agent_that_dies_of_the_restart_it_was_told_returns_ok_after_it(tmp_path: Path, boot_id: Path) -> None:
    async with asyncio.TaskGroup() as group:
        machine = Machine(tmp_path, group)
        await machine.journal.open()
        await machine.journal.started(JID, "system.reboot", b"", 0)
        await machine.journal.restarting(JID, Restarting("system.reboot", "before", 60.0))
        # Nothing closes it: the power goes.
    boot_id.write_text("after\n")
    async with asyncio.TaskGroup() as group:
        machine = Machine(tmp_path, group)
        assert (await machine.journal.open()).interrupted == []
        machine.jobs.resume()
    (returned,) = machine.returns()
    assert (returned.jid, returned.fun, returned.outcome) == (JID, "system.reboot", "ok")
    assert returned.value == {"boot_id": "after", "before": "before"}
    assert machine.journal.restarts() == {}
    entry = machine.journal.find(JID)
    assert entry is not None
    assert entry.place is Place.DONE
    await machine.journal.close()


async def test_an_agent_that_is_only_started_again_goes_on_waiting(tmp_path: Path, boot_id: Path) -> None:
    async with asyncio.TaskGroup() as group:
        machine = Machine(tmp_path, group)
        await machine.journal.open()
        await machine.journal.started(JID, "system.reboot", b"", 0)
        await machine.journal.restarting(JID, Restarting("system.reboot", "before", 60.0))
        machine.jobs.resume()
        await asyncio.sleep(0)
        machine.jobs.draining = True
    assert machine.returns() == []
    assert machine.journal.restarts() == {JID: Restarting("system.reboot", "before", 60.0)}
    await machine.journal.close()


def restarting(monkeypatch: pytest.MonkeyPatch, begin: Callable[[], Awaitable[None]]) -> None:
    async def call(*_: object) -> Ended:
        return Ended(restart=Restart("before", 60.0, begin))

    monkeypatch.setattr(loader, "call", call)


async def test_a_restart_begins_when_it_is_on_disk_and_said(monkeypatch: pytest.MonkeyPatch, boot_id: Path) -> None:
    async with asyncio.TaskGroup() as group:
        bench = Bench(group, MemoryJournal())

        async def begin() -> None:
            assert bench.journal.restarts() == {job(1).jid: Restarting(job(1).fun, "before", 60.0)}
            assert Running(job(1).jid, 60.0) in bench.guard.sent
            boot_id.write_text("after\n")

        restarting(monkeypatch, begin)
        bench.join()
        bench.give(deliver(job(1)))
        await bench.settle()
        told = bench.taken()[-1]
        assert isinstance(told, Return)
        assert (told.outcome, told.value, told.executions) == ("ok", {"boot_id": "after", "before": "before"}, 1)
        assert bench.journal.restarts() == {}


async def test_no_other_job_begins_while_the_device_goes_down(monkeypatch: pytest.MonkeyPatch, boot_id: Path) -> None:
    loaded = loader.call

    async def call(fun: str, *given: Any) -> Ended:
        return Ended(restart=Restart("before", 600.0, begin)) if fun == "system.reboot" else await loaded(fun, *given)

    async def begin() -> None:
        begun.set()

    begun = asyncio.Event()
    monkeypatch.setattr(loader, "call", call)
    async with asyncio.TaskGroup() as group:
        bench = Bench(group, MemoryJournal())
        bench.join()
        bench.give(deliver(job(1, fun="system.reboot")))
        await begun.wait()
        bench.give(deliver(job(2, fun="test.ping")))
        bench.give(deliver(job(3, fun="saltutil.running")))
        told = await until(lambda: [each for each in bench.taken() if isinstance(each, Return)])
        assert [each.jid for each in told] == [job(3).jid]
        assert bench.device.jobs.restarting
        # It was told to restart, and does not: the others go on.
        bench.tick(QUIET_SECONDS)
        told = await until(lambda: [each for each in bench.taken() if isinstance(each, Return)])
        assert [(each.jid, each.value) for each in told] == [(job(2).jid, True)]
        boot_id.write_text("after\n")
        await bench.settle()
        assert [each.jid for each in bench.taken() if isinstance(each, Return)] == [job(1).jid]
        assert not bench.device.jobs.restarting


async def test_after_it_was_started_again_it_says_that_the_device_restarts(tmp_path: Path, boot_id: Path) -> None:
    async with asyncio.TaskGroup() as group:
        machine = Machine(tmp_path, group)
        await machine.journal.open()
        await machine.journal.started(JID, "system.reboot", b"", 0)
        await machine.journal.restarting(JID, Restarting("system.reboot", "before", 60.0))
        machine.jobs.resume()
        assert machine.sent == [Running(JID, 60.0)]
        boot_id.write_text("after\n")
    assert [each.outcome for each in machine.returns()] == ["ok"]
    await machine.journal.close()


async def test_a_restart_that_is_refused_has_failed(monkeypatch: pytest.MonkeyPatch, boot_id: Path) -> None:
    async def begin() -> None:
        raise FunctionFailed("must be superuser")

    restarting(monkeypatch, begin)
    async with asyncio.TaskGroup() as group:
        bench = Bench(group, MemoryJournal())
        bench.join()
        bench.give(deliver(job(1)))
        await bench.settle()
        told = bench.taken()[-1]
        assert isinstance(told, Return)
        assert (told.outcome, told.why) == ("failed", "the device was not restarted: must be superuser")
