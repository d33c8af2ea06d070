"""Commands that functions run on a host: found where administrators look, never quoted by hand, heard out or refused.

Whatever a command says beyond what is asked for, and whatever takes longer than it may, is a ``FunctionFailed`` that
names the bound: nothing is concluded from a part of an answer.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from device_agent import system_text
from device_agent.ended import FunctionFailed
from device_agent.host import SHELL, Host
from device_agent.protocol import limits

COMMAND_BYTES = 4 * 1024 * 1024
"""Output of a command that is taken apart; more than this is an error, not a part of the truth."""

LOOK_SECONDS = 30.0
"""How long a command may take that only looks at something."""

NOT_THERE = 127
"""What a shell says of a command that is not there."""

_WIDE_PATH = 'export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"\n'
"""An account without a login has no path to the commands of an administrator."""

_PLAIN_ENGLISH = "export LC_ALL=C\n"
"""Messages are read by us."""


class NotOver(FunctionFailed):
    """A command took longer than it may, and was ended."""


class Said(Struct, frozen=True):
    """What a command said and how it ended."""

    command: str
    returncode: int
    stdout: bytes
    err: str

    @property
    def out(self) -> str:
        """Its output as a text that can be returned: bytes that are no UTF-8 are marked."""
        return self.stdout.decode(errors="replace")

    @property
    def exact(self) -> str:
        """Its output with every byte in it, as names of files have to be."""
        return self.stdout.decode(errors="surrogateescape")

    @property
    def ok(self) -> bool:
        """It ended well."""
        return self.returncode == 0

    @property
    def why(self) -> str:
        """What it says of its failure, and at least that there was one."""
        reason = (self.err.strip() or self.out.strip())[: limits.WHY_CHARACTERS // 2]
        return reason or f"{self.command} exited with {self.returncode}"

    def must(self, failing: Any = None) -> Said:
        """The same when it ended well. Raises ``FunctionFailed`` with what it said, and ``failing`` to show beside."""
        if not self.ok:
            raise FunctionFailed(self.why, max(self.returncode, 1), value=failing)
        return self


async def shell(
    host: Host,
    script: str,
    *words: str,
    stdin: str | None = None,
    timeout: float | None = None,
    limit: int = COMMAND_BYTES,
    own_language: bool = False,
) -> Said:
    """Run a script of ours with the words as its ``$1``, ``$2``…; whatever they contain, they stay words.

    ``own_language`` leaves the device's in place, for what a letter is: in plain English it is a byte.
    """
    command = words[0] if words else "the script"
    surroundings = _WIDE_PATH if own_language else _WIDE_PATH + _PLAIN_ENGLISH
    try:
        completed = await host.run(
            [SHELL, "-c", surroundings + script, SHELL, *words],
            stdin=None if stdin is None else stdin.encode(errors="surrogateescape"),
            timeout=timeout,
            output_limit=limit,
        )
    except (OSError, ValueError) as error:
        raise FunctionFailed(f"{command} did not start: {error}") from error
    if completed.timed_out:
        raise NotOver(f"{command} was not over after {timeout:g} seconds")
    if completed.truncated:
        raise FunctionFailed(f"{command} says more than {limit} bytes, of which nothing can be concluded")
    return Said(command, completed.returncode, completed.stdout, completed.stderr.decode(errors="replace"))


async def look(host: Host, script: str, *words: str) -> Said:
    """Run a script that only looks at something, and may not take long."""
    return await shell(host, script, *words, timeout=LOOK_SECONDS)


async def ask(host: Host, *words: str, timeout: float | None = None, limit: int = COMMAND_BYTES) -> Said:
    """Run a command; how it ends is the caller's business."""
    return await shell(host, 'exec "$@"', *words, timeout=timeout, limit=limit)


async def do(host: Host, *words: str, limit: int = COMMAND_BYTES) -> Said:
    """Run a command that must end well. Raises ``FunctionFailed`` with what it said."""
    return (await ask(host, *words, limit=limit)).must()


async def present(host: Host, *names: str) -> list[str]:
    """Those of these commands that the host has, in their order."""
    script = 'for name; do command -v "$name" >/dev/null 2>&1 && echo "$name"; done; :'
    return system_text.words((await shell(host, script, *names)).out)


async def one_of(host: Host, *names: str) -> str:
    """The first of these commands that the host has. Raises ``FunctionFailed``."""
    there = await present(host, *names)
    if not there:
        raise FunctionFailed(f"this device has no {' and no '.join(names)}", NOT_THERE)
    return there[0]


def word(value: str, what: str, *, failing: bool | None = None) -> str:
    """The same word when no command can take it for an option or for two lines. Raises ``FunctionFailed``.

    ``failing`` is what the function returns beside its failure.
    """
    if not value or value.startswith("-") or any(letter in value for letter in "\n\r\0"):
        raise FunctionFailed(
            f"{what} {value!r} cannot be used: it must not be empty, begin with '-' or have a line end", value=failing
        )
    return value
