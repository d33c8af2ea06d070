"""The whole program: every noun and verb, and what happens when a command line is wrong."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from device_agent import __version__
from device_agent.errors import (
    EXIT_CONFIG,
    EXIT_NOT_ALL_OK,
    EXIT_NOT_RUNNING,
    EXIT_OK,
    EXIT_REFUSED,
    EXIT_USAGE,
)
from gateway.cli import (
    audit,
    bench,
    calls,
    check,
    daemons,
    demo,
    devices,
    engines,
    events,
    files,
    fire,
    fleet,
    jobs,
    keys,
    mine,
    pillar,
    reactor,
    returners,
    run,
    schedule,
    sites,
    spool,
    support,
    swarm,
    tokens,
)
from gateway.cli.command import HelpText, Invocation, described_group
from gateway.cli.failures import INTERRUPTED, complain
from gateway.cli.meant import meant
from gateway.cli.output import standard_output

COMMANDS = [
    "demo",
    "run",
    "jobs",
    "devices",
    "mine",
    "pillar",
    "sites",
    "keys",
    "operators",
    "audit",
    "events",
    "fire",
    "reactor",
    "schedule",
    "runner",
    "wheel",
    "engines",
    "returners",
    "files",
    "spool",
    "check",
    "support-bundle",
    "master",
    "gateway",
    "agent",
    "fleet",
    "swarm",
    "bench",
]
"""The commands in the order of the help: what one meets first is first."""

PROGRAM = HelpText(
    purpose="Outstation: jobs for every device behind every site, and one answer from each.",
    details="Results go to stdout, everything about them to stderr. `outstation COMMAND --help` explains a command.",
    order=COMMANDS,
    examples=[
        ("outstation demo", "the whole system on this machine, in under a minute"),
        ("outstation run '*' test.ping", "ask every device whether it is there"),
    ],
    exits={
        EXIT_OK: "all ok",
        EXIT_NOT_ALL_OK: "some device is not ok, or what was asked failed",
        EXIT_USAGE: "the command line is wrong, or there is no such job, device, site or key",
        EXIT_CONFIG: "a settings file is wrong",
        EXIT_NOT_RUNNING: "no station answers at the socket",
        EXIT_REFUSED: "refused by policy",
        INTERRUPTED: "interrupted by Ctrl-C; a job goes on",
    },
)

app = typer.Typer(
    name="outstation",
    cls=described_group(PROGRAM),
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    options_metavar="[OPTION]…",
    subcommand_metavar="COMMAND …",
    no_args_is_help=True,
)


def _say_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"outstation {__version__}\n")
        raise typer.Exit


@app.callback()
def program(
    context: typer.Context,
    socket: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            readable=False,
            help="the station's socket (default: $OUTSTATION_SOCKET, or the only one under /run/outstation)",
        ),
    ] = None,
    api: Annotated[
        str | None,
        typer.Option(metavar="URL", help="a station on another machine, https://HOST:PORT (default: $OUTSTATION_API)"),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            readable=False,
            help="with --api: who is asking; what `operators new` printed (default: $OUTSTATION_TOKEN_FILE)",
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            readable=False,
            help="with --api: certificates to trust (default: $OUTSTATION_CA, or those of the system)",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="say the version and stop")
    ] = False,
) -> None:
    """Keep what stands before the command."""
    context.obj = Invocation(standard_output(), meant(context.params))


demo.add(app)
run.add(app)
app.add_typer(jobs.app, name="jobs")
app.add_typer(devices.app, name="devices")
app.add_typer(mine.app, name="mine")
app.add_typer(pillar.app, name="pillar")
app.add_typer(sites.app, name="sites")
app.add_typer(keys.app, name="keys")
app.add_typer(tokens.app, name="operators")
app.add_typer(audit.app, name="audit")
events.add(app)
fire.add(app)
app.add_typer(reactor.app, name="reactor")
calls.add(app)
app.add_typer(engines.app, name="engines")
app.add_typer(schedule.app, name="schedule")
app.add_typer(returners.app, name="returners")
app.add_typer(files.app, name="files")
app.add_typer(spool.app, name="spool")
check.add(app)
support.add(app)
daemons.add(app)
app.add_typer(fleet.app, name="fleet")
swarm.add(app)
app.add_typer(bench.app, name="bench")


def main(arguments: Sequence[str]) -> int:
    """Run one command line; the exit status. Raises what the command raises."""
    try:
        status = get_command(app).main(args=list(arguments), prog_name="outstation", standalone_mode=False)
    except typer.TyperException as error:
        return _explain(error)
    except typer.Abort:
        return INTERRUPTED
    return status if isinstance(status, int) else EXIT_OK


def _explain(error: typer.TyperException) -> int:
    """A mistake in the command line: one line and the right usage, or the help where a command is missing."""
    context: typer.Context | None = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error.format_message()}\n")
        return EXIT_USAGE
    message = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    option = getattr(error, "option_name", "")
    if context is not None and option and type(error).__name__ == "NoSuchOption":
        message = f"no such option: {option}{_nearest_option(option, context)}"
    complain(message[:1].lower() + message[1:])
    if context is not None:
        sys.stderr.write(f"{context.get_usage()}\nhelp:  {context.command_path} --help\n")
    return error.exit_code


def _nearest_option(option: str, context: typer.Context) -> str:
    root = context.find_root()
    before = {name for parameter in root.command.get_params(root) for name in parameter.opts}
    if context is not root and option in before - {"--help"}:
        after = context.command_path.removeprefix(f"{root.info_name} ")
        return f"; it goes before the command: {root.info_name} {option} … {after}"
    known = {
        name
        for parameter in context.command.get_params(context)
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    near = get_close_matches(option, known, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    if any(parameter.param_type_name == "argument" for parameter in context.command.get_params(context)):
        return f"; an argument that begins with a dash follows --: {context.command_path} … -- ARG"
    return ""
