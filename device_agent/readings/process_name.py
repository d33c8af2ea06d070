"""The whole name of a process, of which /proc/PID/comm has 15 bytes (proc(5))."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

NAME_BYTES = 15
"""The kernel keeps so much of a name."""

WORDS = 5
"""Words of a command line that may be the program: a script follows its interpreter and at most one option, and the
interpreter may be a script too (execve(2))."""


def whole_name(name: str, command: Iterable[str]) -> str:
    """Complete a name that the kernel has cut, from the command line.

    Args:
        name: The name as the kernel has it. Bytes that are no UTF-8 are U+FFFD, as of a character cut in its middle.
        command: The words of the command line. A program that sets its title has one word, ``name: what it does``.
    """
    if len(name.encode()) < NAME_BYTES:
        return name
    begins = name.rstrip("\ufffd")
    for word in islice(command, WORDS):
        program = word.partition(": ")[0].rpartition("/")[2]
        if program.startswith(begins):
            return program
    return name
