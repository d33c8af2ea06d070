"""What breaks under a Host behind SSH: connections, devices in the middle of a write, accounts that are no shell."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from device_agent.host import HostLost
from gateway.downlinks import ssh_command
from gateway.downlinks.ssh_command import NoShell
from gateway.downlinks.ssh_host import SshHost
from tests.peers.host_places import REMOTE, Beds, Place, place, write_and_die
from tests.peers.processes import processes
from tests.peers.waiting import until


@pytest.fixture
async def far(request: pytest.FixtureRequest, host_beds: Beds, tmp_path: Path) -> AsyncIterator[Place]:
    async with place(request.param, host_beds, tmp_path) as found:
        yield found


behind_ssh = pytest.mark.parametrize("far", REMOTE, indirect=True)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@behind_ssh
async def test_words_of_a_login_are_not_the_commands(far: Place) -> None:
    assert far.bed is not None
    noisy: Any = Noisy(far.connection)
    completed = await SshHost(noisy, {}).run(["echo", "said"])
    assert (completed.stdout, completed.stderr) == (b"said\n", b"")


class Noisy:
    """A connection to an account that greets whoever comes, on both streams and at length."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def create_session(self, factory: Any, command: bytes, **options: Any) -> Any:
        greeting = b"head -c 20000 /dev/zero; echo Welcome; echo 'Your password expires' >&2; "
        return await self._connection.create_session(factory, greeting + command, **options)


@behind_ssh
async def test_a_broken_connection_is_a_lost_host(far: Place) -> None:
    assert far.bed is not None
    mark = f"41{os.getpid()}1"
    async with asyncio.TaskGroup() as group:
        task = group.create_task(caught(far.host.run(f"echo up; sleep {mark}", shell=True)))
        await until(lambda: processes(f"sleep\0{mark}"))
        far.bed.power_cut()
    assert task.result().started
    for call in (far.host.read("/etc/passwd"), far.host.connect(far.bed.port), far.host.run(["true"])):
        assert not (await caught(call)).started


@behind_ssh
async def test_a_stream_that_breaks_is_a_lost_host(far: Place) -> None:
    assert far.bed is not None
    reader, writer = await far.host.connect(far.bed.port)
    assert (await reader.readline()).startswith(b"SSH-2.0")
    far.bed.power_cut()
    await caught(reader.read(-1))
    await until(lambda: far.connection is not None and far.connection.is_closed())
    with pytest.raises(HostLost):
        writer.write(b"x")


async def caught(call: Any) -> HostLost:
    with pytest.raises(HostLost) as error:
        await call
    return error.value


@behind_ssh
async def test_an_account_without_a_shell_says_so(far: Place) -> None:
    assert far.bed is not None
    answers = far.bed.inside("/tmp/answers")
    answers.write_text("#!/bin/sh\necho '% Unknown command'\n")
    answers.chmod(0o755)
    passwd, shells = far.bed.inside("/etc/passwd"), far.bed.inside("/etc/shells")
    before = passwd.read_text()
    shells.write_text("/bin/sh\n/tmp/answers\n")
    passwd.write_text(before.replace("/home/camera:/bin/sh", "/home/camera:/tmp/answers"))
    try:
        async with await far.bed.connect("camera") as connection:
            with pytest.raises(NoShell, match="% Unknown command") as error:
                await SshHost(connection, {}).run(["true"])
            assert not error.value.started
    finally:
        passwd.write_text(before)


@behind_ssh
async def test_a_hung_device_is_lost_and_not_waited_for(far: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert far.bed is not None
    monkeypatch.setattr(ssh_command, "KILL_SECONDS", 0.2)
    mark = f"41{os.getpid()}2"
    async with asyncio.TaskGroup() as group:
        task = group.create_task(caught(far.host.run(f"echo up; sleep {mark}", shell=True, timeout=5)))
        await until(lambda: processes(f"sleep\0{mark}"))
        far.bed.freeze()
    assert task.result().started
    monkeypatch.setattr(ssh_command, "BEGIN_SECONDS", 0.2)
    assert not (await caught(far.host.run(["true"]))).started
    far.bed.thaw()
    far.bed.power_cut()


@pytest.mark.parametrize("far", ["openssh", "sparse"], indirect=True)
async def test_a_device_that_dies_before_the_rename_has_the_old_file(far: Place) -> None:
    assert far.bed is not None
    await far.host.write(far.at("a"), b"old")
    with far.bed.program("sync", f"#!/bin/sh\ntouch {far.at('here')}; sleep 1002\n"):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(caught(far.host.write(far.at("a"), b"new")))
            await until((far.outside / "here").exists)
            far.bed.power_cut()
    assert task.result().started
    assert (far.outside / "a").read_bytes() == b"old"
    assert len(names(far.outside)) == 3
    async with await far.bed.connect() as connection:
        await SshHost(connection, {}).write(far.at("a"), b"new")
    assert names(far.outside) == ["a", "here"]
    assert (far.outside / "a").read_bytes() == b"new"


async def test_this_machines_write_that_dies_leaves_the_old_file(tmp_path: Path) -> None:
    async with place("local", Beds(tmp_path), tmp_path) as here:
        await here.host.write(here.at("a"), b"old")
        write_and_die(here.outside / "a", b"new")
        assert (here.outside / "a").read_bytes() == b"old"
        assert len(names(here.outside)) == 2
        await here.host.write(here.at("a"), b"new")
        assert names(here.outside) == ["a"]


@pytest.mark.parametrize("far", ["openssh", "sparse"], indirect=True)
async def test_half_a_file_that_came_is_never_the_file(far: Place) -> None:
    assert far.bed is not None
    await far.host.write(far.at("a"), b"old")
    slow = f"dd bs=1000 count=1; touch {far.at('here')}; until [ -e {far.at('go')} ]; do :; done; exec dd bs=4096"
    with far.bed.program("cat", f"#!/bin/sh\n{slow}\n"):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(caught(far.host.write(far.at("a"), b"new" * 5_000_000)))
            await until((far.outside / "here").exists)
            far.bed.cut()  # What runs there runs on, and its input ends.
            (far.outside / "go").touch()
        await until(lambda: names(far.outside) == ["a", "go", "here"], what="the half to be removed")
    assert task.result().started
    assert (far.outside / "a").read_bytes() == b"old"


@behind_ssh
async def test_a_cut_at_any_moment_leaves_the_old_file_or_the_new_one(far: Place) -> None:
    assert far.bed is not None
    contents = [bytes([number]) * 500_000 for number in range(8)]
    await far.host.write(far.at("a"), contents[0])
    for old, new in itertools.pairwise(contents):
        async with await far.bed.connect() as connection, asyncio.TaskGroup() as group:
            task = group.create_task(lost_or_done(SshHost(connection, {}).write(far.at("a"), new)))
            await until(partial(begun_or_done, far, task))
            far.bed.power_cut()
        assert (far.outside / "a").read_bytes() in (old, new)
        if task.result():
            assert (far.outside / "a").read_bytes() == new
        async with await far.bed.connect() as connection:
            await SshHost(connection, {}).write(far.at("a"), new)
        assert names(far.outside) == ["a"]


def begun_or_done(far: Place, task: asyncio.Task[bool]) -> bool:
    return task.done() or any(name.startswith(".a.") for name in names(far.outside))


async def lost_or_done(call: Any) -> bool:
    try:
        await call
    except HostLost:
        return False
    return True
