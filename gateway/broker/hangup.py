"""SIGHUP to a broker: a mosquitto that has just started does not handle the signal yet, and would end by it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

from device_agent import system_text

_BIT: Final = 1 << (signal.SIGHUP - 1)


def hang_up(pid: int) -> bool:
    """Tell a process to read its files again; False when it is gone or does not handle the signal yet.

    Which signals a process handles is in ``SigCgt`` of its status: proc_pid_status(5). Raises ``PermissionError``.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_bytes().decode(errors="replace")
        handled = next(line.split()[1] for line in system_text.lines(status) if line.startswith("SigCgt:"))
        if not int(handled, 16) & _BIT:
            return False
        os.kill(pid, signal.SIGHUP)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return True
