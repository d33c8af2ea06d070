"""device_agent/custom/beside.py: a custom function that blocks holds up nobody, and has what every function has."""

from __future__ import annotations

import asyncio
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from device_agent import loader
from device_agent.custom import beside, facts
from device_agent.custom.modules import CustomModules
from device_agent.custom.sync import sync
from device_agent.ended import Ended
from device_agent.local_host import LocalHost
from device_agent.own import Own, RunningJob
from device_agent.pillar import HeldPillar
from tests.peers.fleet import Fleet
from tests.peers.released import RELEASE_KEY, FolderSource, lay, release
from tests.peers.waiting import until

GATE = """
import asyncio, threading
from device_agent.host import HostLost
gate, begun = threading.Event(), threading.Event()

async def wait(host):
    begun.set()
    return gate.wait(60)

async def spin(host):
    begun.set()
    while True:
        pass

async def sleep(host):
    begun.set()
    try:
        await asyncio.sleep(600)
    finally:
        gate.set()

async def linger(host):
    begun.set()
    while True:
        try:
            await host.read("/proc/self/comm")
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()
        except HostLost:
            gate.set()
            return

async def leave(host):
    raise SystemExit(3)

async def give_up(host):
    raise asyncio.CancelledError
"""

USES = """
from device_agent.ended import FunctionFailed
from device_agent.own import Own

async def host_of(host, path: str):
    await host.write(path, b"hello")
    done = await host.run(["cat", path])
    reader, writer = await host.connect(int((await host.read(path + ".port")).decode()))
    writer.write(b"over there")
    await writer.drain()
    said = await reader.readexactly(10)
    writer.close()
    await writer.wait_closed()
    return [done.stdout.decode(), said.decode(), host.grains["os"]]

async def own_of(host, *, own: Own):
    await own.regrain()
    answer = await own.station.ask("test.greet", b"cam")
    return [own.jobs.running()[0].jid, answer.decode(), dict(own.pillar.held), own.custom.reach("uses.own_of")]

async def fails(host):
    raise FunctionFailed("no such door", 4)
"""


class Greeter:
    """A station that greets, in the loop that it was made in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 60.0) -> bytes:
        assert asyncio.get_running_loop() is self._loop
        return b"hello " + body


class OneJob:
    """The jobs of a device that has one."""

    def running(self) -> list[RunningJob]:
        return [RunningJob("1", "uses.own_of", [], {}, "*", "glob", "ops", 1)]

    def stop(self, jid: str, why: str) -> bool:
        return False


@pytest.fixture
async def modules(tmp_path: Path) -> CustomModules:
    root = replace(Fleet().root, releases=(RELEASE_KEY.public,))
    base = lay(tmp_path / "base", {"_modules/gate.py": GATE, "_modules/uses.py": USES, "_grains/slow.py": GATE})
    release(base)
    made = CustomModules(tmp_path / "custom", lambda: root)
    assert (await sync(made, FolderSource(base=base), ("modules", "grains"), ("base",))).refused == {}
    return made


HOST = LocalHost({"os": "Debian"})


async def call(made: CustomModules, fun: str, *arg: Any, **own: Any) -> Ended:
    return await loader.call(fun, HOST, list(arg), {}, Own(custom=made, **own))


def gate(kind: str = "_modules.gate") -> Any:
    """The module itself, as it was loaded."""
    return sys.modules[f"outstation_custom.{kind}"]


async def begun(made: CustomModules, fun: str, group: asyncio.TaskGroup) -> asyncio.Task[Ended]:
    """A call that has begun."""
    await made.function(fun)
    task = group.create_task(call(made, fun))
    assert await asyncio.to_thread(gate().begun.wait, 60)
    return task


async def test_a_function_that_blocks_holds_up_no_other(modules: CustomModules) -> None:
    async with asyncio.TaskGroup() as group:
        task = await begun(modules, "gate.wait", group)
        assert (await call(modules, "uses.fails")).retcode == 4
        assert not task.done()
        gate().gate.set()
    assert task.result() == Ended(True)


@pytest.mark.parametrize("fun", ["gate.sleep", "gate.spin"])
async def test_a_function_that_is_cancelled_ends(
    modules: CustomModules, fun: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "END_SECONDS", 60.0 if fun == "gate.sleep" else 0.1)
    async with asyncio.TaskGroup() as group:
        task = await begun(modules, fun, group)
        task.cancel()
    assert task.cancelled()
    assert gate().gate.is_set() == (fun == "gate.sleep")
    await until(lambda: not [each for each in threading.enumerate() if each.name.startswith("custom ")], what="no more")


async def test_a_function_that_goes_on_after_its_end_has_no_host_any_more(
    modules: CustomModules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "END_SECONDS", 0.01)
    monkeypatch.setattr(beside, "stop", lambda _: None)
    async with asyncio.TaskGroup() as group:
        (await begun(modules, "gate.linger", group)).cancel()
    assert await asyncio.to_thread(gate().gate.wait, 60)


async def test_a_function_has_its_host_and_what_is_the_devices_own(modules: CustomModules, tmp_path: Path) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(10))
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        (tmp_path / "f.port").write_text(str(server.sockets[0].getsockname()[1]))
        assert await call(modules, "uses.host_of", str(tmp_path / "f")) == Ended(["hello", "over there", "Debian"])
    collected: list[int] = []

    async def regrain() -> None:
        collected.append(1)

    ended = await call(
        modules,
        "uses.own_of",
        jobs=OneJob(),
        station=Greeter(),
        pillar=HeldPillar(),
        regrain=regrain,
    )
    assert (ended, collected) == (Ended(["1", "hello cam", {}, "shell"]), [1])


async def test_a_function_ends_as_any_other(modules: CustomModules, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = await call(modules, "uses.fails")
    assert (failed.outcome, failed.retcode, failed.why) == ("failed", 4, "no such door")
    assert (await call(modules, "gate.leave")).why == "SystemExit: 3"
    assert "RuntimeError: it was cancelled" in (await call(modules, "gate.give_up")).why
    monkeypatch.setattr(beside, "MOST", 0)
    assert "run here, or hang" in (await call(modules, "uses.fails")).why


async def test_facts_that_block_are_left_out(modules: CustomModules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "FUNCTION_SECONDS", 1.0)
    monkeypatch.setattr(beside, "END_SECONDS", 0.05)
    assert await modules.told(HOST, {"os": "Debian"}) == {"os": "Debian"}
    assert "give_up: RuntimeError" in modules.grain_problems["_grains/slow.py"]
    gate("_grains.slow").gate.set()
    await until(lambda: not [each for each in threading.enumerate() if each.name.startswith("custom ")], what="no more")
