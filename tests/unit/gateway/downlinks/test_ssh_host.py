"""What a device behind SSH says, read: its errors, its files, and the start of a command."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from device_agent.local_files import look
from gateway.downlinks import ssh_scripts
from gateway.downlinks.ssh_errors import errno_of, refusal
from gateway.downlinks.ssh_exec import BEFORE_BYTES, TAIL_BYTES, Kept

MARK = re.compile(rb"mark (\d{1,10}) ([gt])\r?\n")


@pytest.mark.parametrize(
    ("said", "number"),
    [
        (b"head: cannot open '/x' for reading: No such file or directory\n", errno.ENOENT),
        (b"sh: 1: cannot open /x: No such file\n", errno.ENOENT),
        (b"sh: can't create /x/y: nonexistent directory\n", errno.ENOENT),
        (b"rmdir: 'd': Directory not empty\n", errno.ENOTEMPTY),
        (b"cat: write error: No space left on device\n", errno.ENOSPC),
        (b"ls: x: Symbolic link loop\n", errno.ELOOP),
        (b"mv: can't rename 'a': Resource busy\n", errno.EBUSY),
        (b"head: No such file or directory: Permission denied\n", errno.EACCES),
        (b"sh: head: not found\n", errno.ENOSYS),
        (b"", None),
        (b"something else\n", None),
    ],
)
def test_the_words_for_an_error_are_its_number(said: bytes, number: int | None) -> None:
    assert errno_of(said) == number
    assert refusal(said, "/p").errno == (number or errno.EIO)
    assert refusal(said, "/p").filename == "/p"


def test_what_nobody_knows_is_told_as_it_was_said() -> None:
    assert "flash is worn" in str(refusal(b"x: flash is worn\n", "/p"))
    assert "no reason" in str(refusal(b"", "/p"))


@pytest.mark.parametrize("lacking", [(), ("stat",), ("stat", "readlink"), ("stat", "readlink", "date")])
def test_a_file_is_described_with_whatever_the_device_has(lacking: tuple[str, ...], tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in {"stat", "readlink", "date", "ls"} - set(lacking):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    (tmp_path / "a b").write_bytes(b"12345")
    (tmp_path / "a b").chmod(0o4750)
    (tmp_path / "link").symlink_to("a b")
    (tmp_path / "folder").mkdir(mode=0o1777)
    for name, follow in (("a b", True), ("link", False), ("link", True), ("folder", False), ("/dev/null", True)):
        path = os.fspath(tmp_path / name)
        words = ["/bin/sh", "-c", ssh_scripts.STAT.strip(), "sh", path, "-L" if follow else ""]
        environment = {"PATH": str(programs), "LC_ALL": "C"}
        said = subprocess.run(words, env=environment, capture_output=True, check=True).stdout
        there, here = ssh_scripts.stat_of(said), look(path, follow=follow)
        assert here is not None
        assert (there.kind, there.mode, there.size, there.target) == (here.kind, here.mode, here.size, here.target)
        assert (there.uid, there.group, there.inode) == (here.uid, here.group, here.inode)
        if "date" not in lacking and here.kind != "link":
            assert there.mtime == int(here.mtime)


@pytest.mark.parametrize(
    "said",
    [b"", b"\n", b"ls", b"ls 1 2 3", b"zz 0 0 0 0 0 0 0 a b", b"1 2 3", b"ffff 0 0 0 nan 0 0 0 a b", b"\xff\0 " * 9],
)
def test_an_answer_that_is_none_is_refused(said: bytes) -> None:
    with pytest.raises((ValueError, LookupError)):
        ssh_scripts.stat_of(said)


def test_a_command_begins_after_its_mark_wherever_the_pieces_are_cut() -> None:
    whole = b"Welcome\nmark\nmark 12 x\nmark 345 g\nsaid\nmark 6 g\n"
    for cut in range(len(whole) + 1):
        kept = Kept(MARK, 100)
        kept.take(whole[:cut])
        kept.take(whole[cut:])
        assert kept.found is not None
        assert kept.found.groups() == (b"345", b"g")
        assert (bytes(kept.head), kept.discarded) == (b"said\nmark 6 g\n", 0)


def test_what_is_past_the_limit_is_counted_and_its_end_kept() -> None:
    kept = Kept(None, 10)
    for _ in range(1000):
        kept.take(b"0123456789abcdef")
    assert (bytes(kept.head), kept.discarded, len(kept.tail)) == (b"0123456789", 15_990, TAIL_BYTES)


def test_a_flood_without_a_mark_is_not_kept() -> None:
    kept = Kept(MARK, 10)
    for _ in range(100):
        kept.take(b"mark 1" * 1000)
    assert len(kept.before) <= BEFORE_BYTES
    assert kept.discarded > 500_000
    kept.take(b"mark 9 t\nx")
    assert (bytes(kept.head), kept.discarded) == (b"x", 0)
