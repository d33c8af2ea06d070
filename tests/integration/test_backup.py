"""Backups of a gateway, taken of real stores while they are written: what is in them, and what stays behind."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

import pytest

from device_agent.errors import ConfigInvalid, StationFailed, UsageInvalid
from tests.peers.backed_up import SECRET, Gateway, again, furnished, unpacked
from tests.peers.database import look, opened_store
from upstream.curve import load_or_make

ADD_EVENT = "INSERT INTO events (tag, data, stamp, site) VALUES (?, zeroblob(2000), 0, '')"


@pytest.fixture
def old(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "old")


@pytest.fixture
async def backup(old: Gateway) -> Path:
    return await furnished(old)


async def test_a_backup_is_one_moment_of_a_store_that_is_being_written(old: Gateway) -> None:
    async with opened_store(old.state) as store:
        # Enough of it that it is copied in many steps.
        await store.writer.commit([(ADD_EVENT, [(f"before/{number}",) for number in range(5000)])])
        load_or_make(old.state / "curve.key")
        (old.state / "trust.keys").write_bytes(b"not looked at")
        loop, steps_seen = asyncio.get_running_loop(), []

        async def one_more() -> None:
            # Both rows, or none.
            await store.writer.commit([(ADD_EVENT, [("pair/a",), ("pair/b",)])])

        def in_between(what: str, part: float) -> None:
            if what == "copying the store" and part < 1:
                steps_seen.append(part)
                asyncio.run_coroutine_threadsafe(one_more(), loop).result(10)

        await asyncio.to_thread(old.take, in_between)
        assert len(steps_seen) > 3
        pairs = dict(store.look("SELECT tag, count(*) FROM events WHERE tag GLOB 'pair/*' GROUP BY tag"))
        assert pairs == {"pair/a": len(steps_seen), "pair/b": len(steps_seen)}
        assert not (old.state / ".backup").exists()
    copy = old.folder / "copy"
    copy.write_bytes(unpacked(old.backup)[1]["station.sqlite"])
    tags = [tag for (tag,) in look(copy, "SELECT tag FROM events")]
    assert sorted(tags) == sorted(f"before/{number}" for number in range(5000))
    assert look(copy, "PRAGMA integrity_check") == [("ok",)]


async def test_what_a_thief_could_use_later_stays_behind(old: Gateway, backup: Path) -> None:
    assert SECRET in (old.state / "station.sqlite").read_bytes()
    listed, files = unpacked(backup)
    assert listed.devices == {"accepted": 2, "pending": 1, "rejected": 1}
    assert listed.has_keys
    assert {"trust.keys", "curve.key", "root-lists", "site-certificate", "settings/main.yaml"} < files.keys()
    assert all(SECRET not in body for body in files.values())
    old.take(with_keys=False, overwrite=True)
    listed, bare = unpacked(backup)
    assert not listed.has_keys
    assert files.keys() - bare.keys() == {"trust.keys", "curve.key", "site-certificate"}
    async with again(old, joined=False) as site:
        for private in (site.authority.signing.private, site.authority.kem.private):
            assert any(private in body for body in files.values())
            assert all(private not in body for body in bare.values())
        assert all(site.authority.curve.secret.encode() not in body for body in bare.values())


async def test_a_backup_is_private_and_replaces_nothing_unasked(old: Gateway, backup: Path) -> None:
    before = backup.read_bytes()
    assert backup.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageInvalid, match="there is a file") as error:
        old.take()
    assert error.value.hint is not None
    assert "--force" in error.value.hint
    for target in (old.folder, old.folder / "none/b.backup"):
        with pytest.raises(UsageInvalid, match="in a folder that exists"):
            old.take(target=target)
    assert backup.read_bytes() == before
    old.take(overwrite=True)
    assert backup.read_bytes() != before
    assert sorted(path.name for path in old.folder.iterdir()) == ["etc", "lisbon.backup", "state"]


async def test_a_backup_that_fails_leaves_nothing_and_the_one_before(old: Gateway, backup: Path) -> None:
    before, files = backup.read_bytes(), old.files()

    def full(what: str, _: float) -> None:
        if what == "encrypting":
            raise OSError(28, "No space left on device")

    with pytest.raises(StationFailed, match="could not be written") as error:
        old.take(full, overwrite=True)
    assert "No space left" in str(error.value)
    (old.state / "station.sqlite").write_bytes(b"no store at all" * 1000)
    with pytest.raises(StationFailed, match="cannot be copied"):
        old.take(overwrite=True)
    (old.state / "station.sqlite").unlink()
    with pytest.raises(ConfigInvalid, match="no store"):
        old.take(overwrite=True)
    with pytest.raises(ConfigInvalid, match="state folder cannot be used"):
        Gateway(old.folder.parent / "nowhere").take(target=backup, overwrite=True)
    assert backup.read_bytes() == before
    assert old.files().keys() == files.keys() - {"station.sqlite"}
    assert sorted(path.name for path in old.folder.iterdir()) == ["etc", "lisbon.backup", "state"]


async def test_one_backup_at_a_time_and_what_a_killed_one_left_goes(old: Gateway, backup: Path) -> None:
    left = old.state / ".backup"
    left.mkdir()
    (left / "raw.sqlite").write_bytes(SECRET)
    held = os.open(left, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(StationFailed, match="another backup"):
        old.take(overwrite=True)
    assert (left / "raw.sqlite").exists()
    os.close(held)
    old.take(overwrite=True)
    assert not left.exists()


async def test_a_gateway_that_never_ran_has_no_keys_to_back_up(old: Gateway) -> None:
    async with opened_store(old.state):
        with pytest.raises(ConfigInvalid, match="no keys yet") as error:
            old.take()
        assert "--without-keys" in str(error.value)
        old.take(with_keys=False)


async def test_a_link_in_the_state_folder_leads_a_backup_nowhere(old: Gateway, backup: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "shadow").write_text("kept")
    (old.state / ".backup").symlink_to(elsewhere)
    with pytest.raises(ConfigInvalid, match="state folder cannot be used"):
        old.take(overwrite=True)
    assert (elsewhere / "shadow").read_text() == "kept"
    assert backup.exists()
