"""What the shell offers where a jid, a target, a site or a function is typed. Silent when no station answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from device_agent.errors import OutstationError

if TYPE_CHECKING:
    from gateway.cli.client import StationClient

COMPLETION_SECONDS = 1.0
JOBS_OFFERED = 50
DEVICES_OFFERED = 1000
GRAINS_OFFERED = 100
READ_AS = ("grain", "grain_pcre", "pillar", "pillar_pcre", "compound", "pcre", "list", "ipcidr", "range", "nodegroup")
"""The options that say how a target is read, by their parameters (``targets``)."""

# A shell expands what it is offered, so only plain words are.
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+-]*\Z")


def jids(context: typer.Context) -> list[str]:
    """The newest jids."""
    return _offered(context, lambda client: (job.jid for job in client.jobs(JOBS_OFFERED)))


def open_jids(context: typer.Context) -> list[str]:
    """The jids of open jobs."""
    return _offered(context, lambda client: (job.jid for job in client.jobs(JOBS_OFFERED, "open")))


def site_names(context: typer.Context) -> list[str]:
    """The sites of a master."""
    return _offered(context, lambda client: (site.site for site in client.sites()))


def key_names(context: typer.Context) -> list[str]:
    """The sites and devices whose keys a station knows."""
    return _offered(context, lambda client: (key.label for key in client.keys().keys))


def device_names(context: typer.Context) -> list[str]:
    """The first devices of a station, by name."""
    return _offered(context, lambda client: (device.id for device in client.devices({}, DEVICES_OFFERED)))


def join_token_ids(context: typer.Context) -> list[str]:
    """The join tokens that still let devices in."""
    from gateway.cli.key_client import KeyClient

    return _offered(context, lambda client: (token.id for token in KeyClient(client).tokens() if token.state == "open"))


def operator_token_ids(context: typer.Context) -> list[str]:
    """The valid tokens of the API."""
    return _offered(context, lambda client: (token.id for token in client.tokens() if token.state == "valid"))


def functions(incomplete: str) -> list[str]:
    """The functions that devices of this release have, of which several stand with commas between."""
    from device_agent.loader import names

    before = incomplete.rpartition(",")[0]
    return [f"{before},{name}" if before else name for name in names()]


def runner_functions(context: typer.Context) -> list[str]:
    """The runners of a station."""
    return _offered(context, lambda client: _called(client, "runner"))


def wheel_functions(context: typer.Context) -> list[str]:
    """The wheels of a station."""
    return _offered(context, lambda client: _called(client, "wheel"))


def targets(context: typer.Context, incomplete: str) -> list[str]:
    """What could stand as a target, by the option that says how it is read."""
    typed = context.params
    kind = typed.get("typed") or next((name for name in READ_AS if typed.get(name)), "glob")
    if kind == "glob":
        return device_names(context)
    if kind == "list":
        # All but the last of the names are there already.
        before = incomplete.rpartition(",")[0]
        known = set(before.split(","))
        return [f"{before},{name}" if before else name for name in device_names(context) if name not in known]
    if kind == "nodegroup":
        return _offered(context, _groups)
    return _offered(context, lambda client: _grains(client, incomplete)) if kind == "grain" else []


def _groups(client: StationClient) -> Iterable[str]:
    from gateway.cli.match_views import NodegroupList

    return client.ask("GET", "/nodegroups", NodegroupList).nodegroups


def _grains(client: StationClient, incomplete: str) -> Iterable[str]:
    """Grains of the first devices with their values; names alone as long as no name is complete."""
    found: set[str] = set()
    for device in client.devices({}, DEVICES_OFFERED):
        found.update(_paths(device.grains or {}, ""))
    if ":" in incomplete:
        return sorted(path for path in found if path.startswith(incomplete))[:GRAINS_OFFERED]
    return sorted({f"{path.partition(':')[0]}:" for path in found})


def _paths(grain: object, path: str) -> Iterable[str]:
    """A grain as one types it after ``-G``: each of its keys and its value, with colons between."""
    if isinstance(grain, dict):
        for key, value in grain.items():
            yield from _paths(value, f"{path}{key}:")
    elif isinstance(grain, list):
        for each in grain:
            yield from _paths(each, path)
    elif isinstance(grain, str | int | float):
        yield f"{path}{grain}"


def returners(context: typer.Context, incomplete: str) -> list[str]:
    """The returners of a station, of which several stand with commas between."""
    from gateway.cli.returners_views import ReturnersPage

    before = incomplete.rpartition(",")[0]
    names = _offered(
        context, lambda client: [each.name for each in client.ask("GET", "/returners", ReturnersPage).returners]
    )
    return [f"{before},{name}" if before else name for name in names if name not in before.split(",")]


def schedule_names(context: typer.Context) -> list[str]:
    """What a station runs by itself."""
    from gateway.cli.schedule_views import SchedulePage

    return _offered(
        context, lambda client: [each.name for each in client.ask("GET", "/schedule", SchedulePage).entries]
    )


def engine_names(context: typer.Context) -> list[str]:
    """The engines of a station."""
    from gateway.cli.engines_views import EnginePage

    return _offered(context, lambda client: [each.name for each in client.ask("GET", "/engines", EnginePage).engines])


def rule_tags(context: typer.Context) -> list[str]:
    """The tags of the rules of a station, as far as they are no globs: for these an event can be tried."""
    from gateway.cli.reactor_views import RulesPage

    return _offered(context, lambda client: [each.tag for each in client.ask("GET", "/reactor", RulesPage).rules])


def _called(client: StationClient, kind: str) -> Iterable[str]:
    from gateway.cli.call_views import FunctionPage

    return [each.fun for each in client.ask("GET", "/calls/functions", FunctionPage, query={"kind": kind}).functions]


def _offered(context: typer.Context, ask: Callable[[StationClient], Iterable[str]]) -> list[str]:
    from gateway.cli.meant import meant

    try:
        # The callback of the program does not run while the shell completes, so the options are read where they were
        # parsed.
        client = meant(context.find_root().params).client(COMPLETION_SECONDS)
        return [name for name in ask(client) if PLAIN.match(name)]
    except OutstationError:
        return []
