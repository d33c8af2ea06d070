"""``master run``, ``gateway run`` and ``agent run``: the programs that stay; and how a device joins its site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, EXIT_OK, EXIT_REFUSED, EXIT_USAGE
from device_agent.places import AGENT_CONFIG
from gateway.cli import backup, stations
from gateway.cli.arguments import duration
from gateway.cli.camera import JOIN_WAIT
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

JOIN = HelpText(
    purpose="Join a site with a token, and wait until the site has this device.",
    details=(
        "The token comes from `outstation keys token new` on the gateway; it has letters that a shell takes for its "
        "own, so it stands between single quotes. With a token no one has to accept the device. Without one, by root: "
        "and broker: in the settings, it waits for who compares its fingerprint: `outstation keys accept`."
    ),
    examples=[
        ("outstation agent join 'TOKEN'", "and then start the agent"),
        ("outstation agent join --wait 1h", "without a token, until somebody accepts this device"),
    ],
    exits={
        EXIT_OK: "this device belongs to the site",
        EXIT_NOT_ALL_OK: "nobody accepted it in time",
        EXIT_USAGE: "the command line or the token is wrong",
        EXIT_CONFIG: "the settings are wrong, or the state directory is in use",
        EXIT_REFUSED: "the gateway refuses it, or its token",
    },
)
SHOW = HelpText(
    purpose="Say who this device is: its name, its site and its fingerprint.",
    examples=[
        ("outstation agent show", "what to compare before it is accepted"),
        ("outstation agent show --config ./agent.yaml", "with settings of your own"),
    ],
    exits={
        EXIT_OK: "shown",
        EXIT_NOT_ALL_OK: "this machine has no identity yet",
        EXIT_USAGE: "the command line is wrong",
        EXIT_CONFIG: "the settings are wrong, or the identity is damaged",
    },
)

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
        if run is run_agent:
            verb(group, "join", JOIN)(join_site)
            verb(group, "show", SHOW)(show_device)
        stations.add(name, group)
        backup.add(name, group)
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
    from device_agent import running

    return running.main(config)


def join_site(
    token: Annotated[str | None, typer.Argument(metavar="TOKEN", help="the token; - reads it from stdin")] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="read the token from a file (default: that of the settings)")
    ] = None,
    wait: Annotated[str, typer.Option(metavar="TIME", help="how long to wait for the gateway")] = JOIN_WAIT,
    config: Config = AGENT_CONFIG,
) -> int:
    """Join a site."""
    from device_agent import membership

    return membership.join(config, token, token_file, duration("--wait", wait))


def show_device(config: Config = AGENT_CONFIG) -> int:
    """Say who this device is."""
    from device_agent import membership

    return membership.show(config)
