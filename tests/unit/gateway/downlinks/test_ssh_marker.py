"""The marker of a job on an SSH device: what each shell makes of it, and that a home never fills with markers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from device_agent.own import NoCustom
from device_agent.protocol.messages import Job
from gateway.downlinks.ssh_marker import FOLDER, KEPT, LEFT, AlreadyBegun, Marker, needs_marker

WALL = 1_795_748_400.0
"""2026-11-27T03:00:00Z."""

SHELLS = [["/bin/sh"], ["bash", "--posix"], ["busybox", "sh"]]


@pytest.fixture(params=SHELLS, ids=lambda words: Path(words[0]).name)
def shell(request: pytest.FixtureRequest) -> list[str]:
    words: list[str] = request.param
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    return words


def jid(number: int, day: int = 27) -> str:
    return f"202611{day:02}0300{number:08}"


def said(shell: list[str], home: Path, marker: Marker) -> tuple[str, bool]:
    """The letter that the device answers, and whether the command behind the marker runs."""
    script = f"{marker.script()}; echo $y; {marker.guard()}; echo ran"
    done = subprocess.run([*shell, "-c", script], env={"HOME": str(home)}, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    letter, *rest = done.stdout.split()
    return letter, rest == ["ran"]


def markers(home: Path) -> list[str]:
    return sorted(each.name.partition(".")[0] for each in (home / FOLDER).iterdir())


def test_a_job_runs_once_in_a_home_and_another_device_of_the_same_home_as_well(
    shell: list[str], tmp_path: Path
) -> None:
    for strict in (False, True):
        assert said(shell, tmp_path, Marker(jid(strict), "lisbon/cam-1", WALL, strict=strict)) == ("m", True)
        assert said(shell, tmp_path, Marker(jid(strict), "lisbon/cam-1", WALL, strict=strict)) == ("x", False)
        assert said(shell, tmp_path, Marker(jid(strict), "lisbon/cam-2", WALL, strict=strict)) == ("m", True)
    assert (tmp_path / FOLDER).stat().st_mode & 0o077 == 0


def test_a_home_that_takes_no_marker_lets_only_a_job_run_that_the_gateway_is_sure_of(
    shell: list[str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.write_text("no folder can be made here")
    assert said(shell, home, Marker(jid(1), "cam-1", WALL, strict=False)) == ("n", True)
    assert said(shell, home, Marker(jid(1), "cam-1", WALL, strict=True)) == ("n", False)


def test_the_oldest_markers_go_when_there_are_too_many(shell: list[str], tmp_path: Path) -> None:
    for number in range(KEPT):
        (tmp_path / FOLDER / f"{jid(number + 10)}.0").mkdir(parents=True)
    assert said(shell, tmp_path, Marker(jid(KEPT + 10), "cam-1", WALL, strict=False)) == ("m", True)
    assert markers(tmp_path) == [jid(number + 10) for number in range(KEPT - LEFT + 1, KEPT + 1)]
    # Its marker may have been among those that went.
    assert said(shell, tmp_path, Marker(jid(1), "cam-1", WALL, strict=True)) == ("x", False)
    assert said(shell, tmp_path, Marker(jid(2), "cam-1", WALL, strict=False)) == ("m", True)


@pytest.mark.parametrize("strict", [False, True])
def test_markers_of_a_clock_that_was_ahead_take_no_place_from_those_of_today(
    shell: list[str], tmp_path: Path, strict: bool
) -> None:
    for number in range(600):
        (tmp_path / FOLDER / f"20990101{number:012}.0").mkdir(parents=True)
    for number in (1, 2):
        assert said(shell, tmp_path, Marker(jid(number), "cam-1", WALL, strict=strict)) == ("m", True)
    assert markers(tmp_path) == [jid(1), jid(2)]
    assert said(shell, tmp_path, Marker(jid(1), "cam-1", WALL, strict=strict)) == ("x", False)


def test_markers_of_tomorrow_stay_and_the_marker_of_the_job_itself_does_not_go(
    shell: list[str], tmp_path: Path
) -> None:
    for number in range(KEPT):
        (tmp_path / FOLDER / f"{jid(number, day=28)}.0").mkdir(parents=True)
    assert said(shell, tmp_path, Marker(jid(1), "cam-1", WALL, strict=False)) == ("m", True)
    found = markers(tmp_path)
    assert jid(1) in found
    assert len(found) == LEFT + 1


def test_a_marker_goes_when_its_job_has_long_expired(shell: list[str], tmp_path: Path) -> None:
    old = f"20261001{0:012}"
    (tmp_path / FOLDER / f"{old}.0").mkdir(parents=True)
    assert said(shell, tmp_path, Marker(jid(1), "cam-1", WALL, strict=True)) == ("m", True)
    assert markers(tmp_path) == [jid(1)]


def test_what_the_device_says_decides_whether_the_job_has_run() -> None:
    marker = Marker(jid(1), "cam-1", WALL, strict=False)
    marker.judge(b"n")
    assert (marker.settled, marker.held) == (True, False)
    for letter, strict in ((b"x", False), (b"x", True), (b"n", True), (b"", True)):
        with pytest.raises(AlreadyBegun) as caught:
            Marker(jid(1), "cam-1", WALL, strict=strict).judge(letter)
        assert caught.value.started, "it may have run"


def test_a_job_that_changes_nothing_needs_no_marker() -> None:
    def needs(fun: str, *arg: object) -> bool:
        job = Job(jid=jid(1), tgt="*", tgt_type="glob", fun=fun, arg=list(arg), user="ops", issued=WALL, expires=WALL)
        return needs_marker(job, NoCustom())

    assert [needs("test.ping"), needs("file.read", "/etc/hosts")] == [False, False]
    assert [needs("service.restart", "ntp"), needs("cmd.run", "true"), needs("brought.by_site")] == [True, True, True]
