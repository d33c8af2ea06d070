"""tests/peers/disk_faults.py: the faults that other tests rely on reach the files that they name, and end."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.disk_faults import KINDS, failing_disk, no_descriptors

WRITER = """
import os, sys
named, other = (os.open(path, os.O_CREAT | os.O_WRONLY) for path in sys.argv[1:3])
for _ in sys.stdin:
    said = []
    for file, call in ((named, "write"), (named, "sync"), (other, "write"), (other, "sync"), (0, "dup")):
        try:
            if call == "write":
                os.pwrite(file, b"x", 0)
            elif call == "sync":
                os.fdatasync(file)
            else:
                os.close(os.dup(file))
            said.append("0")
        except OSError as error:
            said.append(str(error.errno))
    print(*said, flush=True)
"""


class Writing:
    """A program that writes, syncs and opens once for each line that it is sent, and says each error number."""

    def __init__(self, folder: Path) -> None:
        self.named = folder / "named"
        command = [sys.executable, "-c", WRITER, str(self.named), str(folder / "other")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def said(self) -> list[int]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        return [int(word) for word in self.process.stdout.readline().split()]


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    found = Writing(tmp_path)
    with found.process:
        assert found.said() == [0] * 5
        yield found
        assert found.process.stdin is not None
        found.process.stdin.close()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_fault_reaches_the_named_file_alone_and_ends_with_its_block(kind: str, writing: Writing) -> None:
    number = getattr(errno, KINDS[kind][0])
    expected = [0, number] if kind == "eio-sync" else [number, 0]
    with failing_disk(writing.process.pid, kind, writing.named):
        assert writing.said() == [*expected, 0, 0, 0]
    assert writing.said() == [0] * 5


def test_a_process_without_descriptors_opens_nothing_and_has_its_limit_again_afterwards(writing: Writing) -> None:
    pid = writing.process.pid
    with no_descriptors(pid):
        assert writing.said() == [0, 0, 0, 0, errno.EMFILE]
    with no_descriptors(pid, left=1) as limit:
        assert limit > sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        assert writing.said() == [0] * 5
