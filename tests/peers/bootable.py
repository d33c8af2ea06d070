"""Whether machines can be booted here (tests/peers/machines.py); as a program it says what is missing, with status 1.

It asks the kernel for what a bed asks for, in namespaces of its own that are gone with the answer. It boots nothing: a
machine that does not boot where all of this is there is for the tests to find.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from functools import cache

from tests.peers import machine_groups
from tests.peers.machine_undertaker import GROUP, NAMESPACES

PROGRAMS = ("dpkg-deb", "ip", "mmdebstrap", "nsenter", "setpriv", "systemd-nspawn", "unshare")
SECONDS = 60
ROOM = """set -e
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns /run/below /run/disk/upper /run/disk/work /run/disk/root
ip link add lan type bridge
ip netns add machine
ip link add machine type veth peer name eth0 netns machine
mount -t overlay overlay -o lowerdir=/run/below,upperdir=/run/disk/upper,workdir=/run/disk/work /run/disk/root
[ "$1" = no ] || { umount -R /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup; }
"""


@cache
def missing() -> str:
    """What keeps machines from being booted here, in words; nothing when they can be."""
    found = []
    if platform.machine() != "x86_64":
        found.append("a machine that the packages of the tests are for (x86_64)")
    if os.geteuid():
        found.append("root")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    found += [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if not found:
        found += _refused_by_the_kernel(path)
    return ", ".join(found)


def _refused_by_the_kernel(path: str) -> list[str]:
    group = f"{GROUP}{os.getpid()}"
    try:
        machine_groups.make(f"{group}/machine")
    except OSError as error:
        return [f"control groups ({error})"]
    finally:
        machine_groups.removed(group)
    mixed = "no" if machine_groups.only_version_2() else "yes"
    done = subprocess.run(
        ["unshare", *NAMESPACES, "sh", "-c", ROOM, "sh", mixed],
        env={"PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return [f"namespaces, networks and mounts ({done.stderr.strip()[-300:]})"] if done.returncode else []


if __name__ == "__main__":
    if missing():
        sys.exit(f"no machine can be booted here without {missing()}")
