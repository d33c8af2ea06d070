"""``outstation runner`` and ``outstation wheel``: functions of the station itself, as Salt's ``salt-run``."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, NotRunning, UsageInvalid
from gateway.cli import completion
from gateway.cli.arguments import duration, names, with_stdin
from gateway.cli.command import ASKING, HelpText, invocation, verb
from gateway.cli.failures import INTERRUPTED
from gateway.cli.highstate import highstate, step_line
from gateway.cli.output import Output
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.call_views import CallView

EXITS = {**ASKING, EXIT_NOT_ALL_OK: "it failed", INTERRUPTED: "Ctrl-C: the call goes on"}
DETAILS = (
    "ARG and NAME=VALUE are read as in `outstation run`. What it returns is printed as YAML. The call has a jid, under "
    "which the station keeps it: `outstation runner jobs.lookup_jid JID`."
)
RUNNER = HelpText(
    purpose="Call a runner: a function of the station itself, as Salt's salt-run.",
    details=DETAILS + " `outstation runner doc.runner` prints what each of them does.",
    examples=[
        ("outstation runner manage.status", "which devices answer, and which do not"),
        ("outstation runner jobs.list_jobs search_function='test.*' --json", "for a script"),
    ],
    exits=EXITS,
)
WHEEL = HelpText(
    purpose="Call a wheel: a function that manages the station itself, as Salt's.",
    details=DETAILS + " `outstation runner doc.wheel` prints what each of them does.",
    examples=[
        ("outstation wheel key.list_all", "keys by their state"),
        ("outstation wheel key.finger 'cam-*' --json", "fingerprints, for a script"),
    ],
    exits=EXITS,
)

Arguments = Annotated[list[str] | None, typer.Argument(metavar="[ARG|NAME=VALUE]…", help="arguments of the function")]
Timeout = Annotated[
    str | None, typer.Option(metavar="DURATION", help="how long it may run: 30s, 5m (default: calls.timeout_seconds)")
]
ArgsStdin = Annotated[
    bool, typer.Option("--args-stdin", help="read more arguments from stdin, one a line: they do not show in ps")
]
NoParse = Annotated[
    str, typer.Option("--no-parse", metavar="NAME[,NAME]", help="named arguments whose values are not read as YAML")
]
Json = Annotated[bool, typer.Option("--json", help="one JSON object, with how it ended")]
Detach = Annotated[bool, typer.Option("--detach", "--async", help="print the jid and do not wait")]


def add(app: typer.Typer) -> None:
    """Add both commands to the program."""
    verb(app, "runner", RUNNER)(runner)
    verb(app, "wheel", WHEEL)(wheel)


def runner(
    context: typer.Context,
    function: Annotated[
        str,
        typer.Argument(
            metavar="FUNCTION", help="module.function, as in manage.up", autocompletion=completion.runner_functions
        ),
    ],
    arguments: Arguments = None,
    *,
    timeout: Timeout = None,
    args_stdin: ArgsStdin = False,
    no_parse: NoParse = "",
    as_json: Json = False,
    detach: Detach = False,
) -> int:
    """Call a runner; what it returned."""
    return _call(
        context,
        "runner",
        function,
        with_stdin(arguments, from_stdin=args_stdin),
        timeout,
        unparsed=names(no_parse),
        as_json=as_json,
        detach=detach,
    )


def wheel(
    context: typer.Context,
    function: Annotated[
        str,
        typer.Argument(
            metavar="FUNCTION", help="module.function, as in key.list_all", autocompletion=completion.wheel_functions
        ),
    ],
    arguments: Arguments = None,
    *,
    timeout: Timeout = None,
    args_stdin: ArgsStdin = False,
    no_parse: NoParse = "",
    as_json: Json = False,
    detach: Detach = False,
) -> int:
    """Call a wheel; what it returned."""
    return _call(
        context,
        "wheel",
        function,
        with_stdin(arguments, from_stdin=args_stdin),
        timeout,
        unparsed=names(no_parse),
        as_json=as_json,
        detach=detach,
    )


def _call(
    context: typer.Context,
    kind: str,
    function: str,
    arguments: list[str],
    timeout: str | None,
    *,
    unparsed: Collection[str],
    as_json: bool,
    detach: bool,
) -> int:
    from gateway.cli.call_views import CallView
    from gateway.typed_arguments import split_arguments

    output, client = invocation(context).output, invocation(context).client()
    try:
        positional, named = split_arguments(arguments, unparsed)
    except UsageInvalid as error:
        raise typer.BadParameter(error.what, param_hint="ARG") from None
    seconds = None if timeout is None else duration("--timeout", timeout)
    body: dict[str, Any] = {"kind": kind, "fun": function, "arg": positional, "kwarg": named, "timeout": seconds}
    call = client.ask("POST", "/calls", CallView, body=body)
    if detach:
        output.record("call", call) if as_json else output.line(call.jid)
        return EXIT_OK
    try:
        with closing(client.called(call.jid)) as ends:
            for call in ends:
                if call.progress is not None:
                    output.note(safe(step_line(call.progress)))
    except KeyboardInterrupt:
        output.note(f"detached: call {call.jid} goes on")
        output.note(f"  outstation runner jobs.lookup_jid {call.jid}")
        return INTERRUPTED
    if call.state == "open":
        raise NotRunning(
            f"the station went away before call {call.jid} had ended",
            hint=f"outstation runner jobs.lookup_jid {call.jid}",
        )
    _show(output, call, as_json=as_json)
    return EXIT_OK if call.state == "ok" else EXIT_NOT_ALL_OK


def _show(output: Output, call: CallView, *, as_json: bool) -> None:
    if as_json:
        output.record("call", call)
        return
    for line in highstate(call.value) or _lines(call.value):
        output.line(safe(line))
    if call.state != "ok":
        output.note(f"{call.kind} {safe(call.fun)}: {call.state}, jid {call.jid}")


def _lines(value: Any) -> list[str]:
    """What was returned: text as it is, anything else as YAML."""
    import yaml

    if isinstance(value, str):
        text = value
    else:
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)
        text = text.removesuffix("...\n")
    return text.rstrip("\n").split("\n")
