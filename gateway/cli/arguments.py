"""Arguments of a command line, from the words that were typed and from standard input, and lengths of time."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import Any

from device_agent.command_line.durations import duration, written
from device_agent.errors import UsageInvalid
from gateway.cli.typed_text import typed_text

__all__ = ["duration", "names", "split_each", "with_stdin", "written"]

STDIN_BYTES = 1_048_576


def with_stdin(typed: Sequence[str] | None, *, from_stdin: bool) -> list[str]:
    """Arguments that were typed, and behind them a line of standard input each where ``--args-stdin`` is given.

    So a secret does not stand in the list of processes. Raises ``UsageInvalid``.
    """
    given = list(typed or [])
    if not from_stdin:
        return given
    body = sys.stdin.buffer.read(STDIN_BYTES + 1)
    if len(body) > STDIN_BYTES:
        raise UsageInvalid(f"standard input has more than {STDIN_BYTES} bytes of arguments")
    text = typed_text(body)
    return given + [line.rstrip("\r\n") for line in text.removesuffix("\n").split("\n") if text]


def names(typed: str) -> frozenset[str]:
    """The names of ``--no-parse``."""
    return frozenset(name.strip() for name in typed.split(","))


def split_each(functions: Sequence[str], typed: Sequence[str], unparsed: Collection[str] = ()) -> list[list[Any]]:
    """The arguments of several functions, with a comma by itself between those of one and the next, as in Salt.

    Nothing typed is no argument for any. Raises ``UsageInvalid``.
    """
    from device_agent.protocol.several import joined
    from gateway.typed_arguments import split_arguments

    each: list[list[str]] = [[]]
    for text in typed:
        if text == ",":
            each.append([])
        else:
            each[-1].append(text)
    if not typed:
        each = [[] for _ in functions]
    if len(each) != len(functions):
        raise UsageInvalid(
            f"{len(functions)} functions have arguments for {len(each)}; put a comma by itself between them, also where"
            " one has none, as in: test.ping,cmd.run , uptime"
        )
    return [joined(*split_arguments(words, unparsed)) for words in each]
