"""``master run``, ``gateway run`` and ``agent run``: the programs that stay; and the commands of a device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from device_agent.command_line import words
from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, EXIT_OK, EXIT_USAGE
from device_agent.places import AGENT_CONFIG
from gateway.cli import backup, salt_import, stations
from gateway.cli.arguments import duration
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

AGENT = "outstation agent"

Config = Annotated[Path, typer.Option(metavar=words.CONFIG.metavar, readable=False, help=words.CONFIG.words)]


def add(app: typer.Typer) -> None:
    """Add the three nouns to the program."""
    for name, text, run in (
        ("master", MASTER, run_master),
        ("gateway", GATEWAY, run_gateway),
    ):
        group = noun(HelpText(purpose=text.purpose, examples=text.examples, exits=EXITS))
        verb(group, "run", text)(run)
        stations.add(name, group)
        backup.add(name, group)
        salt_import.add(name, group)
        app.add_typer(group, name=name)
    agent = noun(words.noun(AGENT))
    commands: tuple[Callable[..., int], ...] = (run_agent, join_site, show_device, say_status, check_device)
    for name, command in zip(words.VERBS, commands, strict=True):
        verb(agent, name, words.text(name, AGENT))(command)
    app.add_typer(agent, name="agent")


def run_master(config: Config = MASTER_CONFIG) -> int:
    """Run a master until it is stopped."""
    from device_agent import next_start
    from device_agent.notify import Notifier
    from gateway import station

    notifier = Notifier()
    next_start.wait("outstation-master", notifier)
    return station.main("master", config, notifier)


def run_gateway(config: Config = GATEWAY_CONFIG) -> int:
    """Run a gateway until it is stopped; without a name it waits to be given one."""
    from device_agent import next_start
    from device_agent.notify import Notifier
    from gateway import station, waiting_room

    notifier = Notifier()
    next_start.wait("outstation-gateway", notifier)
    named = waiting_room.wait_for_name(config, notifier)
    return station.main("gateway", config, notifier) if named else EXIT_OK


def run_agent(config: Config = AGENT_CONFIG) -> int:
    """Run an agent until it is stopped."""
    from device_agent import running

    return running.main(config)


def join_site(
    token: Annotated[str | None, typer.Argument(metavar=words.TOKEN.metavar, help=words.TOKEN.words)] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar=words.TOKEN_FILE.metavar, help=words.TOKEN_FILE.words)
    ] = None,
    wait: Annotated[str, typer.Option(metavar=words.WAIT.metavar, help=words.WAIT.words)] = words.JOIN_WAIT,
    config: Config = AGENT_CONFIG,
) -> int:
    """Join a site."""
    from device_agent import membership

    return membership.join(config, token, token_file, duration("--wait", wait))


def show_device(config: Config = AGENT_CONFIG) -> int:
    """Say who this device is."""
    from device_agent import membership

    return membership.show(config)


def say_status(
    as_json: Annotated[bool, typer.Option("--json", help=words.JSON_STATUS.words)] = False,
    config: Config = AGENT_CONFIG,
) -> int:
    """Say whether the agent runs and is connected."""
    from device_agent import standing

    return standing.show(config, as_json=as_json)


def check_device(
    as_json: Annotated[bool, typer.Option("--json", help=words.JSON_CHECK.words)] = False,
    config: Config = AGENT_CONFIG,
) -> int:
    """Print what every check of the device found."""
    from device_agent import checks

    return checks.main(config, as_json=as_json)
