"""A gateway that is killed in the middle of many reactions: none is forgotten, and none is made into two."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest

from tests.peers.database import look
from tests.peers.system import SECONDS, System, whole_system

EVENTS: Final = int(os.environ.get("OUTSTATION_REACTIONS", "300"))
"""The long form has 10,000."""

KILLS: Final = 6
SEED: Final = 20260518
BATCH: Final = 100
DEVICES: Final = 10 + EVENTS // 50
"""A device refuses what is more than it lets wait: so many that this is never so."""

PATIENCE: Final = SECONDS + EVENTS / 4

pytestmark = [pytest.mark.system, pytest.mark.timeout(180 + 2 * PATIENCE)]

RULE = """\
say:
  local.test.echo:
    - tgt: {{ data['device'] }}
    - args:
      - text: {{ tag }}
send:
  runner.event.send:
    - args:
      - tag: effect/{{ data['number'] }}
      - data: {number: {{ data['number'] }}}
"""


@pytest.fixture(scope="module")
def site() -> Iterator[System]:
    with whole_system() as system:
        (system.folder / "rule.sls").write_text(RULE)
        # Whoever is away at a kill is back long before; nothing may expire because the machine is slow.
        reactions = {"expires_seconds": 1800.0, "waiting": 2 * EVENTS}
        rules = [{"site/*": str(system.folder / "rule.sls")}]
        system.add_gateway("lisbon", reactor=rules, reactions=reactions)
        system.add_swarm(DEVICES, "lisbon")
        system.present(DEVICES, "lisbon")
        yield system


def device_of(number: int) -> str:
    return f"cam-{number % DEVICES:05d}"


def issued(site: System) -> int:
    return int(site.view("lisbon", "/reactor")["reactions"].get("issued", 0))


def made_before(site: System) -> int:
    """How many reactions a gateway that was killed had made, from a copy: its own file stays as it is."""
    copy = site.folder / "copy"
    copy.mkdir(exist_ok=True)
    for file in (*copy.iterdir(), *site.state_of("lisbon").glob("station.sqlite*")):
        if file.parent == copy:
            file.unlink()
        else:
            shutil.copy(file, copy)
    return int(look(copy / "station.sqlite", "SELECT count(*) FROM reactions WHERE state = 'issued'")[0][0])


def fire(site: System, numbers: range) -> None:
    for first in range(numbers.start, numbers.stop, BATCH):
        events = [
            {"tag": f"site/{number}", "data": {"number": number, "device": device_of(number)}}
            for number in range(first, min(first + BATCH, numbers.stop))
        ]
        assert site.ask("lisbon", "POST", "/events", json.dumps({"events": events}).encode())[0] == 201


def test_a_gateway_that_is_killed_forgets_no_reaction_and_makes_none_into_two_jobs(site: System) -> None:
    chance, cut_off = Random(SEED), []
    for part in range(KILLS):
        fire(site, range(EVENTS * part // KILLS, EVENTS * (part + 1) // KILLS))
        fired = EVENTS * (part + 1) // KILLS
        # By what is done and not by a clock; the first two at once, the others anywhere among these events' reactions.
        moment = 0 if part < 2 else chance.randrange(2 * EVENTS * part // KILLS, 2 * fired)
        site.wait_until(lambda: issued(site) >= moment, PATIENCE, f"{moment} reactions are made")  # noqa: B023 - called at once
        site.kill("lisbon")
        cut_off.append(2 * fired - made_before(site))
        site.restart("lisbon")
    assert min(cut_off) >= 0
    assert max(cut_off) > 0, "no kill was in the middle of anything"
    store = site.state_of("lisbon") / "station.sqlite"

    def over() -> bool:
        (still,) = look(
            store,
            "SELECT (SELECT count(*) FROM reactor_events WHERE state = 'waiting')"
            " + (SELECT count(*) FROM reactions WHERE state = 'waiting')"
            " + (SELECT count(*) FROM jobs WHERE closed IS NULL)"
            " + (SELECT count(*) FROM calls WHERE state = 'open')",
        )[0]
        return issued(site) >= 2 * EVENTS and still == 0

    site.wait_until(over, PATIENCE, "everything is over")

    numbers = range(EVENTS)
    effects = dict(look(store, "SELECT tag, count(*) FROM events WHERE tag GLOB 'effect/*' GROUP BY tag"))
    assert effects == {f"effect/{number}": 1 for number in numbers}
    executed = site.report()["executed"]
    keys: set[str] = set()
    jids: dict[str, set[str]] = {"jobs": set(), "calls": set()}
    for number in numbers:
        (event,) = json.loads(site.ask("lisbon", "GET", f"/reactor/why?what=site/{number}")[1])["events"]
        assert (event["state"], event["troubles"]) == ("rendered", [])
        assert [each["id"] for each in event["reactions"]] == ["say", "send"]
        for made, kind in zip(event["reactions"], jids, strict=True):
            assert made["state"] == "issued", made
            ended(site, made, kind, number)
            keys.add(made["key"])
            jids[kind].add(made["jid"])
        # The job's own word for what is run at most once is kept through all kills: it was handed over, and run once.
        assert executed[event["reactions"][0]["jid"]] == {"devices": 1, "executions": 1, "most": 1}
    assert len(keys) == 2 * EVENTS
    for kind, found in jids.items():
        # As many as there are events, and there is none that belongs to no reaction.
        assert {jid for (jid,) in look(store, f"SELECT jid FROM {kind}")} == found
        assert len(found) == EVENTS
    assert look(store, "SELECT state, count(*) FROM reactions GROUP BY state") == [("issued", 2 * EVENTS)]
    assert look(store, "SELECT count(*), count(DISTINCT jid) FROM outcomes") == [(EVENTS, EVENTS)]


def ended(site: System, made: dict[str, Any], kind: str, number: int) -> None:
    """A reaction has one outcome, and its job or call carries its key."""
    (outcome,) = made["outcomes"]
    device, value = (device_of(number), f"site/{number}") if kind == "jobs" else ("lisbon-station", True)
    assert (outcome["device"], outcome["outcome"], outcome["value"]) == (device, "ok", value)
    row = site.view("lisbon", f"/{kind}/{made['jid']}")
    assert row["why"].startswith(f"reaction {made['key']} depth 0 id {made['id']} to site/{number}"), row
    assert row["state"] == ("closed" if kind == "jobs" else "ok")
