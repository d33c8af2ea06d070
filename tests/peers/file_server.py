"""A file server for tests: folders and repositories to serve, and the station above as something that a test plays."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from device_agent.clock import Clock
from device_agent.protocol.file_questions import AskChunk, decode
from device_agent.protocol.questions import ANSWER_BYTES
from device_agent.questions import Unanswered
from gateway.answers import Answers
from gateway.files.files import Files
from gateway.files.received import Received
from gateway.files.served import Patterns
from gateway.files.settings import FilesSettings
from gateway.metrics import Metrics
from gateway.store.migrate import migrate
from gateway.store.reader import Reader
from gateway.store.writer import Writer

QUICK = FilesSettings(fresh_seconds=0.0, cache_megabytes=8)
LISBON = "lisbon"


class Above:
    """Implements the port of the same name: a station that can be cut off, that counts, and that may garble."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.cut = False
        self.asked: Counter[str] = Counter()
        self.chunk_bytes = 0
        self.garble: Callable[[AskChunk, bytes], bytes] = lambda _, data: data
        self.before: Callable[[str], Any] = lambda _: None

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 60.0) -> bytes:
        if self.cut:
            raise Unanswered("no master is there to be asked")
        self.asked[about] += 1
        self.before(about)
        await asyncio.sleep(0)
        data = await self._server.answers.ask(LISBON, about, body)
        if about == "file.chunk":
            data = self.garble(decode(body, AskChunk), data)
            self.chunk_bytes += len(data)
        assert len(data) <= ANSWER_BYTES
        if self.cut:
            raise Unanswered("the link was lost")
        return data


class Server:
    """The file server of one station, with its answers."""

    def __init__(self, files: Files, answers: Answers, metrics: Metrics) -> None:
        self.files = files
        self.answers = answers
        self.metrics = metrics

    def above(self) -> Above:
        """This one, as those below reach it."""
        return Above(self)

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 60.0) -> bytes:
        """As a device asks it."""
        return await self.answers.ask("cam-7", about, body)

    def refused(self, reason: str) -> int:
        """How often the file server refused something for this reason."""
        return sum(count for (_, why), count in self.metrics.refusals.items() if why == reason)


@asynccontextmanager
async def server(
    state: Path,
    roots: Mapping[str, Any] | None = None,
    *,
    above: Above | None = None,
    settings: FilesSettings = QUICK,
    patterns: Patterns | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Server]:
    """The file server of a station, for as long as the block lasts."""
    state.mkdir(parents=True, exist_ok=True)
    clock = clock or Clock()
    metrics = Metrics(clock)
    migrate(state / "station.sqlite")
    writer, reader = Writer(state / "station.sqlite"), Reader(state / "station.sqlite")
    files = Files(
        roots={
            saltenv: [root if not isinstance(root, Path) else str(root) for root in found]
            for saltenv, found in (roots or {}).items()
        },
        settings=settings,
        patterns=patterns or Patterns(),
        folder=state / "files",
        writer=writer,
        reader=reader,
        metrics=metrics,
        clock=clock,
    )
    files.above = above
    answers = Answers("questions_of_devices", metrics)
    files.answer(answers)
    Received(state / "received", settings, metrics).answer(answers)
    async with AsyncExitStack() as stack:
        for part in (writer, reader, files, files.fetches, answers):
            await stack.enter_async_context(part)
        yield Server(files, answers, metrics)


def settled(path: Path, data: bytes) -> bytes:
    """Write a file as if it had been there for an hour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    before = path.stat().st_mtime - 3600
    os.utime(path, (before, before))
    return data


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git(folder: Path, *words: str) -> str:
    """Run git there, as somebody."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=ops", "-c", "user.email=ops@example.com", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *words], capture_output=True, text=True, env=env, timeout=120, check=True
    )
    return done.stdout.strip()


def committed(folder: Path, files: Mapping[str, bytes]) -> str:
    """Put these files into a repository; the commit."""
    if not (folder / ".git").exists():
        folder.mkdir(parents=True, exist_ok=True)
        git(folder, "init", "--quiet")
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "files")
    return git(folder, "rev-parse", "HEAD")
