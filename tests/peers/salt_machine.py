"""Twins to throw away: a machine on which we are called, and one on which stock Salt is called the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Literal

from device_agent.ended import Ended
from device_agent.local_host import LocalHost
from tests.peers import salt_call
from tests.peers.function_story import Sh, Step, Story
from tests.peers.rooted import Rooted

PASSING = {"pid", "inode", "atime", "mtime", "ctime", "st_atime", "st_mtime", "st_ctime", "install_date"}
"""What is another number each time one looks."""

FOLDERS = ("/machine/", "/its-twin/")
"""What tells the paths of the one machine from those of the other."""

How = Literal["value", "shape"]


@asynccontextmanager
async def twins(python: Path, folder: Path) -> AsyncIterator[tuple[Rooted, Rooted]]:
    """Two machines with this one's disk: ours, and Salt's, whose Python in its own environment answers there."""
    here = python.parent.parent.resolve()
    told = await LocalHost({}).run([str(python), "-c", "import sys; print(sys.base_prefix)"])
    base = Path(told.stdout.decode().strip())
    seen = [here, *([] if base == Path("/usr") else [base]), Path(salt_call.__file__).parent]
    # -P: the files beside this one are not Salt's.
    program = [str(here / "bin" / "python"), "-P", "-W", "ignore", salt_call.__file__, "rooted"]
    async with (
        Rooted("debian", folder / "machine", seen=seen) as ours,
        Rooted("debian", folder / "its-twin", program, seen) as theirs,
    ):
        yield ours, theirs


async def beside(story: Story, ours: Rooted, theirs: Rooted) -> list[str]:
    """Go through a story on both; in what they differ where the story does not say so, or do not where it does."""
    found = []
    for step in (Sh(story.salt or ":"), *story.steps):
        call = ("cmd.run", step.script) if isinstance(step, Sh) else (step.fun, *step.arg)
        kwarg = {} if isinstance(step, Sh) else step.kwarg
        here = await ours.call(*call, **kwarg)
        if step.salt in {False, "no"}:
            continue
        there = await theirs.call(*call, **kwarg)
        wrong = unlike(answer(here), answer(there), "shape" if step.salt == "shape" else "value")
        if isinstance(step, Step) and step.salt == "differs":
            wrong = "" if wrong else "is marked as different and is not"
        if wrong:
            found.append(f"{' '.join(map(str, call))} {dict(kwarg) or ''}: {wrong}")
    return found


def other_arguments(taken: Signature, theirs: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The arguments that are not Salt's, stand in another place or have another default; and Salt's that are none."""
    names = theirs["args"] or []
    defaults = theirs["defaults"] or []
    known = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    wrong: list[str] = []
    at = 0
    for each in taken.parameters.values():
        if each.kind in {each.VAR_POSITIONAL, each.VAR_KEYWORD}:
            continue
        placed_so = each.kind is not each.POSITIONAL_OR_KEYWORD or names[at : at + 1] == [each.name]
        at += each.kind is each.POSITIONAL_OR_KEYWORD
        if each.name not in names:
            wrong += [] if theirs["kwargs"] else [each.name]
        elif not placed_so or each.default != known.get(each.name, Parameter.empty):
            wrong.append(each.name)
    return wrong, [name for name in names if name not in taken.parameters]


def answer(ended: Ended) -> dict[str, Any]:
    """An end in the words in which Salt's is told."""
    failed = ended.outcome != "ok" and ended.value is None
    return {"error": ended.why} if failed else {"value": ended.value}


def unlike(ours: dict[str, Any], theirs: dict[str, Any], how: How, folders: tuple[str, str] = FOLDERS) -> str:
    """In what an answer is not Salt's; empty when it is. ``folders`` are those in which the two were made."""
    if ours.keys() != theirs.keys():
        return f"here {ours}, in Salt {theirs}"
    if "error" in ours:
        return ""
    here, there = lifted(ours["value"], folders[0]), lifted(theirs["value"], folders[1])
    if how == "shape":
        here, there = shape(here), shape(there)
    return "" if here == there else _part(here, there)


def lifted(value: Any, folder: str) -> Any:
    """A value without the folder that it was made in, and without what passes."""
    if isinstance(value, str):
        return value.replace(folder, "{root}")
    if isinstance(value, dict):
        return {
            lifted(key, folder): type(inner).__name__ if key in PASSING else lifted(inner, folder)
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [lifted(inner, folder) for inner in value]
    return value


def shape(value: Any) -> Any:
    """Of a mapping or a list what kinds of things are in it, of anything else what it is."""
    if isinstance(value, dict):
        return {"a mapping of": sorted({str(shape(inner)) for inner in value.values()} - {"NoneType"})}
    if isinstance(value, list):
        return {"a list of": sorted({str(shape(inner)) for inner in value})}
    return type(value).__name__


def _part(here: Any, there: Any) -> str:
    """What is said of two values that differ: of long ones only that in which they do."""
    if isinstance(here, dict) and isinstance(there, dict):
        keys = [key for key in {**here, **there} if here.get(key) != there.get(key)][:9]
        here, there = ({key: value[key] for key in keys if key in value} for value in (here, there))
    elif isinstance(here, list) and isinstance(there, list) and len(here) > 9:
        here, there = [each for each in here if each not in there], [each for each in there if each not in here]
    return f"here {here!r}, in Salt {there!r}"
