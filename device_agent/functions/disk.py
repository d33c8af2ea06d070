"""How full the device's file systems are, and what is on its block devices."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import Meta

from device_agent import system_text
from device_agent.commands import look
from device_agent.ended import FunctionFailed
from device_agent.host import Host
from device_agent.readings.mounts import Filled, filled

LETTERS = "aHhilmtTx"
"""The letters that Salt lets through to df; those that change what its columns mean are not used here."""

Letters = Annotated[str, Meta(max_length=16, pattern=r"^[A-Za-z]*$(?!\n)")]
Device = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^-]")]

_PAIR = re.compile(r'(?<![A-Z_])([A-Z_]+)="((?:[^"\\]|\\.)*)"')
_BLKID = 'if command -v blkid >/dev/null 2>&1; then blkid "$@"; fi'
_FSTYPE = r"""
while read -r d _ k _; do if [ "$d" = "$1" ]; then echo "$k"; exit 0; fi; done </proc/mounts
if command -v lsblk >/dev/null 2>&1; then k=$(lsblk -n -o FSTYPE "$1" 2>/dev/null | head -n 1); fi
if [ -n "$k" ]; then echo "$k"; exit 0; fi
"""


async def usage(host: Host, args: Letters | None = None) -> dict[str, dict[str, str]]:
    """Return how full each mounted file system is, in blocks of 1 KiB.

    Of the letters that ``df`` takes, ``a`` (all) and ``l`` (local ones only) may be given.

    CLI Example:

        outstation run '*' disk.usage
        outstation run '*' disk.usage args=a
    """
    return {row.place: _used(row) for row in await _rows(host, "-Pk", args)}


async def inodeusage(host: Host, args: Letters | None = None) -> dict[str, dict[str, str]]:
    """Return how many inodes of each mounted file system are used.

    CLI Example:

        outstation run '*' disk.inodeusage
    """
    return {
        row.place: {
            "inodes": row.whole,
            "used": row.used,
            "free": row.free,
            "use": row.percent,
            "filesystem": row.device,
        }
        for row in await _rows(host, "-Pi", args)
    }


async def percent(host: Host, args: str | None = None) -> dict[str, str] | str:
    """Return how full each mounted file system is in percent, or the one that is mounted at one place.

    CLI Example:

        outstation run '*' disk.percent
        outstation run '*' disk.percent /var
    """
    found = {row.place: row.percent for row in await _rows(host, "-Pk", None)}
    if args is None or not args.startswith("/"):
        return found
    if args not in found:
        why = f"Problem parsing disk usage information: nothing is mounted at {args}"
        raise FunctionFailed(why, value={})
    return found[args]


async def blkid(host: Host, device: Device | None = None, token: str | None = None) -> dict[str, dict[str, str]]:
    """Return label, UUID and kind of what is on the block devices, of one of them, or of those with a token.

    CLI Example:

        outstation run '*' disk.blkid
        outstation run '*' disk.blkid /dev/sda
        outstation run '*' disk.blkid token='UUID=6a38ee5-7235-44e7-8b22-816a403bad5d'
    """
    words = [*(["-t", token] if token else []), *([device] if device else [])]
    answer = (await look(host, _BLKID, *words)).out
    found = {}
    for line in system_text.lines(answer):
        name, mark, rest = line.partition(": ")
        if mark:
            found[name] = dict(_PAIR.findall(rest))
    return found


async def fstype(host: Host, device: Device) -> str:
    """Return the kind of file system on a block device; empty when nobody can tell.

    CLI Example:

        outstation run '*' disk.fstype /dev/sdb1
    """
    answer = (await look(host, f"k=;{_FSTYPE}{_BLKID}", device)).out.strip()
    return dict(_PAIR.findall(answer)).get("TYPE", "") if "=" in answer else answer


def _used(row: Filled) -> dict[str, Any]:
    return {
        "filesystem": row.device,
        "1K-blocks": row.whole,
        "used": row.used,
        "available": row.free,
        "capacity": row.percent,
    }


async def _rows(host: Host, options: str, letters: str | None) -> list[Filled]:
    """What df says. It answers for the others also when one file system does not."""
    if wrong := set(letters or "") - set(LETTERS):
        raise FunctionFailed(f"df takes no {''.join(sorted(wrong))} here; allowed: {LETTERS}")
    kept = "".join(letter for letter in letters or "" if letter in "al")
    answer = (await look(host, 'exec df "$@"', options, *([f"-{kept}"] if kept else []))).out
    if not answer.strip():
        raise FunctionFailed("df is not there, or says nothing", value={})
    return filled(answer)
