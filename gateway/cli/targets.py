"""The options that say how a target is to be read, with Salt's letters."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

TargetType = Literal["glob", "list", "pcre", "grain", "compound"]

Grain = Annotated[bool, typer.Option("-G", "--grain", help="TARGET is a grain and a glob: os:Debian*")]
Compound = Annotated[
    bool, typer.Option("-C", "--compound", help="TARGET is terms with and, or, not: 'G@os:Debian and not cam-1*'")
]
Pcre = Annotated[bool, typer.Option("-E", "--pcre", help="TARGET is a regular expression: 'cam-[0-9]{4}'")]
Listed = Annotated[bool, typer.Option("-L", "--list", help="TARGET is a list of ids: cam-1,cam-2")]
Typed = Annotated[
    TargetType | None,
    typer.Option(
        "--target-type",
        metavar="TYPE",
        help="the same in one word: glob, list, pcre, grain or compound (default: glob)",
    ),
]

TARGETS = {
    "'*'": "a glob over ids; the quotes keep the shell from reading it",
    "-G os:Debian": "devices whose grain matches a glob",
    "-C 'G@site:x and not cam-1*'": "terms joined with and, or, not, and parentheses",
    "-E 'cam-[0-9]+'": "a regular expression over ids",
    "-L cam-1,cam-2": "these ids",
}
"""How the help explains targets."""


def target_type(grain: bool, compound: bool, pcre: bool, listed: bool, typed: TargetType | None) -> TargetType:
    """The one kind of target that was asked for. Raises ``typer.BadParameter`` when there are two."""
    chosen: list[TargetType] = []
    if grain:
        chosen.append("grain")
    if compound:
        chosen.append("compound")
    if pcre:
        chosen.append("pcre")
    if listed:
        chosen.append("list")
    if typed is not None:
        chosen.append(typed)
    if len(set(chosen)) > 1:
        raise typer.BadParameter(f"a target is of one kind, found {' and '.join(chosen)}", param_hint="TARGET")
    return chosen[0] if chosen else "glob"
