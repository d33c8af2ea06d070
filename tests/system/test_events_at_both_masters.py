"""Events at both masters after a switch: which ones both hold, and that a reader of both can drop the repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.peers.database import look
from tests.peers.held_line import HeldLine
from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

DEVICES = 20
OF_STATION = 80
"""Events that the station fires in each of the three parts; each device fires one as well."""

PART = DEVICES + OF_STATION
TAG = "site/*"
RULES = {"master_type": "failover", "master_alive_interval": 6.0, "random_reauth_delay": 0.2}
SEQUENCES = "SELECT CAST(replace(origin, rtrim(origin, '0123456789'), '') AS INTEGER) FROM events WHERE origin LIKE ?"


@pytest.fixture
def system() -> Iterator[System]:
    with whole_system() as started:
        started.add_master("north")
        started.add_master("south")
        yield started


def fire(system: System, part: str) -> None:
    """Fire the events of one part at the site, from the station and from each device."""
    for number in range(OF_STATION):
        system.stations["lisbon"].fire(f"site/{part}/station", {"number": number})
    system.ended("lisbon", system.issue("lisbon", "*", "event.send", f"site/{part}/device"))


def held(system: System, master: str) -> list[str]:
    """The origins of the events of the test in a master's store."""
    rows = look(system.state_of(master) / "station.sqlite", "SELECT origin FROM events WHERE tag LIKE 'site/%'")
    return [origin for (origin,) in rows]


def sequences(system: System, master: str) -> list[int]:
    """The sequences of all events of the site's stream for events in a master's store."""
    rows = look(system.state_of(master) / "station.sqlite", SEQUENCES, "lisbon/%/events/%")
    return sorted(sequence for (sequence,) in rows)


def identities(system: System, master: str) -> dict[str, tuple[str, str]]:
    """What a reader of a master's API gets: for each origin the tag, and who fired which event under it."""
    return {
        str(event.origin): (event.tag, str(event.data.get("id") or event.data["number"]))
        for event in system.stations[master].events(TAG, 10_000, follow=False)
    }


def test_both_masters_hold_only_the_batch_that_was_under_way_and_its_origins_tell(system: System) -> None:
    north, south = system.address("north"), system.address("south")
    with HeldLine(north["address"]) as line:
        system.add_gateway("lisbon", masters=[{**north, "address": line.address}, south], **RULES)
        system.join("lisbon", "north", grants=["event.send"])
        system.connected("lisbon", "south")
        system.add_swarm(DEVICES, "lisbon")
        system.present(DEVICES, "lisbon", "north", "south")
        system.until(lambda: system.stations["north"].site("lisbon").role == "active", "north is active")

        fire(system, "before")
        system.until(lambda: len(held(system, "north")) == PART, "north has the first part")
        confirmed = sequences(system, "north")[-1]
        system.until(lambda: system.view("lisbon")["spool_pending"] == 0, "north confirmed it")
        # From here on north commits what comes, and its confirmations do not arrive.
        line.hold()
        fire(system, "under-way")
        system.until(lambda: len(held(system, "north")) > PART, "north committed more than it confirmed")
        system.kill("north")
        line.cut()
        fire(system, "after")
        system.until(lambda: len(held(system, "south")) >= PART, "south has what followed")
        system.until(lambda: system.view("lisbon")["spool_pending"] == 0, "south confirmed everything")
        system.restart("north")
        system.until(lambda: system.stations["north"].site("lisbon").role == "standby", "north stands by")

        at = {master: held(system, master) for master in ("north", "south")}
        for master, origins in at.items():
            assert [origin for origin, times in Counter(origins).items() if times > 1] == [], f"{master} has repeats"
        both = set(at["north"]) & set(at["south"])
        assert len(set(at["north"]) | set(at["south"])) == 3 * PART, "each event is at one master at least"
        assert 0 < len(both) <= PART, "only what was under way is at both"
        last = sequences(system, "north")[-1]
        twice = sorted(set(sequences(system, "north")) & set(sequences(system, "south")))
        assert twice[0] > confirmed, "nothing that was confirmed goes to another master"
        assert twice == list(range(twice[0], last + 1)), "both hold the newest that north has, without a gap"

        # A reader of both drops a repeat by its origin: each event stays exactly once.
        of_north, of_south = identities(system, "north"), identities(system, "south")
        assert {origin: of_north[origin] for origin in both} == {origin: of_south[origin] for origin in both}
        merged = Counter({**of_north, **of_south}.values())
        assert (len(merged), set(merged.values())) == (3 * PART, {1})
