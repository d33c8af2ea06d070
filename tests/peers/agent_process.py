"""A real agent for a test: as a process with a settings file and a state directory, or in the process of the test."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from device_agent.agent import Agent
from device_agent.config import AgentSettings
from tests.peers.played_station import PlayedStation

NAME = "cam-7"
PROGRAM = "import sys, pathlib, device_agent.running as a; sys.exit(a.main(pathlib.Path(sys.argv[1])))"


class AgentProcess:
    """The agent as it is installed. Its token lies in its state directory, as an image would bring it."""

    def __init__(self, station: PlayedStation, folder: Path) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = {
            "serial": NAME,
            "state_dir": str(folder / "state"),
            "grains_file": str(folder / "own.grains"),
            "grains": {"floor": 3},
        }
        self.process: asyncio.subprocess.Process | None = None
        lay_token(station, folder / "state")

    @property
    def log(self) -> str:
        return (self.folder / "agent.log").read_text()

    @property
    def config(self) -> Path:
        return self.folder / "agent.yaml"

    def configure(self, **settings: Any) -> None:
        self.settings.update(settings)
        self.config.write_text(yaml.safe_dump(self.settings))

    async def start(self, program: str = PROGRAM) -> None:
        self.configure()
        with (self.folder / "agent.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, str(self.config), stderr=log
            )

    async def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        async with asyncio.timeout(60):
            return await self.process.wait()


def lay_token(station: PlayedStation, folder: Path) -> None:
    """Put the station's token into a state directory."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "token").write_text(station.token + "\n")


def agent_settings(station: PlayedStation, folder: Path, **fields: Any) -> AgentSettings:
    """Settings with which an agent joins this station."""
    lay_token(station, folder)
    given = {
        "serial": NAME,
        "state_dir": str(folder / "state"),
        "token_file": str(folder / "token"),
        "grains_file": str(folder / "own.grains"),
        **fields,
    }
    return AgentSettings(**given)


@asynccontextmanager
async def joined(station: PlayedStation, table: AgentSettings) -> AsyncIterator[Agent]:
    """An agent in this process, when it has said hello."""
    name = table.serial or NAME
    async with Agent(table) as agent:
        await station.joined([name], len(station.hellos[name]) + 1)
        yield agent
