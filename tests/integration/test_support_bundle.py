"""The archive for support: of a station with secrets in every place that holds one, and none of them is in it."""

from __future__ import annotations

import asyncio
import json
import os
import tarfile
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import asyncssh
import pytest

from device_agent.clock import Clock
from device_agent.errors import StationFailed, UsageInvalid
from gateway.api.server import ApiServer
from gateway.cli.main import main
from gateway.cli.support import _ask
from gateway.devices.doors import TokenWish
from gateway.devices.ssh_secrets import Secret
from gateway.support import bundle as bundles
from gateway.support.bundle import gather, station_of, write_bundle
from tests.peers.canaries import Canary, found_in
from tests.peers.ssh_site import ALICE, ssh_site

PLACES = (
    "broker password",
    "smtp password",
    "webhook header",
    "webhook secret",
    "webhook url",
    "pillar url",
    "pillar header",
    "file source",
    "engine option",
    "grains of the station",
    "pillar file",
    "ssh password",
    "ssh passphrase",
    "schedule argument",
    "a job's argument",
)


class Canaries:
    """A secret for each place."""

    def __init__(self) -> None:
        self.all = {place: Canary(place) for place in PLACES}

    def __getitem__(self, place: str) -> str:
        return self.all[place].text

    def in_settings(self, folder: Path) -> Path:
        """Settings with a secret in each that takes one, in two files."""
        main_file = folder / "etc/gateway.yaml"
        pieces = folder / "etc/gateway.d"
        pieces.mkdir(parents=True)
        (folder / "pillar").mkdir()
        (folder / "pillar/top.sls").write_text("base: {'*': [all]}\n")
        (folder / "pillar/all.sls").write_text(f"password: {self['pillar file']}\n")
        settings = {
            "name": "lisbon",
            "state_dir": str(folder / "state"),
            "socket": str(folder / "api.sock"),
            "broker": {"mode": "external", "username": "gw", "password": self["broker password"]},
            "smtp": {"from": "a@b.example", "to": "c@d.example", "host": "mail", "password": self["smtp password"]},
            "pillar_roots": {"base": [str(folder / "pillar")]},
            "file_roots": {"base": [f"https://alice:{self['file source']}@git.example/x"]},
            "engines": [{"tail": {"path": "/x", "password": self["engine option"]}}],
            "station": {"grains": {"door code": self["grains of the station"]}},
            "schedule": {"night": {"function": "cmd.run", "args": [f"login {self['schedule argument']}"], "hours": 1}},
        }
        main_file.write_text(json.dumps(settings))
        (pieces / "50-more.yaml").write_text(
            json.dumps(
                {
                    "webhook": {
                        "url": f"https://x:{self['webhook url']}@hooks.example/",
                        "headers": {"X-Api": self["webhook header"]},
                        "secret": self["webhook secret"],
                    },
                    "pillar": {"ext": [{"http": f"https://u:{self['pillar url']}@cmdb/?k={self['pillar header']}"}]},
                }
            )
        )
        return main_file

    def log(self) -> str:
        """A journal in which all that the settings know was written by somebody, in one way after another."""
        lines = []
        for number, place in enumerate(PLACES[:10]):
            forms = [
                self[place],
                quote(f"{self[place]}&x"),
                *(form.decode() for form in self.all[place].forms() if form.isascii()),
            ]
            lines += [f"2026-11-23T18:00:{number:02} lisbon outstation[1]: said {form} there" for form in forms]
        return "\n".join(lines)


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


@pytest.fixture(autouse=True)
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canaries: Canaries) -> None:
    """A machine whose journal says what a test says; and nothing is read of what belongs to the real machine."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "journal").write_text(canaries.log() + "\nthe last line of the log\n")
    program = programs / "journalctl"
    program.write_text(f"#!/bin/sh\ncat {tmp_path / 'journal'}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr("gateway.support.machine.FOLDERS", (tmp_path / "etc",))
    monkeypatch.setattr("gateway.upgrade.record.FOLDER", tmp_path / "cache")


def unpacked(archive: Path) -> dict[str, bytes]:
    """Every file of it, without the folder around them."""
    with closing(tarfile.open(archive)) as tar:
        found = {}
        for entry in tar.getmembers():
            file = tar.extractfile(entry)
            assert file is not None
            found[entry.name.partition("/")[2]] = file.read()
        return found


async def test_nothing_secret_is_in_it_whether_the_station_runs_or_not(tmp_path: Path, canaries: Canaries) -> None:
    config = canaries.in_settings(tmp_path)
    key = asyncssh.generate_private_key("ssh-ed25519")
    host_key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    private = key.export_private_key().decode()
    typed: list[str] = []
    archives = []
    async with ssh_site(tmp_path / "state") as site:
        by_word = Secret(password=canaries["ssh password"])
        by_key = Secret(private_key=private, passphrase=canaries["ssh passphrase"])
        await site.add("cam-1", 9, (host_key,), by_word)
        await site.add("cam-2", 9, (host_key,), by_key)
        text, _ = await site.rooms.tokens.make("alice", None, 3600.0, "root")
        (made,) = await site.site.enrollment.doors.new_tokens(TokenWish(name="cam-9"), ALICE)
        typed += [text, site.site.enrollment.doors.text(made)]
        operations = site.rooms.operations(asyncio.Event())
        async with ApiServer(tmp_path / "api.sock", operations, on_stop=lambda: None):
            with (tmp_path / "journal").open("a") as log:
                log.write(f"typed {typed[0]}\ntyped {typed[1]}\n{private}\nthe last line of the log\n")
            archives.append(await asyncio.to_thread(bundled, config, tmp_path / "running.tar.gz"))
    archives.append(await asyncio.to_thread(bundled, config, tmp_path / "stopped.tar.gz"))
    running, stopped = map(unpacked, archives)
    state = {
        path.name: path.read_bytes() for path in (tmp_path / "state").iterdir() if path.suffix in (".key", ".keys")
    }
    assert state
    for pieces in (running, stopped):
        for name, body in pieces.items():
            assert not found_in(canaries.all.values(), body), name
            for secret in (*typed, *private.splitlines()[1:-1]):
                assert secret.encode() not in body, name
            for file, secret_bytes in state.items():
                assert secret_bytes.strip() not in body, (name, file)
                assert secret_bytes.hex().encode() not in body, (name, file)
        assert b"the last line of the log" in pieces["log.txt"]
        assert json.loads(pieces["gateway/settings.json"])["name"] == "lisbon"
        assert json.loads(pieces["gateway/settings.json"])["pillar_roots"] == "(not shown)"
        assert json.loads(pieces["gateway/store.json"])["ledger"]
        assert b"50-more.yaml" in pieces["files.txt"]
        assert b"station.sqlite" in pieces["files.txt"]
        assert json.loads(pieces["versions.json"])["sqlite"]
    assert json.loads(running["gateway/ledger.json"])["classes"]
    assert json.loads(running["gateway/check.json"])["findings"]
    assert b"outstation_events_total" in running["gateway/metrics.txt"]
    assert json.loads(stopped["about.json"])["missing"]["gateway/station.json"] == "no station answers"


def bundled(config: Path, target: Path) -> Path:
    bundle = gather([station_of("gateway", config)], _ask, Clock(), 2000)
    write_bundle(bundle, target, force=False)
    return target


def test_broken_settings_and_a_missing_state_folder_leave_the_rest(tmp_path: Path, canaries: Canaries) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(f"broker: {{password: {canaries['broker password']}\nname: [")
    pieces = unpacked(bundled(config, tmp_path / "x.tar.gz"))
    assert "(wrong)" in json.loads(pieces["gateway/settings.json"])
    assert not [
        name for name, body in pieces.items() if canaries["broker password"].encode() in body and name != "log.txt"
    ]
    assert "gateway/store.json" in json.loads(pieces["about.json"])["missing"]
    assert "log.txt" in pieces


def test_the_archive_is_its_owners_alone_and_replaces_nothing_unasked(tmp_path: Path) -> None:
    bundle = bundles.Bundle("name", {"a.txt": b"1"})
    target = tmp_path / "x.tar.gz"
    assert write_bundle(bundle, target, force=False) == target.stat().st_size
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageInvalid, match="there already"):
        write_bundle(bundle, target, force=False)
    write_bundle(bundle, target, force=True)
    with pytest.raises(StationFailed, match="could not be written"):
        write_bundle(bundle, tmp_path / "nowhere/x.tar.gz", force=False)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "etc/gateway.yaml"
    config.parent.mkdir()
    config.write_text(f"name: lisbon\nstate_dir: {tmp_path / 'nothing'}\nsocket: {tmp_path / 'no.sock'}\n")
    target = tmp_path / "made.tar.gz"
    assert main(["support-bundle", "--config", str(config), "--out", str(target), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["bytes"] == target.stat().st_size
    assert said["missing"]["gateway/station.json"] == "no station answers"
    assert main(["support-bundle", "--config", str(config), "--out", str(target)]) == 2
