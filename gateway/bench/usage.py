"""What a process has used so far, as the kernel counts it."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from device_agent.errors import StationFailed

KIBIBYTE = 1024
_SCHEDULER_CLOCK = 2


@dataclass(frozen=True)
class Usage:
    """CPU seconds, and the most memory it has had in RAM, in bytes."""

    cpu_seconds: float
    peak_rss_bytes: int

    def since(self, earlier: Usage) -> Usage:
        """CPU seconds since an earlier look; the peak is of its whole life."""
        return Usage(self.cpu_seconds - earlier.cpu_seconds, self.peak_rss_bytes)


def cpu_seconds(pid: int) -> float:
    """CPU seconds of all threads of a process, those that have ended included. Raises ``StationFailed``.

    This is the clock of clock_getcpuclockid(3), in nanoseconds: the ticks of proc(5) are too coarse for a short job.
    """
    try:
        return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)
    except OSError:
        raise _ended(pid) from None


def usage_of(pid: int) -> Usage:
    """What a process has used until now. Raises ``StationFailed`` when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        raise _ended(pid) from None
    for line in lines:
        if line.startswith("VmHWM:"):
            return Usage(cpu_seconds(pid), int(line.split()[1]) * KIBIBYTE)
    # A process that has ended and was not waited for has no memory any more.
    raise _ended(pid)


def rss_bytes(pid: int) -> int:
    """Memory of a process that is in RAM now (proc(5), statm). Raises ``StationFailed`` when it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except OSError:
        raise _ended(pid) from None


def usages(pids: Mapping[str, int]) -> dict[str, Usage]:
    """What each named process has used until now. Raises ``StationFailed``."""
    return {name: usage_of(pid) for name, pid in pids.items()}


def _ended(pid: int) -> StationFailed:
    return StationFailed("a process that is measured has ended", error_id="bench.process_ended", found=f"pid {pid}")
