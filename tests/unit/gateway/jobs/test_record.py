"""gateway/jobs/record.py."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from device_agent.protocol.messages import Job, OutcomeRecord, decode_value
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.several import SEVERAL
from gateway.jobs.record import given, is_only_heard, new_event, outcome_statement, publish_event, return_event
from gateway.returners.returned import Returned
from gateway.store.migrate import steps

JID = "20261121031500000000"


def record(outcome: Outcome = Outcome.OK, **changed: Any) -> OutcomeRecord:
    """What is known of one device, with changes."""
    given: dict[str, Any] = {
        "jid": JID,
        "site": "lisbon",
        "id": "cam-1",
        "fun": "test.echo",
        "outcome": outcome,
        "ended": 1_795_230_900.25,
        **changed,
    }
    return OutcomeRecord(**given)


@pytest.fixture
def store() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    for _, script in steps():
        connection.executescript(script)
    yield connection
    connection.close()


def put(store: sqlite3.Connection, *records: OutcomeRecord, link: str = "") -> list[Any]:
    """Put outcomes on record; everything that is on record then."""
    store.executemany(*outcome_statement(records, link))
    return store.execute("SELECT site, device, link, outcome, value, why FROM outcomes ORDER BY id").fetchall()


def test_an_outcome_is_kept_with_all_that_is_known(store: sqlite3.Connection) -> None:
    put(
        store,
        record(retcode=3, value={"a": [1, None]}, why="because", seen=7.5, duration=0.5, executions=1),
        link="lisbon",
    )
    (row,) = store.execute("SELECT * FROM outcomes").fetchall()
    _, jid, site, device, link, fun, outcome, retcode, value, *rest, proven = row
    assert (jid, site, device, link, fun) == (JID, "lisbon", "cam-1", "lisbon", "test.echo")
    assert (outcome, retcode, decode_value(value)) == ("ok", 3, {"a": [1, None]})
    assert rest == ["because", 7.5, 1_795_230_900.25, 0.5, 1]
    assert proven is None


def test_no_value_is_kept_as_nothing_and_false_as_false(store: sqlite3.Connection) -> None:
    rows = put(store, record(id="none"), record(id="false", value=False))
    assert rows[0][4] is None
    assert decode_value(rows[1][4]) is False


@pytest.mark.parametrize("first", [outcome for outcome in Outcome if outcome is not Outcome.SITE_DARK])
@pytest.mark.parametrize("second", list(Outcome))
def test_an_outcome_stays_what_it_was_first(first: Outcome, second: Outcome, store: sqlite3.Connection) -> None:
    put(store, record(first, why="first"))
    assert put(store, record(second, why="second"))[0][3:] == (first.value, None, "first")


@pytest.mark.parametrize("second", [outcome for outcome in Outcome if outcome is not Outcome.SITE_DARK])
def test_a_guess_about_a_dark_site_gives_way_to_its_own_word(second: Outcome, store: sqlite3.Connection) -> None:
    put(store, record(Outcome.SITE_DARK, why="dark"), link="lisbon")
    (row,) = put(store, record(second, value=5, why="said itself"), link="lisbon")
    assert (row[3], decode_value(row[4]), row[5]) == (second.value, 5, "said itself")
    assert put(store, record(Outcome.OK, why="third"), link="lisbon")[0][5] == "said itself"


def test_a_second_guess_changes_nothing(store: sqlite3.Connection) -> None:
    put(store, record(Outcome.SITE_DARK, why="first"))
    assert put(store, record(Outcome.SITE_DARK, why="second"))[0][5] == "first"


def test_devices_of_one_name_at_two_sites_are_two(store: sqlite3.Connection) -> None:
    assert len(put(store, record(site="lisbon"), record(site="madrid"))) == 2


def test_the_event_has_what_salt_users_look_for() -> None:
    job = Job(jid=JID, tgt="*", fun="test.echo", arg=["hello"], user="alice", issued=0.0, expires=1.0)
    event = return_event(record(value="hello", retcode=0), job)
    assert event.tag == f"salt/job/{JID}/ret/cam-1"
    assert (event.site, event.stamp) == ("lisbon", 1_795_230_900.25)
    assert event.data == {
        "cmd": "_return",
        "id": "cam-1",
        "jid": JID,
        "fun": "test.echo",
        "fun_args": ["hello"],
        "return": "hello",
        "retcode": 0,
        "success": True,
        "user": "alice",
        "ts": 1_795_230_900,
        "outcome": "ok",
        "why": "",
        "_stamp": "2026-11-21T03:15:00.250000",
    }


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_only_ok_is_a_success(outcome: Outcome) -> None:
    event = return_event(record(outcome), None)
    assert event.data["success"] is False
    assert (event.data["fun_args"], event.data["user"]) == ([], "")


def test_what_only_a_device_may_read_is_in_no_event() -> None:
    secret = Job(jid=JID, tgt="*", fun="test.echo", arg=["x"], user="alice", issued=0.0, expires=1.0, sealed=True)
    assert return_event(record(Outcome.OK), secret).data["fun_args"] == []


def test_a_return_is_only_heard_unless_it_came_late() -> None:
    event = return_event(record(Outcome.OK), None)
    assert is_only_heard(event)
    assert not is_only_heard(replace(event, data={**event.data, "late": True}))
    for tag in ("salt/job/1/new", "salt/job/1/close", "salt/jobs/1/ret/cam-1", "salt/job/ret/1"):
        assert not is_only_heard(replace(event, tag=tag))


def test_of_several_functions_salts_events_have_lists() -> None:
    made = [["cmd.run", ["uptime"], {"cwd": "/"}], ["test.ping", [], {}]]
    job = Job(jid=JID, tgt="*", fun=SEVERAL, arg=made, user="ops", issued=0.0, expires=60.0)
    functions, arguments = ["cmd.run", "test.ping"], [["uptime", {"cwd": "/", "__kwarg__": True}], []]
    told = return_event(record(fun="cmd.run,test.ping"), job).data
    assert (told["fun"], told["fun_args"]) == (functions, arguments)
    told = return_event(record(fun="cmd.run,test.ping"), None).data
    assert (told["fun"], told["fun_args"]) == ("cmd.run,test.ping", [])
    for event in (new_event(job, ["cam-1"]), publish_event(job, [])):
        assert (event["fun"], event["arg"]) == (functions, arguments)
    ours = given(job, "lisbon", "cam-1", Outcome.UNREACHABLE, "", seen=None, ended=0.0)
    assert ours.fun == "cmd.run,test.ping"
    fields = Returned(1, job, record(fun="cmd.run,test.ping")).fields()
    assert (fields["fun"], fields["fun_args"]) == ("cmd.run,test.ping", arguments)
