"""Signals of the process as callbacks of the loop, for as long as a block lasts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def handled(callbacks: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Call back in the running loop for each of these signals; afterwards they do what they did by default."""
    loop = asyncio.get_running_loop()
    for number, callback in callbacks.items():
        loop.add_signal_handler(number, callback)
    try:
        yield
    finally:
        for number in callbacks:
            loop.remove_signal_handler(number)
