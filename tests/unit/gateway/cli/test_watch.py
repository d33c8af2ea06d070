"""gateway/cli/watch.py: a job followed to its end, or not."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from gateway.cli.views import JobView, SiteProgress
from gateway.cli.watch import exit_status
from tests.peers.api_double import JID, Act, ApiDouble, job, outcome, site_progress, unreachable, watched
from tests.unit.gateway.cli.conftest import PROCESS_SECONDS, Shell


def view(**changed: Any) -> JobView:
    return JobView(jid=JID, fun="test.ping", state="closed", **changed)


@pytest.mark.parametrize(
    ("closed", "status"),
    [
        (view(expected=2, counts={"ok": 2}), 0),
        (view(expected=2, counts={"ok": 2, "failed": 0}), 0),
        (view(expected=0), 1),
        (view(expected=2, counts={"ok": 1, "unreachable": 1}), 1),
        (view(expected=2, counts={"ok": 1}), 1),
        (view(expected=2, counts={"ok": 2}, sites=[SiteProgress("porto", "dark")]), 1),
        (view(expected=2, counts={"ok": 2}, sites=[SiteProgress("porto", "dark", expected=1, done=1)]), 0),
        (view(expected=2, counts={"ok": 2}, sites=[SiteProgress("porto", "closed")]), 0),
    ],
)
def test_only_all_ok_of_at_least_one_with_no_site_in_the_dark_is_success(closed: JobView, status: int) -> None:
    assert exit_status(closed) == status


def test_in_a_pipe_results_and_what_is_said_about_them_are_apart(api: ApiDouble, shell: Shell) -> None:
    api.stream = watched(
        [outcome("cam-1"), outcome("cam-2", value="up 3 days\n"), outcome("cam-3", value={"a": [1, "b"]})]
    )
    finished = shell.run("jobs", "watch", JID)
    assert finished.out == 'cam-1\tok\ttrue\ncam-2\tok\tup 3 days\ncam-3\tok\t{"a":[1,"b"]}\n'
    assert finished.error == f"jid {JID}: 3 expected: 3 ok\n"
    assert finished.status == 0


def test_a_result_is_in_the_pipe_before_the_next_one_exists(api: ApiDouble, shell: Shell) -> None:
    first, *rest = watched([outcome("cam-1"), outcome("cam-2")])
    api.stream = [first, rest[0], Act.HOLD, *rest[1:]]
    with shell.start("jobs", "watch", JID) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "cam-1\tok\ttrue\n"
        api.release()
        out, _ = process.communicate(timeout=PROCESS_SECONDS)
    assert out == "cam-2\tok\ttrue\n"


def test_json_is_each_outcome_and_a_summary_and_nothing_else(api: ApiDouble, shell: Shell) -> None:
    api.stream = watched([outcome("cam-1"), unreachable("cam-2")], sites=[site_progress()])
    finished = shell.run("jobs", "watch", JID, "--json")
    first, second, summary = map(json.loads, finished.out.splitlines())
    assert first == {"type": "outcome", **outcome("cam-1")}
    assert second == {"type": "outcome", **unreachable("cam-2")}
    assert summary == {
        "type": "summary",
        "jid": JID,
        "fun": "test.ping",
        "tgt": "*",
        "expected": 2,
        "counts": {"ok": 1, "unreachable": 1},
        "cancelled": False,
        "missing": [],
        "dark_sites": [],
        "exit_status": 1,
    }
    assert finished.error == ""
    assert finished.status == 1


def test_ten_thousand_outcomes_are_ten_thousand_lines(api: ApiDouble, shell: Shell) -> None:
    api.stream = watched([outcome(f"cam-{number:05d}") for number in range(10_000)])
    finished = shell.here("jobs", "watch", JID)
    assert len(finished.out.splitlines()) == 10_000
    assert finished.error == f"jid {JID}: 10,000 expected: 10,000 ok\n"


def test_on_a_terminal_a_thousand_equal_answers_are_one_line_under_a_bar(api: ApiDouble, shell: Shell) -> None:
    good = [outcome(f"cam-{number:04d}") for number in range(1002)]
    stream = watched([*good[:500], unreachable("cam-9999"), *good[500:]])
    half = {"type": "progress", "expected": 1003, "counts": {"ok": 500}, "waiting": {"queued": 503}, "sites": []}
    api.stream = [*stream[:400], half, *stream[400:]]
    finished = shell.on_terminal("jobs", "watch", JID)
    assert "█████████░░░░░░░░░░░ 500/1,003  500 ok  waiting: 503 queued" in finished.seen
    gone, folded, summary, _ = finished.seen.split("\n")
    assert (
        f"{'cam-9999':<20}  unreachable  it never reached the device: not present; last seen 2026-11-21T03:13" in gone
    )
    assert folded.endswith(f"{'1,002 × ok':<20}  true")
    assert summary == f"jid {JID}: 1,003 expected: 1,002 ok, 1 unreachable"
    assert finished.status == 1


def test_on_a_terminal_verbose_lists_all(api: ApiDouble, shell: Shell) -> None:
    api.stream = watched([outcome(f"cam-{number:04d}") for number in range(30)])
    finished = shell.on_terminal("jobs", "watch", JID, "--verbose")
    assert sum("ok" in line and "true" in line for line in finished.seen.split("\n")) == 30


def test_a_site_that_is_awaited_is_named(api: ApiDouble, shell: Shell) -> None:
    dark = site_progress(site="porto", state="dark", connected=False, expected=0, done=0)
    stream = watched([outcome()], sites=[site_progress(), dark])
    api.stream = stream
    finished = shell.on_terminal("jobs", "watch", JID)
    assert "waiting for site porto, dark since 2026-11-21T03:15:00Z" in finished.seen
    assert "  site porto: dark since 2026-11-21T03:15:00Z; its devices are not counted above" in finished.seen
    assert finished.status == 1


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m[bold]\u202e\r"


@pytest.mark.parametrize("where", ["id", "value", "why", "site", "outcome"])
def test_what_a_device_says_cannot_steer_the_terminal(api: ApiDouble, shell: Shell, where: str) -> None:
    attack = unreachable("cam-1", site="porto", outcome="failed", value=HOSTILE)
    attack[where] = HOSTILE
    api.stream = watched([outcome("cam-1"), attack, outcome("cam-2", value={HOSTILE: HOSTILE})])
    seen = shell.on_terminal("jobs", "watch", JID, "--verbose").seen
    assert not set(seen) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}
    assert r"\x1b]0;owned\x07\x1b[2J\x9b31m[bold]\u202e" in seen
    piped = shell.here("jobs", "watch", JID)
    assert all(line.isprintable() for line in (piped.out + piped.error).replace("\t", "").splitlines())


def test_nobody_matched_is_said_and_is_no_success(api: ApiDouble, shell: Shell) -> None:
    api.stream = watched([], tgt="nobody*")
    finished = shell.here("jobs", "watch", JID)
    assert (finished.status, finished.out) == (1, "")
    assert finished.error == f"jid {JID}: no device matched nobody*\n"


def test_a_job_at_dark_sites_alone_is_not_called_unmatched(api: ApiDouble, shell: Shell) -> None:
    dark = site_progress(state="dark", connected=False, expected=0, done=0, last_seen=None)
    api.stream = watched([], sites=[dark])
    finished = shell.here("jobs", "watch", JID)
    assert finished.error == (
        f"jid {JID}: 0 expected: no outcome\n  site lisbon: never heard; its devices are not counted above\n"
    )


def test_a_cancelled_job_is_called_so(api: ApiDouble, shell: Shell) -> None:
    api.stream = watched([outcome(outcome="cancelled", value=None)], cancelled=True)
    assert shell.here("jobs", "watch", JID).error.endswith("1 cancelled\n  the job was cancelled\n")


def test_ctrl_c_detaches_and_says_how_to_come_back(api: ApiDouble, shell: Shell) -> None:
    first, second, *_ = watched([outcome("cam-1"), outcome("cam-2")])
    api.stream = [first, second, Act.HOLD]
    with shell.start("jobs", "watch", JID) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "cam-1\tok\ttrue\n"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PROCESS_SECONDS)
    assert (process.returncode, out) == (130, "")
    assert error.splitlines() == [
        f"detached: job {JID} goes on",
        f"  watch it again:   outstation jobs watch {JID}",
        f"  where it stands:  outstation jobs show {JID}",
        f"  stop the rest:    outstation jobs cancel {JID}",
    ]


def test_ctrl_c_on_a_terminal_shows_what_was_held_back(api: ApiDouble, shell: Shell) -> None:
    first, *rest = watched([outcome(f"cam-{number}") for number in range(30)])
    half = {"type": "progress", "expected": 40, "counts": {"ok": 30}, "waiting": {"running": 10}, "sites": []}
    api.stream = [first, *rest[:30], half, Act.HOLD]
    finished = shell.on_terminal("jobs", "watch", JID, interrupt_when="10 running")
    assert finished.status == 130
    assert f"{'30 × ok':<20}  true\ndetached: job {JID} goes on" in finished.seen


@pytest.mark.parametrize("end", [[], [Act.DIE]])
def test_a_station_that_dies_in_the_middle_loses_no_job(api: ApiDouble, shell: Shell, end: list[Act]) -> None:
    api.stream = [*watched([outcome("cam-1"), outcome("cam-2")])[:2], *end]
    finished = shell.run("jobs", "watch", JID)
    assert (finished.status, finished.out) == (7, "cam-1\tok\ttrue\n")
    assert finished.error.startswith("error: the station ")
    assert JID in finished.error.splitlines()[0]
    assert f"outstation jobs watch {JID}" in finished.error


def test_whoever_has_read_enough_is_left_in_peace(api: ApiDouble, shell: Shell) -> None:
    api.stream = watched([outcome(f"cam-{number:05d}", value="x" * 1000) for number in range(2000)])
    with shell.start("jobs", "watch", JID) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
        assert process.wait(PROCESS_SECONDS) == 1
    assert error == ""


def test_there_is_no_watching_a_job_that_is_not(api: ApiDouble, shell: Shell) -> None:
    api.refusals[f"/jobs/{JID}/watch"] = (404, {"error": {"id": "usage.no_job", "what": "there is no job like this"}})
    finished = shell.here("jobs", "watch", JID)
    assert (finished.status, finished.out) == (2, "")
    assert finished.error.startswith("error: there is no job like this")
    assert "is not lost" not in finished.error


def test_nothing_is_promised_of_a_job_nobody_has_confirmed(api: ApiDouble, shell: Shell) -> None:
    api.refusals[f"/jobs/{JID}/watch"] = (503, {"error": {"what": "the station is stopping"}})
    watched_alone, run = shell.here("jobs", "watch", JID), shell.here("run", "*", "test.ping")
    assert (watched_alone.status, watched_alone.error) == (1, "error: the station is stopping\n")
    assert run.error.splitlines() == [
        f"error: the station is stopping; job {JID} is not lost",
        f"  try:     outstation jobs watch {JID}",
    ]


def test_the_script_of_the_double_is_what_a_station_says() -> None:
    first, *_, last = watched([outcome(), unreachable("x")])
    assert isinstance(first, dict)
    assert isinstance(last, dict)
    assert first["job"]["state"] == "open"
    assert last["job"] == job(expected=2, counts={"ok": 1, "unreachable": 1})


def test_names_that_no_site_knows_are_said_and_are_not_all_ok(api: ApiDouble, shell: Shell) -> None:
    api.stream = watched([outcome("cam-1")], missing=["cam-x"])
    finished = shell.here("jobs", "watch", JID)
    assert finished.error.endswith("1 ok\n  no site knows: cam-x\n")
    assert finished.status == 1
