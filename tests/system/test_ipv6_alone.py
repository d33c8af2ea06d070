"""A whole system where ::1 is the only address: uplink by a name, broker, tokens, API, SSH, and `check`."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gateway.cli.key_client import KeyClient
from gateway.devices.ssh_device import host_key_fingerprint
from gateway.rehearsal import Child, program
from tests.chaos.network import available
from tests.peers.namespace import inside, ip, namespace
from tests.peers.ssh_beds import SSHD, openssh_root
from tests.peers.system import QUICK, System

SITES_PORT, BROKER_PORT, ENROLL_PORT, API_PORT, SSH_PORT = 4510, 1884, 1885, 4512, 2222
HOSTS = "::1 localhost central.example\n"
NAMES = "passwd: files\ngroup: files\nhosts: files\n"

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.geteuid() != 0 or not available(), reason="it takes root and network namespaces"),
]


class Ipv6System(System):
    """A system whose processes are in a namespace without IPv4."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def start(self, name: str, words: Sequence[str]) -> Child:
        """Start a process in the namespace."""
        command = list(words) if words[0].startswith("/") else [*program(), *words]
        return super().start(name, [*inside(self.where), *command])

    def establish(self) -> None:
        """A master that is known by a name, and a gateway that it has accepted."""
        self.fleet.add_master("central", self.state_of("central"), address=f"tcp://central.example:{SITES_PORT}")
        self.add_station("central", "master", {"sites": {"listen": f"tcp://[::1]:{SITES_PORT}"}})
        self.fleet.pin(self.state_of("lisbon"))
        key = self.stations["central"].station().public_key
        settings = {
            "masters": [{"address": f"tcp://central.example:{SITES_PORT}", "key": key}],
            "broker": {"host": "::1", "port": BROKER_PORT, "enroll_port": ENROLL_PORT},
            "api": {"listen": f"[::1]:{API_PORT}"},
            **QUICK,
        }
        self.add_station("lisbon", "gateway", settings)
        self.join("lisbon", "central")

    def add_agent_by_token(self, name: str) -> None:
        """An agent with a token whose address the gateway has chosen."""
        token = KeyClient(self.stations["lisbon"]).new_tokens({"uses": 1, "name": name})[0].text
        (self.folder / f"{name}.token").write_text(token, encoding="ascii")
        self.add_agent(name, "lisbon")

    def add_ssh_device(self, name: str) -> None:
        """OpenSSH in a root of its own, at ::1."""
        folder = self.temporary() / name
        folder.mkdir()
        root, keys, mounts = openssh_root(folder, SSH_PORT, "ListenAddress ::1")
        place = shlex.quote(str(root))
        script = f"{mounts} && mount -t proc proc {place}/proc && exec chroot {place} {SSHD}"
        self.start(
            name, ["/usr/bin/unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
                   "sh", "-c", script]
        )  # fmt: skip
        row = f"{name},::1,{SSH_PORT},root,{folder / 'client'},{host_key_fingerprint(keys[0])}"
        file = self.folder / "devices.csv"
        file.write_text(f"name,address,port,user,key_file,fingerprint\n{row}\n", encoding="ascii")
        self.command("devices", "import", str(file), station="lisbon", status=0)


@pytest.fixture
def system() -> Iterator[Ipv6System]:
    with namespace("ipv6", {"hosts": HOSTS, "nsswitch.conf": NAMES}) as where:
        ip("-n", where, "addr", "del", "127.0.0.1/8", "dev", "lo")
        with Ipv6System(where) as started:
            yield started
            # A process that is the first of its namespace takes no SIGTERM.
            started.stop("cam-ssh", signal.SIGKILL)


def test_a_system_works_with_ipv6_alone(system: Ipv6System, tmp_path: Path) -> None:
    system.establish()
    system.add_agent_by_token("cam-agent")
    system.add_ssh_device("cam-ssh")
    system.present(2, "lisbon", "central")
    ended = system.ended("central", system.issue("central", "cam-*", "test.ping"))
    assert ended.words() == {"cam-agent": "ok", "cam-ssh": "ok"}
    findings = [
        json.loads(line)
        for line in system.command("check", "--json", station="lisbon", status=0).out.split("\n")
        if line
    ]
    uplink = [each for each in findings if each["check"] == "uplink"]
    assert [(each["severity"], each["finding"]) for each in uplink] == [
        ("ok", f"connected to tcp://central.example:{SITES_PORT}, 0 items to send")
    ]
    # The API, from where ::1 is.
    token = tmp_path / "token"
    token.write_text(system.command("operators", "new", "ada", "--role", "admin", station="lisbon", status=0).out)
    token.chmod(0o600)
    words = ["--api", f"http://[::1]:{API_PORT}", "--token-file", str(token), "devices", "list"]
    done = subprocess.run([*inside(system.where), *program(), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    assert "cam-agent" in done.stdout
    # At rest: the ports can be opened, and a way to the master is found.
    system.stop("lisbon")
    words = [*program(), "check", "--all", "--json", "--config", str(system.folder / "lisbon.yaml")]
    done = subprocess.run([*inside(system.where), *words], capture_output=True, text=True, check=False)
    found = {(each["check"], each["severity"]) for each in map(json.loads, done.stdout.splitlines())}
    assert {("ports", "ok"), ("uplink", "ok"), ("broker", "ok")} <= found, done.stdout
