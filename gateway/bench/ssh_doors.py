"""Where the devices of ``bench ssh`` are: played by asyncssh's own server, or one real sshd with an account for all."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncssh

from device_agent.errors import StationFailed
from gateway.bench.trust_process import Side
from gateway.rehearsal import Rehearsal, accepts, free_ports

BENCH: Final = "ssh"
HOST: Final = "127.0.0.1"
PROCESSES: Final = 2
"""That play devices."""

SEPARATION: Final = Path("/run/sshd")
SSHD_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Doors:
    """The places of all devices, the key that opens every door, and the key that every device shows."""

    places: list[tuple[str, int]]
    user: str
    client_key: Path
    host_key: Path
    sides: list[Side]

    @property
    def shown_key(self) -> str:
        """The host key, as OpenSSH writes it."""
        return self.host_key.with_suffix(".pub").read_text(encoding="ascii").strip()

    @property
    def fingerprint(self) -> str:
        """Of the host key."""
        return asyncssh.import_public_key(self.shown_key).get_fingerprint()


def doors(stack: ExitStack, rehearsal: Rehearsal, devices: int, *, sshd: bool, say: Callable[[str], None]) -> Doors:
    """Open them, for as long as the stack lasts. Raises ``StationFailed``."""
    say("opening the devices' doors")
    user = pwd.getpwuid(os.getuid()).pw_name
    client_key, host_key = (_new_key(rehearsal.folder / name) for name in ("client_key", "host_key"))
    if sshd:
        port = _sshd(rehearsal, client_key, host_key)
        return Doors([(HOST, port)] * devices, user, client_key, host_key, [])
    script = str(Path(__file__).with_name("ssh_devices.py"))
    places: list[tuple[str, int]] = []
    sides = []
    for number in range(PROCESSES):
        # -I: an isolated interpreter sees neither the folder it was started in nor the user's packages.
        side = stack.enter_context(Side(f"devices {number + 1}", ["-I", script], bench=BENCH))
        count = devices * (number + 1) // PROCESSES - devices * number // PROCESSES
        opened = side.ask(count=count, host_key=str(host_key), client_key=f"{client_key}.pub")
        places += [(HOST, port) for port in opened["ports"]]
        sides.append(side)
    return Doors(places, user, client_key, host_key, sides)


def _new_key(path: Path) -> Path:
    key = asyncssh.generate_private_key("ssh-ed25519")
    path.touch(mode=0o600)
    key.write_private_key(path)
    key.write_public_key(path.with_suffix(".pub"))
    return path


def _sshd(rehearsal: Rehearsal, client_key: Path, host_key: Path) -> int:
    """OpenSSH's own server for whoever runs the benchmark; its port."""
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        raise StationFailed("sshd is not installed", error_id="bench.no_sshd", hint="apt install openssh-server")
    (port,) = free_ports(1)
    settings = rehearsal.folder / "sshd_config"
    settings.write_text(
        f"Port {port}\nListenAddress {HOST}\nHostKey {host_key}\nAuthorizedKeysFile {client_key}.pub\n"
        "PidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nUseDNS no\n"
        "KbdInteractiveAuthentication no\nMaxStartups 1000\nLogLevel ERROR\n"
        # Markers of jobs go into the folder of the rehearsal, and not into the home of the user who runs it.
        f"SetEnv HOME={rehearsal.folder}\n",
        encoding="utf-8",
    )
    words = [program, "-D", "-e", "-f", str(settings)]
    if os.getuid() == 0 and not SEPARATION.is_dir():
        # Where no sshd is a service the folder that it wants is missing: it gets one that nobody else sees.
        script = f'mount -t tmpfs none {SEPARATION.parent} && mkdir {SEPARATION} && exec "$@"'
        words = ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", script, "sh", *words]
    rehearsal.start("sshd", words)
    rehearsal.wait_until(lambda: accepts(HOST, port), SSHD_SECONDS, "sshd accepts connections")
    return port
