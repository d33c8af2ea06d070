"""gateway/checks/clock.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.checks import clock
from gateway.checks.clock import at_rest, check
from tests.unit.gateway.checks.conftest import Told, a_box

NOW = 1_900_000_000.0
"""After this release was made."""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose clock nothing sets."""
    monkeypatch.setattr(clock, "TIMESYNC", tmp_path / "timesync")
    monkeypatch.setattr(clock, "SYNCHRONIZED", tmp_path / "timesync" / "synchronized")
    monkeypatch.setattr(clock, "OTHERS", (str(tmp_path / "chronyd.pid"),))
    monkeypatch.setattr(clock, "CONTAINER", tmp_path / "container")
    return tmp_path


@pytest.mark.parametrize(
    ("there", "severity", "said", "fix"),
    [
        ("timesync/synchronized", "ok", "set by systemd-timesyncd", ""),
        ("chronyd.pid", "ok", "set by chronyd", ""),
        ("container", "ok", "set by the machine around this container", ""),
        ("timesync/clock", "warning", "no time server has answered since the start", "timedatectl timesync-status"),
        ("nothing", "warning", "nothing sets this clock", "apt install systemd-timesyncd"),
    ],
)
async def test_it_says_who_sets_the_clock(
    there: str, severity: str, said: str, fix: str, machine: Path, facts: Told
) -> None:
    path = machine / there
    path.parent.mkdir(exist_ok=True)
    path.touch()
    facts.of_box, facts.time = a_box(machine, wall=NOW), NOW
    (finding,) = await check(facts)
    assert (finding.severity, finding.fix.startswith(fix), bool(finding.fix)) == (severity, True, bool(fix))
    assert finding.finding.startswith("2030-03-17T17:46:40Z, ")
    assert finding.finding.endswith(said)
    assert ("drifts" in finding.meaning) == (severity != "ok")


async def test_a_clock_behind_what_was_certainly_signed_is_wrong(machine: Path, facts: Told) -> None:
    facts.of_box, facts.time = a_box(machine, wall=NOW), NOW + 61
    (finding,) = await check(facts)
    assert finding.severity == "error"
    assert finding.finding == (
        "the clock says 2030-03-17T17:46:40Z, and 2030-03-17T17:47:41Z was certainly reached before"
    )
    assert "not yet valid" in finding.meaning
    assert finding.fix.startswith("timedatectl set-ntp true")


def test_a_clock_in_1970_is_wrong_without_any_station(machine: Path) -> None:
    (finding,) = at_rest(a_box(machine, wall=12.0))
    assert finding.severity == "error"
    assert finding.finding.startswith("the clock says 1970-01-01T00:00:12Z, and 20")
    assert finding.finding.endswith("is when this release was made")


def test_without_a_station_what_it_kept_as_passed_counts(machine: Path) -> None:
    box = a_box(machine, wall=NOW)
    box.state_dir.mkdir()
    (box.state_dir / "time-floor").write_text(f"{int(NOW) + 3600}\n", encoding="ascii")
    (finding,) = at_rest(box)
    assert (finding.severity, "was certainly reached before" in finding.finding) == ("error", True)
