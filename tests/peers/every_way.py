"""One machine with OpenSSH and one with BusyBox alone, each there twice: one for an agent, one for its SSH server.

The two of a kind are made alike and prepared alike, so that a function has one right answer on both. What may differ
all the same is in the tables of ``answers_alike.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from device_agent.ended import Ended
from device_agent.protocol.messages import DeviceOutcome
from gateway.cli.views import OutcomeView
from gateway.devices.ssh_device import host_key_fingerprint
from gateway.rehearsal import join_token
from tests.peers.ssh_beds import SshBed, debian, dropbear
from tests.peers.system import System

SITE = "lisbon"
KEPT = "/kept"
CLEAN = (
    f"for place in /etc /tmp /srv /home /var/spool/cron; do rm -rf $place/* $place/.[!.]*; done; "
    f"mkdir -p /etc /tmp /srv /home; chmod 1777 /tmp; cp -a {KEPT}/etc/. /etc/; cp -a {KEPT}/home/. /home/; "
    "rm -rf ~/.ssh/id_*; hostname throwaway"
)
AT_ONCE = 24
"""Jobs under way at once; a device takes 64."""


@dataclass(frozen=True)
class Ways:
    """The system, its machines by the names of their devices, and what is asked of all of them."""

    system: System
    beds: dict[str, SshBed]

    def each(self, do: Callable[[str, SshBed], Any]) -> dict[str, Any]:
        """Do something to all machines at once; what came of it by name."""
        with ThreadPoolExecutor(len(self.beds)) as pool:
            return dict(zip(self.beds, pool.map(do, self.beds, self.beds.values()), strict=True))

    def sh(self, script: str) -> dict[str, tuple[int, str]]:
        """Run a script on all machines; how it ended and what it printed, by name."""

        def run(_: str, bed: SshBed) -> tuple[int, str]:
            done = bed.sh(script)
            return done.returncode, done.stdout.rstrip() if not done.returncode else done.stdout + done.stderr

        return self.each(run)

    def clean(self) -> None:
        """Every machine as it was at the start."""
        self.sh(CLEAN)

    def ask(
        self, calls: Sequence[tuple[str, list[Any], dict[str, Any]]], names: Iterable[str] = ()
    ) -> list[dict[str, Ended]]:
        """What these calls come to on each of these machines, or on all; many are under way at once."""
        asked = sorted(names) or list(self.beds)
        found: list[dict[str, Ended]] = []
        for start in range(0, len(calls), AT_ONCE):
            jids = [
                self.system.issue("central", ",".join(asked), fun, *arg, kwarg=kwarg, tgt_type="list")
                for fun, arg, kwarg in calls[start : start + AT_ONCE]
            ]
            for jid in jids:
                outcomes = self.system.ended("central", jid).by_device()
                assert sorted(outcomes) == sorted(asked)
                found.append({name: ended(outcomes[name]) for name in asked})
        return found


def ended(outcome: OutcomeView) -> Ended:
    """An outcome in the words of whoever ran the function."""
    said = msgspec.convert(outcome.outcome, DeviceOutcome)
    return Ended(outcome.value, outcome.retcode or 0, said, outcome.why or "")


def add_inside(system: System, name: str, bed: SshBed) -> None:
    """A real agent that lives on this machine."""
    system.start(name, [*inside(bed), "agent", "run", "--config", placed(system, name, bed)])


def add_swarm_inside(system: System, devices: int, bed: SshBed, prefix: str) -> list[str]:
    """Many agents in one process that lives on this machine; their names."""
    token = join_token(system.stations[SITE], uses=devices)
    system.start(prefix, [*inside(bed), "swarm", "--devices", str(devices), "--token", token, "--prefix", prefix])
    return [f"{prefix}{number:05d}" for number in range(devices)]


def inside(bed: SshBed) -> list[str]:
    """The words that run ``outstation`` on a machine."""
    return [sys.executable, "-m", "tests.peers.inside", str(bed.init)]


def placed(system: System, name: str, bed: SshBed) -> str:
    """Write an agent's settings where it lives; their path there."""
    folder = "/var/lib/outstation-test"
    bed.inside(folder).mkdir(parents=True, exist_ok=True)
    token = join_token(system.stations[SITE], uses=1, name=name)
    bed.inside(f"{folder}/token").write_text(token, encoding="ascii")
    lines = {"serial": name, "token_file": f"{folder}/token", "state_dir": f"{folder}/state", "drain_seconds": "0.5"}
    bed.inside(f"{folder}/agent.yaml").write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    return f"{folder}/agent.yaml"


def add_over_ssh(system: System, folder: Path, names: dict[str, SshBed]) -> None:
    """Devices over SSH, as an operator brings in many: from a file."""
    rows = [
        f"{name},127.0.0.1,{bed.port},root,{bed.client_key},{host_key_fingerprint(bed.host_keys[0])}"
        for name, bed in names.items()
    ]
    file = folder / f"{next(iter(names))}.csv"
    file.write_text("\n".join(["name,address,port,user,key_file,fingerprint", *rows, ""]))
    system.command("devices", "import", str(file), station=SITE, status=0)


@contextmanager
def machines(folder: Path) -> Iterator[dict[str, SshBed]]:
    """Two machines of each kind, by the names of the devices that they are."""
    with ExitStack() as stack:
        beds = {
            "whole-agent": stack.enter_context(debian(folder / "whole-agent")),
            "whole-ssh": stack.enter_context(debian(folder / "whole-ssh")),
            "small-agent": stack.enter_context(dropbear(folder / "small-agent", apart=True)),
            "small-ssh": stack.enter_context(dropbear(folder / "small-ssh", apart=True)),
        }
        for bed in beds.values():
            done = bed.sh(f"mkdir -p {KEPT}; mkdir -p /etc /home; cp -a /etc /home {KEPT}/")
            assert done.returncode == 0, done
        yield beds
