"""Wrong rules on a real station: one that sets itself off, and files that break or attack what renders them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEPTH: Final = 3
LOOP: Final = "again:\n  local.test.ping:\n    - tgt: loop-1\n"
GOOD: Final = "good:\n  local.test.echo:\n    - tgt: {{ data['id'] }}\n    - args:\n      - text: {{ tag }}\n"


class Bad(NamedTuple):
    """A file, the line that is named, and a part of what is said of it."""

    text: str
    line: int
    what: str


BAD: Final = {
    "syntax": Bad("a:\n  local.test.ping:\n    - tgt: {% if %}\n", 3, "xpected"),
    "endless": Bad(
        "a: 1\n{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}\n", 2, "(too_slow)"
    ),
    "large": Bad("a: 1\nb: {% for a in range(90000) %}{{ 'x' * 1200 }}{% endfor %}\n", 2, "renders to more than"),
    "undefined": Bad("a:\n  local.test.ping:\n\n    - tgt: {{ lacking }}\n", 4, "'lacking' is undefined"),
    "internals": Bad("\na: {{ ''.__class__.__mro__[1].__subclasses__() }}\n", 2, "unsafe"),
}


@pytest.fixture(scope="module")
def site() -> Iterator[System]:
    with whole_system() as system:
        folder = system.folder / "rules"
        folder.mkdir()
        for name, bad in BAD.items():
            (folder / f"{name}.sls").write_text(bad.text)
        (folder / "loop.sls").write_text(LOOP)
        (folder / "good.sls").write_text(GOOD)
        rules: list[dict[str, str]] = [{f"site/{name}": str(folder / f"{name}.sls")} for name in BAD]
        # Behind the bad ones, so that what they do to the renderer would be done before it.
        rules += [{"site/*": str(folder / "good.sls")}, {"salt/job/*/ret/loop-1": str(folder / "loop.sls")}]
        bounds = {"seconds": 60.0, "cpu_seconds": 3}
        system.add_gateway("lisbon", reactor=rules, reactions={"depth": DEPTH}, render=bounds)
        for device in ("cam-1", "loop-1"):
            system.add_agent(device, "lisbon")
        system.present(2, "lisbon")
        yield system


def why(site: System, what: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(site.ask("lisbon", "GET", f"/reactor/why?what={what}")[1]).get(
        "events", []
    )
    return events


def answered(site: System, tag: str) -> None:
    """Wait until a reaction to this event has an outcome."""

    def there() -> bool:
        return any(each["outcomes"] for event in why(site, tag) for each in event["reactions"])

    site.until(there, f"the reaction to {tag} has an outcome")


def test_a_rule_that_sets_itself_off_stops_at_the_depth_and_it_is_said(site: System) -> None:
    jid = site.issue("lisbon", "loop-1", "test.ping")
    for depth in range(DEPTH + 1):
        tag = f"salt/job/{jid}/ret/loop-1"
        answered(site, tag)
        (event,) = why(site, tag)
        assert (event["depth"], event["state"]) == (depth, "rendered")
        (reaction,) = event["reactions"]
        jid = reaction["jid"]
    last = f"salt/job/{jid}/ret/loop-1"
    site.until(lambda: why(site, last), "the last return is seen")
    (event,) = why(site, last)
    assert (event["depth"], event["state"], event["reactions"]) == (DEPTH + 1, "stopped", [])
    told = site.command("reactor", "why", last, station="lisbon", status=0).out
    assert ": stopped; " in told
    assert "reactions.depth" in told
    assert 'outstation_refused_total{link="reactor",reason="too_deep"} 1' in (
        site.ask("lisbon", "GET", "/metrics")[1].decode()
    )
    assert (
        len([each for each in site.view("lisbon", "/jobs?limit=100")["jobs"] if each["tgt"] == "loop-1"]) == DEPTH + 2
    )


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_harms_itself_alone_and_is_named_with_its_line(name: str, site: System) -> None:
    bad, file = BAD[name], site.folder / "rules" / f"{name}.sls"
    before = site.refusals("lisbon")["reactor", "bad_file"]
    site.command("fire", f"site/{name}", "{id: cam-1}", station="lisbon", status=0)

    answered(site, f"site/{name}")
    (event,) = why(site, f"site/{name}")
    (reaction,) = event["reactions"]
    (outcome,) = reaction["outcomes"]
    assert (reaction["file"], reaction["state"]) == (str(file.with_name("good.sls")), "issued")
    assert (outcome["device"], outcome["outcome"], outcome["value"]) == ("cam-1", "ok", f"site/{name}")
    (trouble,) = event["troubles"]
    assert (trouble["file"], trouble["line"], trouble["level"]) == (str(file), bad.line, "error")
    assert bad.what in trouble["what"]
    place = f"{file}:{bad.line}: error: "
    assert place in site.command("reactor", "why", f"site/{name}", station="lisbon", status=0).out
    found = site.command("reactor", "check", station="lisbon", status=1).out.splitlines()
    assert [line for line in found if line.startswith(place)], found
    assert not [line for line in found if "good.sls" in line or "loop.sls" in line], found
    assert site.refusals("lisbon")["reactor", "bad_file"] == before + 1
