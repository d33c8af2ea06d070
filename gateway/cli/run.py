"""``outstation run``: a function on every device that a target matches."""

from __future__ import annotations

import getpass
import os
import re
from typing import Annotated, Any, Literal

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_NOT_RUNNING, EXIT_OK, EXIT_REFUSED, EXIT_USAGE, UsageInvalid
from device_agent.protocol import limits
from device_agent.protocol.outcomes import MEANING
from gateway.cli import completion, targets
from gateway.cli.arguments import duration, names, split_each, with_stdin, written
from gateway.cli.command import HelpText, invocation, verb
from gateway.cli.failures import INTERRUPTED

OUTCOMES = {outcome.value: words for outcome, words in MEANING.items()}
"""How the help explains outcomes."""

WATCH_EXITS = {
    EXIT_OK: "every device is ok, and there is at least one",
    EXIT_NOT_ALL_OK: "some device is not ok, no device matched, or a site is dark",
    EXIT_USAGE: "the command line is wrong, or there is no such job",
    EXIT_NOT_RUNNING: "no station answers, or it went away before the end",
    EXIT_REFUSED: "the station refuses it by policy",
    INTERRUPTED: "Ctrl-C: the job goes on",
}

TEXT = HelpText(
    purpose="Run a function on every device that a target matches, and watch the answers.",
    details=(
        "An ARG is read as YAML: 3 is a number, true is true, [a, b] is a list, and '\"3\"' is text. NAME=VALUE is a "
        "named argument. What starts with a dash follows a --. Several functions with commas between are one job: a "
        "device calls one after another. A comma by itself stands between their arguments, as in "
        "test.ping,cmd.run , uptime. "
        "In a pipe each device is one line: id, outcome and "
        "value with tabs between; longer text follows indented. On a terminal equal answers of more than 20 devices "
        "are one line, and everything that is not ok is listed."
    ),
    explained={"Targets": targets.TARGETS, "Outcomes": OUTCOMES},
    examples=[
        ("outstation run '*' test.ping", "every device of every site"),
        ("outstation run -G os:Debian cmd.run 'uptime' --late run --expires 2h", "absent devices run it on return"),
    ],
    exits=WATCH_EXITS,
)


Target = Annotated[str, typer.Argument(metavar="TARGET", help="which devices", autocompletion=completion.targets)]
Function = Annotated[
    str,
    typer.Argument(
        metavar="FUNCTION",
        help="module.function, as in test.ping; or several with commas between",
        autocompletion=completion.functions,
    ),
]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="[ARG|NAME=VALUE]…", help="arguments of the function")]
LateOption = Annotated[
    Literal["drop", "run"],
    typer.Option(
        metavar="drop|run", help="with drop an absent device is unreachable at once, with run it runs it on return"
    ),
]
Expires = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="how long a device may still start it: 30s, 5m, 2h, 1d "
        f"(default: {written(limits.JOB_EXPIRY_SECONDS)}; with --late run {written(limits.JOB_EXPIRY_LATE_SECONDS)})",
    ),
]
Limit = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help=f"how long it may run on a device: 30s, 5m, 2h (default: {written(limits.RUN_LIMIT_SECONDS)})",
    ),
]
Sealed = Annotated[
    bool, typer.Option("--sealed", help="seal the arguments to each device: no station on the way can read them")
]
Return = Annotated[
    str | None,
    typer.Option(
        "--return",
        metavar="NAME[,NAME]",
        help="send each return to these returners of the station as well",
        autocompletion=completion.returners,
    ),
]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="the reason, for the audit and whoever releases it")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object per outcome, and a last one as summary")]
ArgsStdin = Annotated[
    bool, typer.Option("--args-stdin", help="read more arguments from stdin, one a line: they do not show in ps")
]
NoParse = Annotated[
    str, typer.Option("--no-parse", metavar="NAME[,NAME]", help="named arguments whose values are not read as YAML")
]
Detach = Annotated[bool, typer.Option("--detach", help="print the jid and do not wait")]
Verbose = Annotated[bool, typer.Option("--verbose", help="list every device, also on a terminal")]


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    verb(app, "run", TEXT)(run)


@targets.read_as
def run(
    context: typer.Context,
    target: Target,
    function: Function,
    arguments: Arguments = None,
    *,
    read: targets.As,
    late: LateOption = "drop",
    expires: Expires = None,
    limit: Limit = None,
    why: Why = "",
    sealed: Sealed = False,
    returners: Return = None,
    args_stdin: ArgsStdin = False,
    no_parse: NoParse = "",
    as_json: Json = False,
    detach: Detach = False,
    verbose: Verbose = False,
) -> int:
    """Create the job and watch it."""
    from device_agent.protocol.messages import FUNCTION_PATTERN
    from gateway.cli.watch import held_words, watch, ways_back
    from gateway.typed_arguments import split_arguments

    output = invocation(context).output
    meant = read(target)
    functions = function.split(",")
    for each in functions:
        if re.match(FUNCTION_PATTERN, each) is None:
            words = f"a function is module.function, as in test.ping; found {each!r}"
            raise typer.BadParameter(words, param_hint="FUNCTION")
    positional: list[Any]
    named: dict[str, Any] = {}
    try:
        typed, unparsed = with_stdin(arguments, from_stdin=args_stdin), names(no_parse)
        if len(functions) > 1:
            positional = list(split_each(functions, typed, unparsed))
        else:
            positional, named = split_arguments(typed, unparsed)
    except UsageInvalid as error:
        raise typer.BadParameter(error.what, param_hint="ARG") from None
    wanted = {
        **meant,
        "fun": function,
        "arg": positional,
        "kwarg": named,
        "late": late,
        "expires_seconds": None if expires is None else duration("--expires", expires),
        "run_limit": None if limit is None else duration("--limit", limit),
        "user": user_name(),
        **({"why": why} if why else {}),
        **({"sealed": True} if sealed else {}),
        **({"ret": returners} if returners else {}),
    }
    client = invocation(context).client()
    try:
        job = client.create_job(wanted)
    except KeyboardInterrupt:
        output.note("interrupted before the station had answered; if it took the job: outstation jobs list")
        return INTERRUPTED
    if not detach:
        return watch(client, job.jid, output, as_json=as_json, verbose=verbose, accepted=True)
    if as_json:
        output.record("job", job)
        return EXIT_OK
    output.line(job.jid)
    if job.held:
        output.note(held_words(job.jid))
    for line in ways_back(job.jid):
        output.note(f"  {line}")
    return EXIT_OK


def user_name() -> str:
    """Who asks, for the job's record, as Salt writes it: ``alice``, or ``sudo_alice`` for alice as root."""
    behind = os.environ.get("SUDO_USER")
    if behind and os.geteuid() == 0:
        return f"sudo_{behind}"[:128]
    try:
        return getpass.getuser()[:128]
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"
