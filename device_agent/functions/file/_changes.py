"""What the functions that change a text file share: its lines, the difference, and the file that takes its place."""

from __future__ import annotations

import difflib
import re

from device_agent.command_call import bounded
from device_agent.commands import do
from device_agent.ended import FunctionFailed
from device_agent.expressions import Expression
from device_agent.host import Host
from device_agent.shell_paths import argument

COMPARISONS = 4_000_000
"""Lines of one file times lines of the other that are compared with one another."""

CONTEXT = 3
REST = "the file itself is as it is now: file.seek_read"
"""Where what is cut of a difference is."""

Flags = int | str | list[str]


def expression(pattern: str, flags: Flags) -> Expression:
    """A regular expression over bytes, with flags as a number or by name. Raises ``FunctionFailed``."""
    return Expression(pattern, flag_number(flags), binary=True)


def flag_number(flags: Flags) -> int:
    """Flags as a number. Raises ``FunctionFailed`` for one that is unknown."""
    if isinstance(flags, int):
        return flags
    number = 0
    for name in [flags] if isinstance(flags, str) else flags:
        if name.upper() not in re.RegexFlag.__members__:
            raise FunctionFailed(f"there is no flag {name!r}; allowed: {', '.join(re.RegexFlag.__members__)}")
        number |= int(re.RegexFlag[name.upper()])
    return number


def encoded(text: str) -> bytes:
    """The bytes that a text was read from."""
    return text.encode(errors="surrogateescape")


def lines_of(text: str) -> list[str]:
    """The lines of a text with their ends; only a newline ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def ended_line(text: str) -> str:
    """A text whose last line has its end."""
    return text if not text or text.endswith("\n") else f"{text}\n"


def difference(before: list[str], after: list[str]) -> str:
    """What changed, as a unified diff without names; of a long one the beginning, and how much was cut.

    To find the shortest one of long files takes far too long: there the lines that they begin and end with alike are
    left out, and what is still too long is one piece, old and then new.
    """
    return (
        bounded("".join(_unified(before, after)), rest=REST).encode(errors="surrogateescape").decode(errors="replace")
    )


def _unified(before: list[str], after: list[str]) -> list[str]:
    if len(before) * len(after) <= COMPARISONS:
        return list(difflib.unified_diff(before, after))
    shorter = min(len(before), len(after))
    first = _alike(before, after, shorter)
    last = _alike(before[::-1], after[::-1], shorter - first)
    start, behind = max(0, first - CONTEXT), max(0, last - CONTEXT)
    old, new = before[start : len(before) - behind], after[start : len(after) - behind]
    if len(old) * len(new) <= COMPARISONS:
        pieces = difflib.unified_diff(old, new)
        return [_moved(piece, start) if piece.startswith("@@ ") else piece for piece in pieces]
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    head = f"--- \n+++ \n@@ -{first + 1},{len(old)} +{first + 1},{len(new)} @@\n"
    return [head, *(f"-{line}" for line in old), *(f"+{line}" for line in new)]


def _alike(before: list[str], after: list[str], most: int) -> int:
    """How many lines both begin with."""
    return next((at for at in range(most) if before[at] != after[at]), most)


def _moved(heading: str, by: int) -> str:
    """The heading of a piece that stands so many lines further down."""
    return re.sub(r"(?<= [-+])\d+", lambda number: str(int(number[0]) + by), heading)


async def changed_file(
    host: Host,
    path: str,
    before: str,
    after: str,
    backup: str | bool,
    *,
    dry_run: bool = False,
    show_changes: bool = True,
) -> str | bool:
    """Write a file that changed, with the old one kept beside it, and return the difference or whether there is one."""
    changes = difference(lines_of(before), lines_of(after))
    if before != after and not dry_run:
        if backup:
            kept = ".bak" if backup is True else backup
            await do(host, "cp", "-p", argument(path), argument(f"{path}{kept}"))
        await host.write(path, encoded(after))
    return changes if show_changes else bool(changes)
