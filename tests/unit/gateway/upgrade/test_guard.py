"""The guard on a machine that is made up: what it does once it has decided, and that it does it once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gateway.upgrade import keep as keeping
from gateway.upgrade import machine as real
from gateway.upgrade.guard import Guard
from gateway.upgrade.judging import INSTALLED, Limits, Unit
from gateway.upgrade.record import PREVIOUS, Record, read, write
from gateway.upgrade.repack import NotKept
from tests.peers.clock import HandClock

GATEWAY = "outstation-gateway.service"
GOOD = Unit("active", "running", pid=7)
FAILED = Unit("failed", "failed", "exit-code")


@dataclass
class Machine:
    """A machine with a package and a unit, healthy in some versions."""

    version: str = "2"
    healthy: set[str] = field(default_factory=lambda: {"1"})
    dpkg_works: bool = True
    booted: bool = True
    status: str = INSTALLED
    did: list[str] = field(default_factory=list)

    def package(self) -> tuple[str, str]:
        return self.status, self.version

    def is_busy(self) -> bool:
        return False

    def is_booted(self) -> bool:
        return self.booted

    def unit(self, name: str) -> Unit:
        if name != GATEWAY:
            return Unit("inactive", "dead")
        return GOOD if self.version in self.healthy else FAILED

    def command(self, words: Sequence[str], seconds: float = 0.0) -> tuple[int, str]:
        self.did.append(" ".join(words))
        return 0, ""

    def put_back(self, file: Path) -> tuple[bool, str]:
        self.did.append(f"install {file.name}")
        if self.dpkg_works:
            self.status, self.version = INSTALLED, "1"
        return self.dpkg_works, "dpkg: error" if not self.dpkg_works else ""

    def set_up(self) -> tuple[bool, str]:
        self.did.append("set up")
        if self.dpkg_works:
            self.status = INSTALLED
        return self.dpkg_works, ""

    def pack(self, file: Path) -> None:
        self.did.append(f"pack {file.name}")
        if not self.dpkg_works:
            raise NotKept("a file is damaged")
        file.write_bytes(b"packed again")

    def start(self, units: Sequence[str]) -> None:
        self.did.append(f"start {' '.join(units)}")

    def turn_away(self, version: str) -> None:
        self.did.append(f"turn away {version}")

    def allow_again(self) -> None:
        self.did.append("allow again")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / PREVIOUS).write_bytes(b"a package")
    write(tmp_path, Record(id="a", state="watching", before="1", after="2", at=0.0, units=(GATEWAY,), rollbacks=3))
    return tmp_path


def guarded(folder: Path, machine: Machine) -> Record:
    clock = HandClock()
    ended = Guard(folder, machine, clock, clock.move, Limits()).run()
    assert ended is not None
    assert ended == read(folder)
    return ended


def test_a_healthy_version_stays(folder: Path) -> None:
    machine = Machine(healthy={"1", "2"})
    ended = guarded(folder, machine)
    assert (ended.state, ended.after, ended.rollbacks) == ("healthy", "2", 3)
    assert machine.did == ["allow again"]


def test_a_sick_version_gives_way_to_the_one_before_it_once(folder: Path) -> None:
    machine = Machine()
    ended = guarded(folder, machine)
    assert (ended.state, ended.before, ended.after) == ("rolled_back", "1", "2")
    assert (ended.rollbacks, ended.rejected) == (4, ("2",))
    assert ended.reason == f"{GATEWAY} failed (exit-code)"
    assert machine.did == [f"install {PREVIOUS}", "turn away 2", f"start {GATEWAY}"]
    # A second start of the guard, as at the next boot, does nothing more.
    assert guarded(folder, machine) == ended
    assert len(machine.did) == 3


def test_a_version_before_it_that_does_not_run_either_is_told_and_left(folder: Path) -> None:
    machine = Machine(healthy=set())
    ended = guarded(folder, machine)
    assert (ended.state, ended.rollbacks, ended.rejected) == ("rolled_back", 4, ())
    # The version that came was not to blame, so apt may take it.
    assert machine.did[-1] == "allow again"
    assert "1 is back and does not run either" in ended.reason


def test_a_package_that_cannot_be_put_back_is_tried_once_and_told(folder: Path) -> None:
    machine = Machine(dpkg_works=False)
    ended = guarded(folder, machine)
    assert ended.state == "failed"
    assert "could not be put back: dpkg: error" in ended.reason
    assert machine.did == [f"install {PREVIOUS}", f"start {GATEWAY}"]


def test_a_machine_that_went_down_while_it_was_put_back_goes_on_where_it_was(folder: Path) -> None:
    record = read(folder)
    assert record is not None
    write(folder, replace(record, state="rolling_back", attempts=1, reason="it failed"))
    assert guarded(folder, Machine()).state == "rolled_back"
    # And one that goes down every time is left alone.
    write(folder, replace(record, state="rolling_back", attempts=2, reason="it failed"))
    machine = Machine()
    assert guarded(folder, machine).state == "failed"
    assert machine.did == []


def test_a_kept_package_that_is_gone_is_told(folder: Path) -> None:
    (folder / PREVIOUS).unlink()
    machine = Machine()
    assert guarded(folder, machine).state == "failed"
    assert machine.did == []


def test_a_machine_that_went_down_before_the_new_version_was_set_up_sets_it_up(folder: Path) -> None:
    machine = Machine(healthy={"1", "2"}, status="install ok half-configured")
    assert guarded(folder, machine).state == "healthy"
    assert machine.did == ["set up", "allow again"]


def test_one_that_went_down_while_files_were_replaced_has_the_version_before_and_blames_nobody(folder: Path) -> None:
    machine = Machine(version="1", status="install reinstreq half-installed")
    ended = guarded(folder, machine)
    assert (ended.state, ended.rollbacks, ended.rejected) == ("withdrawn", 3, ())
    assert ended.reason.endswith("; 1 is whole again")
    assert machine.did == [f"install {PREVIOUS}", f"start {GATEWAY}"]


def test_one_that_went_down_while_the_version_before_was_packed_packs_it_again(folder: Path) -> None:
    record = read(folder)
    assert record is not None
    for works, state in ((True, "withdrawn"), (False, "failed")):
        write(folder, replace(record, state="keeping"))
        machine = Machine(version="1", status="install reinstreq half-configured", dpkg_works=works)
        assert guarded(folder, machine).state == state
        assert machine.did[0] == f"pack {PREVIOUS}"
        assert (machine.status == INSTALLED) == works
    # A package manager that gave up by itself left it whole.
    write(folder, replace(record, state="keeping"))
    machine = Machine(version="1")
    assert guarded(folder, machine).state == "withdrawn"
    assert machine.did == []


def test_a_machine_that_goes_down_every_time_is_left_alone(folder: Path) -> None:
    record = read(folder)
    assert record is not None
    write(folder, replace(record, attempts=2))
    machine = Machine(version="1", status="install reinstreq half-installed")
    assert guarded(folder, machine).state == "failed"
    assert machine.did == []


# --- what the package that goes does ----------------------------------------------------------------------------------


def kept(folder: Path, coming: str, machine: Machine, pack: object = None) -> str:
    def written(package: str, target: Path) -> None:
        target.write_text(f"{package} {machine.version}")

    return keeping.keep(coming, folder, HandClock(), looks=machine, pack=pack or written)  # type: ignore[arg-type]  # a stand-in of any shape


def test_the_package_that_goes_keeps_itself_and_has_the_guard_look_on(tmp_path: Path) -> None:
    machine = Machine(version="1")
    folder = tmp_path / "cache"
    assert "1 is kept in" in kept(folder, "2", machine)
    record = read(folder)
    assert record is not None
    assert (record.state, record.before, record.after, record.units) == ("watching", "1", "2", (GATEWAY,))
    assert (folder / PREVIOUS).read_text() == "outstation 1"
    assert machine.did == [f"systemctl start {keeping.GUARD}"]


def test_a_version_that_was_not_found_healthy_does_not_become_the_way_back(folder: Path) -> None:
    machine = Machine(version="2")
    assert "the way back stays 1" in kept(folder, "3", machine)
    record = read(folder)
    assert record is not None
    assert (record.before, record.after, record.units) == ("1", "3", (GATEWAY,))
    assert (folder / PREVIOUS).read_bytes() == b"a package"


def test_the_same_version_again_and_a_return_by_hand_keep_nothing(folder: Path) -> None:
    assert kept(folder, "2", Machine(version="2")) == ""
    assert "comes back by hand" in kept(folder, "1", Machine(version="2"))
    assert (folder / PREVIOUS).read_bytes() == b"a package"


def test_what_cannot_be_kept_is_no_way_back_and_stops_no_upgrade(tmp_path: Path) -> None:
    (tmp_path / PREVIOUS).write_bytes(b"an older one")

    def full(package: str, target: Path) -> None:
        raise NotKept("1 MiB free, 150 MiB wanted")

    machine = Machine(version="1")
    assert "no way back: 1 MiB free" in kept(tmp_path, "2", machine, full)
    assert not (tmp_path / PREVIOUS).exists()
    assert machine.did == []


def test_while_it_is_packed_the_record_says_so_and_a_try_that_came_to_nothing_leaves_the_one_before(
    folder: Path,
) -> None:
    seen: list[str] = []

    def looked(package: str, target: Path) -> None:
        record = read(folder)
        assert record is not None
        seen.append(f"{record.state} {record.before} {record.after}")
        raise NotKept("1 MiB free, 150 MiB wanted")

    record = read(folder)
    assert record is not None
    write(folder, record.now("healthy", 1.0))
    assert "no way back" in kept(folder, "3", Machine(version="2", healthy={"2"}), looked)
    assert seen == ["keeping 2 3"]
    assert read(folder) == record.now("healthy", 1.0)


def test_without_systemd_or_with_nothing_running_nobody_judges(tmp_path: Path) -> None:
    assert "nobody judges 2" in kept(tmp_path, "2", Machine(version="1", booted=False))
    assert "nobody judges 2" in kept(tmp_path, "2", Machine(version="1", healthy=set()))
    assert read(tmp_path) is None


def test_while_the_guard_puts_a_package_back_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(keeping, "FOLDER", tmp_path)
    assert keeping.main(["1"], {real.ROLLBACK_VARIABLE: "1"}) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_is_no_record_is_none(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    for body in ("", "[]", "{}", '{"state": "healthy"}'):
        (tmp_path / "upgrade.json").write_text(body)
        assert read(tmp_path) is None


def test_version_and_state_of_this_machine_can_be_asked() -> None:
    assert not real.is_busy() or real.is_busy()
    assert real.unit("outstation-nothing-of-this-name.service").active in {"missing", "unknown"}
