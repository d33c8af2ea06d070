"""What a process and all that it started have used so far, those that have ended and were waited for included."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from gateway.bench.usage import Usage

TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def group_usage(groups: Iterable[int]) -> Usage:
    """CPU seconds of these process groups, in ticks of the kernel, and the memory that is in RAM now (proc(5)).

    Pages that several processes share are counted in each.
    """
    wanted = set(groups)
    ticks = rss = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            # The name of a process may have spaces in it; it ends with the last bracket.
            words = (folder / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[2]) in wanted:
            ticks += sum(map(int, words[11:15]))
            rss += int(words[21]) * PAGE_BYTES
    return Usage(ticks * TICK_SECONDS, rss)
