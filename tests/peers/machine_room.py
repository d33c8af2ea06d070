"""The room that booted machines share: its namespaces, and the network between the machines.

Each machine has a network of its own, and a cable from it to one switch. A link is cut as a digger cuts it, somewhere
in between: what is sent goes out, nobody takes it, and nobody is told. A cable that is pulled is noticed at once.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from device_agent.host import Completed
from device_agent.local_command import run_here
from tests.peers.machine_undertaker import DISKS, GROUP

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 60.0
OUTPUT_BYTES = 64 * 2**20
CABLE = "eth0"
PREFIX = "198.18.7"
"""A network that is nobody's (RFC 2544), which no machine outside the room is asked for."""
NOBODY = "02:00:00:00:00:01"
"""The link address of no machine."""


class RoomFailed(Exception):
    """A command that makes or changes the room did not work."""


class Room:
    """For as long as the context lasts, and not longer, however this process ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._undertaker: subprocess.Popen[str] | None = None
        self._front = 0
        self._numbers: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "undertaker.log").open("w") as log:
            self._undertaker = subprocess.Popen(  # noqa: ASYNC220 - it returns when the program has started
                [sys.executable, "-m", "tests.peers.machine_undertaker", str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=REPOSITORY,
                start_new_session=True,
                text=True,
            )
        assert self._undertaker.stdout is not None
        front = self._undertaker.stdout.readline().strip()
        if not front:
            await self.close()
            raise RoomFailed((self.folder / "undertaker.log").read_text())
        self._front = int(front)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything in the room; when this returns nothing of it is left."""
        undertaker = self._undertaker
        if undertaker is None:
            return
        self._undertaker = None
        assert undertaker.stdin is not None
        assert undertaker.stdout is not None
        undertaker.stdin.close()
        undertaker.stdout.close()
        if undertaker.wait(COMMAND_SECONDS * 2):
            raise RoomFailed((self.folder / "undertaker.log").read_text())

    @property
    def group(self) -> str:
        """The name of the room's control groups."""
        assert self._undertaker is not None, "the room is not made"
        return f"{GROUP}{self._undertaker.pid}"

    @property
    def disks(self) -> Path:
        """Where what is gone with the room is kept."""
        return self.folder / DISKS

    def enter(self) -> list[str]:
        """What goes before a command of the bed's own to have it run in the room."""
        return ["nsenter", "--target", str(self._front), "--mount", "--net", "--pid"]

    async def do(self, *words: str) -> Completed:
        """Run a command of the bed's own in the room. Raises RoomFailed when it does not work."""
        done = await run_here(
            [*self.enter(), *words],
            shell=False,
            stdin=None,
            cwd="/",
            env=None,
            timeout=COMMAND_SECONDS,
            output_limit=OUTPUT_BYTES,
        )
        if done.returncode:
            raise RoomFailed(f"{' '.join(words)}: {done.stderr.decode(errors='replace').strip()}")
        return done

    async def plug_in(self, name: str) -> str:
        """Give a machine its network, with a cable to the switch; its address."""
        number = len(self._numbers) + 1
        self._numbers[name] = number
        await self._ip("netns", "add", name)
        await self._ip("link", "add", name, "type", "veth", "peer", "name", CABLE, "netns", name)
        await self._ip("link", "set", name, "master", "lan", "up")
        await self._ip("-n", name, "link", "set", "lo", "up")
        await self._ip("-n", name, "addr", "add", f"{self.address(name)}/24", "dev", CABLE)
        await self._ip("-n", name, "link", "set", CABLE, "up")
        return self.address(name)

    def address(self, name: str) -> str:
        """Where a machine is."""
        return f"{PREFIX}.{self._numbers[name]}"

    async def cut(self, one: str, other: str) -> None:
        """From now on everything between the two is lost on the way, and nobody is told."""
        for near, far in ((one, other), (other, one)):
            await self._neighbour(near, "replace", far, "lladdr", NOBODY, "nud", "permanent")

    async def heal(self, one: str, other: str) -> None:
        """It arrives again."""
        for near, far in ((one, other), (other, one)):
            await self._neighbour(near, "del", far)

    async def pull(self, name: str) -> None:
        """Pull a machine's cable: it is told at once."""
        await self._ip("link", "set", name, "down")

    async def push(self, name: str) -> None:
        """Push it in again."""
        await self._ip("link", "set", name, "up")

    async def _neighbour(self, near: str, verb: str, far: str, *what: str) -> None:
        await self._ip("-n", near, "neigh", verb, self.address(far), *what, "dev", CABLE)

    async def _ip(self, *words: str) -> None:
        await self.do("/usr/sbin/ip", *words)


def plain(words: Sequence[str]) -> list[str]:
    """A command with nothing of this process's environment."""
    return ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LANG=C.UTF-8", *words]
