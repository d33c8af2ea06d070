"""A site server with Salt becomes a gateway: one command, and what it wrote starts and takes its devices."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from gateway.rehearsal import program
from tests.peers.broker import free_port
from tests.peers.finished import Finished
from tests.peers.salt_box import SECRETS, SaltBox, salt_box
from tests.peers.system import ROOT, SECONDS, System

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBZ2MvkLaQfW3vZ0jW6QhA9Mw1jGZ4bQyZgYVQXh4m4R"
"""Made for these tests; nobody has its private half."""

HOSTS = ("192.0.2.21", "[192.0.2.22]:2222", "[192.0.2.23]:2222", "many-7.example", "192.0.2.51", "192.0.2.52")


def typed(box: SaltBox, *words: str, status: int = 0) -> Finished:
    """The command on this box."""
    done = subprocess.run(
        [*program(), "gateway", "import-salt", "--salt", str(box.salt), *words],
        cwd=ROOT,
        capture_output=True,
        timeout=SECONDS,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == status, done
    assert [secret for secret in SECRETS if secret in done.stdout + done.stderr] == []
    return Finished(done.returncode, done.stdout, done.stderr)


def everything(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_gateway_starts_with_what_came_of_salt_and_takes_its_devices(system: System) -> None:
    box = salt_box(system.folder / "box")
    box.write("etc/salt/roster", f"rec-1: {{host: 192.0.2.51, user: root, passwd: {SECRETS[3]}}}\n")
    known = box.write("known_hosts", "".join(f"{host} {HOST_KEY}\n" for host in HOSTS))
    etc = system.folder / "etc"
    config = etc / "gateway.yaml"

    before = everything(box.root)
    typed(box, "--config", str(config), "--known-hosts", str(known), "--dry-run")
    assert not etc.exists()
    done = typed(box, "--config", str(config), "--known-hosts", str(known), "--json")
    assert everything(box.root) == before
    *findings, summary = [json.loads(line) for line in done.out.splitlines()]
    assert {each["type"] for each in findings} == {"finding"}
    assert summary["done"]
    assert summary["ssh"] == 5
    inventory = etc / "salt-import" / "ssh-devices.yaml"
    assert stat.S_IMODE(inventory.stat().st_mode) == 0o600
    written = {path: text for path, text in everything(etc).items() if path != "salt-import/ssh-devices.yaml"}
    assert [secret for secret in SECRETS if secret in str(written)] == []

    refused = typed(box, "--config", str(config), status=2)
    assert "nothing is ever replaced" in refused.error
    assert everything(etc) == {**written, "salt-import/ssh-devices.yaml": inventory.read_text()}

    places = {"state_dir": str(system.state_of("lisbon")), "socket": str(system.socket_of("lisbon"))}
    broker = {"host": "127.0.0.1", "port": free_port(), "enroll_port": free_port()}
    piece = etc / "gateway.d" / "90-places.yaml"
    piece.write_text(yaml.safe_dump({**places, "broker": broker}))
    system.fleet.certify(system.state_of("lisbon"), "lisbon")
    system.start("lisbon", ["gateway", "run", "--config", str(config)])
    system.answering("lisbon")
    system.command("devices", "match", "-N", "doors", station="lisbon", status=0)
    imported = system.command("devices", "import", str(inventory), "--json", station="lisbon", status=0)
    *devices, told = [json.loads(line) for line in imported.out.splitlines()]
    assert {each["name"] for each in devices} == {"cam-1", "cam-2", "cam-3", "many-7", "rec-1"}
    assert told["added"] == 5


def test_a_file_that_is_wrong_stops_the_writing_unless_it_is_left_out(tmp_path: Path) -> None:
    box = salt_box(tmp_path / "box")
    bad = box.write("etc/salt/minion.d/zz.conf", "a: [1\nb: 2\n")
    out = tmp_path / "out"
    refused = typed(box, "--out", str(out), status=6)
    assert f"{bad}:2" in refused.error
    assert not out.exists()
    typed(box, "--out", str(out), "--skip-bad", status=1)
    assert yaml.safe_load((out / "gateway.yaml").read_text())["name"] == "lisbon"
    assert f"{bad}:2" in (out / "report.txt").read_text()
