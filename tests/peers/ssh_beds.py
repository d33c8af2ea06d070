"""Real SSH servers as devices: OpenSSH with GNU's programs, dropbear with BusyBox alone, each in its own root.

Each runs in its own mount and process namespaces, so ``/proc``, users, services and mounts in it are its own, and all
it started ends with it. The network is this machine's. What is in ``root`` can be looked at and prepared from outside.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from tests.peers.broker import free_port
from tests.peers.processes import runs

SECONDS = 60.0
LOOK_SECONDS = 0.02
PASSWORD = "made up for the tests"
USERS = {"root": (0, "/root"), "camera": (4100, "/home/camera"), "sshd": (990, "/run/sshd")}
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
PTMX = (5, 2)
WITHOUT = "-sys_time,-sys_boot,-sys_module"
"""What nobody may do on a machine that is set apart."""

_KERNEL = """echo 0 >{0} && mount --bind /proc/sys {1}/proc/sys && mount -o remount,bind,ro {1}/proc/sys && \\
mount --bind {0} {1}/proc/sys/net/ipv4/ip_forward"""
"""The kernel's parameters cannot be changed there, but for one, which is a file."""

SSHD = "/usr/sbin/sshd -D -e -f /etc/ssh/sshd_config"
FOLDERS = ("bin", "dev/pts", "etc", "home", "mnt", "proc", "root", "run/sshd", "sbin", "sys", "tmp", "usr", "var/log")


@dataclass(frozen=True)
class SshBed:
    """A running server. Both users, ``root`` and ``camera``, let in the key, the certificate and the password."""

    name: str
    port: int
    root: Path
    host_keys: tuple[str, ...]
    """The public keys it may show, as "type base64"."""

    client_key: Path
    password: str
    server: subprocess.Popen[bytes]
    init: int
    """The first process of its namespace, seen from outside."""

    async def connect(self, user: str = "root", **options: Any) -> asyncssh.SSHClientConnection:
        """A connection with its host key checked and the key as login."""
        known = asyncssh.import_known_hosts("".join(f"[127.0.0.1]:{self.port} {key}\n" for key in self.host_keys))
        given: dict[str, Any] = {"client_keys": [str(self.client_key)], "known_hosts": known, "config": None}
        return await asyncssh.connect("127.0.0.1", self.port, username=user, **{**given, **options})

    def certificate(self, user: str) -> Path:
        """A certificate of the client's key for this user; its path. Only OpenSSH's server takes it."""
        authority = self.client_key.with_name("authority")
        _made(["ssh-keygen", "-q", "-s", authority, "-I", "test", "-n", user, f"{self.client_key}.pub"])
        return self.client_key.with_name(f"{self.client_key.name}-cert.pub")

    def inside(self, path: str) -> Path:
        """A path of the bed as it is seen from outside, with what is mounted there."""
        return Path(f"/proc/{self.init}/root") / path.lstrip("/")

    def running(self, text: str) -> bool:
        """Whether a process of the bed has this in its command line."""
        listed = (entry for entry in self.inside("proc").iterdir() if entry.name.isdigit())
        found = False
        for entry in listed:
            with suppress(OSError):
                found |= text.encode() in (entry / "cmdline").read_bytes()
        return found

    def sh(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script there, without its server."""
        words = ["nsenter", "-t", str(self.init), "-m", "-u", "-p", "-r", "-w", "/bin/sh", "-c", f"cd /; {script}"]
        path = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        return subprocess.run(words, env=path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def cut(self) -> None:
        """End every connection from the server's side, without a goodbye; what runs there runs on."""
        for pid in children(self.init):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def freeze(self) -> None:
        """Stop every connection where it is: nothing more is answered, and nothing is closed."""
        for pid in children(self.init):
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """As before ``freeze``."""
        for pid in children(self.init):
            os.kill(pid, signal.SIGCONT)

    @contextmanager
    def program(self, name: str, text: str) -> Iterator[None]:
        """Another program under this name. Not with BusyBox's own shell, which finds its own first."""
        place = self.root / ("local/bin" if self.name == "openssh" else "bin") / name
        kept = place.readlink() if place.is_symlink() else None
        place.unlink(missing_ok=True)
        place.write_text(text)
        place.chmod(0o755)
        try:
            yield
        finally:
            place.unlink()
            if kept is not None:
                place.symlink_to(kept)

    def power_cut(self) -> None:
        """End every connection and all that runs there, at once; only the server that listens is there again."""
        while left := _descendants(self.init):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def openssh(folder: Path, *, settings: str = "", port: int = 0) -> Iterator[SshBed]:
    """OpenSSH's server in a root with this machine's programs, read only, and /bin/sh for its users."""
    chosen = port or free_port()
    root, keys, mounts = openssh_root(folder, chosen, settings)
    with _running("openssh", folder, root, mounts, SSHD, chosen, keys) as bed:
        yield bed


@contextmanager
def debian(folder: Path, *, port: int = 0) -> Iterator[SshBed]:
    """OpenSSH's server on this machine's own disk, under a layer that is forgotten."""
    root = _root(folder)
    keys = _keys(folder, root)
    chosen = port or free_port()
    given = folder / "given"
    (given / "ssh").mkdir(parents=True)
    for kind in ("ed25519", "rsa"):
        shutil.copy(folder / f"host_{kind}", given / f"ssh/host_{kind}")
    (given / "ssh/sshd_config").write_text(
        f"Port {chosen}\nListenAddress 127.0.0.1\nHostKey /etc/ssh/host_ed25519\nHostKey /etc/ssh/host_rsa\n"
        "PidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nMaxStartups 1000\nUseDNS no\n"
    )
    home = shlex.quote(f"{root}{USERS['root'][1]}")
    place, layer = shlex.quote(str(root)), shlex.quote(str(folder / "layer"))
    users = "".join(f"grep -q ^{n}: {{0}}/etc/passwd || echo {n}:x:{u}:{u}::{h}:/bin/sh >>{{0}}/etc/passwd; "
                    f"grep -q ^{n}: {{0}}/etc/group || echo {n}:x:{u}: >>{{0}}/etc/group; "
                    for n, (u, h) in USERS.items()).format(place)  # fmt: skip
    mounts = (
        f"mkdir {layer} && mount -t tmpfs tmpfs {layer} && mkdir {layer}/upper {layer}/work {layer}/home && "
        f"cp -a {home}/.ssh {layer}/home/ && "
        f"mount -t overlay overlay -o lowerdir=/,upperdir={layer}/upper,workdir={layer}/work {place} && "
        f"mount --rbind /dev {place}/dev && mount -t tmpfs -o mode=1777 tmpfs {place}/tmp && "
        f"mount -t tmpfs -o mode=700 tmpfs {home} && cp -a {layer}/home/.ssh {home} && "
        f"rm -rf {place}/etc/ssh {place}/etc/outstation && "
        f"sed -i 's,^root:.*,root:x:0:0::/root:/bin/sh,' {place}/etc/passwd && "
        f"cp -a {shlex.quote(str(given))}/ssh {place}/etc/ && mkdir -p {place}/run/sshd && {users} true"
    )
    with _running("openssh", folder, root, mounts, SSHD, chosen, keys, apart=True) as bed:
        yield bed


@contextmanager
def dropbear(
    folder: Path, *, without: tuple[str, ...] = (), options: str = "", port: int = 0, apart: bool = False
) -> Iterator[SshBed]:
    """Dropbear in a root with nothing but BusyBox.

    ``without`` names programs that this device lacks. Its shell is dash then, because BusyBox's own finds all of
    BusyBox wherever it is; programs put into ``/bin`` go before BusyBox's then.
    """
    chosen = port or free_port()
    root, keys, command = dropbear_root(folder, chosen, without, options)
    with _running("dropbear", folder, root, "true", command, chosen, keys, apart=apart) as bed:
        yield bed


def openssh_root(folder: Path, port: int, settings: str = "") -> tuple[Path, tuple[str, ...], str]:
    """The root of a device with OpenSSH's server (``SSHD``), its host keys, and what mounts its programs."""
    root = _root(folder)
    keys = _keys(folder, root)
    for name in ("bin", "sbin", "lib", "lib64"):
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).symlink_to(f"usr/{name}")
    with suppress(OSError):
        shutil.copy("/etc/ld.so.cache", root / "etc")
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nshadow: files\nhosts: files\n")
    (root / "etc/ssh").mkdir(exist_ok=True)
    for kind in ("ed25519", "rsa"):
        shutil.copy(folder / f"host_{kind}", root / f"etc/ssh/host_{kind}")
    shutil.copy(folder / "authority.pub", root / "etc/ssh/authority.pub")
    (root / "etc/ssh/sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey /etc/ssh/host_ed25519\nHostKey /etc/ssh/host_rsa\n"
        "PidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication yes\n"
        "KbdInteractiveAuthentication no\nMaxStartups 1000\nTrustedUserCAKeys /etc/ssh/authority.pub\n"
        f"UseDNS no\nLogLevel VERBOSE\n{settings}\n"
    )
    usr = shlex.quote(str(root / "usr"))
    # /usr/local is the bed's own: a program there goes before the real one.
    (root / "local/bin").mkdir(parents=True, exist_ok=True)
    mounts = (
        f"mount --bind /usr {usr} && mount -o remount,bind,ro {usr} && "
        f"mount --bind {shlex.quote(str(root / 'local'))} {usr}/local"
    )
    return root, keys, mounts


def dropbear_root(
    folder: Path, port: int, without: tuple[str, ...] = (), options: str = ""
) -> tuple[Path, tuple[str, ...], str]:
    """The root of a device with BusyBox alone, its host keys, and the command that is its server."""
    root = _root(folder)
    keys = _keys(folder, root)
    _copied(root, _program("busybox"), "bin/busybox")
    _made(["chroot", root, "/bin/busybox", "--install", "-s", "/bin"])
    if without:
        (root / "bin/sh").unlink()
        _copied(root, _program("dash"), "bin/sh")
    for name in without:
        (root / "bin" / name).unlink()
    # The server is no program of the account's: it stands apart.
    _copied(root, _program("dropbear"), "opt/dropbear/dropbear")
    for kind in ("ed25519", "rsa"):
        source, place = folder / f"host_{kind}", root / f"opt/dropbear/{kind}"
        _made(["dropbearconvert", "openssh", "dropbear", source, place])
    command = (
        f"/opt/dropbear/dropbear -F -E -p 127.0.0.1:{port} -P /run/dropbear.pid {options} "
        "-r /opt/dropbear/ed25519 -r /opt/dropbear/rsa"
    )
    return root, keys, command


def _copied(root: Path, program: str, place: str) -> None:
    """A program, with the libraries that it needs."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout.split()
    for source, target in [(program, place), *((word, word.lstrip("/")) for word in listed if word.startswith("/"))]:
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, root / target)


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin")
    assert found is not None, f"{name} is not installed: make setup"
    return found


def _made(words: Sequence[str | Path]) -> None:
    done = subprocess.run([_program(str(words[0])), *map(str, words[1:])], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"


def _keys(folder: Path, root: Path) -> tuple[str, ...]:
    """Host keys, the client's key and the authority's, and the client's line in both accounts; the host keys' lines."""
    # The old format of a key is what dropbear's converter reads best.
    for name, kind in (
        ("host_ed25519", "ed25519"),
        ("host_rsa", "rsa"),
        ("client", "ed25519"),
        ("authority", "ed25519"),
    ):
        size = ["-b", "2048", "-m", "PEM"] if kind == "rsa" else []
        _made(["ssh-keygen", "-q", "-t", kind, *size, "-N", "", "-C", "test", "-f", folder / name])
    for uid, home in (USERS["root"], USERS["camera"]):
        place = root / home.lstrip("/") / ".ssh"
        place.mkdir(mode=0o700, parents=True)
        shutil.copy(folder / "client.pub", place / "authorized_keys")
        (place / "authorized_keys").chmod(0o600)
        for path in (place.parent, place, place / "authorized_keys"):
            os.chown(path, uid, uid)
    lines = [(folder / f"host_{kind}.pub").read_text().split() for kind in ("ed25519", "rsa")]
    return tuple(" ".join(words[:2]) for words in lines)


def _root(folder: Path) -> Path:
    """What every root has: folders, devices, and the account files."""
    if os.getuid() != 0:
        pytest.skip("a root of its own takes an administrator to make")
    root = folder / "root"
    for name in FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "root").chmod(0o700)
    folder.chmod(0o755)
    for name, number in {**DEVICES, "ptmx": PTMX}.items():
        os.mknod(root / "dev" / name, 0o020666, os.makedev(*number))
        (root / "dev" / name).chmod(0o666)
    word = subprocess.run(
        ["openssl", "passwd", "-6", "-stdin"], input=PASSWORD, capture_output=True, text=True, check=True
    ).stdout.strip()
    etc = root / "etc"
    etc.joinpath("passwd").write_text("".join(f"{n}:x:{u}:{u}::{home}:/bin/sh\n" for n, (u, home) in USERS.items()))
    etc.joinpath("group").write_text("".join(f"{n}:x:{u}:\n" for n, (u, _) in USERS.items()))
    hidden = "".join(f"{n}:{'*' if n == 'sshd' else word}:19000:0:99999:7:::\n" for n in USERS)
    etc.joinpath("shadow").write_text(hidden)
    etc.joinpath("shadow").chmod(0o600)
    etc.joinpath("shells").write_text("/bin/sh\n")
    etc.joinpath("hosts").write_text("127.0.0.1 localhost\n")
    return root


@contextmanager
def _running(
    name: str,
    folder: Path,
    root: Path,
    mounts: str,
    command: str,
    port: int,
    keys: tuple[str, ...],
    *,
    apart: bool = False,
) -> Iterator[SshBed]:
    """``apart``: with a host name of its own, no hand on the kernel, and no right over clock and power."""
    inside = shlex.quote(str(root))
    kernel = f"{_KERNEL.format(shlex.quote(str(folder / 'kernel')), inside)} && hostname throwaway && "
    script = (
        f"{mounts} && mount -t proc proc {inside}/proc && mount -t devpts -o newinstance,ptmxmode=0666 pts "
        f"{inside}/dev/pts && {kernel if apart else ''}exec {f'setpriv --bounding-set {WITHOUT} ' if apart else ''}"
        f"chroot {inside} /bin/sh -c 'PATH=/usr/sbin:/usr/bin:/sbin:/bin exec {command}'"
    )
    # Should the test's process die without a word, so does the bed.
    words = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--uts",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        script,
    ]
    log = folder / "server.log"
    with log.open("wb") as written:
        server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=written, stderr=written)
    try:
        _await_port(server, port, log)
        (init,) = children(server.pid)
        yield SshBed(name, port, root, keys, folder / "client", PASSWORD, server, init)
    finally:
        # Its death is the death of the namespace's first process, and that of all in it.
        server.kill()
        server.wait(SECONDS)


def _await_port(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(int(SECONDS / LOOK_SECONDS)):
        with suppress(subprocess.TimeoutExpired):
            server.wait(LOOK_SECONDS)
            said = log.read_text(errors="replace")
            if "unshare failed" in said or "Operation not permitted" in said:
                pytest.skip(f"no namespaces here: {said}")
            pytest.fail(f"the server ended: {said}")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
    pytest.fail(f"the server does not listen: {log.read_text(errors='replace')}")


def _descendants(pid: int) -> list[int]:
    """Those that have not ended. All in the namespace, for what loses its parent there becomes its first process's."""
    below = [child for child in children(pid) if runs(child)]
    return below + [deeper for child in below for deeper in _descendants(child)]


def children(pid: int) -> list[int]:
    """The children of a process; none of one that is no more."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
