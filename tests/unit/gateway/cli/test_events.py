"""gateway/cli/events.py."""

from __future__ import annotations

import json
import signal

import pytest

from tests.peers.api_double import ApiDouble, Fields
from tests.unit.gateway.cli.conftest import PROCESS_SECONDS, Shell

NEW: Fields = {
    "tag": "salt/job/1/new",
    "data": {"fun": "test.ping"},
    "_stamp": "2026-11-21T03:15:00.000001",
    "site": "",
}
EVIL: Fields = {
    "tag": "beacon/\x1b[2J",
    "data": {"a": "\x07\n"},
    "_stamp": "2026-11-21T03:15:01.000001",
    "site": "lisbon",
}


@pytest.fixture(autouse=True)
def happened(api: ApiDouble) -> None:
    api.events = [NEW, EVIL]


def test_events_are_lines_with_nothing_in_them_to_obey(shell: Shell) -> None:
    finished = shell.run("events", "--no-follow")
    assert finished.status == 0
    assert finished.out.splitlines() == [
        '2026-11-21T03:15:00.000001\t-\tsalt/job/1/new\t{"fun":"test.ping"}',
        r"2026-11-21T03:15:01.000001" + "\t" + r"lisbon" + "\t" + r"beacon/\x1b[2J" + "\t" + r'{"a":"\u0007\n"}',
    ]


@pytest.mark.parametrize(
    ("options", "query"),
    [
        (["--no-follow"], {"tag": "*", "history": "100", "follow": "false"}),
        (["salt/job/*", "--no-follow", "--history", "5"], {"tag": "salt/job/*", "history": "5", "follow": "false"}),
        ([], {"tag": "*", "history": "0", "follow": "true"}),
    ],
)
def test_what_is_wanted_reaches_the_station(
    api: ApiDouble, shell: Shell, options: list[str], query: dict[str, str]
) -> None:
    shell.here("events", *options)
    assert api.asked("GET", "/events") == [(query, None)]


def test_json_is_the_event_with_salts_stamp(shell: Shell) -> None:
    finished = shell.here("events", "salt/*", "--no-follow", "--json")
    assert json.loads(finished.out) == {"type": "event", **NEW}


def test_pretty_is_the_tag_and_the_data_in_many_lines(api: ApiDouble, shell: Shell) -> None:
    api.events = [{**NEW, "data": {"fun": "test.ping", "_stamp": NEW["_stamp"]}}, EVIL]
    finished = shell.here("events", "--no-follow", "--pretty")
    assert finished.out == (
        'salt/job/1/new\t{\n    "_stamp": "2026-11-21T03:15:00.000001",\n    "fun": "test.ping"\n}\n'
        'beacon/\\x1b[2J\t{\n    "a": "\\u0007\\n"\n}\n'
    )


def test_pretty_and_json_are_not_both_had(api: ApiDouble, shell: Shell) -> None:
    assert shell.here("events", "--pretty", "--json").status == 2
    assert api.asked("GET", "/events") == []


def test_the_stamp_is_not_said_twice(api: ApiDouble, shell: Shell) -> None:
    api.events = [{**NEW, "data": {"fun": "test.ping", "_stamp": NEW["_stamp"]}}]
    assert shell.here("events", "--no-follow").out.endswith('\tsalt/job/1/new\t{"fun":"test.ping"}\n')


@pytest.mark.parametrize("options", [[], ["--pretty"], ["--json"]])
def test_who_was_too_slow_reads_on_stderr_how_many_he_missed(api: ApiDouble, shell: Shell, options: list[str]) -> None:
    api.events = [NEW, {"tag": "outstation/missed", "data": {"missed": 3}, "_stamp": "", "site": ""}, EVIL]
    finished = shell.here("events", "--no-follow", *options)
    assert finished.error == "missed: 3 events so far: this reader is slower than they come\n"
    assert ("outstation/missed" in finished.out) == (options == ["--json"])


def test_a_station_that_goes_away_is_an_error_while_events_are_awaited(shell: Shell) -> None:
    finished = shell.here("events")
    assert finished.status == 7
    assert finished.error.startswith("error: the station went away")


def test_ctrl_c_ends_it_quietly_with_a_status_of_its_own(api: ApiDouble, shell: Shell) -> None:
    api.hold_events = True
    with shell.start("events", "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["tag"] == NEW["tag"]
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PROCESS_SECONDS)
    assert (process.returncode, error) == (130, "")
