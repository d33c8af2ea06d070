"""Jobs that change the same file of a device at once: no change is lost."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from device_agent import file_changes, loader, local_files, lock_file
from device_agent.disk_threads import DiskThreads
from device_agent.ended import Ended, FunctionFailed
from device_agent.file_changes import changing
from device_agent.host import Host
from device_agent.local_host import LocalHost
from tests.peers.host_places import Beds, Place, place
from tests.peers.small_machine import SmallMachine, allowed, small_machine
from tests.peers.waiting import until

JOBS = 6
LOCAL = LocalHost({"id": "cam-1"})


@pytest.fixture
async def far(request: pytest.FixtureRequest, host_beds: Beds, tmp_path: Path) -> AsyncIterator[Place]:
    async with place(request.param, host_beds, tmp_path) as found:
        yield found


everywhere = pytest.mark.parametrize("far", ["local", "openssh", "busybox"], indirect=True)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[SmallMachine]:
    if not allowed():
        pytest.skip("only root can make namespaces")
    with small_machine(tmp_path / "root") as made:
        yield made


def call(host: Host, name: str, *arg: Any, **kwarg: Any) -> Coroutine[Any, Any, Ended]:
    return loader.call(name, host, list(arg), kwarg)


async def at_once(*calls: Coroutine[Any, Any, Ended]) -> list[Ended]:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in calls]
    return [task.result() for task in tasks]


def outcomes(ended: list[Ended]) -> set[tuple[str, str | None]]:
    return {(each.outcome, each.why) for each in ended}


@everywhere
async def test_each_line_that_is_added_at_once_is_there(far: Place) -> None:
    (far.outside / "f").write_text("first\n")
    (far.outside / "link").symlink_to("f")
    names = ["f", "link"] * (JOBS // 2)
    ended = await at_once(*(call(far.host, "file.append", far.at(name), f"{at}") for at, name in enumerate(names)))
    assert {each.outcome for each in ended} == {"ok"}
    assert sorted((far.outside / "f").read_text().split()) == [*map(str, range(JOBS)), "first"]


@everywhere
async def test_each_change_of_different_functions_is_there(far: Place) -> None:
    (far.outside / "f").write_text("a=1\nb=1\n#c=1\n")
    path = far.at("f")
    ended = await at_once(
        call(far.host, "file.replace", path, "^a=1", "a=2", backup=False),
        call(far.host, "file.line", path, content="b=2", match="b=1", mode="replace"),
        call(far.host, "file.uncomment", path, "c=1", backup=""),
        call(far.host, "file.append", path, "d=1"),
        call(far.host, "file.prepend", path, "z=1"),
    )
    assert {each.outcome for each in ended} == {"ok"}, outcomes(ended)
    assert (far.outside / "f").read_text().split() == ["z=1", "a=2", "b=2", "c=1", "d=1"]


@everywhere
async def test_each_entry_of_an_fstab_and_each_key_is_there(far: Place) -> None:
    (far.outside / "fstab").touch()
    wanted = {f"/mnt/{at}" for at in range(JOBS)}
    ended = await at_once(
        *(call(far.host, "mount.set_fstab", each, f"/dev{each}", "ext4", config=far.at("fstab")) for each in wanted)
    )
    assert {(each.outcome, each.value) for each in ended} == {("ok", "new")}
    assert {line.split()[1] for line in (far.outside / "fstab").read_text().splitlines()} == wanted
    keys = {base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes([at]) * 32).decode() for at in range(JOBS)}
    ended = await at_once(
        *(call(far.host, "ssh.set_auth_key", "root", each, enc="ed25519", config=far.at("keys")) for each in keys)
    )
    assert {(each.outcome, each.value) for each in ended} == {("ok", "new")}
    assert {line.split()[1] for line in (far.outside / "keys").read_text().splitlines()} == keys
    ended = await at_once(*(call(far.host, "ssh.rm_auth_key", "root", each, config=far.at("keys")) for each in keys))
    assert {each.outcome for each in ended} == {"ok"}, outcomes(ended)
    assert (far.outside / "keys").read_text() == ""
    known = {"key": min(keys), "enc": "ed25519", "config": far.at("known")}
    ended = await at_once(*(call(far.host, "ssh.set_known_host", "root", f"h{at}", **known) for at in range(JOBS)))
    assert {each.outcome for each in ended} == {"ok"}, outcomes(ended)
    assert len((far.outside / "known").read_text().splitlines()) == JOBS


async def test_each_job_of_a_crontab_is_there(machine: SmallMachine) -> None:
    (machine.root / "var/spool/cron/crontabs").mkdir(parents=True)
    jobs = [
        call(machine, "cron.set_job", "root", 1, 1, 1, 1, 1, f"true {at}", identifier=f"{at}") for at in range(JOBS)
    ]
    ended = await at_once(*jobs, call(machine, "cron.set_env", "root", "MAILTO", "ops"))
    assert {(each.outcome, each.value) for each in ended} == {("ok", "new")}
    table = (await call(machine, "cron.list_tab", "root")).value
    assert sorted(each["identifier"] for each in table["crons"]) == [f"{at}" for at in range(JOBS)]
    assert [each["name"] for each in table["env"]] == ["MAILTO"]


async def test_each_change_of_accounts_is_there(machine: SmallMachine) -> None:
    etc = machine.root / "etc"
    names = [f"user{at}" for at in range(JOBS)]
    etc.joinpath("shadow").write_text("".join(f"{name}:*:1:0:99999:7:::\n" for name in names))
    ended = await at_once(
        *(call(machine, "shadow.set_maxdays", name, 77) for name in names),
        *(call(machine, "shadow.set_warndays", name, 5) for name in names),
        *(call(machine, "shadow.lock_password", name) for name in names),
    )
    assert {each.outcome for each in ended} == {"ok"}, outcomes(ended)
    assert etc.joinpath("shadow").read_text() == "".join(f"{name}:!*:1:0:77:5:::\n" for name in names)


async def test_a_change_that_waits_too_long_fails_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_changes, "WAIT_SECONDS", 0.01)
    file = tmp_path / "f"
    file.write_text("first\n")
    async with changing(LOCAL, str(file)):
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_apart(LOCAL, str(file)))
        assert "other jobs have been changing it for 0.01 seconds" in waiting.result()
        (file.parent / "other").write_text("")
        assert (await call(LOCAL, "file.append", str(file.parent / "other"), "x")).outcome == "ok"
        assert (await call(LOCAL, "file.append", str(file), "within")).outcome == "ok"
    assert await _apart(LOCAL, str(file)) == ""
    assert file.read_text() == "first\nwithin\n"


async def test_a_change_waits_for_the_write_of_a_cancelled_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, begun, may_end = tmp_path / "f", threading.Event(), threading.Event()
    file.write_text("first\n")
    write = local_files.write

    def stalled(path: str, data: bytes, mode: int | None, owner: tuple[int, int] | None) -> None:
        begun.set()
        assert may_end.wait(60)
        write(path, data, mode, owner)

    monkeypatch.setattr(local_files, "write", stalled)
    try:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            cancelled = group.create_task(call(LOCAL, "file.append", str(file), "one"))
            await until(begun.is_set, what="the write to begin")
            cancelled.cancel()
            await asyncio.wait({cancelled})
            monkeypatch.setattr(local_files, "write", write)
            with monkeypatch.context() as bound:
                bound.setattr(file_changes, "WAIT_SECONDS", 0.01)
                ended = await call(LOCAL, "file.append", str(file), "two")
            assert ended.outcome == "failed"
            assert "other jobs have been changing it for 0.01 seconds" in ended.why
            waiting = group.create_task(call(LOCAL, "file.append", str(file), "three"))
            may_end.set()
        assert waiting.result().outcome == "ok"
    finally:
        may_end.set()
    assert file.read_text() == "first\none\nthree\n"


async def test_a_lock_file_is_held_until_the_write_of_a_cancelled_job_ends(tmp_path: Path) -> None:
    lock, threads, begun, may_end = tmp_path / "lock", DiskThreads(), threading.Event(), threading.Event()

    def stalled() -> None:
        begun.set()
        assert may_end.wait(60)

    async def job() -> None:
        async with lock_file.held(str(lock), threads):
            await threads.call(str(tmp_path / "f"), stalled)

    try:
        async with asyncio.TaskGroup() as group:
            cancelled = group.create_task(job())
            await until(begun.is_set, what="the write to begin")
            cancelled.cancel()
        assert open_here(lock)
    finally:
        may_end.set()
    await until(lambda: not open_here(lock), what="the lock file to be released")


async def test_two_devices_do_not_wait_for_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    async with asyncio.timeout(10), changing(LOCAL, path):
        assert await _apart(LocalHost({"id": "cam-2"}), path) == ""


async def _apart(host: Host, path: str) -> str:
    """What a job that holds nothing yet is told; empty when it got its turn."""
    file_changes._held.set(frozenset())
    try:
        async with changing(host, path):
            return ""
    except FunctionFailed as failed:
        return failed.why


OTHER_PROGRAM = """
import fcntl, os, sys
path, shadow = sys.argv[1:]
with open(path, "w") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    found = open(shadow).read()
    print("held", flush=True)
    sys.stdin.readline()
    open(shadow, "w").write(found.replace("other:*", "other:!"))
"""


@asynccontextmanager
async def other_program(machine: SmallMachine) -> AsyncIterator[asyncio.subprocess.Process]:
    """One that has locked the accounts and has read them, and writes them when it is given a line."""
    etc = machine.root / "etc"
    etc.joinpath("shadow").write_text("user:*:1:0:99999:7:::\nother:*:1:0:99999:7:::\n")
    words = [sys.executable, "-c", OTHER_PROGRAM, str(etc / ".pwd.lock"), str(etc / "shadow")]
    held = await asyncio.create_subprocess_exec(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert held.stdout is not None
        assert await held.stdout.readline() == b"held\n"
        yield held
    finally:
        if held.returncode is None:
            held.kill()
        await held.wait()


async def test_a_change_of_accounts_waits_for_another_program_that_holds_the_lock_file(machine: SmallMachine) -> None:
    async with asyncio.timeout(30), other_program(machine) as held, asyncio.TaskGroup() as group:
        waiting = group.create_task(call(machine, "shadow.set_maxdays", "user", 77))
        lock = machine.root / "etc/.pwd.lock"
        await until(lambda: open_here(lock))
        assert held.stdin is not None
        held.stdin.write(b"\n")
    assert waiting.result().outcome == "ok"
    assert (machine.root / "etc/shadow").read_text() == "user:*:1:0:77:7:::\nother:!:1:0:99999:7:::\n"


async def test_a_lock_file_that_stays_held_fails_the_change(
    machine: SmallMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_file, "WAIT_SECONDS", 0.2)
    async with asyncio.timeout(30), other_program(machine):
        ended = await call(machine, "shadow.set_maxdays", "user", 77)
    assert (ended.outcome, ".pwd.lock" in ended.why) == ("failed", True)
    assert "another program has held it for 0.2 seconds, so nothing was changed" in ended.why


def open_here(path: Path) -> bool:
    """Whether this process has a file open."""
    inode = path.stat().st_ino
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if each.stat().st_ino == inode:
                return True
    return False
