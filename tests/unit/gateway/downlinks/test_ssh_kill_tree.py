"""gateway/downlinks/ssh_command.py: a command on a device without setsid ends with everything that it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.downlinks.ssh_command import KILL_TREE
from tests.peers.waiting import until

SHELLS = (["sh"], ["busybox", "sh"])
STARTED = """
import ctypes, pathlib, subprocess, sys, time
name = bytes.fromhex(sys.argv[1])
ctypes.CDLL(None).prctl(15, name, 0, 0, 0)  # PR_SET_NAME
child = subprocess.Popen(["sleep", "600"])
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(params=[b"plain", b"x\n", b"x\n) R 1 y", b"x) R 1 \ny", b") S 1 ("], ids=lambda name: name.hex())
def tree(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """A command, a process that it started under this name, and what that one started."""
    script = '"$@" & echo $!; wait; :'
    words = ["sh", "-c", script, "sh", sys.executable, "-c", STARTED, request.param.hex()]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        child, grandchild = int(command.stdout.readline()), int(command.stdout.readline())
        # A descriptor means this process alone, also when its number is another one's by then.
        handles = [os.pidfd_open(pid) for pid in (command.pid, child, grandchild)]
        try:
            yield command, child, grandchild
        finally:
            for handle in handles:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                os.close(handle)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] not in (b"Z", b"X", b"")
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("shell", SHELLS, ids=lambda words: words[0])
async def test_what_a_command_started_ends_with_it_whatever_its_name_is(
    tree: tuple[subprocess.Popen[str], int, int], shell: list[str]
) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"takes {shell[0]}")
    command, *started = tree
    script = KILL_TREE.format(pid=command.pid)
    await asyncio.to_thread(subprocess.run, [*shell, "-c", script], check=False, timeout=60)
    assert await until(lambda: command.poll() == -9, what="the command has ended")
    assert await until(lambda: not any(map(_runs, started)), what="what it started has ended")
