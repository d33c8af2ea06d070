"""``outstation master run``, ``gateway run`` and ``agent run``: the programs that stay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, EXIT_OK, EXIT_USAGE
from gateway.cli.camera import AGENT_CONFIG
from gateway.cli.command import HelpText, noun, verb

MASTER_CONFIG = Path("/etc/outstation/master.yaml")
GATEWAY_CONFIG = Path("/etc/outstation/gateway.yaml")

EXITS = {
    EXIT_OK: "stopped by SIGTERM or Ctrl-C, in order",
    EXIT_NOT_ALL_OK: "a part of it failed; it may be started again",
    EXIT_USAGE: "the command line is wrong",
    EXIT_CONFIG: "the settings file is wrong; starting it again does not help",
}


def _text(role: str, purpose: str, config: Path) -> HelpText:
    return HelpText(
        purpose=purpose,
        details="It stays in the foreground and logs to stderr; under systemd that is the journal.",
        examples=[
            (f"outstation {role} run", f"with {config}"),
            (f"outstation {role} run --config ./{role}.yaml", "with settings of your own"),
        ],
        exits=EXITS,
    )


MASTER = _text("master", "Run a master: the station in the middle, with sites below it.", MASTER_CONFIG)
GATEWAY = _text("gateway", "Run a gateway: the station of a site, with devices below it.", GATEWAY_CONFIG)
AGENT = _text("agent", "Run the agent of a device.", AGENT_CONFIG)

Config = Annotated[Path, typer.Option(metavar="FILE", help="settings file")]


def add(app: typer.Typer) -> None:
    """Add the three nouns to the program."""
    for name, text, run in (
        ("master", MASTER, run_master),
        ("gateway", GATEWAY, run_gateway),
        ("agent", AGENT, run_agent),
    ):
        group = noun(HelpText(purpose=text.purpose, examples=text.examples, exits=EXITS))
        verb(group, "run", text)(run)
        app.add_typer(group, name=name)


def run_master(config: Config = MASTER_CONFIG) -> int:
    """Run a master until it is stopped."""
    from gateway import station

    return station.main("master", config)


def run_gateway(config: Config = GATEWAY_CONFIG) -> int:
    """Run a gateway until it is stopped."""
    from gateway import station

    return station.main("gateway", config)


def run_agent(config: Config = AGENT_CONFIG) -> int:
    """Run an agent until it is stopped."""
    from device_agent import agent

    return agent.main(config)
