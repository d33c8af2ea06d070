"""What systemd is to ``outstation-broker.service``: runs its process, and starts it again when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from device_agent.errors import EXIT_CONFIG
from gateway.broker.rules import PID_FILE, SETTINGS_FILE
from tests.peers.waiting import until

ROOT = Path(__file__).resolve().parents[2]


class BrokerUnit:
    """A unit with folders of its own, for as long as the block lasts."""

    def __init__(self, folder: Path, environment: dict[str, str] | None = None, within: tuple[str, ...] = ()) -> None:
        self.rules = folder / "broker"
        self.runtime = folder / "run"
        for made in (self.rules, self.runtime):
            made.mkdir(mode=0o700, exist_ok=True)
        self.log = folder / "broker.log"
        self.starts = 0
        self.ended: list[int] = []
        self._environment = environment or {}
        self._within = within
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def pid_file(self) -> Path:
        return self.runtime / PID_FILE

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self, number: signal.Signals) -> None:
        """Send its process a signal."""
        os.kill(self.pid, number)

    async def started(self, times: int) -> None:
        """Wait until it has started so often, and runs as the broker."""
        await until(lambda: self.starts >= times and self.is_broker(), 60, f"start {times} of the broker")

    def is_broker(self) -> bool:
        """Whether the process has become mosquitto."""
        with contextlib.suppress(FileNotFoundError):
            return Path(f"/proc/{self.pid}/comm").read_text(encoding="utf-8").strip() == "mosquitto"
        return False

    async def __aenter__(self) -> Self:
        self._running = asyncio.get_running_loop().create_task(self._run())
        await until(lambda: self.starts, 60, "the first start")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait({self._running})
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def _run(self) -> None:
        while EXIT_CONFIG not in self.ended:
            with self.log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *(*self._within, sys.executable, "-m", "gateway.broker.start", str(self.rules / SETTINGS_FILE)),
                    cwd=ROOT,
                    env=os.environ | self._environment,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            self.starts += 1
            self.ended.append(await self._process.wait())
