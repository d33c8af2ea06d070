"""gateway/cli/audit.py."""

from __future__ import annotations

import csv
import json
import re

import pytest

from gateway.cli.audit import CSV_COLUMNS, csv_line
from tests.peers.api_double import ISSUED, JID, ApiDouble, Fields
from tests.unit.gateway.cli.conftest import Shell

ROW: Fields = {
    "site": "central",
    "at": ISSUED,
    "user": "anna",
    "door": "socket",
    "action": "run",
    "subject": "cam-*",
    "verdict": "allow",
    "why": "ticket 7",
    "jid": JID,
    "fun": "state.apply",
    "arguments": "site/lisbon test=true",
}
ENDED: Fields = {
    **ROW,
    "device": "cam-1",
    "device_site": "lisbon",
    "outcome": "failed",
    "retcode": 2,
    "outcome_why": "no, it said",
    "ended": ISSUED + 60,
    "times": 1,
}
ENTERED: Fields = {
    **ROW,
    "user": "unknown",
    "door": "api",
    "action": "enter",
    "subject": "192.0.2.7",
    "verdict": "deny",
    "why": "no token",
    "jid": "",
    "fun": "",
    "arguments": "",
}


def test_rows_say_who_what_and_why_in_one_line(api: ApiDouble, shell: Shell) -> None:
    api.audit = [ENTERED, ROW]
    finished = shell.run("audit", "list")
    cells = [re.split(r" {2,}", line) for line in finished.out.splitlines()]
    at = "2026-11-21T03:15:00Z"
    assert cells == [
        ["TIME", "SITE", "USER", "DOOR", "ACTION", "VERDICT", "WHAT", "WHY"],
        [at, "central", "unknown", "api", "enter", "deny", "192.0.2.7", "no token"],
        [at, "central", "anna", "socket", "run", "allow", "state.apply site/lisbon test=true on cam-*", "ticket 7"],
    ]


def test_no_rows_say_so(api: ApiDouble, shell: Shell) -> None:
    finished = shell.here("audit", "list")
    assert (finished.status, finished.out, finished.error) == (0, "", "no audit rows\n")


def test_every_choice_reaches_the_station(api: ApiDouble, shell: Shell) -> None:
    choices = {"user": "anna", "device": "cam-1", "jid": JID, "action": "run", "site": "lisbon", "verdict": "hold"}
    words = [word for name, value in choices.items() for word in (f"--{name}", value)]
    for command in (["list", "--limit", "7"], ["export"]):
        assert shell.here("audit", *command, *words, "--since", "1h").status == 0
    (listed, _), (exported, _) = api.asked("GET", "/audit") + api.asked("GET", "/audit/export")
    assert listed.pop("limit") == "7"
    for query in (listed, exported):
        assert float(query.pop("since")) > ISSUED / 2
        assert query == choices


@pytest.mark.parametrize("words", [["--since", "yesterday"], ["--verdict", "maybe"], ["--format", "xml"]])
def test_a_choice_that_is_none_is_a_mistake(shell: Shell, words: list[str]) -> None:
    assert shell.here("audit", "export", *words).status == 2


def test_json_is_the_row_as_the_station_has_it(api: ApiDouble, shell: Shell) -> None:
    api.audit = [ENDED]
    for command in ("list", "export"):
        line = shell.here("audit", command, *(["--json"] if command == "list" else [])).out
        assert json.loads(line) == {"type": "audit", **ENDED}


def test_csv_is_read_back_as_it_was_written(api: ApiDouble, shell: Shell) -> None:
    api.audit = [ENDED, ENTERED]
    first, second, third = csv.reader(shell.run("audit", "export", "--format", "csv").out.splitlines())
    assert tuple(first) == CSV_COLUMNS
    assert dict(zip(first, second, strict=True)) == {
        "time": "2026-11-21T03:15:00Z",
        "site": "central",
        "user": "anna",
        "door": "socket",
        "action": "run",
        "verdict": "allow",
        "why": "ticket 7",
        "jid": JID,
        "function": "state.apply",
        "arguments": "site/lisbon test=true",
        "target": "cam-*",
        "device": "cam-1",
        "device_site": "lisbon",
        "outcome": "failed",
        "retcode": "2",
        "outcome_why": "no, it said",
        "ended": "2026-11-21T03:16:00Z",
        "times": "1",
    }
    assert third[first.index("outcome") :] == ["", "", "", "", "1"]


def test_a_row_that_counts_refusals_says_how_many(api: ApiDouble, shell: Shell) -> None:
    api.audit = [{**ENTERED, "times": 7652}]
    assert shell.run("audit", "list").out.splitlines()[-1].endswith("7652 times: no token")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_a_spreadsheet_calculates_nothing_that_somebody_asked_for(text: str) -> None:
    assert csv_line((text, "b")) == f"'{text},b"


def test_neither_terminal_nor_table_obeys_what_is_in_a_row(api: ApiDouble, shell: Shell) -> None:
    api.audit = [{**ENDED, "arguments": "\x1b[2J\n=x", "user": 'an"na'}]
    for command in (["list"], ["export", "--format", "csv"]):
        finished = shell.run("audit", *command)
        assert "\x1b" not in finished.out
        assert len(finished.out.splitlines()) == 2
        assert r"\x1b[2J\n=x" in finished.out
