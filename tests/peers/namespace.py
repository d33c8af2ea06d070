"""A network namespace of a test, with files of its own over those in /etc (ip-netns(8))."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

COMMAND_SECONDS = 20.0
FILES = Path("/etc/netns")


@contextmanager
def namespace(name: str, files: Mapping[str, str]) -> Iterator[str]:
    """A namespace with its loopback up; ``files`` are seen in /etc by what runs there. Yields its whole name."""
    whole = f"{name}-{secrets.token_hex(3)}"
    ip("netns", "add", whole)
    try:
        ip("-n", whole, "link", "set", "lo", "up")
        with own_files(whole, files):
            yield whole
    finally:
        ip("netns", "del", whole)


@contextmanager
def own_files(whole: str, files: Mapping[str, str]) -> Iterator[None]:
    """Files that what runs in this namespace sees in /etc, from its start on."""
    folder = FILES / whole
    made = not FILES.exists()
    folder.mkdir(parents=True)
    try:
        for name, text in files.items():
            (folder / name).write_text(text, encoding="ascii")
        yield
    finally:
        shutil.rmtree(folder)
        if made and not any(FILES.iterdir()):
            FILES.rmdir()


def inside(whole: str) -> list[str]:
    """What goes before a command to run it in this namespace."""
    return ["/usr/sbin/ip", "netns", "exec", whole]


def ip(*words: str) -> None:
    """Run ``ip``; raises when it fails."""
    subprocess.run(["/usr/sbin/ip", *words], capture_output=True, timeout=COMMAND_SECONDS, check=True)
