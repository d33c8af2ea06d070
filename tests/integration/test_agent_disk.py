"""Files beside the store on a disk that fails: an agent and a station say which cannot be written, until it can."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest

from device_agent import checks
from device_agent.clock import Clock
from device_agent.config import AgentSettings
from device_agent.errors import Refused
from device_agent.event_file import EventFile
from device_agent.journal_file import FileJournal
from device_agent.outbox import JournalUnavailable
from device_agent.standing import FILE, Standing
from device_agent.state_folder import StateFolder
from gateway.files.store import ContentStore
from gateway.metrics import Metrics
from tests.peers.disk_faults import KINDS, failing_disk
from tests.peers.small_disk import small_disk

KID = b"k" * 8
JID = "20261121031500000000"


def files_finding(folder: Path) -> checks.Finding:
    table = AgentSettings(state_dir=str(folder))
    return next(each for each in checks.every(table, 2e9) if each.check == "files")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "no-memory"])
async def test_a_journal_that_cannot_be_written_is_named_until_it_can(kind: str, tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.take()
    journal = FileJournal(tmp_path / "journal")
    await journal.open()
    standing = Standing(tmp_path, journal.health)
    try:
        standing.say("connected to 192.0.2.1:1884 as cam-1 of lisbon")
        assert files_finding(tmp_path).severity == "ok"
        with failing_disk(os.getpid(), kind, tmp_path / "journal"):
            with pytest.raises(JournalUnavailable):
                await journal.started(JID, "test.ping", KID, 1)
            await journal.flush()
            standing.say("connected to 192.0.2.1:1884 as cam-1 of lisbon")
            said = r"the journal of jobs cannot be written since \d\d:\d\d:\d\d: .+ \(2 writes failed\)"
            assert re.fullmatch(rf"connected to \S+ as cam-1 of lisbon; {said}", await standing.sentence())
            finding = files_finding(tmp_path)
            assert finding.severity == "error"
            assert re.fullmatch(said, finding.finding)
        # Nothing else is written: the next turn of the agent finds out by itself.
        await journal.flush()
        standing.say("connected to 192.0.2.1:1884 as cam-1 of lisbon")
        assert (tmp_path / FILE).read_text() == "connected to 192.0.2.1:1884 as cam-1 of lisbon\n"
        assert files_finding(tmp_path).severity == "ok"
        await journal.started(JID, "test.ping", KID, 1)
    finally:
        await journal.close()
        folder.release()
    again = FileJournal(tmp_path / "journal")
    opened = await again.open()
    await again.close()
    assert (opened.set_aside, opened.interrupted) == (None, [JID])


async def test_a_file_of_events_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    events = EventFile(tmp_path / "events")
    await events.open()
    await events.add("a/tag", b"\x80", 1.0)
    with failing_disk(os.getpid(), "eio-sync", tmp_path / "events"), pytest.raises(JournalUnavailable):
        await events.add("a/tag", b"\x80", 2.0)
    assert events.health.words().startswith("the file of events cannot be written since ")
    await events.add("a/tag", b"\x80", 3.0)
    assert events.health.words() == ""


def test_a_check_finds_a_disk_without_inodes_also_without_an_agent(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", inodes=20) as disk:
        disk.folder.chmod(0o700)
        assert files_finding(disk.folder).severity == "ok"
        for number in range(os.statvfs(disk.folder).f_favail):
            (disk.folder / f"file-{number}").touch()
        finding = files_finding(disk.folder)
        assert finding.severity == "error"
        assert "no inode is left of 20" in finding.finding


async def test_a_cache_of_files_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    store = ContentStore(tmp_path, 2**20, Metrics(Clock()), Clock())
    await store.open()
    sha256 = hashlib.sha256(b"x").hexdigest()
    await store.begin(sha256, 1, hashlib.sha256(b"x").digest())
    (part,) = [path for path in (tmp_path / "parts").rglob("*") if path.is_file() and path.stat().st_size == 1]
    with failing_disk(os.getpid(), "eio-write", part), pytest.raises(Refused, match="disk_failed"):
        await store.put(sha256, 0, b"x")
    assert store.health.words().startswith("the cache of files cannot be written since ")
    await store.put(sha256, 0, b"x")
    assert store.health.words() == ""
