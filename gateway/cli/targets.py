"""The options that say how a target is to be read, with Salt's letters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from inspect import Parameter
from typing import Annotated, Any, Literal, get_args

import typer

TargetType = Literal[
    "glob",
    "list",
    "pcre",
    "grain",
    "grain_pcre",
    "pillar",
    "pillar_exact",
    "pillar_pcre",
    "ipcidr",
    "range",
    "compound",
    "nodegroup",
]
KINDS: tuple[TargetType, ...] = get_args(TargetType)

Grain = Annotated[bool, typer.Option("-G", "--grain", help="TARGET is a grain and a glob: os:Debian*")]
GrainPcre = Annotated[
    bool, typer.Option("-P", "--grain-pcre", help="TARGET is a grain and a regular expression: 'os:(Debian|Alpine)'")
]
Pillar = Annotated[
    bool, typer.Option("-I", "--pillar", help="TARGET is a value of the pillar and a glob: onvif:port:80*")
]
PillarPcre = Annotated[
    bool, typer.Option("-J", "--pillar-pcre", help="TARGET is a value of the pillar and a regular expression")
]
Compound = Annotated[
    bool, typer.Option("-C", "--compound", help="TARGET is terms with and, or, not: 'G@os:Debian and not cam-1*'")
]
Pcre = Annotated[bool, typer.Option("-E", "--pcre", help="TARGET is a regular expression: 'cam-[0-9]{4}'")]
Listed = Annotated[bool, typer.Option("-L", "--list", help="TARGET is a list of ids: cam-1,cam-2")]
Subnet = Annotated[
    bool, typer.Option("-S", "--ipcidr", help="TARGET is an address of a device, or a network: 192.0.2.0/24")
]
Range = Annotated[bool, typer.Option("-R", "--range", help="TARGET is names by number: 'cam[1-20],-cam7'")]
Nodegroup = Annotated[
    bool, typer.Option("-N", "--nodegroup", help="TARGET is one of the station's nodegroups: dock-cameras")
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        help="with -G, -P, -I and -J, what stands between key and value in TARGET (default: a colon)",
    ),
]
Typed = Annotated[
    str | None,
    typer.Option("--target-type", metavar="TYPE", help=f"the same in one word: {', '.join(KINDS[:-1])} or {KINDS[-1]}"),
]

TARGETS = {
    "'*'": "a glob over ids; the quotes keep the shell from reading it",
    "-G os:Debian": "devices whose grain matches a glob; -P for a regular expression",
    "-I onvif:port:80*": "devices whose pillar matches a glob; -J for a regular expression",
    "-C 'G@site:x and not cam-1*'": "terms joined with and, or, not, and parentheses",
    "-E 'cam-[0-9]+'": "a regular expression over ids",
    "-L cam-1,cam-2": "these ids",
    "-S 192.0.2.0/24": "devices with an address there",
    "-R 'cam[1-20]'": "ids by number",
    "-N dock-cameras": "a nodegroup of the station's settings",
}
"""How the help explains targets."""


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "grain": (Grain, False),
    "grain_pcre": (GrainPcre, False),
    "pillar": (Pillar, False),
    "pillar_pcre": (PillarPcre, False),
    "compound": (Compound, False),
    "pcre": (Pcre, False),
    "list": (Listed, False),
    "ipcidr": (Subnet, False),
    "range": (Range, False),
    "nodegroup": (Nodegroup, False),
    "delimiter": (Delimiter, None),
    "typed": (Typed, None),
}
"""In the order of the help. Those that are no more than given or not are named for the kind they choose."""

As = Callable[[str], dict[str, str]]
"""Reads a target as the options say it, for the API. Raises ``typer.BadParameter``."""


def read_as(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command these options in the place of its parameter ``read``, which is then what they come to."""
    parameters: list[Parameter] = []
    for each in inspect.signature(command, eval_str=True).parameters.values():
        if each.name == "read":
            parameters += [
                Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
                for name, (kind, default) in _OPTIONS.items()
            ]
        else:
            parameters.append(each.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def with_options(**given: Any) -> int:
        chosen = {name: given.pop(name) for name in _OPTIONS}
        return command(**given, read=partial(meant, **chosen))

    with_options.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]  # inspect's documented way to say what is taken
    with_options.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": int}
    return with_options


def target_type(typed: str | None, **flags: bool) -> TargetType:
    """The one kind of target that was asked for. Raises ``typer.BadParameter`` when there are two, or none such."""
    chosen = [kind for flag, given in flags.items() if given for kind in KINDS if kind == flag]
    if typed is not None:
        known = next((kind for kind in KINDS if kind == typed), None)
        if known is None:
            raise typer.BadParameter(f"found {typed!r}; there are {', '.join(KINDS)}", param_hint="--target-type")
        chosen.append(known)
    if len(set(chosen)) > 1:
        raise typer.BadParameter(f"a target is of one kind, found {' and '.join(chosen)}", param_hint="TARGET")
    return chosen[0] if chosen else "glob"


def meant(target: str, *, typed: str | None, delimiter: str | None, **flags: bool) -> dict[str, str]:
    """A target as the API takes it. Raises ``typer.BadParameter``."""
    kind = target_type(typed, **flags)
    if delimiter is None:
        return {"tgt": target, "tgt_type": kind}
    if len(delimiter) != 1 or kind not in {"grain", "grain_pcre", "pillar", "pillar_pcre"}:
        raise typer.BadParameter(
            f"it is one character, with -G, -P, -I or -J; found {delimiter!r}", param_hint="--delimiter"
        )
    return {"tgt": target, "tgt_type": kind, "delimiter": delimiter}
