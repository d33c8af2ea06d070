"""``outstation swarm``: many devices in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, EXIT_USAGE
from device_agent.protocol import limits
from gateway.cli.command import HelpText, verb
from gateway.cli.ssh_words import text_of

TEXT = HelpText(
    purpose="Be many devices in one process, each with a connection of its own, for load and rehearsals.",
    details=(
        "Each device has keys of its own: it joins, verifies, opens, runs and answers for itself, as the real agent "
        "does. Identities, journals and outboxes live in memory. The token must be good for as many devices. SIGUSR1 "
        "writes the report at once."
    ),
    examples=[
        ("outstation swarm --devices 1000 --token-file swarm.token", "site and broker are those of the token"),
        ("outstation swarm --token 'TOKEN' --prefix gate- --report swarm.json", "and say what it did"),
    ],
    exits={
        EXIT_OK: "stopped by SIGTERM or Ctrl-C, in order",
        EXIT_NOT_ALL_OK: "the broker refused it, or a part of it failed",
        EXIT_USAGE: "the command line or the token is wrong, or more files would be open than this process may have",
    },
)


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    verb(app, "swarm", TEXT)(swarm)


def swarm(
    token: Annotated[str | None, typer.Option(metavar="TOKEN", help="the token that they join with")] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="read the token from a file, so that it does not show in ps")
    ] = None,
    devices: Annotated[
        int, typer.Option(metavar="N", min=1, max=limits.DEVICES_PER_STATION, help="how many devices")
    ] = 100,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="how their serial numbers begin")] = "cam-",
    report: Annotated[
        str | None, typer.Option(metavar="FILE", help="write what the swarm did to this file (default: nowhere)")
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="where they keep files (default: nowhere that outlasts the swarm)"),
    ] = None,
) -> int:
    """Run a swarm until it is stopped."""
    import logging

    import msgspec

    from device_agent import swarm as many

    if (token is None) == (token_file is None):
        raise typer.BadParameter("a swarm joins with one token", param_hint="--token or --token-file")
    if token_file is not None:
        token = text_of(token_file).strip()
    wanted = {"devices": devices, "token": token, "prefix": prefix, "report": report, "cache_dir": cache}
    try:
        settings = msgspec.convert(wanted, many.SwarmSettings)
    except msgspec.ValidationError as error:
        raise typer.BadParameter(str(error)) from None
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    many.main(settings)
    return EXIT_OK
