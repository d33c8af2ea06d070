"""What the shell offers where a jid, a site or a function is typed. Silent when no station answers."""

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

# A shell expands what it is offered, so only plain words are.
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]*\Z")


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


def functions() -> list[str]:
    """The functions that devices of this release have."""
    from device_agent.loader import names

    return list(names())


def runner_functions(context: typer.Context) -> list[str]:
    """The runners of a station."""
    return _offered(context, lambda client: _called(client, "runner"))


def wheel_functions(context: typer.Context) -> list[str]:
    """The wheels of a station."""
    return _offered(context, lambda client: _called(client, "wheel"))


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
