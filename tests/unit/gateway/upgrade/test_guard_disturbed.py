"""The guard among others: told to stop, another package manager, another upgrade, somebody who leaves a version."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gateway.upgrade import withdraw as withdrawing
from gateway.upgrade.guard import LOCKED, Guard, Pause, Stopped
from gateway.upgrade.judging import INSTALLED, Limits, Unit
from gateway.upgrade.record import PREVIOUS, Record, read, write, write_if_same
from tests.peers.clock import HandClock
from tests.unit.gateway.upgrade.test_guard import GATEWAY, Machine

RECORD = Record(id="a", state="watching", before="1", after="2", at=0.0, units=(GATEWAY,), rollbacks=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / PREVIOUS).write_bytes(b"a package")
    write(tmp_path, RECORD)
    return tmp_path


@pytest.fixture
def pause() -> Iterator[Pause]:
    before = signal.getsignal(signal.SIGTERM)
    yield Pause()
    signal.signal(signal.SIGTERM, before)


@dataclass
class Stopping(Machine):
    """One that is told to stop while dpkg puts the package back."""

    def put_back(self, file: Path) -> tuple[bool, str]:
        os.kill(os.getpid(), signal.SIGTERM)
        return super().put_back(file)


@pytest.mark.parametrize("works", [True, False])
def test_told_to_stop_it_finishes_what_dpkg_does_and_goes_on_at_its_next_start(
    works: bool, folder: Path, pause: Pause
) -> None:
    write(folder, RECORD.now("rolling_back", 1.0, "it failed"))
    machine = Stopping(healthy=set(), dpkg_works=works)
    with pytest.raises(Stopped):
        Guard(folder, machine, HandClock(), pause).run()
    assert machine.version == ("1" if works else "2")
    left = read(folder)
    assert left is not None
    assert left.state == "rolling_back"
    # The next boot: what is in its place already is not put back again, and what failed is.
    again = Machine(version=machine.version)
    clock = HandClock()
    ended = Guard(folder, again, clock, clock.move).run()
    assert ended is not None
    assert ended.state == "rolled_back"
    assert (f"install {PREVIOUS}" in again.did) == (not works)


@dataclass
class Contended(Machine):
    """One where another package manager is quicker, so many times."""

    others: int = 3

    def put_back(self, file: Path) -> tuple[bool, str]:
        if self.others:
            self.others -= 1
            self.did.append("locked")
            return False, f"dpkg: error: dpkg frontend lock was {LOCKED} with pid 7"
        return super().put_back(file)


def test_a_lock_that_another_took_is_waited_for_as_long_as_the_limit(folder: Path) -> None:
    clock = HandClock()
    machine = Contended()
    ended = Guard(folder, machine, clock, clock.move).run()
    assert ended is not None
    assert ended.state == "rolled_back"
    assert machine.did[:4] == ["locked", "locked", "locked", f"install {PREVIOUS}"]


@dataclass
class Taken(Contended):
    """One where the package manager that came between never ends."""

    def is_busy(self) -> bool:
        return "locked" in self.did


def test_a_package_manager_that_never_ends_is_told_in_the_end(folder: Path) -> None:
    clock = HandClock()
    machine = Taken(others=9)
    ended = Guard(folder, machine, clock, clock.move, Limits(package=60.0)).run()
    assert ended is not None
    assert ended.state == "failed"
    assert LOCKED in ended.reason


@dataclass
class Overtaken(Machine):
    """One where another upgrade begins just before the guard writes down how this one ended."""

    folder: Path = Path()

    def allow_again(self) -> None:
        if "allow again" not in self.did:
            write(self.folder, replace(RECORD, id="b", after="3", before="2"))
            self.version = "3"
        super().allow_again()


def test_the_end_of_one_upgrade_is_not_written_over_the_next(folder: Path) -> None:
    clock = HandClock()
    machine = Overtaken(healthy={"1", "2", "3"}, folder=folder)
    ended = Guard(folder, machine, clock, clock.move).run()
    assert ended is not None
    assert (ended.id, ended.state, ended.after) == ("b", "healthy", "3")
    assert not write_if_same(folder, RECORD)
    assert read(folder) == ended


@dataclass
class Left(Machine):
    """One where somebody leaves the new version as it is, while it is looked at."""

    folder: Path = Path()

    def unit(self, name: str) -> Unit:
        withdrawing.withdraw(self.folder, HandClock(), withdrawing.LEFT)
        return super().unit(name)


def test_a_version_that_somebody_leaves_is_judged_neither_now_nor_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock()
    machine = Left(healthy=set(), folder=folder)
    ended = Guard(folder, machine, clock, clock.move).run()
    assert ended is not None
    assert (ended.state, ended.reason, machine.status) == ("withdrawn", withdrawing.LEFT, INSTALLED)
    assert machine.did == []
    write(folder, RECORD)
    monkeypatch.setattr(withdrawing, "FOLDER", folder)
    assert withdrawing.main(["--leave"]) == 0
    assert Guard(folder, machine, clock, clock.move).run() == read(folder)
    assert machine.did == []
    # By hand it is told when it came to nothing.
    write(folder, RECORD)
    (folder / "upgrade.json.new").mkdir()
    assert withdrawing.main(["--leave"]) == 1
