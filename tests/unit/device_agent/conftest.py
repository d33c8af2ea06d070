"""A device on the bench, and a gate before the functions it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from device_agent import loader
from device_agent.outbox import MemoryJournal
from tests.peers.device_bench import Bench, Gate


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with asyncio.TaskGroup() as group:
        made = Bench(group, MemoryJournal())
        yield made
        for task in made.tasks:
            task.cancel()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    monkeypatch.setattr(loader, "call", made.call)
    return made
