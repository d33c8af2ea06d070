"""A network disk that has stopped answering: each access hangs in the kernel until the block ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SERVER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
if libc.mount(b"dead", os.fsencode(sys.argv[1]), b"fuse", 0, options):
    sys.exit(f"no FUSE mount here: {os.strerror(ctypes.get_errno())}")
print("mounted", flush=True)
sys.stdin.read()
libc.umount2(os.fsencode(sys.argv[1]), 2)
"""
"""Mounts a file system that it never serves, until its input ends. Its end is an error for each access that hangs."""

SECONDS = 60.0


@contextmanager
def dead_disk(folder: Path) -> Iterator[Path]:
    """A dead disk at this folder, which is made."""
    if os.getuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("a mount takes an administrator, and a kernel with FUSE")
    folder.mkdir()
    # A process of its own: a child of this one that hangs would keep the server's end of the mount open.
    words = [sys.executable, "-c", SERVER, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        if server.stdout.readline() != b"mounted\n":
            pytest.skip(server.stderr.read().decode())
        try:
            yield folder
        finally:
            server.communicate(timeout=SECONDS)
