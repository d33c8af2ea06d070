"""gateway/cli/jobs.py."""

from __future__ import annotations

import json

import pytest

from tests.peers.api_double import JID, ApiDouble, job, outcome, site_progress, unreachable
from tests.unit.gateway.cli.conftest import Shell


def test_jobs_are_a_table_newest_first(api: ApiDouble, shell: Shell) -> None:
    api.jobs = [
        job(jid="20261121031600000000", state="open", counts={}, expected=3, waiting={"running": 2, "queued": 1}),
        job(tgt="os:Debian", tgt_type="grain", counts={"ok": 1002, "failed": 1}, expected=1003),
        job(state="open", cancelled=True, counts={}, tgt="x" * 90, user=None, expected=0, waiting={}),
    ]
    finished = shell.run("jobs", "list")
    assert finished.status == 0
    assert finished.error == ""
    assert finished.out.splitlines() == [
        f"JID                   STATE      FUNCTION   {'TARGET':<40}  USER   EXPECTED  OUTCOMES",
        f"20261121031600000000  open       test.ping  {'*':<40}  alice         3  1 queued, 2 running",
        f"20261121031500000000  closed     test.ping  {'-G os:Debian':<40}  alice     1,003  1,002 ok, 1 failed",
        f"20261121031500000000  cancelled  test.ping  {'x' * 39}…  -             0  -",
    ]


def test_the_list_can_be_narrowed(api: ApiDouble, shell: Shell) -> None:
    assert shell.here("jobs", "list", "--state", "open", "--limit", "5").error == "no jobs\n"
    assert api.asked("GET", "/jobs") == [({"limit": "5", "state": "open"}, None)]


def test_json_is_the_job_as_the_station_has_it(api: ApiDouble, shell: Shell) -> None:
    finished = shell.here("jobs", "list", "--json")
    assert json.loads(finished.out) == {"type": "job", **job()}
    assert api.asked("GET", "/jobs") == [({"limit": "20"}, None)]


def test_a_job_is_shown_with_what_is_not_ok(api: ApiDouble, shell: Shell) -> None:
    api.jobs = [
        job(
            arg=["a b", 3],
            kwarg={"x": [True]},
            expected=2,
            counts={"ok": 1, "unreachable": 1},
            sites=[site_progress(), site_progress(site="porto", state="dark", connected=False, expected=0, done=0)],
        )
    ]
    api.outcomes = [outcome("cam-1"), unreachable("cam-2", seen=None)]
    finished = shell.here("jobs", "show", JID)
    assert finished.status == 0
    assert finished.out.splitlines() == [
        f"jid:         {JID}",
        "state:       closed",
        "function:    test.ping a b 3 x=[true]",
        "target:      * (glob)",
        "user:        alice",
        "origin:      master-1",
        "issued:      2026-11-21T03:15:00Z",
        "expires:     2026-11-21T03:20:00Z, late devices: drop",
        "run limit:   1h",
        "expected:    2",
        "outcomes:    1 ok, 1 unreachable",
        "site:        lisbon: closed, 1 of 1",
        "site:        porto: dark, 0 of 0, dark since 2026-11-21T03:15:00Z",
        "cam-2\tunreachable\tit never reached the device: not present",
    ]


@pytest.mark.parametrize(
    ("options", "devices"), [(["--all"], ["cam-1", "cam-2"]), (["--outcome", "ok"], ["cam-1"]), ([], ["cam-2"])]
)
def test_which_devices_are_listed_is_chosen(
    api: ApiDouble, shell: Shell, options: list[str], devices: list[str]
) -> None:
    api.jobs = [job(expected=2, counts={"ok": 1, "unreachable": 1})]
    api.outcomes = [outcome("cam-1"), unreachable("cam-2")]
    finished = shell.here("jobs", "show", JID, *options)
    assert [line.split("\t")[0] for line in finished.out.splitlines() if "\t" in line] == devices


def test_json_is_the_job_and_then_its_outcomes(api: ApiDouble, shell: Shell) -> None:
    lines = [json.loads(line) for line in shell.here("jobs", "show", JID, "--json").out.splitlines()]
    assert lines == [{"type": "job", **job()}, {"type": "outcome", **outcome()}]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--outcome", "okay"], "error: invalid value for --outcome: found 'okay'; there are ok, failed, "),
        (["--all", "--outcome", "ok"], "error: invalid value for --all: it is this or --outcome"),
    ],
)
def test_a_choice_that_cannot_be_is_a_mistake(api: ApiDouble, shell: Shell, options: list[str], error: str) -> None:
    finished = shell.here("jobs", "show", JID, *options)
    assert (finished.status, finished.out) == (2, "")
    assert finished.error.startswith(error)
    assert not api.requests


def test_a_job_that_is_not_there_is_an_error_with_a_hint(api: ApiDouble, shell: Shell) -> None:
    finished = shell.run("jobs", "show", "123")
    assert (finished.status, finished.out) == (2, "")
    assert finished.error == "error: there is no such job\n  try:     look again\n"


def test_cancelling_says_what_became_of_it(api: ApiDouble, shell: Shell) -> None:
    api.jobs = [job(state="open", counts={"cancelled": 7}, waiting={"running": 2})]
    finished = shell.here("jobs", "cancel", JID)
    assert finished.status == 0
    assert finished.out == f"{JID}: cancelled: 7 cancelled, 2 running\n"
    assert finished.error == f"what has started goes on: outstation jobs watch {JID}\n"
    assert len(api.asked("POST", f"/jobs/{JID}/cancel")) == 1


def test_cancelling_with_json_gives_the_job(api: ApiDouble, shell: Shell) -> None:
    assert json.loads(shell.here("jobs", "cancel", JID, "--json").out)["cancelled"] is True


def test_a_held_job_says_so_and_why_it_was_asked_for(api: ApiDouble, shell: Shell) -> None:
    api.jobs = [job(state="open", held=True, why="ticket 7", counts={}, expected=1, waiting={"queued": 1})]
    assert shell.here("jobs", "list", "--state", "held").status == 0
    assert api.asked("GET", "/jobs")[0][0]["state"] == "held"
    shown = shell.here("jobs", "show", JID).out.splitlines()
    assert "state:       held" in shown
    assert "why:         ticket 7" in shown


def test_a_release_reaches_the_station_and_says_how_to_go_on(api: ApiDouble, shell: Shell) -> None:
    api.jobs = [job(state="open", held=True, counts={}, expected=1, waiting={"queued": 1})]
    finished = shell.here("jobs", "release", JID)
    assert (finished.status, finished.out) == (0, f"{JID}: open: 1 queued\n")
    assert finished.error == f"see how it ends: outstation jobs watch {JID}\n"
    assert api.asked("POST", f"/jobs/{JID}/release") == [({}, {})]
    assert json.loads(shell.here("jobs", "release", JID, "--json").out)["held"] is False
    assert shell.here("jobs", "release", "1").status == 2
