"""A gateway that reacts by itself: from `outstation fire` to the outcome on a device."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ECHO = """\
say:
  local.test.echo:
    - tgt: {{ data['id'] }}
    - args:
      - text: {{ tag }}
"""
BROKEN = "a: 1\nb: {{ lacking }}\n"


@pytest.fixture(scope="module")
def site() -> Iterator[System]:
    with whole_system() as system:
        (system.folder / "echo.sls").write_text(ECHO)
        system.add_gateway("lisbon", reactor=[{"site/*": str(system.folder / "echo.sls")}])
        system.add_agent("cam-1", "lisbon")
        system.until(lambda: system.is_here("cam-1", "lisbon"), "the device is here")
        yield system


def why(site: System, what: str) -> list[dict[str, Any]]:
    done = site.command("reactor", "why", what, "--json", station="lisbon")
    return [json.loads(line) for line in done.out.splitlines()]


def ended(site: System, tag: str) -> dict[str, Any]:
    """Wait until the one event with this tag had its one reaction, and its job an outcome."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = why(site, tag)
        return len(found) == 1 and any(each["outcomes"] for each in found[0]["reactions"])

    site.until(there, f"the reaction to {tag} has an outcome")
    (reaction,) = found[0]["reactions"]
    return dict(reaction)


def test_an_event_that_is_fired_runs_on_the_device_and_why_tells_the_chain(site: System) -> None:
    site.command("fire", "site/door/opened", "{id: cam-1}", station="lisbon", status=0)
    reaction = ended(site, "site/door/opened")
    (outcome,) = reaction["outcomes"]
    assert (outcome["device"], outcome["outcome"], outcome["value"]) == ("cam-1", "ok", "site/door/opened")
    (behind,) = why(site, reaction["jid"])
    assert behind["tag"] == "site/door/opened"
    told = site.command("reactor", "why", "site/door/opened", station="lisbon", status=0).out
    assert "local.test.echo on glob cam-1" in told
    assert "cam-1 of lisbon: ok" in told


def test_rules_are_listed_checked_and_tried(site: System) -> None:
    site.command("fire", "site/listed", "{id: cam-1}", station="lisbon", status=0)
    listed = site.command("reactor", "list", station="lisbon", status=0).out
    assert str(site.folder / "echo.sls") in listed
    site.command("reactor", "check", station="lisbon", status=0)
    tried = site.command("reactor", "test", "site/x", "--data", "{id: cam-7}", station="lisbon", status=0).out
    assert "local.test.echo on glob cam-7" in tried
    (site.folder / "echo.sls").write_text(BROKEN)
    found = site.command("reactor", "check", station="lisbon", status=1).out
    assert f"{site.folder / 'echo.sls'}:2: error: 'lacking' is undefined" in found
    site.command("reactor", "test", "site/x", station="lisbon", status=1)
    (site.folder / "echo.sls").write_text(ECHO)
    site.command("reactor", "why", "site/never", station="lisbon", status=2)


def test_recorded_events_are_replayed_by_the_rules_and_by_a_file_that_is_none_yet(site: System) -> None:
    site.command("fire", "site/replayed", "{id: cam-1}", station="lisbon", status=0)
    ended(site, "site/replayed")
    jobs = len(site.view("lisbon", "/jobs?limit=1000")["jobs"])
    done = site.command("reactor", "replay", "--since", "1h", "--tag", "site/replayed", station="lisbon", status=0)
    assert "site/replayed\n" in done.out
    assert "local.test.echo on glob cam-1" in done.out
    assert "1 match; reactions: 1 local; 0 errors, 0 warnings; nothing was done" in done.error
    tried = site.folder / "tried.sls"
    tried.write_text("note:\n  runner.event.send:\n    - args:\n      - tag: noted/{{ data['fun'] }}\n")
    told = site.command(
        "reactor", "replay", "--rule", str(tried), "--tag", "salt/job/*/ret/cam-1", "--json", station="lisbon", status=0
    )
    *events, totals = (json.loads(line) for line in told.out.splitlines())
    assert {reaction["kwarg"]["tag"] for event in events for reaction in event["reactions"]} == {"noted/test.echo"}
    assert totals["files"] == {str(tried): len(events)}
    assert len(site.view("lisbon", "/jobs?limit=1000")["jobs"]) == jobs
    tried.write_text(BROKEN)
    wrong = site.command("reactor", "replay", "--rule", str(tried), "--tag", "site/*", station="lisbon", status=1)
    assert wrong.error.count(f"{tried}:2: error: 'lacking' is undefined") == 1
