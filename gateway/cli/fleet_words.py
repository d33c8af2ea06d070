"""What the commands of ``outstation fleet`` have in common: their options, exit statuses, and how far a list is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.clock import iso
from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, EXIT_OK, EXIT_USAGE
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.output import Output
    from gateway.fleet.ceremony import Progress

EXITS = {
    EXIT_OK: "done",
    EXIT_NOT_ALL_OK: "a file could not be written",
    EXIT_USAGE: "the command line is wrong, or a key, a file or a name is another one than it should be",
    EXIT_CONFIG: "a file is damaged",
}
Folder = Annotated[Path, typer.Option(metavar="DIR", help="the folder of the ceremony")]
Keys = Annotated[
    list[Path] | None,
    typer.Option(
        "--key", metavar="FILE", help="a root key to sign with; may be repeated (default: those in the folder)"
    ),
]
FOLDER = Path("fleet")


def say_progress(output: Output, progress: Progress) -> None:
    """Where a new root list stands, and what comes next."""
    root = progress.root
    output.facts(
        [
            ("root list", safe(f"{progress.file}, version {root.version}")),
            ("dated", f"{iso(root.issued)} by the clock of this machine: see that it is right"),
            ("signed by", ", ".join(progress.signed_by)),
        ]
    )
    if progress.complete:
        output.note(f"complete; carry {safe(str(progress.file))} to the masters:")
        output.note("  one that runs:              outstation fleet publish root-lists")
        output.note("  one that never ran:         outstation master init --root-list root-lists")
        return
    for words in progress.missing:
        output.note(("not finished", "yellow"), f": it needs {words}")
    output.note("next:  outstation fleet add-signature --key FILE")
