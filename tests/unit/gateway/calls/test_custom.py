"""Runners that a site wrote itself: what was signed is called, as far as its class lets who asks, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from device_agent.custom.modules import CustomModules
from device_agent.errors import PolicyRefused
from device_agent.questions import Station
from device_agent.trust.root_list import RootList
from gateway.calls.binding import bound
from gateway.calls.call import CallFailed
from gateway.calls.custom import CustomRunners
from gateway.runners.saltutil import SaltutilRunner
from tests.peers.fleet import Fleet
from tests.peers.released import RELEASE_KEY, FolderSource, lay, release

LIGHTS = '''
"""The lights of a site."""

__reach__ = {"shown": "looks", "switch": "changes"}


async def shown(running):
    """Say how they are."""
    return {"on": True}


async def switch(running, on: bool = True):
    """Switch them."""
    return on


async def rewire(running):
    """Nobody said how far it reaches."""


async def holds(running):
    """Blocks, in the middle of what the station does for it."""
    await running.fire("site/begun")
    return running.goes_on.wait(60)
'''
NOBODY = cast("Any", None)


async def test_a_runner_of_the_site_runs_once_it_was_signed_and_brought(tmp_path: Path) -> None:
    root: RootList = replace(Fleet().root, releases=(RELEASE_KEY.public,))
    base = lay(tmp_path / "base", {"_runners/lights.py": LIGHTS})
    source = FolderSource(base=base)
    custom = CustomModules(tmp_path / "custom", lambda: root, source=lambda _: source)
    runners, saltutil = CustomRunners(custom), SaltutilRunner(custom, cast("Station", None))
    assert await runners.get("lights.shown") is None
    with pytest.raises(CallFailed, match="no_release_list"):
        await saltutil.sync_runners(NOBODY)
    release(base)
    assert await saltutil.sync_runners(NOBODY) == ["runners.lights"]
    shown, switch, rewire = [await runners.get(f"lights.{name}") for name in ("shown", "switch", "rewire")]
    assert shown is not None
    assert switch is not None
    assert rewire is not None
    assert (shown.need, switch.need, rewire.need) == ("view", "run", "admin")
    assert await shown.run(NOBODY) == {"on": True}
    assert bound(switch.run, "runner.lights.switch", [], {"on": False}) == ([], {"on": False})
    assert await runners.get("lights.nothing") is None
    assert await runners.get("other.shown") is None
    (tmp_path / "custom" / "_runners" / "lights.py").write_text(LIGHTS.replace("True", "False"))
    with pytest.raises(PolicyRefused, match="altered"):
        await runners.get("lights.shown")


class _Held:
    """What the running call of a runner that blocks is to it."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.fired = asyncio.Event()

    async def fire(self, tag: str) -> None:
        """Only its own loop may wake who waits in it."""
        assert tag == "site/begun"
        self.fired.set()


async def _whole(called: Awaitable[Any]) -> Any:
    return await called


async def test_a_runner_of_the_site_that_blocks_holds_up_nobody(tmp_path: Path) -> None:
    root: RootList = replace(Fleet().root, releases=(RELEASE_KEY.public,))
    base = lay(tmp_path / "base", {"_runners/lights.py": LIGHTS})
    release(base)
    custom = CustomModules(tmp_path / "custom", lambda: root, source=lambda _: FolderSource(base=base))
    await SaltutilRunner(custom, cast("Station", None)).sync_runners(NOBODY)
    holds = await CustomRunners(custom).get("lights.holds")
    assert holds is not None
    held = _Held()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        holding = group.create_task(_whole(holds.run(held)))
        await held.fired.wait()
        held.goes_on.set()
    assert holding.result() is True
