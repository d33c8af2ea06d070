"""What a disk may hold after a power cut: a recorded trace of a program's writes and syncs, replayed and cut short.

``record`` runs a program under strace. ``Disk`` is told what the program did, step by step. What was synced is on disk;
of what was written since, each sector of 512 bytes may be there in any version it had, or not at all, whatever was
written before or after it; files may have their new length or the old one, and names what they were before.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
CALLS = "openat,pwrite64,write,fdatasync,fsync,ftruncate,rename,unlink"
SECONDS = 110
NOT_ALLOWED = re.compile(
    r"ptrace\(.*Operation not permitted|PTRACE_\w+.*not permitted|ptrace.*Function not implemented"
)

_LINE = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
_UNFINISHED = re.compile(r"^(\d+) +(.*?) +<unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. \w+ resumed>(.*)$")
_FD = re.compile(r"^\d+<((?:\\x[0-9a-f]{2})*)>(?:\(deleted\))?(?:, (.*))?$", re.DOTALL)
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class PtraceNotAllowed(Exception):
    """This machine lets nobody trace a process."""


@dataclass(frozen=True)
class Step:
    """One call that changed something: what, on which file, and with what."""

    call: str
    path: str
    content: bytes = b""
    place: int = 0


def record(trace: Path, program: list[str]) -> list[Step]:
    """Run a program to its end; what it did to files. Raises ``PtraceNotAllowed``."""
    strace = shutil.which("strace")
    assert strace is not None, "strace is not installed: apt-get install strace"
    words = [strace, "-f", "-y", "-xx", "-s", "10000000", "-e", f"trace={CALLS}", "-o", str(trace), *program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    if NOT_ALLOWED.search(done.stderr):
        raise PtraceNotAllowed(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return list(_steps(trace))


def _steps(trace: Path) -> Iterator[Step]:
    begun: dict[str, str] = {}
    with trace.open(encoding="ascii") as lines:
        for line in lines:
            text = line.rstrip("\n")
            unfinished, resumed = _UNFINISHED.match(text), _RESUMED.match(text)
            if unfinished is not None:
                begun[unfinished.group(1)] = unfinished.group(2)
                continue
            if resumed is not None:
                text = f"{resumed.group(1)} {begun.pop(resumed.group(1))}{resumed.group(2)}"
            found = _LINE.match(text)
            if found is not None and int(found.group(3)) >= 0:
                yield from _step(found.group(1), found.group(2))


def _step(call: str, words: str) -> Iterator[Step]:
    if call in ("rename", "unlink"):
        names = [_plain(text) for text in _TEXT.findall(words)]
        yield Step(call, names[0].decode(), names[-1])
        return
    if call == "openat":
        if "O_CREAT" in words or "O_TRUNC" in words:
            yield Step("create" if "O_TRUNC" not in words else "empty", _plain(_TEXT.findall(words)[0]).decode())
        return
    fd = _FD.match(words)
    if fd is None:
        return
    path, rest = _plain(fd.group(1)).decode(), fd.group(2) or ""
    match call:
        case "pwrite64":
            yield Step("write", path, _plain(_TEXT.findall(rest)[0]), int(rest.rsplit(", ", 1)[1]))
        case "write":
            yield Step("append", path, _plain(_TEXT.findall(rest)[0]))
        case "ftruncate":
            yield Step("cut", path, place=int(rest))
        case _:
            yield Step("sync", path)


def _plain(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


@dataclass
class _File:
    """What is durable of a file, what the program sees, and the versions each unsynced sector has had."""

    durable: bytearray = field(default_factory=bytearray)
    seen: bytearray = field(default_factory=bytearray)
    versions: dict[int, list[bytes]] = field(default_factory=dict)
    lengths: list[int] = field(default_factory=lambda: [0])

    def write(self, place: int, content: bytes) -> None:
        end = place + len(content)
        if len(self.seen) < end:
            self.seen.extend(bytes(end - len(self.seen)))
            self.lengths.append(end)
        self.seen[place:end] = content
        for sector in range(place // SECTOR, -(-end // SECTOR)):
            self.versions.setdefault(sector, []).append(bytes(self.seen[sector * SECTOR : (sector + 1) * SECTOR]))

    def cut(self, length: int) -> None:
        del self.seen[length:]
        self.seen.extend(bytes(length - len(self.seen)))
        self.lengths.append(length)

    def sync(self) -> None:
        self.durable[:] = self.seen
        self.versions.clear()
        self.lengths = [len(self.seen)]

    def torn(self, chosen: random.Random, share: float) -> bytes:
        """Each unsynced sector in one of its versions with this probability, else as it was synced."""
        if share >= 1:
            return bytes(self.seen)
        length = chosen.choice(self.lengths) if share > 0 else self.lengths[0]
        body = bytearray(self.durable)
        for sector, versions in sorted(self.versions.items()):
            if chosen.random() < share:
                content = chosen.choice(versions)
                end = sector * SECTOR + len(content)
                body.extend(bytes(max(0, end - len(body))))
                body[sector * SECTOR : end] = content
                # What is there has a place: the file is as long as that, unless it was cut on purpose.
                if len(self.lengths) > 1 and max(self.lengths) >= end > length >= self.lengths[0]:
                    length = end
        return bytes(body[:length]).ljust(length, b"\0")


class Disk:
    """The files of one folder, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}

    def take(self, step: Step) -> None:
        """The program did this."""
        name = self._name(step.path)
        if step.call == "sync" and Path(step.path) == self._folder:
            self._durable_names = dict(self._files)
            return
        if name is None:
            return
        match step.call:
            case "create":
                self._files.setdefault(name, _File())
            case "empty":
                self._files.setdefault(name, _File()).cut(0)
            case "rename":
                self._files[Path(step.content.decode()).name] = self._files.pop(name)
            case "unlink":
                self._files.pop(name, None)
            case "write":
                self._files.setdefault(name, _File()).write(step.place, step.content)
            case "append":
                file = self._files.setdefault(name, _File())
                file.write(len(file.seen), step.content)
            case "cut":
                self._files.setdefault(name, _File()).cut(step.place)
            case "sync":
                # A file system that syncs a new file syncs its name with it.
                file = self._files.setdefault(name, _File())
                file.sync()
                self._durable_names.setdefault(name, file)
            case _:
                raise AssertionError(step)

    def lay_out(self, folder: Path, chosen: random.Random, share: float) -> None:
        """Write files as they may be after a cut: all of what is unsynced (1), nothing of it (0), or some."""
        names = self._files if chosen.random() < share else self._durable_names
        folder.mkdir()
        for name, file in names.items():
            (folder / name).write_bytes(file.torn(chosen, share))

    def _name(self, path: str) -> str | None:
        found = Path(path)
        # The index of the log is memory that is shared; it is made anew.
        return found.name if found.parent == self._folder and not found.name.endswith("-shm") else None
