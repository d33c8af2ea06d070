"""Rules on a master: it orders what its sites' devices do, what it does itself, and who belongs to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.peers.reactor_examples import EXAMPLES
from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

MASTER = "central"
RULES = {
    "site/local": "say:\n  local.test.echo:\n    - tgt: {{ data['id'] }}\n    - args:\n      - text: {{ tag }}\n",
    "site/caller": "own:\n  caller.grains.get:\n    - args:\n      - id\n",
    "salt/auth": "let_in:\n  wheel.key.accept:\n    - args:\n      - match: {{ data['id'] }}\n",
}
GUARD = "{{% if data['act'] == 'pend' and data['id'] == 'porto' %}}\n{text}{{% endif %}}\n"


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with whole_system() as started:
        rules = []
        for tag, text in RULES.items():
            file = started.folder / f"{tag.replace('/', '-')}.sls"
            file.write_text(GUARD.format(text=text) if tag == "salt/auth" else text, encoding="utf-8")
            rules.append({tag: str(file)})
        started.add_master(reactor=rules, policy=str(EXAMPLES / "policy.yaml"))
        started.add_gateway("lisbon", MASTER)
        started.join("lisbon", grants=["reads"])
        started.add_agent("cam-1", "lisbon")
        started.present(1, MASTER, "lisbon")
        yield started


def reaction(system: System, tag: str) -> dict[str, Any]:
    """The one reaction to an event, with its outcome."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        done = system.command("reactor", "why", tag, "--json", station=MASTER)
        events = [json.loads(line) for line in done.out.splitlines()]
        found[:] = [each for event in events for each in event.get("reactions", []) if each["outcomes"]]
        return len(found) == 1

    system.until(there, f"the reaction to {tag} has its outcome")
    return found[0]


def test_a_local_reaction_of_a_master_reaches_a_device_of_its_site(system: System) -> None:
    system.command("fire", "site/local", "{id: cam-1}", station=MASTER, status=0)
    (outcome,) = reaction(system, "site/local")["outcomes"]
    assert (outcome["site"], outcome["device"]) == ("lisbon", "cam-1")
    assert (outcome["outcome"], outcome["value"]) == ("ok", "site/local")


def test_a_caller_reaction_of_a_master_runs_on_its_own_host(system: System) -> None:
    system.command("fire", "site/caller", "{}", station=MASTER, status=0)
    (outcome,) = reaction(system, "site/caller")["outcomes"]
    assert (outcome["site"], outcome["device"]) == (MASTER, f"{MASTER}-station")
    assert (outcome["outcome"], outcome["value"]) == ("ok", f"{MASTER}-station")


def test_a_wheel_reaction_of_a_master_lets_a_site_in(system: System) -> None:
    system.add_gateway("porto", MASTER)
    system.connected("porto")
    found = reaction(system, "salt/auth")
    assert (found["said"], found["kwarg"]) == ("wheel.key.accept", {"match": "porto"})
    assert [(each["outcome"], each["value"]) for each in found["outcomes"]] == [("ok", {"minions": ["porto"]})]
