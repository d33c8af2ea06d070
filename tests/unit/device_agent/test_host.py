"""device_agent/host.py and grains.py, on the machine the test runs on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from device_agent import local_command
from device_agent.host import Host
from device_agent.local_host import LocalHost
from tests.peers.waiting import until

HOST = LocalHost({"os": "Debian"})


def state_and_parent(pid: int) -> tuple[str, int]:
    """From proc_pid_stat(5); a process that is gone is in state X."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "X", 0
    return fields[0], int(fields[1])


def children() -> set[int]:
    """Processes of this one that have not been reaped, the dead among them."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return {pid for pid in pids if state_and_parent(pid)[1] == os.getpid()}


@pytest.fixture
def left_over() -> Callable[[], set[int]]:
    """Children that were not there when the test began."""
    before = children()
    return lambda: children() - before


def alive(pid_file: Path) -> bool:
    """Whether the process that wrote its number there still runs."""
    return state_and_parent(int(pid_file.read_text()))[0] not in {"X", "Z"}


async def test_a_command_gives_both_streams_and_its_return_code() -> None:
    completed = await HOST.run("echo out; echo err >&2; exit 3", shell=True)
    assert (completed.stdout, completed.stderr, completed.returncode) == (b"out\n", b"err\n", 3)
    assert not completed.timed_out
    assert completed.truncated == 0


async def test_words_reach_a_command_unchanged_when_there_is_no_shell() -> None:
    assert (await HOST.run(["echo", "$HOME", "a  b", "*"])).stdout == b"$HOME a  b *\n"
    assert (await HOST.run("echo '$HOME' a\\ b")).stdout == b"$HOME a b\n"


async def test_words_given_to_a_shell_stay_words() -> None:
    assert (await HOST.run(["echo", "a  b;", "$HOME"], shell=True)).stdout == b"a  b; $HOME\n"


async def test_input_folder_and_environment_reach_the_command(tmp_path: Path) -> None:
    completed = await HOST.run(
        'cat; pwd; echo "$WORD"; test -n "$PATH"', shell=True, stdin=b"in\n", cwd=str(tmp_path), env={"WORD": "said"}
    )
    assert completed.stdout.decode().splitlines() == ["in", str(tmp_path.resolve()), "said"]
    assert completed.returncode == 0


async def test_without_input_a_command_reads_an_end_and_not_a_terminal() -> None:
    async with asyncio.timeout(60):
        assert (await HOST.run(["cat"])).stdout == b""


async def test_more_input_than_a_pipe_holds_reaches_the_command() -> None:
    body = os.urandom(1_000_000)
    completed = await HOST.run(["wc", "-c"], stdin=body)
    assert completed.stdout.strip() == b"1000000"


async def test_a_command_that_does_not_read_its_input_still_ends() -> None:
    async with asyncio.timeout(60):
        assert (await HOST.run(["true"], stdin=b"x" * 1_000_000)).returncode == 0


async def test_output_past_the_limit_is_counted_and_not_kept() -> None:
    program = "import sys; sys.stdout.write('a' * 3_000_000); sys.stderr.write('b' * 10)"
    completed = await HOST.run([sys.executable, "-c", program], output_limit=1000)
    assert completed.stdout == b"a" * 1000
    assert completed.stderr == b"b" * 10
    assert completed.truncated == 2_999_000


async def test_a_signal_is_a_negative_return_code() -> None:
    assert (await HOST.run("kill -TERM $$", shell=True)).returncode == -signal.SIGTERM


async def test_a_command_that_cannot_start_raises(tmp_path: Path, left_over: Callable[[], set[int]]) -> None:
    with pytest.raises(FileNotFoundError):
        await HOST.run(["there-is-no-such-program"])
    with pytest.raises(FileNotFoundError):
        await HOST.run(["true"], cwd=str(tmp_path / "absent"))
    with pytest.raises(PermissionError):
        await HOST.run([str(tmp_path)])
    with pytest.raises(ValueError, match="empty"):
        await HOST.run("  ")
    with pytest.raises(ValueError, match="null"):
        await HOST.run(["echo", "\0"])
    assert not left_over()


TWO_GENERATIONS = "sleep 1000 & echo $! > child; echo started; wait"


async def test_after_its_time_limit_a_command_and_its_children_are_dead(
    tmp_path: Path, left_over: Callable[[], set[int]]
) -> None:
    completed = await HOST.run(TWO_GENERATIONS, shell=True, cwd=str(tmp_path), timeout=3)
    assert completed.timed_out
    assert completed.stdout == b"started\n"
    assert completed.returncode == -signal.SIGKILL
    await until(lambda: not alive(tmp_path / "child"), what="the child to be dead")
    assert not left_over()


async def test_a_cancelled_caller_leaves_nothing_running(tmp_path: Path, left_over: Callable[[], set[int]]) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(HOST.run(TWO_GENERATIONS, shell=True, cwd=str(tmp_path)))
        await until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip())
        task.cancel()
    assert task.cancelled()
    await until(lambda: not alive(tmp_path / "child"), what="the child to be dead")
    assert not left_over()


async def cancel_at_every_step(left_over: Callable[[], set[int]]) -> None:
    for steps in range(12):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(HOST.run("sleep 1000 & sleep 1000", shell=True))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()
    await until(lambda: not left_over(), what="every process to be reaped")


async def test_a_caller_cancelled_at_any_step_of_the_start_leaves_nothing_running(
    left_over: Callable[[], set[int]],
) -> None:
    await cancel_at_every_step(left_over)


def test_the_loop_of_a_station_keeps_the_same_promise(left_over: Callable[[], set[int]]) -> None:
    uvloop.run(cancel_at_every_step(left_over))


async def test_a_caller_cancelled_twice_leaves_nothing_running(left_over: Callable[[], set[int]]) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(HOST.run("sleep 1000", shell=True))
        await until(left_over)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()
    await until(lambda: not left_over(), what="every process to be reaped")


async def test_what_keeps_the_output_open_is_killed_after_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_command, "PIPE_SECONDS", 0.05)
    completed = await HOST.run("sleep 1000 & echo $! > child; echo done", shell=True, cwd=str(tmp_path))
    assert (completed.stdout, completed.returncode) == (b"done\n", 0)
    await until(lambda: not alive(tmp_path / "child"), what="the child to be dead")


async def test_what_let_go_of_the_output_stays_after_the_command(tmp_path: Path) -> None:
    completed = await HOST.run("sleep 1000 >/dev/null 2>&1 & echo $! > child", shell=True, cwd=str(tmp_path))
    try:
        assert completed.returncode == 0
        assert alive(tmp_path / "child")
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


async def test_a_kernel_that_cannot_tell_of_an_end_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, left_over: Callable[[], set[int]]
) -> None:
    def no_such_call(_pid: int, _flags: int = 0) -> int:
        raise OSError("function not implemented")

    monkeypatch.setattr(os, "pidfd_open", no_such_call)
    monkeypatch.setattr(local_command, "POLL_SECONDS", 0.001)
    assert (await HOST.run("echo x; exit 4", shell=True)).returncode == 4
    assert (await HOST.run(["sleep", "1000"], timeout=0.05)).timed_out
    assert not left_over()


async def test_no_pipe_stays_open() -> None:
    await HOST.run(["true"])
    before = set(Path("/proc/self/fd").iterdir())
    for _ in range(5):
        await HOST.run("echo x", shell=True, stdin=b"y")
        await HOST.run(["sleep", "1000"], timeout=0.01)
    assert len(set(Path("/proc/self/fd").iterdir())) == len(before)


def test_the_local_host_is_a_host() -> None:
    host: Host = HOST
    assert host.grains == {"os": "Debian"}
