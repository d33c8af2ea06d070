"""Booted machines for tests: each a Debian 12 with systemd in front, several at once, joined by a network of their own.

::

    async with TestBed(tmp_path) as bed:
        gateway = await bed.machine("gateway")
        done = await gateway.run("systemctl", "is-active", "dbus")
        await bed.room.cut("gateway", "master")

A machine is nspawn's, in a control group, a network and a mount namespace that the bed makes for it. A command of a
test is run by the machine's own systemd, with the rights and the limits that it gives: one that only entered the
machine's namespaces would have all rights of this one, and set its clock. The wall clock belongs to no namespace, and
``kill`` spares what the kernel holds in memory: clocks that jump and disks that lose are tested elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from device_agent.host import Completed
from device_agent.local_command import run_here
from tests.peers import machine_groups
from tests.peers.machine_room import OUTPUT_BYTES, Room, plain
from tests.peers.machine_roots import SERVER, Recipe, root_of
from tests.peers.waiting import until

RUN_SECONDS = 120.0
BOOT_SECONDS = 180.0
STOP_SECONDS = 300.0
POWER_OFF = signal.SIGRTMIN + 4
"""What systemd takes for the power switch (systemd(1), "Signals")."""

RIGHTS = "CAP_BPF,CAP_NET_ADMIN,CAP_PERFMON,CAP_SYS_RESOURCE"
"""Beside what nspawn gives: what a real machine's systemd needs to enforce IPAddressDeny= and to raise limits."""

NOT_OURS = (
    "-sys_time,-sys_module,-sys_rawio,-syslog,-wake_alarm,-block_suspend,-mac_admin,-mac_override,-checkpoint_restore,"
    "-sys_pacct"
)
"""Rights over the machine that the tests run on, which not even the bed's own questions take into a machine."""

BOOT = """set -e
for group in $GROUPS_OF; do echo $$ >"$group/cgroup.procs"; done
mount -t overlay overlay -o "lowerdir=$BELOW,upperdir=$DISK/upper,workdir=$DISK/work" "$DISK/root"
if [ "$FRESH" = yes ]; then
    umount -R /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
fi
exec nsenter --net="/run/netns/$NAME" systemd-nspawn --quiet --settings=no --register=no --keep-unit --boot \\
    --directory="$DISK/root" --machine="$NAME" --network-namespace-path="/run/netns/$NAME" --console=pipe \\
    --resolv-conf=off --timezone=off --link-journal=no --capability="$RIGHTS" --system-call-filter=bpf "$@"
"""
"""In a mount namespace of the machine's own, which ends with it. nspawn enters the machine's network before it mounts
``/sys``, which shows the network of who mounts it. A kernel whose groups are of version 1 is asked for an
empty hierarchy of version 2, as a Debian 12 has it: it has no limits on memory, tasks and CPU then. In a bed with
``limits`` machines have version 1."""

HAND_OVER = """set -e
for kind in memory pids; do
    [ ! -d "/sys/fs/cgroup/$kind" ] || mount -o remount,rw,bind "/sys/fs/cgroup/$kind"
done
systemctl daemon-reexec
"""
"""nspawn lets a machine look at groups of version 1 and no more; systemd looks once, when it starts, whether it may."""


class MachineFailed(Exception):
    """A machine did not boot, stop, or do what it was told; what it said."""


class Machine:
    """One of a bed, with a disk that stays when it is off and a network that stays too."""

    def __init__(self, name: str, room: Room, below: Path, address: str, *, limits: bool) -> None:
        self.name = name
        self.address = address
        self._old_groups = limits and not machine_groups.only_version_2()
        self._room = room
        self._below = below
        self._disk = room.disks / name
        self._console = room.folder / f"{name}.console"
        self._nspawn: subprocess.Popen[bytes] | None = None

    async def start(self, *options: str) -> None:
        """Boot it, with more options of nspawn if there are any; it returns when the boot has finished.

        Raises MachineFailed.
        """
        assert self._nspawn is None, f"{self.name} is on"
        for folder in ("upper", "work", "root"):
            (self._disk / folder).mkdir(parents=True, exist_ok=True)
        groups = machine_groups.make(f"{self._room.group}/{self.name}")
        given = {
            "GROUPS_OF": " ".join(map(str, groups)),
            "BELOW": self._below,
            "DISK": self._disk,
            "FRESH": "no" if self._old_groups or machine_groups.only_version_2() else "yes",
            "NAME": self.name,
            "RIGHTS": RIGHTS,
        }
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", BOOT, "sh", *options]
        with self._console.open("ab") as console:
            self._nspawn = subprocess.Popen(  # noqa: ASYNC220 - it returns when the program has started
                [*self._room.enter(), *plain([*(f"{name}={value}" for name, value in given.items()), *words])],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                cwd="/",
                start_new_session=True,
            )
        try:
            await until(self._booted, BOOT_SECONDS, f"the boot of {self.name}")
        except AssertionError as error:
            raise MachineFailed(f"{error}\n{self.console}") from error
        if self._old_groups:
            done = await self._enter("sh", "-c", HAND_OVER, seconds=BOOT_SECONDS)
            assert done.returncode == 0, done

    @property
    def console(self) -> str:
        """What it said while it booted and stopped, all boots together."""
        return self._console.read_text(errors="replace")

    @property
    def runs(self) -> bool:
        """Whether it is on."""
        return self._nspawn is not None and self._nspawn.poll() is None

    async def run(
        self, *words: str, stdin: bytes | None = None, seconds: float = RUN_SECONDS, check: bool = True
    ) -> Completed:
        """Run a command in it; with ``check`` one that fails raises MachineFailed with what it said.

        It ends, there too, when ``seconds`` are over.
        """
        asked = [
            "systemd-run",
            "--quiet",
            "--pipe",
            "--wait",
            "--collect",
            "--service-type=exec",
            "--working-directory=/",
        ]
        settings = {"HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb", "DEBIAN_FRONTEND": "noninteractive"}
        asked += [f"--setenv={name}={value}" for name, value in settings.items()]
        # It would put its own variables in the place of ``$root`` (systemd.service(5), "Command lines").
        asked += [f"--property=RuntimeMaxSec={seconds:g}", "--", *(word.replace("$", "$$") for word in words)]
        done = await self._enter(*asked, stdin=stdin, seconds=seconds + RUN_SECONDS)
        if check and done.returncode:
            said = (done.stdout + done.stderr).decode(errors="replace").strip()
            raise MachineFailed(f"{self.name}: {shlex.join(words)} ended with {done.returncode}: {said[-4000:]}")
        return done

    async def said(self, *words: str, seconds: float = RUN_SECONDS) -> str:
        """What a command that must work wrote to its standard output, without the newline at its end."""
        return (await self.run(*words, seconds=seconds)).stdout.decode().rstrip("\n")

    async def sh(self, script: str, *words: str, check: bool = True, seconds: float = RUN_SECONDS) -> str:
        """The same of a script, in which ``$1`` is the first of the words."""
        done = await self.run("sh", "-c", script, "sh", *words, check=check, seconds=seconds)
        return done.stdout.decode().rstrip("\n")

    async def write(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        """Make a file in it with these bytes, and the folders above it."""
        raw = data.encode() if isinstance(data, str) else data
        script = 'mkdir -p "$(dirname "$1")" && umask 077 && cat >"$1" && chmod "$2" "$1"'
        await self.run("sh", "-c", script, "sh", path, f"{mode:o}", stdin=raw)

    async def push(self, here: Path, there: str, mode: int = 0o644) -> None:
        """Copy a file of this machine into it."""
        await self.write(there, here.read_bytes(), mode)

    async def read(self, path: str) -> bytes:
        """The bytes of a file in it."""
        return (await self.run("cat", path)).stdout

    async def journal(self, *matches: str) -> list[dict[str, Any]]:
        """What its journal has, as journalctl(1) selects it (``-u``, ``FIELD=value``): the fields of each entry."""
        done = await self.run("journalctl", "--output=json", "--all", "--no-pager", "--quiet", *matches)
        return [json.loads(line) for line in done.stdout.splitlines()]

    async def show(self, unit: str) -> dict[str, str]:
        """Every property of a unit, as ``systemctl show`` has it."""
        text = await self.said("systemctl", "show", "--all", unit)
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    async def property_of(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return await self.said("systemctl", "show", "--property", name, "--value", unit)

    async def power_off(self) -> None:
        """Have it stop in order, as by its power switch. Raises MachineFailed when it does not stop."""
        os.kill(self._leader(), POWER_OFF)
        await self.off()

    async def reboot(self) -> None:
        """Stop it in order and boot it again from the same disk."""
        await self.power_off()
        await self.start()

    async def kill(self) -> None:
        """End everything in it at once, in the middle of whatever it does."""
        os.kill(self._leader(), signal.SIGKILL)
        await self.off()

    async def off(self) -> int:
        """Wait until it is off, by whatever cause: how nspawn ended, which is 133 when the machine wanted to reboot."""
        nspawn = self._nspawn
        assert nspawn is not None, f"{self.name} is off"
        try:
            await until(lambda: nspawn.poll() is not None, STOP_SECONDS, f"the end of {self.name}")
        except AssertionError as error:
            raise MachineFailed(f"{error}\n{self.console[-4000:]}") from error
        self._nspawn = None
        group = f"{self._room.group}/{self.name}"
        await until(lambda: machine_groups.removed(group), STOP_SECONDS, f"the end of the groups of {self.name}")
        return nspawn.wait()

    def reap(self) -> None:
        """The room is gone, and this one with it: nobody waits for it any more."""
        if self._nspawn is not None:
            self._nspawn.wait(STOP_SECONDS)
            self._nspawn = None

    def wipe(self) -> None:
        """Take its disk away and put an empty one in, while it is off: the next start is the first."""
        assert self._nspawn is None, f"{self.name} is on"
        shutil.rmtree(self._disk)

    async def _booted(self) -> bool:
        assert self._nspawn is not None
        if self._nspawn.poll() is not None:
            self._nspawn = None
            raise MachineFailed(f"{self.name} ended while it booted:\n{self.console}")
        if self._children() == []:
            return False
        try:
            done = await self._enter("systemctl", "is-system-running", "--wait", seconds=BOOT_SECONDS)
        except MachineFailed:
            # Its first process was not the one that stays: the next look finds that, or that it ended.
            return False
        return done.stdout.strip() in {b"running", b"degraded"}

    async def _enter(self, *words: str, seconds: float, stdin: bytes | None = None) -> Completed:
        """A question of the bed's own, with the machine's rights as its bound."""
        target = str(self._leader())
        spaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wdns=/")
        return await run_here(
            plain(["nsenter", "--target", target, *spaces, "setpriv", "--bounding-set", NOT_OURS, *words]),
            shell=False,
            stdin=stdin,
            cwd="/",
            env=None,
            timeout=seconds,
            output_limit=OUTPUT_BYTES,
        )

    def _leader(self) -> int:
        """The number that its first process has here. Raises MachineFailed when it is off."""
        found = self._children()
        if not found:
            raise MachineFailed(f"{self.name} is off")
        return found[0]

    def _children(self) -> list[int]:
        """The first process of the machine is the child of nspawn, which is the child of what entered the room."""
        found = [self._nspawn.pid] if self._nspawn is not None else []
        for _ in range(2):
            found = [child for parent in found for child in _children_of(parent)]
        return found


class TestBed:
    """Machines of one test, and the room they are in; all is gone when the context ends, or this process.

    With ``limits`` their systemd limits memory and tasks, where this machine's kernel lets it. Raises RoomFailed where
    nobody may make namespaces.
    """

    __test__ = False

    def __init__(self, folder: Path, *, limits: bool = False) -> None:
        self.room = Room(folder)
        self._limits = limits
        self.machines: dict[str, Machine] = {}

    async def __aenter__(self) -> Self:
        await self.room.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.room.__aexit__(kind, error, trace)
        for machine in self.machines.values():
            machine.reap()

    async def machine(self, name: str, recipe: Recipe = SERVER, *options: str) -> Machine:
        """A machine of this name, booted. The others are not told its name: it is reached by its address."""
        below = await asyncio.to_thread(root_of, recipe)
        machine = Machine(name, self.room, below, await self.room.plug_in(name), limits=self._limits)
        self.machines[name] = machine
        await machine.start(*options)
        return machine


def _children_of(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(number) for number in text.split()]
