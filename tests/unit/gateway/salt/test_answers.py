"""What a Salt master is told of each outcome, and under which tags events go on its bus."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from device_agent.protocol.messages import Close, Event, OutcomeRecord
from device_agent.protocol.outcomes import Outcome
from gateway.salt.answers import Told, answer, entries, event, own_tag
from tests.peers.database import FIRST_JID
from tests.peers.salt_above import ChannelDouble
from upstream.salt.above import Above
from upstream.salt.terms import SaltRules

JID = str(FIRST_JID)


def record(outcome: Outcome, **more: Any) -> OutcomeRecord:
    given = {"site": "lisbon", "id": "cam-1", "fun": "test.echo", **more}
    return OutcomeRecord(jid=JID, outcome=outcome, ended=1.0, **given)


def test_what_ran_is_told_as_it_returned() -> None:
    good = answer(record(Outcome.OK, value={"a": [1]}), ["x"])
    assert (good.value, good.retcode, good.success, good.fun_args) == ({"a": [1]}, 0, True, ["x"])
    bad = answer(record(Outcome.FAILED, value="no such file", retcode=2))
    assert (bad.value, bad.retcode, bad.success) == ("no such file", 2, False)
    empty = answer(record(Outcome.FAILED, why="it raised KeyError"))
    assert (empty.value, empty.retcode, empty.success) == ("it raised KeyError", 1, False)


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome not in (Outcome.OK, Outcome.FAILED)])
def test_what_did_not_run_says_so_in_words_and_is_no_success(outcome: Outcome) -> None:
    told = answer(record(outcome, why="because"))
    assert told.value.startswith(outcome.value.replace("_", " ").split()[0]) or outcome is Outcome.SITE_DARK
    assert told.value.endswith("because")
    assert not told.success
    assert told.retcode


BOTH = ["test.echo", "cmd.run"]
STOPPED = "timed out: it started and did not end in time: stopped after 1 s"
LOST = "unknown: it may have run: cmd.run: the connection went"


@pytest.mark.parametrize(
    ("ended", "value", "codes", "success"),
    [
        (
            record(Outcome.TIMED_OUT, value={"test.echo": "hello"}, why="stopped after 1 s", retcode=1),
            {"test.echo": "hello", "cmd.run": STOPPED},
            {"test.echo": 0, "cmd.run": 1},
            {"test.echo": True, "cmd.run": False},
        ),
        (
            record(Outcome.FAILED, value={"test.echo": "hello"}, why="stopped by saltutil.kill_job", retcode=1),
            {"test.echo": "hello", "cmd.run": "stopped by saltutil.kill_job"},
            {"test.echo": 0, "cmd.run": 1},
            {"test.echo": True, "cmd.run": False},
        ),
        (
            record(Outcome.FAILED, value={}, why="stopped by saltutil.kill_job", retcode=1),
            dict.fromkeys(BOTH, "stopped by saltutil.kill_job"),
            {"test.echo": 1, "cmd.run": 1},
            dict.fromkeys(BOTH, False),
        ),
        (
            record(Outcome.UNKNOWN, value={"test.echo": None}, why="cmd.run: the connection went", retcode=1),
            {"test.echo": None, "cmd.run": LOST},
            {"test.echo": 0, "cmd.run": 1},
            {"test.echo": True, "cmd.run": False},
        ),
        (
            record(Outcome.FAILED, why="result_too_large: 300000 bytes, at most 241664", retcode=1),
            dict.fromkeys(BOTH, "result_too_large: 300000 bytes, at most 241664"),
            {},
            dict.fromkeys(BOTH, False),
        ),
        (
            record(Outcome.UNREACHABLE, why="not connected"),
            dict.fromkeys(BOTH, "unreachable: not connected"),
            {},
            dict.fromkeys(BOTH, False),
        ),
        (
            record(Outcome.OK, value={"test.echo": "hello", "cmd.run": ""}),
            {"test.echo": "hello", "cmd.run": ""},
            {},
            dict.fromkeys(BOTH, True),
        ),
    ],
)
async def test_of_several_functions_each_is_told_as_it_returned_or_why_it_did_not(
    ended: OutcomeRecord, value: Any, codes: dict[str, int], success: dict[str, bool]
) -> None:
    ended = replace(ended, retcodes=codes or UNSET)
    (entry,) = entries([ended], {JID: Told(BOTH, [["hello"], ["id"]])})
    assert list(entry.answers["cam-1"].value.items()) == list(value.items())
    channel = ChannelDouble({})
    await Above(SaltRules(id="lisbon"), channel, channel).returns([entry])
    said = channel.fields["load"][0]["return"]["cam-1"]
    assert (said["return"], said["success"]) == (value, success)
    assert said["retcode"] == {name: int(not success[name]) for name in BOTH}


def test_devices_of_one_name_at_two_sites_are_both_told() -> None:
    both = [record(Outcome.OK, value=site, site=site) for site in ("lisbon", "porto")]
    found = entries(both, {JID: Told("test.echo")})
    assert [entry.answers["cam-1"].value for entry in found] == ["lisbon", "porto"]


def test_a_tag_that_a_master_keeps_for_itself_goes_under_the_name_of_the_site() -> None:
    for tag in ("salt/key", f"salt/job/{JID}/ret/cam-1", f"salt/job/{JID}/new", "salt/run/1/new", "salt/cluster/x"):
        assert own_tag(tag, "lisbon") == f"outstation/lisbon/{tag}"
    for tag in ("salt/minion/cam-1/start", "salt/beacon/cam-1/load/", "site/door", f"salt/job/{JID}/prog/cam-1/1"):
        assert own_tag(tag, "lisbon") == tag


def test_an_event_names_itself_and_goes_twice_where_it_is_asked_for() -> None:
    item = Event(tag="site/door", data={"open": True}, stamp=5.0, site="lisbon")
    ((tag, data),) = event(item, mark="e/events/1", gateway="lisbon", twice=False)
    assert (tag, data["open"], data["outstation"]) == (
        "site/door",
        True,
        {"event": "e/events/1", "site": "lisbon", "at": 5.0},
    )
    tags = [tag for tag, _ in event(item, mark="e/events/1", gateway="lisbon", twice=True)]
    assert tags == ["site/door", "syndic/lisbon/site/door"]
    assert event(Close(jid=JID, site="lisbon", counts={}), mark="", gateway="lisbon", twice=False) == []
