"""One station: its API by name in this process, or the whole program as a child process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.cli.client import UnixConnection
from tests.peers.waiting import until

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0
RUN = "import sys; from gateway.cli.main import main; sys.exit(main(sys.argv[1:]))"

Fields = dict[str, Any]


@dataclass(frozen=True)
class Heard:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Fields:
        """The answer as an object."""
        answer: Fields = json.loads(self.body)
        return answer

    @property
    def error(self) -> Fields:
        """Why it was refused."""
        error: Fields = self.json()["error"]
        return error


def _asked(path: Path, method: str, where: str, body: bytes | None) -> Heard:
    with closing(UnixConnection(path, SECONDS)) as connection:
        connection.request(method, where, body=body)
        with connection.getresponse() as response:
            return Heard(response.status, dict(response.getheaders()), response.read())


async def ask(path: Path, method: str, where: str, body: Any = None) -> Heard:
    """One request to the API at a socket; bytes go as they are, anything else as JSON."""
    sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    return await asyncio.to_thread(_asked, path, method, where, sent)


class StationProcess:
    """``outstation master run`` or ``gateway run``, in a folder of its own."""

    def __init__(self, folder: Path, role: str, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.socket = folder / "api.sock"
        self.config = folder / f"{role}.yaml"
        self.log = folder / "log"
        self._role = role
        self.write({"name": "lisbon", "state_dir": str(folder / "state"), "socket": str(self.socket), **settings})
        self.process: asyncio.subprocess.Process | None = None
        self.environment: dict[str, str] = {}
        """Beside this process' own."""
        self.within: tuple[str, ...] = ()
        """A program that it is started by, and its words."""

    def write(self, settings: Mapping[str, Any]) -> None:
        """Its settings, as the file has them from now on."""
        self.settings = dict(settings)
        self.config.write_text(json.dumps(settings), encoding="utf-8")

    async def start(self) -> None:
        """Start it; it may end at once."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.within,
                sys.executable,
                "-c",
                RUN,
                self._role,
                "run",
                "--config",
                str(self.config),
                cwd=ROOT,
                env=os.environ | self.environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def answers(self) -> Fields:
        """Wait until its API answers; what it says of itself."""

        async def probe() -> Fields | None:
            assert self.process is not None
            assert self.process.returncode is None, self.log_text()
            try:
                heard = await ask(self.socket, "GET", "/station")
            except (FileNotFoundError, ConnectionError):
                return None
            return heard.json() if heard.status == 200 else None

        found = await until(probe, SECONDS, "the station answers")
        assert found is not None
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        os.kill(self.process.pid, number)

    async def ended(self) -> int:
        """Wait for its end; the exit status."""
        assert self.process is not None
        async with asyncio.timeout(SECONDS):
            return await self.process.wait()

    async def stop(self) -> int:
        """Stop it in order, if it still runs; the exit status."""
        assert self.process is not None
        if self.process.returncode is None:
            self.signal(signal.SIGTERM)
        return await self.ended()

    def log_text(self) -> str:
        """Everything it wrote."""
        return self.log.read_text(encoding="utf-8", errors="replace")


@asynccontextmanager
async def station_process(folder: Path, role: str, **settings: Any) -> AsyncIterator[StationProcess]:
    """A station that answers, for as long as the block lasts."""
    station = StationProcess(folder, role, settings)
    await station.start()
    try:
        await station.answers()
        yield station
    finally:
        assert station.process is not None
        if station.process.returncode is None:
            await station.stop()
