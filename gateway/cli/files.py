"""``outstation files``: what is served, which file stands at a path, and what is kept of the station above."""

from __future__ import annotations

from typing import Annotated

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.spool import size
from gateway.cli.text import safe

PAGE = 5000

Environment = Annotated[str, typer.Option("--saltenv", metavar="ENVIRONMENT", help="the environment")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object")]

app = noun(
    HelpText(
        purpose="Files: what this station serves, and what it keeps of the station above.",
        details="Devices have them with cp.get_file and its like; docs/files.md says how.",
        examples=[
            ("outstation files list", "what there is"),
            ("outstation files cache", "what is kept here, and what is on its way"),
        ],
        exits=ASKING,
    )
)

LIST = HelpText(
    purpose="List the files that are served: those of this station's own roots, and those above.",
    details="A folder without any file has a / behind it. While no master can be asked, it is what was heard last.",
    examples=[
        ("outstation files list", "those of the environment base"),
        ("outstation files list camera --saltenv next", "those of a folder of another one"),
    ],
    exits=ASKING,
)


@verb(app, "list", LIST)
def list_files(
    context: typer.Context,
    under: Annotated[str, typer.Argument(metavar="[FOLDER]", help="only what is in this folder")] = "",
    saltenv: Environment = "base",
    as_json: AsJson = False,
) -> int:
    """Print the paths."""
    from gateway.cli import files_views

    output, client = invocation(context).output, invocation(context).client()
    paths: list[str] = []
    after: str | None = ""
    commits: list[str] = []
    environments: list[str] = []
    while after is not None:
        page = files_views.listed(client, saltenv, under, after, PAGE)
        paths += page.paths
        after, commits, environments = page.next, page.commits, page.environments
    if as_json:
        output.record("files", files_views.FilesView(saltenv, paths, environments, commits))
        return EXIT_OK
    output.table(("path",), [(safe(path),) for path in paths])
    for commit in commits:
        output.note(f"git commit {commit}")
    if not paths:
        output.note(f"environment {safe(saltenv)} has no files here; file_roots: in the settings names the folders")
    return EXIT_OK


FIND = HelpText(
    purpose="Show which file stands at a path: its size, its hash, and the git commit it is of.",
    examples=[
        ("outstation files find salt://camera/fw.bin", "what devices get"),
        ("outstation files find 'salt://camera/fw.bin?saltenv=next' --json", "of another environment, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "find", FIND)
def find(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="PATH", help="salt://PATH, or the path alone")],
    saltenv: Environment = "base",
    as_json: AsJson = False,
) -> int:
    """Print one file."""
    from gateway.cli import files_views

    output = invocation(context).output
    found = files_views.found(invocation(context).client(), path, saltenv)
    if as_json:
        output.record("file", found)
        return EXIT_OK
    output.facts(
        [
            ("path", safe(found.path)),
            ("environment", safe(found.saltenv)),
            ("size", f"{found.size:,} bytes"),
            ("sha256", found.sha256),
            *([("commit", found.commit)] if found.commit else []),
            ("kept here", "yes" if found.kept else "no"),
        ]
    )
    return EXIT_OK


CACHE = HelpText(
    purpose="Show what is kept of the station above, and what is on its way.",
    explained={
        "Columns": {
            "file": "the path that it was last known by",
            "size": "how large it is",
            "here": "how much of it is here; what waits for its turn has none",
            "sha256": "the first digits of its hash; the cache knows contents by it",
        }
    },
    examples=[
        ("outstation files cache", "status 1 when a fetch has failed"),
        ("outstation files cache --json", "the same, for a script"),
    ],
    exits={**ASKING, EXIT_OK: "all is well", EXIT_NOT_ALL_OK: "a fetch has failed, or the station cannot tell"},
)


@verb(app, "cache", CACHE)
def cache(context: typer.Context, as_json: AsJson = False) -> int:
    """Print the cache."""
    from gateway.cli import files_views

    output = invocation(context).output
    found = files_views.cache(invocation(context).client())
    failed = [fetch for fetch in found.fetches if fetch.error]
    if as_json:
        output.record("cache", found)
        return EXIT_NOT_ALL_OK if failed else EXIT_OK
    under_way = {(fetch.saltenv, fetch.path): fetch for fetch in found.fetches}
    rows = []
    for content in found.contents:
        fetch = under_way.get((content.saltenv, content.path))
        here = "all" if content.whole else size(fetch.here) if fetch is not None else "a part"
        rows.append((_name(content.saltenv, content.path), size(content.size), here, content.sha256[:12]))
    kept = {(content.saltenv, content.path) for content in found.contents}
    for place, fetch in under_way.items():
        if place not in kept and not fetch.error:
            rows.append((_name(*place), size(fetch.size), "waits", "-"))
    output.table(("file", "size", "here", "sha256"), rows, ("size", "here"))
    output.note(f"{found.files:,} files, {size(found.used_bytes)} of {size(found.most_bytes)}")
    for fetch in failed:
        output.note(f"not fetched: {_name(fetch.saltenv, fetch.path)}: {safe(fetch.error)}")
    return EXIT_NOT_ALL_OK if failed else EXIT_OK


def _name(saltenv: str, path: str) -> str:
    return safe(f"{path} ({saltenv})" if saltenv != "base" else path) if path else "-"
