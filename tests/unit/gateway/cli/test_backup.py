"""gateway/cli/backup.py: what is said of a backup that was taken, and of one that was put back."""

from __future__ import annotations

import json
import os
import pty
import select
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gateway.backup.archive import Cost, SealedReader, read_header
from gateway.fleet.station_files import StationFiles
from gateway.store.migrate import migrate
from tests.peers.database import look
from tests.unit.gateway.cli.conftest import ROOT, Shell
from upstream.curve import load_or_make

PASSPHRASE = "correct horse battery staple"
ENROLLED = (
    "INSERT INTO enrolled (did, state, name, place, sig, kem, serial, model, address, certificate, password_hash,"
    " password_next, asked, spent, proof, unproven, token, accepted_by, first_seen, last_seen, detail)"
    " VALUES (?, 'accepted', ?, ?, x'', x'', '', '', '', x'', '', '', x'', x'', 'token', 0, '', 'alice', 0, 0, '')"
)


@pytest.fixture(autouse=True)
def _cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.backup.archive.Cost.__init__.__defaults__", (1, 8, 1))
    assert Cost() == Cost(1, 8, 1)


@pytest.fixture
def passphrase(tmp_path: Path) -> str:
    path = tmp_path / "passphrase"
    path.write_text(f"{PASSPHRASE}\n")
    path.chmod(0o600)
    return f"--passphrase-file={path}"


@pytest.fixture
def config(tmp_path: Path) -> str:
    """The settings of a gateway with a dozen devices."""
    state = tmp_path / "state"
    state.mkdir()
    migrate(state / "station.sqlite")
    StationFiles(state).keys()
    load_or_make(state / "curve.key")
    with closing(sqlite3.connect(state / "station.sqlite")) as connection, connection:
        connection.executemany(ENROLLED, [(f"did{number}", f"cam-{number:02}", number) for number in range(12)])
    path = tmp_path / "gateway.yaml"
    path.write_text(f"name: lisbon\nstate_dir: {state}\n")
    return f"--config={path}"


def test_a_backup_says_what_is_in_it_and_how_to_keep_it(
    shell: Shell, tmp_path: Path, config: str, passphrase: str
) -> None:
    target = tmp_path / "lisbon.backup"
    finished = shell.here("gateway", "backup", config, passphrase, str(target))
    assert finished.status == 0
    size = f"{target.stat().st_size / 1e3:,.0f} kB"
    assert finished.out.splitlines() == [
        f"backed up lisbon to {target}, {size}",
        "devices:     12 accepted",
        "keys:        in it",
    ]
    assert "the passphrase apart from it" in finished.error
    again = shell.here("gateway", "backup", config, passphrase, str(target))
    assert (again.status, again.out) == (2, "")
    assert "--force" in again.error
    bare = shell.here("gateway", "backup", "--without-keys", "--force", "--json", config, passphrase, str(target))
    fields = json.loads(bare.out)
    assert fields.pop("taken") > 0
    assert fields.pop("release")
    assert fields == {
        "type": "backup",
        "file": str(target),
        "bytes": target.stat().st_size,
        "site": "lisbon",
        "keys": False,
        "devices": {"accepted": 12},
    }


def test_a_restore_says_what_is_there_now_and_what_comes_next(
    shell: Shell, tmp_path: Path, config: str, passphrase: str
) -> None:
    target, state = tmp_path / "lisbon.backup", tmp_path / "state"
    assert shell.here("gateway", "backup", config, passphrase, str(target)).status == 0
    refused = shell.here("gateway", "restore", config, passphrase, str(target))
    assert (refused.status, refused.out) == (6, "")
    assert "something in the state folder" in refused.error
    finished = shell.here("gateway", "restore", "--force", config, passphrase, str(target))
    assert finished.status == 0
    first, *rest = finished.out.splitlines()
    assert first.startswith("restored lisbon as it was at 20")
    facts = dict(line.split(":", 1) for line in rest)
    names = ", ".join(f"cam-{number:02}" for number in range(10))
    assert facts["names"].strip() == f"{names} and 2 more"
    assert facts["devices"].strip() == "12 accepted"
    assert facts["keys"].strip() == "those of the backup"
    assert Path(facts["moved aside"].strip()).is_dir()
    assert "must never run again" in finished.error
    assert "must be revoked again" in finished.error
    assert "sites revoke" not in finished.error
    (who,) = look(state / "station.sqlite", "SELECT user FROM audit WHERE action = 'gateway.restore'")
    assert who[0]


def test_new_keys_are_named_with_the_two_words_that_are_due_on_a_master(
    shell: Shell, tmp_path: Path, config: str, passphrase: str
) -> None:
    target = tmp_path / "lisbon.backup"
    assert shell.here("gateway", "backup", config, passphrase, str(target)).status == 0
    line = ("gateway", "restore", "--force", "--new-keys", config, passphrase, str(target))
    finished = shell.here(*line)
    fingerprint = next(part for part in finished.out.splitlines() if part.startswith("fingerprint")).split()[-1]
    assert "new ones" in finished.out
    assert "outstation sites revoke lisbon" in finished.error
    assert f"outstation keys accept lisbon --fingerprint {fingerprint}" in finished.error
    fields = json.loads(shell.here(*line, "--json").out)
    assert fields["type"] == "restored"
    assert fields["new_keys"]
    assert fields["names"] == [f"cam-{number:02}" for number in range(12)]
    assert fields["fingerprint"] != fingerprint


def test_a_wrong_passphrase_is_said_to_be_wrong(shell: Shell, tmp_path: Path, config: str, passphrase: str) -> None:
    target = tmp_path / "lisbon.backup"
    assert shell.here("gateway", "backup", config, passphrase, str(target)).status == 0
    (tmp_path / "passphrase").write_text("incorrect horse battery\n")
    finished = shell.here("gateway", "restore", "--force", config, passphrase, str(target))
    assert (finished.status, finished.out) == (2, "")
    assert "not the passphrase of this backup" in finished.error
    assert "horse" not in finished.error


def test_the_passphrase_is_typed_twice_and_nobody_sees_it(shell: Shell, tmp_path: Path, config: str) -> None:
    target = tmp_path / "lisbon.backup"
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "gateway.cli.main", "gateway", "backup", config, str(target)]
    with subprocess.Popen(
        command, cwd=ROOT, env=shell.environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        screen = read_until(ours, b"passphrase of the backup: ")
        os.write(ours, f"{PASSPHRASE}\n".encode())
        screen += read_until(ours, b"the same again: ")
        os.write(ours, f"{PASSPHRASE}\n".encode())
        screen += read_until(ours, b"apart from it")
        assert process.wait(60) == 0
    os.close(ours)
    assert b"horse" not in screen
    with target.open("rb") as file:
        SealedReader(file, read_header(file, "b"), PASSPHRASE.encode(), "b").read(1)
    # In a pipe nobody can be asked.
    assert "--passphrase-file" in shell.run("gateway", "restore", "--force", config, str(target)).error


def read_until(descriptor: int, words: bytes) -> bytes:
    """What comes on a terminal, up to these words."""
    screen = b""
    while words not in screen:
        ready, _, _ = select.select([descriptor], [], [], 30)
        assert ready, screen
        screen += os.read(descriptor, 65_536)
    return screen


def test_what_is_no_backup_is_said_before_the_passphrase_is_asked_for(
    shell: Shell, tmp_path: Path, config: str
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("name: lisbon\n")
    finished = shell.here("gateway", "restore", "--force", config, str(wrong))
    assert (finished.status, finished.out) == (2, "")
    assert finished.error.startswith("error: this is no backup")
