"""Processes of this machine, as the kernel lists them (proc(5))."""

from __future__ import annotations

from pathlib import Path


def processes(text: str) -> list[str]:
    """Command lines of the processes of this machine that have this text in them."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if text.encode() in words:
            found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be buried does not."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False
