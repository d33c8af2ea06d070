"""Engines without a station: the part that keeps them, their files in a folder, and who of them still runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from device_agent.clock import Clock
from gateway.engines.settings import EngineLimits, engines_in
from gateway.engines.sources import Sources
from gateway.engines.supervisor import Engines
from gateway.metrics import Metrics
from tests.peers.processes import processes
from tests.peers.waiting import until

SECONDS = 60.0


class NothingSynced:
    """No engine was brought."""

    def holds(self, path: str) -> bool:
        return False

    def verified(self, path: str) -> bytes:
        raise AssertionError(path)


class EngineBench:
    """Files of engines, and the part that runs them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engines_dir = folder / "engines"
        self.engines_dir.mkdir()
        self.metrics = Metrics(Clock())
        self.part: Engines | None = None

    def write(self, module: str, text: str) -> None:
        """A file with an engine."""
        place = self.engines_dir / f"{module}.py"
        place.write_text(text, encoding="utf-8")
        place.chmod(0o644)

    @asynccontextmanager
    async def running(self, *engines: Any, **limits: Any) -> AsyncIterator[Engines]:
        """The engines of these entries of ``engines:``."""
        part = Engines(
            engines_in(list(engines)),
            limits=EngineLimits(**limits),
            sources=Sources([self.engines_dir], NothingSynced()),
            opts={"id": "lisbon", "__role": "master", "log_level": "debug"},
            api=self.folder / "api.sock",
            events=None,
            state_dir=self.folder,
            metrics=self.metrics,
            clock=Clock(),
        )
        async with part:
            self.part = part
            yield part

    def view(self, name: str) -> dict[str, Any]:
        """An engine as the API would show it."""
        assert self.part is not None
        return {view["name"]: view for view in self.part.views()}[name]

    async def until(self, name: str, state: str, why: str = "") -> dict[str, Any]:
        """Wait until it is in a state, for this reason."""

        def there() -> bool:
            view = self.view(name)
            return view["state"] == state and why in view["why"]

        await until(there, SECONDS, f"{name} is {state} {why}")
        return self.view(name)

    def left(self) -> list[str]:
        """Processes of these engines that run."""
        return processes(str(self.folder))
