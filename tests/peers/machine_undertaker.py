"""Who outlives a test bed and leaves nothing of it: started before its first machine, told nothing, and not asked.

It makes the room that all machines of a bed are in: namespaces of processes, mounts and network, with a process of its
own in front. When that one dies the kernel kills all the others in the room, and with the last of them go the mounts
and the networks. The bed holds the other end of this program's standard input; when the bed ends, by whatever death,
the input ends, and this program ends the room, removes the control groups and the machines' disks, and is gone. If it
is killed itself, the room dies with it, and the next bed removes what is left.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.peers import machine_groups
from tests.peers.processes import runs
from tests.peers.waiting import until

GROUP = "outstation-bed-"
"""How the control groups of a bed are named; the number of its undertaker follows."""

DISKS = "disks"
"""The folder in that of a bed that does not outlive it."""

ROOM = """set -e
trap '' CHLD
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns /run/systemd
ip link set lo up
ip link add lan type bridge
ip link set lan up
echo ready
exec sleep infinity
"""
"""It reaps whoever nobody waits for. The names of networks, and what nspawn writes, are in a /run of the room's own."""

NAMESPACES = ("--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")
REMOVING_SECONDS = 60.0


def sweep() -> None:
    """Remove the groups of beds whose undertaker was killed."""
    for group in machine_groups.places(GROUP):
        for found in group.parent.glob(f"{GROUP}*"):
            if not runs(int(found.name.removeprefix(GROUP))):
                machine_groups.removed(found.name)


def bury(folder: Path, group: str) -> None:
    """Remove a bed's control groups and disks: nothing in it runs any more."""
    asyncio.run(until(lambda: machine_groups.removed(group), REMOVING_SECONDS, f"the end of {group}"))
    shutil.rmtree(folder / DISKS)


def main(folder: Path, group: str) -> None:
    """Make the room, tell the process in front of it, and wait for the end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sweep()
    (folder / DISKS).mkdir(parents=True)
    with subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES, "sh", "-c", ROOM],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        text=True,
    ) as room:
        try:
            assert room.stdout is not None
            assert room.stdout.readline() == "ready\n", "the room is not made: are you root, with namespaces?"
            print(Path(f"/proc/{room.pid}/task/{room.pid}/children").read_text(encoding="ascii").strip(), flush=True)
            sys.stdin.buffer.read()
        finally:
            room.kill()
    bury(folder, group)


if __name__ == "__main__":
    import os

    main(Path(sys.argv[1]), f"{GROUP}{os.getpid()}")
