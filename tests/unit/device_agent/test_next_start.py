"""device_agent/next_start.py: the pause before the next start of a unit that fails again and again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from device_agent import next_start
from device_agent.next_start import FAILURES, START_SECONDS, Failures, failed, is_failure, pause, rest
from device_agent.notify import Notifier
from tests.peers.clock import HandClock
from tests.peers.notified import played_supervisor

BOOT = "one"
CRASH = {"SERVICE_RESULT": "signal", "EXIT_CODE": "killed", "EXIT_STATUS": "SEGV"}
ENDED = {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "1"}
WRONG_SETTINGS = ENDED | {"EXIT_STATUS": "6"}
STOPPED = {"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": "0"}
UNIT = "outstation-gateway.service"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The state folder of the unit."""
    made = tmp_path / "gateway"
    made.mkdir()
    return made


def test_the_pause_grows_to_five_minutes_and_stays_there() -> None:
    assert [pause(count) for count in range(1, 9)] == [5, 10, 20, 40, 80, 160, 300, 300]
    assert pause(10**9) == 300


def test_failures_in_a_row_are_counted_until_a_run_was_long() -> None:
    first = failed(None, BOOT, 100.0)
    assert (first.count, rest(first, BOOT, 105.0)) == (1, 0.0)
    second = failed(first, BOOT, 108.0)
    assert (second.count, rest(second, BOOT, 113.0)) == (2, 5.0)
    # It started at 118 and worked for almost ten minutes, and then for ten.
    assert failed(second, BOOT, 717.9).count == 3
    assert failed(second, BOOT, 718.0).count == 1


def test_a_restart_of_the_machine_forgets() -> None:
    kept = Failures(BOOT, 9, 100.0)
    assert rest(kept, "two", 105.0) == 0.0
    assert failed(kept, "two", 101.0).count == 1
    # Where the boot has no name: the machine has not run for so long.
    assert failed(kept, BOOT, 99.0).count == 1


def test_the_unit_says_which_boot_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_start, "BOOT_ID", folder / "hidden")
    place, clock = {"STATE_DIRECTORY": str(folder)} | CRASH, HandClock()
    for boot, counted in (("one", 1), ("one", 2), ("two", 1)):
        next_start.ended(UNIT, place | {"OUTSTATION_BOOT": boot}, clock)
        kept = Failures.of((folder / FAILURES).read_text().rstrip())
        assert kept is not None
        assert (kept.boot, kept.count) == (boot, counted)


@pytest.mark.parametrize("since", [0.0, 4.9, 65.0, 4000.0])
def test_who_types_a_start_does_not_wait(since: float) -> None:
    assert rest(Failures(BOOT, 7, 100.0), BOOT, 100.0 + since) == 0.0


def test_what_systemd_starts_again_waits_for_the_rest() -> None:
    kept = Failures(BOOT, 7, 100.0)
    assert rest(kept, BOOT, 105.0) == 295.0
    # On a slow machine it came later, and waits less.
    assert rest(kept, BOOT, 125.0) == 275.0


def test_an_end_that_was_asked_for_and_wrong_settings_are_no_failures() -> None:
    assert [is_failure(end) for end in (CRASH, ENDED, WRONG_SETTINGS, STOPPED, {})] == [True, True, False, False, False]


@pytest.mark.parametrize("text", ["", "none", "one two 3", "one 1", "one 1 nan x", "one 0 3", "one -1 3", "\x00" * 500])
def test_a_damaged_file_says_nothing(text: str) -> None:
    assert Failures.of(text) is None


def test_what_is_kept_is_read_again() -> None:
    kept = Failures(BOOT, 3, 12.5, "signal, killed by SEGV")
    assert Failures.of(kept.text()) == kept


def test_a_unit_that_fails_waits_and_says_until_when_and_why(folder: Path) -> None:
    clock, slept, extended = HandClock(), list[float](), list[float]()
    place = {"STATE_DIRECTORY": f"/var/lib/outstation/broker:{folder}"}

    def start() -> str:
        said = [""]
        with played_supervisor() as supervisor:

            def sleep(seconds: float) -> None:
                slept.append(seconds)
                said.append(supervisor.status)

            notifier = Notifier(dict(supervisor.environment()))
            clock.move(5)
            next_start.wait("outstation-gateway", notifier, environment=place, clock=clock, sleep=sleep)
            assert not supervisor.ready
            lines = [line for message in supervisor.heard for line in message if line.startswith("EXTEND")]
            extended.extend(int(line.partition("=")[2]) / 1e6 for line in lines)
            clock.move(sum(slept[-1:]))
            # What it has waited for is over.
            assert supervisor.status == ("starting" if said[1:] else "")
            return said[-1]

    def end(how: dict[str, str]) -> None:
        next_start.ended(UNIT, place | how, clock)

    end(CRASH)
    assert (start(), slept) == ("", [])
    end(CRASH)
    assert start().startswith("has failed 2 times in a row: waits 10 s, until ")
    end(CRASH)
    status = start()
    assert "waits 20 s" in status
    assert status.endswith("at once: systemctl restart outstation-gateway; the last time: signal, killed by SEGV")
    assert slept == [5.0, 15.0]
    assert extended == [5.0 + START_SECONDS, 15.0 + START_SECONDS]
    assert (folder / FAILURES).stat().st_mode & 0o777 == 0o600

    end(STOPPED)
    assert (start(), slept) == ("", [5.0, 15.0])
    end(CRASH)
    end(CRASH)
    end(WRONG_SETTINGS)
    assert (start(), slept) == ("", [5.0, 15.0])


def test_one_that_others_are_ordered_after_counts_as_started_while_it_waits(tmp_path: Path) -> None:
    clock, slept = HandClock(), list[float]()
    place = {"STATE_DIRECTORY": str(tmp_path / "broker")}
    (tmp_path / "broker").mkdir()
    for _ in range(2):
        next_start.ended("outstation-broker.service", place | CRASH, clock)
    clock.move(5)
    with played_supervisor() as supervisor:
        notifier = Notifier(dict(supervisor.environment()))
        next_start.wait("outstation-broker", notifier, ready=True, environment=place, clock=clock, sleep=slept.append)
        assert supervisor.ready
    assert slept == [5.0]


def test_the_file_keeps_its_size_and_is_no_link(folder: Path) -> None:
    place = {"STATE_DIRECTORY": str(folder)}
    next_start.ended(UNIT, place | STOPPED)
    size = (folder / FAILURES).stat().st_size
    next_start.ended(UNIT, place | CRASH)
    assert (folder / FAILURES).stat().st_size == size
    (folder / FAILURES).unlink()
    (folder / "other").write_text("mine")
    (folder / FAILURES).symlink_to(folder / "other")
    with pytest.raises(OSError, match="symbolic"):
        next_start.ended(UNIT, place | CRASH)
    assert (folder / "other").read_text() == "mine"


def test_without_a_state_folder_nobody_waits_and_nothing_is_kept() -> None:
    next_start.ended(UNIT, CRASH)
    next_start.wait("outstation-gateway", Notifier({}), environment={})


def test_a_folder_that_cannot_be_written_is_said_and_the_unit_ends_all_the_same(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "device_agent.next_start", UNIT],
        env={"STATE_DIRECTORY": str(tmp_path / "gone" / "gateway"), **CRASH},
        cwd=Path(next_start.__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert "not kept" in done.stderr
