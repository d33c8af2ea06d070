"""Machines that really restart: BusyBox's init with dropbear, systemd with OpenSSH.

Each is a process namespace with an init of its own as its first process. ``reboot(2)`` in one is the death of that
process (reboot(2), "Behavior inside PID namespaces"): of a hangup where the machine was to start again, of an interrupt
where it was to stay off. A thread is what the hardware is: it sees how the machine ended, and boots it again from the
same disk with another boot id.

Nobody in one can end the machine that the tests run on. The right to restart is there, but whoever has it is in another
process namespace than we are, which is asked before anything else is done; the rights to mount, to set the clock, to
load modules and to change the network are not; and what in ``/proc`` and ``/sys`` is the real kernel's is read only.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Thread

import pytest

from tests.peers.broker import free_port
from tests.peers.ssh_beds import PASSWORD, SSHD, SshBed, children, dropbear_root, openssh_root

SECONDS = 60.0
LOOK_SECONDS = 0.02
RIGHTS = ("chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "net_bind_service", "setgid",
          "setpcap", "setuid", "sys_chroot", "sys_boot")  # fmt: skip
"""What root may do in such a machine, as setpriv(1) names it."""

GUARD = (
    '[ $$ = 1 ] && [ "$(readlink /proc/self/ns/pid)" != {ours} ] || {{ echo "in no namespace of its own"; exit 1; }}'
)

MOUNTS = """set -e
mount -t proc proc {root}/proc
mount --bind {root}/proc/sys {root}/proc/sys
mount -o remount,bind,ro {root}/proc/sys
mount --bind {folder}/boot_id {root}/proc/sys/kernel/random/boot_id
[ ! -e {root}/proc/sysrq-trigger ] || mount --bind /dev/null {root}/proc/sysrq-trigger
mount --bind /sys {root}/sys
mount -o remount,bind,ro {root}/sys
mount --bind {root}/dev {root}/dev
mount -t devpts -o newinstance,ptmxmode=0666 pts {root}/dev/pts
mount -t tmpfs -o mode=755 tmpfs {root}/run
mkdir {root}/run/sshd
"""
START = "exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin setpriv --bounding-set {rights} chroot {root} "

SYSTEMD = "/usr/lib/systemd/systemd"
UNITS = {
    "device.target": "[Unit]\nDescription=All that this device is for\nWants=shell.service\n",
    "shell.service": (
        "[Unit]\nDescription=Its SSH server\nDefaultDependencies=no\nConflicts=shutdown.target\n"
        f"Before=shutdown.target\n[Service]\nExecStart={SSHD}\n"
        "StandardOutput=append:/var/log/sshd\nStandardError=append:/var/log/sshd\n"
    ),
}
"""All that is started there: none of the units in this machine's /usr is wanted."""


class Machine:
    """A machine with a disk and a power switch, which is on at first. Its address stays."""

    def __init__(
        self, folder: Path, root: Path, port: int, host_keys: tuple[str, ...], script: str, group: Path | None = None
    ) -> None:
        self.boot_ids: list[str] = []
        """One for each time that it was booted."""
        self.ends: list[int] = []
        """How each of its lives ended: the number of a signal, as a negative one."""
        self.may_boot = Event()
        """A machine that restarts while this is cleared stays down until it is set."""
        self.may_boot.set()
        self.port = port
        self._folder = folder
        self._root = root
        self._host_keys = host_keys
        self._script = script
        self._group = group
        self._server: subprocess.Popen[bytes] | None = None
        self._program: Sequence[str] = ()
        self._started: list[subprocess.Popen[bytes]] = []
        self._switched = Event()
        self._closed = False
        self._lock = Lock()
        self._hardware = Thread(target=self._run, name=f"hardware of {folder.name}")

    @property
    def bed(self) -> SshBed:
        """Its present life, or the last one, as a server that is reached over SSH."""
        assert self._server is not None, "it was on"
        [init] = children(self._server.pid) or [0]
        name, key = "openssh" if self._group is not None else "dropbear", self._folder / "client"
        return SshBed(name, self.port, self._root, self._host_keys, key, PASSWORD, self._server, init)

    @property
    def listens(self) -> bool:
        """Whether its SSH server does."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    @property
    def log(self) -> str:
        """What its first process and its programs said."""
        return "".join(
            path.read_text(errors="replace")
            for path in sorted((*self._folder.glob("*.log"), *self._root.glob("var/log/*")))
        )

    def cut_power(self) -> None:
        """Everything there ends at once. It stays off."""
        assert self._server is not None, "it was on"
        _end(self._server)

    def start(self, words: Sequence[str]) -> None:
        """Run ``outstation`` there with these words, now and at every start, as init would."""
        with self._lock:
            self._program = words
            self._start(self.bed.init)

    def switch_on(self) -> None:
        """Boot it when it is off, or as soon as it is."""
        self._switched.set()

    @contextmanager
    def on(self) -> Iterator[Machine]:
        """The machine, from when it listens for the first time to the end of it."""
        self._hardware.start()
        try:
            self._await_it()
            yield self
        finally:
            with self._lock:
                self._closed = True
                if self._server is not None:
                    _end(self._server)
            self.may_boot.set()
            self._switched.set()
            self._hardware.join(SECONDS)
            assert not self._hardware.is_alive(), self.log

    def _await_it(self) -> None:
        for _ in range(int(SECONDS / LOOK_SECONDS)):
            if self.listens:
                return
            self._hardware.join(LOOK_SECONDS)
            if self.ends and any(word in self.log for word in ("unshare failed", "not permitted", "Read-only")):
                pytest.skip(f"no such machine can be here: {self.log}")
            assert not self.ends, f"{self.ends} {self.log}"
        pytest.fail(f"it does not listen: {self.log}")

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    return
                server = self._server = self._power()
            try:
                self._live(server)
            finally:
                _end(server)
                with self._lock:
                    for each in (server, *self._started):
                        each.wait(SECONDS)
                    self._started = []
                self._swept()
            self.ends.append(server.returncode)
            if server.returncode == -signal.SIGHUP:
                self.may_boot.wait()
            else:
                self._switched.wait()
                self._switched.clear()

    def _power(self) -> subprocess.Popen[bytes]:
        boot_id = str(uuid.uuid4())
        (self._folder / "boot_id").write_text(f"{boot_id}\n")
        if self._group is not None:
            self._group.mkdir()
        # Should the test's process die without a word, so does the machine.
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--pid", "--uts"]
        with (self._folder / "init.log").open("ab") as log:
            server = subprocess.Popen(
                [*words, "--fork", "--kill-child", "sh", "-c", self._script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.boot_ids.append(boot_id)
        return server

    def _live(self, server: subprocess.Popen[bytes]) -> None:
        """Until it ends. Its program begins when its SSH server listens."""
        while server.poll() is None:
            if self.listens:
                with self._lock:
                    for init in children(server.pid) if self._program and not self._started else ():
                        self._start(init)
                server.wait()
            with suppress(subprocess.TimeoutExpired):
                server.wait(LOOK_SECONDS)

    def _start(self, init: int) -> None:
        with (self._folder / "program.log").open("ab") as log:
            self._started += [
                subprocess.Popen(
                    [sys.executable, "-m", "tests.peers.inside", str(init), *self._program],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            ]

    def _swept(self) -> None:
        """Remove the control groups, which are empty."""
        if self._group is not None:
            for place, _, _ in os.walk(self._group, topdown=False):
                Path(place).rmdir()


def _end(server: subprocess.Popen[bytes]) -> None:
    """With its first process, which is buried when all in the namespace have ended."""
    for pid in children(server.pid) or [server.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def busybox_machine(folder: Path) -> Iterator[Machine]:
    """BusyBox alone: its init keeps dropbear up."""
    port = free_port()
    root, keys, command = dropbear_root(folder, port)
    (root / "etc/inittab").write_text(f"::respawn:{command}\n")
    with Machine(folder, root, port, keys, _script(folder, root, MOUNTS, "/bin/init")).on() as machine:
        yield machine


@contextmanager
def systemd_machine(folder: Path) -> Iterator[Machine]:
    """A systemd, with this machine's programs and no units but that of OpenSSH's server."""
    if not Path(SYSTEMD).exists():
        pytest.fail("systemd is not installed: make setup")
    port = free_port()
    root, keys, mounts = openssh_root(folder, port)
    for place in ("local/sbin", "etc/systemd/system", "var/log", "var/tmp"):
        (root / place).mkdir(parents=True, exist_ok=True)
    for name in ("reboot", "poweroff", "halt", "shutdown"):
        (root / "local/sbin" / name).symlink_to("/bin/systemctl")
    for name, text in UNITS.items():
        (root / "etc/systemd/system" / name).write_text(text)
    (root / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")
    group = _own_group() / f"outstation-{uuid.uuid4()}"
    place = shlex.quote(str(root))
    more = [f"mount -t tmpfs -o mode=1777 tmpfs {place}/{at}" for at in ("dev/shm", "run/lock")]
    more += [mounts, f"mount -t cgroup2 cgroup2 {place}/sys/fs/cgroup"]
    inner = _script(
        folder,
        root,
        MOUNTS + "\n".join([f"mkdir -p {place}/dev/shm {place}/run/lock", *more, ""]),
        f"{SYSTEMD} --unit=device.target --log-target=console",
    )
    # In a group of its own, which is the root of all groups there.
    script = f"{guard()}; echo 0 >{group}/cgroup.procs && exec unshare --cgroup sh -c {shlex.quote(inner)}"
    with Machine(folder, root, port, keys, script, group).on() as machine:
        yield machine


def guard() -> str:
    """The first words of a machine's script: they end it where they are not run in a namespace of its own."""
    return GUARD.format(ours=shlex.quote(str(Path("/proc/self/ns/pid").readlink())))


def _script(folder: Path, root: Path, mounts: str, init: str) -> str:
    places = {"root": shlex.quote(str(root)), "folder": shlex.quote(str(folder))}
    rights = ",".join(("-all", *(f"+{name}" for name in RIGHTS)))
    return f"{guard()}\n{mounts.format(**places)}{START.format(rights=rights, **places)}{init}"


def _own_group() -> Path:
    """The control group that this process is in, of those of the second version."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    found = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
    if found is None:
        pytest.skip("there are no control groups of the second version here")
    own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    return found / own.removeprefix("0::/")
