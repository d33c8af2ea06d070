"""What a Salt user counts on when the reactor of a master is copied over, each with the test that shows it.

``PROMISES`` names them all; the tests below are those of the lines that no other file shows.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.house.tree import ROOT
from tests.peers.event_rows import ROWS
from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

HERE: Final = "promises/test_reactor_promises.py"
RULES: Final = "unit/gateway/reactor/test_rules.py"
EVENTS: Final = "system/test_salt_events.py::test_an_event_has_what_salt_puts_into_it"
SLS: Final = "unit/gateway/reactor/test_sls.py"
REACTOR: Final = "integration/test_reactor.py"
RUNNER: Final = "integration/test_runner_functions.py"

FORMS_MADE: Final = f"{HERE}::test_all_forms_in_one_file_are_made_in_salts_order_with_what_they_say"
ARGUMENTS: Final = f"{SLS}::test_arguments_are_read_in_every_shape_that_salt_reads"

PROMISES: Final = {
    "tag globs, * crosses /": f"{RULES}::test_a_glob_is_matched_against_the_whole_tag_and_crosses_slashes",
    "a rule has one key": f"{RULES}::test_what_is_no_rule_is_left_out_and_named_and_the_others_count",
    "a path or a list of paths": f"{RULES}::test_a_text_is_one_path_and_every_entry_that_matches_counts_in_order",
    "a map in a file is read again": f"{REACTOR}::test_a_map_in_a_file_is_read_again_when_it_changes",
    "a glob of files": f"{REACTOR}::test_files_are_found_by_globs_in_order_and_read_again_when_they_change",
    "salt:// and ?saltenv=": f"{REACTOR}::test_files_come_from_the_station_s_own_roots_by_environment",
    "#!py returns a mapping": f"{REACTOR}::test_a_file_in_python_says_what_its_run_returns",
    "what renders to nothing": f"{HERE}::test_a_file_that_renders_to_nothing_sets_off_nothing_and_is_no_trouble",
    "a bad file harms itself alone": f"{REACTOR}::test_a_bad_file_harms_itself_alone_and_is_named_with_its_line",
    "the short form": FORMS_MADE,
    "the later of two ids": f"{SLS}::test_the_later_file_counts_where_two_have_the_same_id",
    "local, cmd, runner, wheel, caller": FORMS_MADE,
    "a type that is not there": f"{REACTOR}::test_each_type_is_made_or_says_why_not",
    "args, a list or a mapping": ARGUMENTS,
    "arg and kwarg": ARGUMENTS,
    "arguments of a runner by their names": ARGUMENTS,
    "arguments of a caller by their places": ARGUMENTS,
    "args beside arg is warned of": f"{SLS}::test_what_is_ignored_is_a_warning_and_the_reaction_is_made",
    "tgt_type and expr_form": f"{SLS}::test_the_target_is_read_by_its_new_and_its_old_name",
    "order": f"{SLS}::test_an_order_that_is_given_comes_before_all_that_have_none",
    "order by type and id": f"{SLS}::test_by_default_the_order_is_by_type_then_by_id_and_otherwise_as_it_is_written",
    "the user Reactor sets off nothing": f"{REACTOR}::test_an_event_of_salts_reactor_sets_off_nothing",
    "more events than wait": f"{REACTOR}::test_when_too_many_wait_some_give_way_and_are_counted",
    "who does not lead": f"{RUNNER}::test_who_does_not_lead_reacts_to_nothing_and_can_be_managed_still",
    "list, add, delete, is_leader": f"{RUNNER}::test_the_reactor_runner_answers_word_for_word_and_its_changes_stay",
    "set_leader": f"{HERE}::test_the_runner_answers_on_the_command_line_as_salts_does",
    "the data of a beacon, flat and nested": f"{REACTOR}::test_data_without_data_is_read_one_level_deeper_too",
    "an event of a site has two tags": f"{HERE}::test_an_event_of_a_site_sets_off_the_rules_of_both_its_tags",
    # What is in an event: the rows of one test, by station and tag.
    "salt/minion/<id>/start": f"{EVENTS}[lisbon salt/minion/[^/]+/start]",
    "minion_start": f"{EVENTS}[lisbon minion_start]",
    "salt/auth": f"{EVENTS}[lisbon salt/auth]",
    "salt/key": f"{EVENTS}[lisbon salt/key]",
    "salt/key of a site": f"{EVENTS}[central salt/key]",
    "<jid>": rf"{EVENTS}[lisbon \d{{20}}]",
    "salt/job/<jid>/new": rf"{EVENTS}[lisbon salt/job/\d{{20}}/new]",
    "salt/job/<jid>/publish": rf"{EVENTS}[lisbon salt/job/\d{{20}}/publish]",
    "salt/job/<jid>/ret/<id>": rf"{EVENTS}[lisbon salt/job/\d{{20}}/ret/[^/]+]",
    "salt/run/<jid>/new": rf"{EVENTS}[lisbon salt/run/\d{{20}}/new]",
    "salt/run/<jid>/ret": rf"{EVENTS}[lisbon salt/run/\d{{20}}/ret]",
    "salt/wheel/<jid>/new": rf"{EVENTS}[lisbon salt/wheel/\d{{20}}/new]",
    "salt/wheel/<jid>/ret": rf"{EVENTS}[lisbon salt/wheel/\d{{20}}/ret]",
    "salt/presence/present": f"{EVENTS}[lisbon salt/presence/present]",
    "salt/presence/change": f"{EVENTS}[lisbon salt/presence/change]",
    "an event of a device": "system/test_device_events.py::test_a_devices_event_is_seen_at_its_station_and_above",
    "an event of a runner is flat": f"{EVENTS}[lisbon site/flat]",
    "an event of a runner is flat above": f"{EVENTS}[central site/flat]",
    "an event of a station's runner goes up": f"{RUNNER}::test_event_send_is_flat_and_goes_up",
    "an event of a beacon is flat": (
        "system/test_beacons.py::test_a_full_disk_is_told_in_salts_shape_and_the_reaction_makes_room"
    ),
    "a run that fails says so": (
        "integration/test_calls.py::test_a_call_that_fails_in_any_way_has_one_end_that_says_why"
    ),
}
"""What is promised, and its test, below ``tests``; in brackets the case of it."""

EMPTY: Final = {
    "jinja": "{% if data.get('act') == 'pend' %}\na: {local.test.ping: [{tgt: cam-1}]}\n{% endif %}\n",
    "nothing": "",
    "comment": "# nothing yet\n",
    "mapping": "#!py\ndef run():\n    return {}\n",
    "none": "#!py\ndef run():\n    return None\n",
}
FORMS: Final = """\
z_short: runner.reactor.is_leader
y_caller_new:
  caller.test.echo:
    - args:
      - text: {{ tag }}
x_caller_old:
  caller.test.echo:
    - args: [{{ tag }}]
w_cmd:
  cmd.test.echo:
    - tgt: 'own:yes'
    - expr_form: grain
    - arg: [{{ tag }}]
v_local:
  local.test.echo:
    - tgt: [cam-1, cam-9]
    - args: {text: {{ tag }}}
u_mixed:
  local.test.echo:
    - tgt: cam-1
    - order: 1
    - args: {text: {{ tag }}}
    - arg: [ignored]
t_runner_new:
  runner.event.send:
    - args:
      - tag: made/new
      - data: {of: {{ tag }}}
s_runner_old:
  runner.event.send:
    - tag: made/old
    - data: {of: {{ tag }}}
r_wheel:
  wheel.key.list:
    - match: all
"""


@pytest.fixture(scope="module")
def site() -> Iterator[System]:
    with whole_system() as system:
        folder = system.folder / "rules"
        folder.mkdir()
        for name, text in {**EMPTY, "forms": FORMS}.items():
            (folder / f"{name}.sls").write_text(text)
        (folder / "seen.sls").write_text("seen: {runner.event.send: [{tag: seen/here}, {data: {of: {{ tag }}}}]}\n")
        seen = str(folder / "seen.sls")
        system.add_master(events={"syndic_tags": True}, reactor=[{"told/*": seen}, {"syndic/*/told/*": seen}])
        rules: list[dict[str, Any]] = [
            {"empty/*": [str(folder / f"{name}.sls") for name in EMPTY]},
            {"forms/*": str(folder / "forms.sls")},
        ]
        system.add_gateway("lisbon", "central", reactor=rules, station={"grants": ["looks"]})
        system.join("lisbon")
        system.add_agent("cam-1", "lisbon", own="yes")
        system.until(lambda: system.is_here("cam-1", "lisbon"), "the device is here")
        yield system


def event_of(site: System, tag: str, station: str = "lisbon") -> dict[str, Any]:
    """Wait until everything is over that the one event with this tag set off; what is told of it."""
    found: list[dict[str, Any]] = []

    def over() -> bool:
        found[:] = json.loads(site.ask(station, "GET", f"/reactor/why?what={tag}")[1]).get("events", [])
        return bool(found) and found[0]["state"] != "waiting" and all(map(ended, found[0]["reactions"]))

    site.until(over, f"{tag} is answered")
    (event,) = found
    return event


def ended(reaction: dict[str, Any]) -> bool:
    return bool(reaction["outcomes"]) or reaction["state"] not in ("waiting", "issued")


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_has_its_test(promise: str) -> None:
    file, _, named = PROMISES[promise].partition("::")
    name, _, case = named.rstrip("]").partition("[")
    if case:
        assert case in {f"{station} {tag}" for station, tag, _ in ROWS}
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_a_file_that_renders_to_nothing_sets_off_nothing_and_is_no_trouble(site: System) -> None:
    site.command("fire", "empty/a", "{act: accept}", station="lisbon", status=0)
    event = event_of(site, "empty/a")
    assert (event["state"], event["reactions"], event["troubles"]) == ("rendered", [], [])
    site.command("fire", "empty/b", "{act: pend}", station="lisbon", status=0)
    assert [each["id"] for each in event_of(site, "empty/b")["reactions"]] == ["a"]


def test_all_forms_in_one_file_are_made_in_salts_order_with_what_they_say(site: System) -> None:
    site.command("fire", "forms/a", "{}", station="lisbon", status=0)
    event = event_of(site, "forms/a")
    made = {each["id"]: each for each in event["reactions"]}
    # What has an order first, then by type, then by id.
    callers, locals_, runners = ["x_caller_old", "y_caller_new"], ["w_cmd", "v_local"], ["s_runner_old", "t_runner_new"]
    assert list(made) == ["u_mixed", *callers, *locals_, *runners, "z_short", "r_wheel"]
    assert {each["state"] for each in made.values()} == {"issued"}
    for name in ("x_caller_old", "y_caller_new", "w_cmd", "v_local", "u_mixed"):
        assert "forms/a" in {each["value"] for each in made[name]["outcomes"] if each["outcome"] == "ok"}, made[name]
    assert made["x_caller_old"]["outcomes"][0]["device"] == "lisbon-station"
    assert (made["v_local"]["tgt"], made["v_local"]["tgt_type"]) == ("cam-1,cam-9", "list")
    assert (made["w_cmd"]["tgt"], made["w_cmd"]["tgt_type"]) == ("own:yes", "grain")
    assert (made["u_mixed"]["arg"], made["u_mixed"]["kwarg"]) == ([], {"text": "forms/a"})
    (warning,) = event["troubles"]
    assert (warning["id"], warning["level"]) == ("u_mixed", "warning")
    assert "ignored beside args" in warning["what"]
    for name in ("s_runner_old", "t_runner_new", "z_short"):
        assert [each["value"] for each in made[name]["outcomes"]] == [True]
    (listed,) = made["r_wheel"]["outcomes"]
    assert (listed["outcome"], listed["device"]) == ("ok", "lisbon-station"), made["r_wheel"]
    assert listed["value"]["minions"] == ["cam-1"]
    for tag in ("made/old", "made/new"):
        assert event_data(site, "lisbon", tag) == [{"of": "forms/a"}]


def event_data(site: System, station: str, tag: str) -> list[dict[str, Any]]:
    body = site.ask(station, "GET", f"/events?tag={tag}&history=1000&follow=false")[1]
    found = [json.loads(line) for line in body.splitlines() if line.strip()]
    return [{name: value for name, value in each["data"].items() if name != "_stamp"} for each in found]


def test_the_runner_answers_on_the_command_line_as_salts_does(site: System) -> None:
    def answer(*words: str) -> Any:
        done = site.command("runner", *words, "--json", station="lisbon", status=0)
        return json.loads(done.out)["value"]

    assert answer("reactor.is_leader") is True
    assert answer("reactor.set_leader", "False") is False
    assert answer("reactor.is_leader") is False
    site.command("fire", "forms/unled", "{}", station="lisbon", status=0)
    assert answer("reactor.set_leader", "True") is True
    assert answer("reactor.add", "late/*", "/srv/late.sls") == {"status": True, "comment": "Reactor added."}
    assert answer("reactor.list")[-1] == {"late/*": ["/srv/late.sls"]}
    assert answer("reactor.delete", "late/*") == {"status": True, "comment": "Reactor deleted."}
    # What came after it is answered, and what came before it never will be.
    site.command("fire", "empty/led", "{}", station="lisbon", status=0)
    event_of(site, "empty/led")
    site.command("reactor", "why", "forms/unled", station="lisbon", status=2)


def test_an_event_of_a_site_sets_off_the_rules_of_both_its_tags(site: System) -> None:
    site.command("fire", "told/door", "{}", station="lisbon", status=0)
    for tag in ("told/door", "syndic/lisbon/told/door"):
        (reaction,) = event_of(site, tag, "central")["reactions"]
        assert (reaction["rule"], reaction["kwarg"]["data"]) == (
            "told/*" if tag.startswith("told") else "syndic/*/told/*",
            {"of": tag},
        )
        assert reaction["outcomes"][0]["outcome"] == "ok"
    assert len(event_data(site, "central", "seen/here")) == 2
