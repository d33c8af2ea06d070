"""Rules whose files come from the master's file server: the newest, or the last one that came."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SITE, MASTER, FILE = "lisbon", "central", "salt://reactor/say.sls?saltenv=site"
SAY = "say:\n  local.test.echo:\n    - tgt: {{{{ data['id'] }}}}\n    - args:\n      - text: {word} {{{{ tag }}}}\n"


def test_a_rule_file_of_the_master_counts_while_the_uplink_is_cut_and_the_gateway_begins_anew() -> None:
    with whole_system() as system:
        served = system.folder / "srv" / "reactor"
        served.mkdir(parents=True)
        (served / "say.sls").write_text(SAY.format(word="first"), encoding="utf-8")
        system.add_master(file_roots={"site": [str(system.folder / "srv")]})
        system.add_gateway(SITE, MASTER, reactor=[{"site/*": FILE}], files={"fresh_seconds": 0.0})
        system.join(SITE, grants=["reads"])
        system.add_agent("cam-1", SITE)
        system.present(1, SITE, MASTER)

        assert said(system, "site/a") == "first site/a"
        (served / "say.sls").write_text(SAY.format(word="second"), encoding="utf-8")
        assert said(system, "site/b") == "second site/b"

        system.kill(MASTER)
        system.kill(SITE)
        system.restart(SITE)
        system.until(lambda: system.is_here("cam-1", SITE), "the camera is here again")
        assert system.view(SITE)["uplink"]["state"] != "connected"
        assert said(system, "site/c") == "second site/c"
        assert [each["file"] for each in events(system, "site/c")[0]["reactions"]] == [FILE]
        system.command("reactor", "check", station=SITE, status=0)

        (served / "say.sls").write_text(SAY.format(word="third"), encoding="utf-8")
        system.restart(MASTER)
        system.connected(SITE)
        assert said(system, "site/d") == "third site/d"


def said(system: System, tag: str) -> Any:
    """What the camera answers to the reaction to an event."""
    system.command("fire", tag, "{id: cam-1}", station=SITE, status=0)
    found: list[Any] = []

    def there() -> bool:
        reactions = [each for event in events(system, tag) for each in event["reactions"]]
        found[:] = [outcome["value"] for each in reactions for outcome in each["outcomes"]]
        return len(found) == 1

    system.until(there, f"the reaction to {tag} has its outcome")
    return found[0]


def events(system: System, tag: str) -> list[dict[str, Any]]:
    done = system.command("reactor", "why", tag, "--json", station=SITE)
    return [json.loads(line) for line in done.out.splitlines()]
