"""Backups that are not put back, what is kept of what was there before, and whose settings count."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from device_agent.errors import ConfigInvalid, StationFailed, UsageInvalid
from device_agent.settings import load
from gateway.backup import contents
from gateway.backup.refusals import BackupRefused
from gateway.config import StationSettings
from gateway.store.migrate import steps
from tests.house.tree import ROOT
from tests.peers.backed_up import PASSPHRASE, SECRET, Gateway, furnished, packed, unpacked
from tests.peers.database import opened_store


@pytest.fixture
def old(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "old")


@pytest.fixture
def new(tmp_path: Path) -> Gateway:
    """New hardware: there are settings, and nothing else."""
    gateway = Gateway(tmp_path / "new")
    gateway.configure()
    return gateway


@pytest.fixture
async def backup(old: Gateway) -> Path:
    return await furnished(old)


def refusal(gateway: Gateway, source: Path, passphrase: bytes = PASSPHRASE) -> BackupRefused:
    """Why it is not put back; nothing has changed by it."""
    before = sorted(gateway.folder.rglob("*"))
    with pytest.raises(BackupRefused) as error:
        gateway.put_back(source, passphrase)
    assert sorted(gateway.folder.rglob("*")) == before
    assert all((error.value.found, error.value.allowed, error.value.hint))
    return error.value


async def test_a_folder_that_is_not_empty_is_moved_aside_only_when_asked(new: Gateway, backup: Path) -> None:
    async with opened_store(new.state):
        pass
    (new.state / "trust.keys").write_bytes(b"made by a fresh install")
    before = new.files()
    with pytest.raises(ConfigInvalid, match="something in the state folder") as error:
        new.put_back(backup)
    assert "--force" in str(error.value)
    assert new.files().items() - before.items() == {("lock", b"")}
    restored = new.put_back(backup, force=True)
    assert restored.aside is not None
    assert (restored.aside / "trust.keys").read_bytes() == b"made by a fresh install"
    assert restored.aside.name == "state.before-restore-20261121T031500Z"
    again_restored = new.put_back(backup, force=True)
    assert again_restored.aside is not None
    assert again_restored.aside.name == "state.before-restore-20261121T031500Z-2"


async def test_a_station_that_runs_is_not_pulled_from_under_its_feet(new: Gateway, backup: Path) -> None:
    new.state.mkdir()
    with (new.state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UsageInvalid, match="is running") as error:
            new.put_back(backup, force=True)
        assert "systemctl stop" in str(error.value)
    new.put_back(backup)


async def test_a_restored_folder_is_nobodys_until_the_restore_has_ended(new: Gateway, backup: Path) -> None:
    new.put_back(backup)
    with (new.state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_what_a_killed_restore_left_goes_and_one_that_runs_is_respected(new: Gateway, backup: Path) -> None:
    left = new.folder / ".state.restoring"
    (left / "settings-from-backup").mkdir(parents=True)
    (left / "trust.keys").write_bytes(SECRET)
    with (left / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StationFailed, match="another backup is being restored"):
            new.put_back(backup)
    assert (left / "trust.keys").exists()
    new.put_back(backup)
    assert not left.exists()


async def test_another_sites_backup_is_not_put_in_the_place_of_a_named_site(new: Gateway, backup: Path) -> None:
    new.site = "porto"
    new.configure()
    refused = refusal(new, backup)
    assert refused.reason == "other_site"
    assert "lisbon" in str(refused)
    assert "porto" in str(refused)


async def test_a_wrong_passphrase_and_damage_change_nothing(new: Gateway, backup: Path) -> None:
    assert refusal(new, backup, b"incorrect horse battery staple").reason == "passphrase"
    body = backup.read_bytes()
    wrong = new.folder / "wrong.backup"
    reasons = {}
    for what, changed in {
        "cut in the middle": body[: len(body) // 2],
        "cut at its end": body[:-1],
        "one bit in the store": body[:-20_000] + bytes([body[-20_000] ^ 1]) + body[-19_999:],
        "more at its end": body + b"\n",
        "a text": b"name: lisbon\n" * 100,
        "nothing": b"",
    }.items():
        wrong.write_bytes(changed)
        reasons[what] = refusal(new, wrong).reason
    assert reasons == {
        "cut in the middle": "damaged",
        "cut at its end": "damaged",
        "one bit in the store": "damaged",
        "more at its end": "damaged",
        "a text": "not_a_backup",
        "nothing": "not_a_backup",
    }
    with pytest.raises(UsageInvalid, match="cannot be read"):
        new.put_back(new.folder / "none.backup")


async def test_a_backup_of_a_newer_release_is_named_as_one(new: Gateway, backup: Path) -> None:
    listed, files = unpacked(backup)
    newest = steps()[-1][0]
    packed(replace(listed, schema=newest + 1), files, backup)
    refused = refusal(new, backup)
    assert refused.reason == "newer"
    assert f"schema {newest + 1}" in str(refused)
    # Also when only the store itself says so.
    copy = new.folder / "newer.sqlite"
    copy.write_bytes(files["station.sqlite"])
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute(f"PRAGMA user_version = {newest + 1}")
        # And that no release before it can go on with it.
        connection.execute(f"PRAGMA application_id = {newest + 1}")
    body = copy.read_bytes()
    entries = (*listed.files[:-1], contents.Entry("station.sqlite", len(body)))
    packed(replace(listed, files=entries), {**files, "station.sqlite": body}, backup)
    assert f"schema {newest + 1}" in str(refusal(new, backup))


async def test_a_store_that_was_damaged_when_it_was_backed_up_is_not_put_back(new: Gateway, backup: Path) -> None:
    listed, files = unpacked(backup)
    store = bytearray(files["station.sqlite"])
    store[5 * 4096 : 7 * 4096] = os.urandom(2 * 4096)
    packed(listed, {**files, "station.sqlite": bytes(store)}, backup)
    assert refusal(new, backup).reason == "bad_store"


async def test_root_lists_that_prove_nothing_are_not_put_back(new: Gateway, backup: Path) -> None:
    listed, files = unpacked(backup)
    changed = bytearray(files["root-lists"])
    changed[-1] ^= 1
    packed(listed, {**files, "root-lists": bytes(changed)}, backup)
    with pytest.raises(ConfigInvalid, match="prove nothing"):
        new.put_back(backup)
    assert not new.state.exists()
    assert not (new.folder / ".state.restoring").exists()


# --- settings ---------------------------------------------------------------------------------------------------------


async def test_where_there_are_no_settings_those_of_the_backup_are_written(
    old: Gateway, backup: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policies/policy.yaml"
    policy.parent.mkdir()
    policy.write_text("users: {alice: admin}\n")
    old.configure(policy=str(policy))
    pieces = old.config.parent / "gateway.d"
    pieces.mkdir()
    (pieces / "10 port.yaml").write_text("broker: {port: 2884, password: secret}\n")
    old.take(overwrite=True)
    old.state.rename(tmp_path / "burnt")
    old.config.parent.rename(tmp_path / "burnt too")
    policy.unlink()
    elsewhere = replace(old, folder=tmp_path / "new")
    elsewhere.folder.mkdir()
    restored = elsewhere.put_back(backup)
    assert restored.settings_written
    # The settings say where its state is.
    assert restored.folder == old.state
    assert (old.state / "trust.keys").exists()
    piece = elsewhere.config.parent / "gateway.d/10 port.yaml"
    assert piece.read_text() == "broker: {port: 2884, password: secret}\n"
    assert piece.stat().st_mode & 0o777 == 0o640
    assert policy.read_text() == "users: {alice: admin}\n"


async def test_a_box_that_has_just_been_installed_gets_the_settings_of_the_backup_laid_over_its_own(
    old: Gateway, backup: Path, tmp_path: Path
) -> None:
    installed = (ROOT / "packaging/settings/gateway.yaml").read_text()
    old.configure(log_level="debug", broker={"port": 2884})
    before = old
    # And again, from the backup of what was restored.
    for box in (Gateway(tmp_path / "new"), Gateway(tmp_path / "newer")):
        before.take(overwrite=True)
        old.state.rename(box.folder.with_name(f"burnt before {box.folder.name}"))
        box.config.parent.mkdir(parents=True)
        box.config.write_text(installed)
        restored = box.put_back(before.backup)
        assert (restored.settings_written, restored.folder) == (True, old.state)
        assert box.config.read_text() == installed
        settings = load(StationSettings, box.config)
        assert (settings.name, settings.log_level) == ("lisbon", "debug")
        assert settings.broker is not None
        assert (settings.broker.mode, settings.broker.port) == ("service", 2884)
        assert {piece.stat().st_mode & 0o777 for piece in (box.config.parent / "gateway.d").iterdir()} == {0o640}
        before = box


async def test_settings_that_are_there_stay_and_the_backups_lie_beside(
    old: Gateway, new: Gateway, backup: Path
) -> None:
    new.configure(log_level="debug")
    before = new.config.read_text()
    restored = new.put_back(backup)
    assert not restored.settings_written
    assert new.config.read_text() == before
    assert (new.state / "settings-from-backup/gateway.yaml").read_text() == old.config.read_text()


async def test_a_backup_without_settings_needs_some(old: Gateway, new: Gateway, backup: Path) -> None:
    old.config.rename(old.folder / "elsewhere.yaml")
    listed, files = unpacked(backup)
    files.pop("settings/main.yaml")
    packed(replace(listed, files=tuple(e for e in listed.files if e.name in files)), files, backup)
    new.config.unlink()
    with pytest.raises(UsageInvalid, match="no settings"):
        new.put_back(backup)
    new.configure()
    new.put_back(backup)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hand files over")
async def test_what_root_restores_belongs_to_the_user_of_the_gateway(new: Gateway, backup: Path) -> None:
    new.state.mkdir()
    os.chown(new.state, 65_534, 65_534)
    new.put_back(backup)
    found = {(path.stat().st_uid, path.stat().st_gid) for path in (new.state, *new.state.rglob("*"))}
    assert found == {(65_534, 65_534)}
