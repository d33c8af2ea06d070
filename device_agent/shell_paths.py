"""Paths as people write them to a shell: ``~`` in front, patterns, and names that begin like an option."""

from __future__ import annotations

import re

from device_agent.commands import shell
from device_agent.host import Host

_user_name = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,255}\$?")
_plain = re.compile(r"[A-Za-z0-9_./*?\[\]!-]")


def argument(path: str) -> str:
    """A path that no command takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def is_user_name(name: str) -> bool:
    """Whether this can be the name of a user or group, so that a shell may see it unquoted."""
    return _user_name.fullmatch(name) is not None


async def expanded(host: Host, path: str) -> str:
    """A path with ``~`` and ``~user`` in front as the machine's shell understands them."""
    if not path.startswith("~"):
        return path
    tilde, slash, rest = path.partition("/")
    if tilde != "~" and not is_user_name(tilde[1:]):
        return path
    return (await shell(host, f"printf %s {tilde}")).must().exact + slash + rest


async def globbed(host: Host, pattern: str) -> list[str]:
    """The paths that match a shell pattern, sorted; a path without a pattern in it when it is there."""
    pattern = argument(await expanded(host, pattern))
    quoted = "".join(
        letter if _plain.fullmatch(letter) else "'\n'" if letter == "\n" else f"\\{letter}" for letter in pattern
    )
    script = f'for f in {quoted}; do if [ -e "$f" ] || [ -L "$f" ]; then printf "%s\\0" "$f"; fi; done'
    found = (await shell(host, script, own_language=True)).must().exact
    return sorted(found.split("\0")[:-1])
