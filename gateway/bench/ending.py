"""The end of a process that stops by itself when its lines end."""

from __future__ import annotations

import subprocess

STOP_SECONDS = 5.0


def let_end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Close its lines and wait; one that does not end is killed."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)
