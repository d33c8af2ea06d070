"""Commands of a Host: the same answers and the same errors whatever the way to the machine."""

from __future__ import annotations

import asyncio
import errno
import os
import signal

import pytest

from tests.peers.host_places import Place, os_refusal
from tests.peers.processes import processes
from tests.peers.waiting import until

ENDING = (
    "for p in /proc/[0-9]*; do if [ $p != /proc/$$ ] && grep -q {mark} $p/cmdline; then kill ${{p#/proc/}}; fi; done"
)
EVERY_BYTE = bytes(range(1, 256)).decode(errors="surrogateescape")


async def test_a_command_gives_both_streams_and_its_return_code(there: Place) -> None:
    for code in (0, 3, 126, 127, 255):
        completed = await there.host.run(f"echo out; echo err >&2; exit {code}", shell=True)
        assert (completed.stdout, completed.stderr, completed.returncode) == (b"out\n", b"err\n", code)
        assert (completed.timed_out, completed.truncated) == (False, 0)


@pytest.mark.parametrize(
    "word",
    ["", "-n", "$HOME", "a  b", "*", "'", '"', "\\", "two\nlines\n", "!", "`id`", "ü", "\udcff", EVERY_BYTE],
    ids=ascii,
)
async def test_a_word_reaches_a_command_unchanged(there: Place, word: str) -> None:
    completed = await there.host.run(["printf", "%s|%s", word, "end"])
    assert completed.stdout == os.fsencode(word) + b"|end"


@pytest.mark.parametrize("word", [EVERY_BYTE * 40, "'\n" * 5000, "x" * 100_000], ids=["bytes", "quotes", "long"])
async def test_a_long_command_line_is_as_good_as_a_short_one(there: Place, word: str) -> None:
    completed = await there.host.run(
        ["sh", "-c", 'printf %s "$1"; cat', "sh", word], stdin=b"\nand its input\0\xff", output_limit=200_000
    )
    assert completed.stdout == os.fsencode(word) + b"\nand its input\0\xff"


async def test_input_folder_and_environment_reach_the_command(there: Place) -> None:
    folder = there.outside / "it's a 'folder'"
    folder.mkdir()
    completed = await there.host.run(
        'cat; pwd; printf "%s\n" "$WORD"; test -n "$PATH"',
        shell=True,
        stdin=b"in\n",
        cwd=there.at("it's a 'folder'"),
        env={"WORD": "$said `it`\n'"},
    )
    assert completed.stdout.decode() == f"in\n{there.at(folder.name)}\n$said `it`\n'\n"
    assert completed.returncode == 0


async def test_input_of_any_size_and_any_bytes_arrives(there: Place) -> None:
    for size in (0, 1, 70_000, 3_000_000):
        data = os.urandom(size)
        completed = await there.host.run(["cat"], stdin=data, output_limit=size)
        assert completed.stdout == data
    async with asyncio.timeout(60):
        assert (await there.host.run(["true"], stdin=b"x" * 3_000_000)).returncode == 0
        assert (await there.host.run(["cat"])).stdout == b""


async def test_a_flood_is_counted_and_not_kept(there: Place) -> None:
    flood = "head -c 3000000 /dev/zero; head -c 10 /dev/zero >&2"
    completed = await there.host.run(flood, shell=True, output_limit=1000)
    assert (len(completed.stdout), len(completed.stderr), completed.truncated) == (1000, 10, 2_999_000)
    endless = await there.host.run(["yes"], output_limit=10, timeout=2)
    assert (endless.stdout, endless.timed_out, endless.returncode) == (b"y\ny\ny\ny\ny\n", True, -signal.SIGKILL)
    assert endless.truncated > 1000


async def test_a_signal_is_a_negative_return_code(there: Place) -> None:
    for name in ("TERM", "KILL", "SEGV", "HUP", "INT", "PIPE", "ABRT"):
        completed = await there.host.run(f"kill -{name} $$", shell=True)
        assert completed.returncode == -signal.Signals[f"SIG{name}"]
    assert (await there.host.run("kill -BUS $$", shell=True)).returncode < 0


async def test_what_cannot_start_has_one_error_everywhere(there: Place) -> None:
    (there.outside / "plain").write_text("echo no\n")
    (there.outside / "program").write_text("#!/bin/sh\necho yes\n")
    (there.outside / "program").chmod(0o755)
    run, at = there.host.run, there.at
    assert (await run([at("program")])).stdout == b"yes\n"
    assert await os_refusal(run(["there-is-no-such-program"])) == (errno.ENOENT, "there-is-no-such-program")
    assert await os_refusal(run(["cd"])) == (errno.ENOENT, "cd")
    assert await os_refusal(run([at("no")])) == (errno.ENOENT, at("no"))
    assert await os_refusal(run([there.folder])) == (errno.EACCES, there.folder)
    assert await os_refusal(run([at("plain")])) == (errno.EACCES, at("plain"))
    assert await os_refusal(run([at("plain/a")])) == (errno.ENOTDIR, at("plain/a"))
    assert await os_refusal(run(["true"], cwd=at("no"))) == (errno.ENOENT, at("no"))
    assert await os_refusal(run(["true"], cwd=at("plain"))) == (errno.ENOTDIR, at("plain"))
    assert (await os_refusal(run(["true", "x" * 140_000])))[0] == errno.E2BIG
    for wrong, why in (("  ", "empty"), (["echo", "\0"], "null")):
        with pytest.raises(ValueError, match=why):
            await run(wrong)


async def test_after_its_time_limit_a_command_and_all_it_started_are_dead(there: Place) -> None:
    mark = f"40{os.getpid()}1"
    tree = f"(sleep {mark} & wait) & trap '' TERM HUP INT; echo started; wait"
    completed = await there.host.run(tree, shell=True, timeout=3)
    assert (completed.timed_out, completed.stdout, completed.returncode) == (True, b"started\n", -signal.SIGKILL)
    await until(lambda: not processes(mark), what="the children to be dead")


async def test_a_cancelled_caller_leaves_nothing_running(there: Place) -> None:
    mark = f"40{os.getpid()}2"
    async with asyncio.TaskGroup() as group:
        task = group.create_task(there.host.run(f"sleep {mark} & sleep {mark}", shell=True))
        await until(lambda: len(processes(f"sleep\0{mark}")) == 2)
        task.cancel()
    assert task.cancelled()
    await until(lambda: not processes(mark), what="the command to be dead")


async def test_a_caller_may_leave_at_any_moment(there: Place) -> None:
    mark = f"40{os.getpid()}3"
    for moment in range(30):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(there.host.run(f"sleep {mark} & sleep {mark}", shell=True))
            for _ in range(moment):
                await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()
    await until(lambda: not processes(mark), what="the commands to be dead")
    # A server gives a connection ten sessions; none of them is still taken.
    assert (await there.host.run(["echo", "still"])).stdout == b"still\n"


async def test_a_daemon_stays_and_its_command_ends(there: Place) -> None:
    mark = f"40{os.getpid()}4"
    async with asyncio.timeout(60):
        completed = await there.host.run(f"sleep {mark} </dev/null >/dev/null 2>&1 & echo up", shell=True)
        assert (completed.stdout, completed.returncode) == (b"up\n", 0)
        await until(lambda: bool(processes(f"sleep\0{mark}")), what="the daemon to run")
        await there.host.run(ENDING.format(mark=mark), shell=True)
        held = await there.host.run(f"sleep {mark} & echo up", shell=True)
        assert (held.stdout, held.returncode) == (b"up\n", 0)
    await there.host.run(ENDING.format(mark=mark), shell=True)


async def test_several_commands_at_once_keep_apart(there: Place) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(there.host.run(["echo", str(number)])) for number in range(8)]
    assert [task.result().stdout for task in tasks] == [f"{number}\n".encode() for number in range(8)]
