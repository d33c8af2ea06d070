"""``outstation engines``: the programs that run beside a station, and how each of them does."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK
from gateway.cli import completion
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.text import safe

app = noun(
    HelpText(
        purpose="Engines: programs that run beside a station, and how each of them does.",
        details="They are `engines:` in the station's settings, as in Salt; see docs/engines.md.",
        examples=[
            ("outstation engines list", "every engine, and why it is not running"),
            ("outstation engines restart alertmanager", "start it now"),
        ],
        exits=ASKING,
    )
)

Json = Annotated[bool, typer.Option("--json", help="JSON, for a script")]

LIST = HelpText(
    purpose="Print every engine of the station.",
    explained={
        "Columns": {
            "state": "starting, running, waiting (it ended and will be started again), stopped",
            "since": "since when it is in this state",
            "starts": "how often it was started since the station began",
            "from": "where its code is",
            "counts": "what it says that it did: heard, missed, fired, and what else it counts",
        }
    },
    examples=[
        ("outstation engines list", "a table"),
        ("outstation engines list --json", "one JSON object for each, for a script"),
    ],
    exits={**ASKING, EXIT_NOT_ALL_OK: "one of them waits: its last line says why"},
)


@verb(app, "list", LIST)
def list_engines(context: typer.Context, as_json: Json = False) -> int:
    """Print a table of engines; the exit status says whether all of them run."""
    from gateway.cli.engines_views import EnginePage

    output, client = invocation(context).output, invocation(context).client()
    engines = client.ask("GET", "/engines", EnginePage).engines
    waiting = [engine for engine in engines if engine.state == "waiting"]
    status = EXIT_NOT_ALL_OK if waiting else EXIT_OK
    if as_json:
        for engine in engines:
            output.record("engine", engine)
        return status
    output.table(
        ("name", "state", "since", "starts", "from", "counts"),
        (
            (
                safe(engine.name),
                engine.state,
                output.age(engine.since),
                f"{engine.starts}",
                safe(engine.source),
                " ".join(f"{safe(name)}={count}" for name, count in engine.counts.items()) or "none",
            )
            for engine in engines
        ),
        numbers=("starts",),
    )
    for engine in waiting:
        output.note(f"{safe(engine.name)}: {safe(engine.why)}")
    if not engines:
        output.note("no engines: there is no engines: in the settings of this station")
    return status


RESTART = HelpText(
    purpose="End an engine, with all that it started, and start it now.",
    details="Also one that waits after its end. Its file is read again.",
    examples=[
        ("outstation engines restart logtail", "after its file was changed or synced"),
        ("outstation engines restart logtail --json", "one JSON object, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "restart", RESTART)
def restart(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="the name of the engine", autocompletion=completion.engine_names)
    ],
    as_json: Json = False,
) -> int:
    """Start one anew."""
    from gateway.cli.engines_views import EngineView

    output, client = invocation(context).output, invocation(context).client()
    engine = client.ask("POST", f"/engines/{quote(name, safe='')}/restart", EngineView, body={})
    if as_json:
        output.record("engine", engine)
        return EXIT_OK
    output.line(f"{safe(engine.name)} starts again")
    return EXIT_OK
