"""``outstation demo``: the whole system on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, EXIT_USAGE
from gateway.cli.command import HelpText, verb

TEXT = HelpText(
    purpose="Show the whole system on this machine: a master, a gateway, a broker and devices, all real.",
    details="Everything is on loopback and in a temporary folder, and is stopped at the end.",
    examples=[
        ("outstation demo", "under a minute"),
        ("outstation demo --devices 1000 --keep", "stays up, and says how to talk to it"),
    ],
    exits={
        EXIT_OK: "everything did what it should",
        EXIT_NOT_ALL_OK: "something did not; it is named",
        EXIT_USAGE: "the command line is wrong",
    },
)


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    verb(app, "demo", TEXT)(demo)


def demo(
    devices: Annotated[int, typer.Option(metavar="N", min=1, max=18_000, help="how many devices in the swarm")] = 100,
    keep: Annotated[bool, typer.Option("--keep", help="stay up until Ctrl-C")] = False,
) -> int:
    """Run the demo."""
    from gateway import demo as whole_system

    return whole_system.main(devices, keep)
