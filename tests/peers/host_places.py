"""The machines that a Host must be the same on: this one, and each of the SSH beds; with a folder in each."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncssh
import pytest

from device_agent.host import Host
from device_agent.local_host import LocalHost
from gateway.downlinks.ssh_host import SshHost
from tests.peers.small_disk import SmallDisk, small_disk
from tests.peers.ssh_beds import SshBed, dropbear, openssh

KINDS: Final = ("local", "openssh", "busybox", "sparse")
REMOTE: Final = KINDS[1:]
LACKING: Final = ("setsid", "stat")
"""What the sparse machine does not have."""

CAMERA: Final = 4100
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """A machine, a folder on it by the name it has there, and the same folder as the test sees it."""

    kind: str
    host: Host
    folder: str
    outside: Path
    bed: SshBed | None = None
    connection: asyncssh.SSHClientConnection | None = None

    def at(self, name: str) -> str:
        return f"{self.folder}/{name}"


class Beds:
    """Starts each bed when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, tuple[SshBed, object]] = {}

    def get(self, kind: str) -> SshBed:
        if kind not in self._open:
            folder = self._folder / kind
            folder.mkdir()
            made = {
                "openssh": lambda: openssh(folder),
                "busybox": lambda: dropbear(folder),
                "sparse": lambda: dropbear(folder, without=LACKING),
            }[kind]()
            self._open[kind] = (made.__enter__(), made)
        return self._open[kind][0]

    def close(self) -> None:
        for _, made in self._open.values():
            made.__exit__(None, None, None)  # type: ignore[attr-defined]  # a generator's context, kept as an object


@asynccontextmanager
async def place(kind: str, beds: Beds, folder: Path, user: str = "root") -> AsyncIterator[Place]:
    """A fresh folder on a machine of this kind, as this user."""
    if kind == "local":
        with _as_user(user):
            yield Place(kind, LocalHost({"id": "here"}), str(folder), folder)
        return
    bed = beds.get(kind)
    name = f"/tmp/place-{next(_numbers)}"
    outside = bed.inside(name)
    outside.mkdir()
    uid = 0 if user == "root" else CAMERA
    os.chown(outside, uid, uid)
    async with await bed.connect(user) as connection:
        yield Place(kind, SshHost(connection, {"id": "there"}), name, outside, bed, connection)


@asynccontextmanager
async def tiny_disk(place: Place) -> AsyncIterator[tuple[str, SmallDisk]]:
    """A file system of 1 MiB on that machine: its name there, and the disk as the test sees it."""
    if place.bed is None:
        with small_disk(place.outside / "disk", megabytes=1) as disk:
            yield place.at("disk"), disk
        return
    (place.outside / "disk").mkdir()
    done = await place.host.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", place.at("disk")])
    assert done.returncode == 0, done.stderr
    yield place.at("disk"), SmallDisk(place.outside / "disk")
    await place.host.run(["umount", place.at("disk")])


@contextmanager
def _as_user(user: str) -> Iterator[None]:
    """This process with the rights of somebody else."""
    if user == "root":
        yield
        return
    os.setegid(CAMERA)
    os.seteuid(CAMERA)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


async def os_refusal(call: Awaitable[object]) -> tuple[int | None, str | None]:
    """The number and the file of the ``OSError`` that a call ends with."""
    with pytest.raises(OSError) as caught:
        await call
    return caught.value.errno, caught.value.filename


def write_and_die(path: Path, data: bytes) -> None:
    """A process that writes as ``LocalHost`` does, and is killed when all is written and nothing renamed."""
    code = (
        "import os, signal, sys; from device_agent import local_files;"
        "os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL);"
        "local_files.write(sys.argv[1], sys.stdin.buffer.read(), None, None)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], input=data, capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
