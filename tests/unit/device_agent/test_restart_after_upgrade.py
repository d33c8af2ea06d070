"""An agent whose package was replaced starts anew when the package manager has finished, and not before."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

from device_agent.package_lock import is_busy
from device_agent.restart_after_upgrade import FREE_LOOKS, LOOK_SECONDS, MOST_SECONDS, wait
from tests.peers.clock import HandClock

HOLD = """import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_it_waits_for_as_long_as_the_lock_is_held_and_a_moment_without_it_is_no_end() -> None:
    clock = HandClock()
    begun = clock.monotonic()
    # An hour of work with a pause in it.
    looks = [True] * 900 + [False] + [True] * 900
    assert wait(lambda: looks.pop(0) if looks else False, clock, clock.move)
    assert clock.monotonic() - begun == (1801 + FREE_LOOKS) * LOOK_SECONDS


def test_one_that_hangs_is_not_waited_for_forever() -> None:
    clock = HandClock()
    begun = clock.monotonic()
    assert not wait(lambda: True, clock, clock.move)
    assert clock.monotonic() - begun == MOST_SECONDS


def test_a_lock_is_seen_and_never_taken(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not is_busy([lock])
    lock.touch()
    assert not is_busy([lock])
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_busy([tmp_path / "another", lock])
        holder.communicate()
    with lock.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert not is_busy([lock]), "one's own is no other's"
