"""A package that is taken away leaves no upgrade under way behind."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from gateway.upgrade import withdraw as withdrawing
from gateway.upgrade.guard import Guard
from gateway.upgrade.record import PREVIOUS, UNDER_WAY, Record, read, write
from tests.house.tree import ROOT
from tests.peers.clock import HandClock
from tests.unit.gateway.upgrade.test_guard import GATEWAY, Machine

RECORD = Record(id="a", state="watching", before="1", after="2", at=0.0, units=(GATEWAY,), rollbacks=3)


@pytest.mark.parametrize("state", UNDER_WAY)
def test_an_installation_after_it_is_not_judged_by_the_upgrade_before(state: str, tmp_path: Path) -> None:
    (tmp_path / PREVIOUS).write_bytes(b"a package")
    write(tmp_path, RECORD.now(state, 1.0))
    clock = HandClock()
    withdrawing.withdraw(tmp_path, clock)
    ended = read(tmp_path)
    assert ended == RECORD.now("withdrawn", clock.wall(), withdrawing.WHY)
    # The next boot, with a version that is not healthy: nothing is put back.
    machine = Machine(version="3")
    assert Guard(tmp_path, machine, clock, clock.move).run() == ended
    assert machine.did == []


def test_what_was_decided_stays_and_where_nothing_was_nothing_is(tmp_path: Path) -> None:
    withdrawing.withdraw(tmp_path, HandClock())
    assert list(tmp_path.iterdir()) == []
    decided = RECORD.now("rolled_back", 1.0, "sick")
    write(tmp_path, decided)
    withdrawing.withdraw(tmp_path, HandClock())
    assert read(tmp_path) == decided


def test_a_record_that_cannot_be_written_keeps_no_package_from_being_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, RECORD)
    (tmp_path / "upgrade.json.new").mkdir()
    monkeypatch.setattr(withdrawing, "FOLDER", tmp_path)
    assert withdrawing.main() == 0
    assert "cannot be written" in capsys.readouterr().err


def test_the_package_runs_modules_that_exist_before_it_goes() -> None:
    text = (ROOT / "debian" / "outstation.prerm").read_text(encoding="utf-8")
    asked = re.findall(r"-m (gateway\.\S+)", text)
    assert asked == ["gateway.upgrade.keep", "gateway.upgrade.withdraw"]
    assert all(find_spec(module) is not None for module in asked)
