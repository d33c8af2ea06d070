"""What every benchmark does around its measurements: it stops cleanly, repeats, and prints each repeat as it comes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from gateway.cli.output import Output

Repeat = TypeVar("Repeat")
Lines = Callable[..., Iterable[dict[str, Any]]]
"""The JSON objects of one repeat, or of the median of all; what is said of it beside goes in by name."""


def stop_when_told() -> None:
    """Stop what was started, also when the benchmark itself is told to stop."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def repeated(output: Output, times: int, once: Callable[[], Repeat], lines: Lines | None) -> list[Repeat]:
    """Each repeat; with ``lines`` it is printed as soon as it is over."""
    found = []
    for number in range(1, times + 1):
        found.append(once())
        if lines is not None:
            for line in lines(found[-1], median=False, number=number):
                output.json(line)
            output.flush()
    return found
