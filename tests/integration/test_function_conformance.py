"""Every function does on every host what its cases say: this machine first, then devices over SSH."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from pathlib import Path

import pytest

from device_agent import loader
from device_agent.local_host import LocalHost
from gateway.downlinks.ssh_host import SshHost
from tests.peers.function_case import GRAINS, Case, play
from tests.peers.function_cases import ALL
from tests.peers.ssh_beds import SshBed, dropbear, openssh

MODULES = {case.fun.partition(".")[0] for case in ALL}
STRANGE = "it's a $(case) é"
BESIDE = 1
"""Cases that a device over SSH is asked at once."""


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
async def test_this_machine(case: Case, tmp_path: Path) -> None:
    if case.root_only and os.geteuid():
        pytest.skip("only root can become another user")
    async with asyncio.timeout(60):
        await play(LocalHost(deepcopy(GRAINS)), case, f"{tmp_path}/{STRANGE}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bed", [openssh, dropbear])
async def test_devices_over_ssh(bed: Callable[[Path], AbstractContextManager[SshBed]], tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can make a root of its own for a server")
    wrong: list[str] = []
    with bed(tmp_path) as running:
        async with await running.connect() as connection:
            waiting = list(enumerate(ALL))

            async def work() -> None:
                while waiting:
                    number, case = waiting.pop()
                    try:
                        async with asyncio.timeout(60):
                            host = SshHost(connection, deepcopy(GRAINS))
                            await play(host, case, f"/tmp/{STRANGE} {number}", "camera")
                    except (AssertionError, OSError, TimeoutError) as error:
                        wrong.append(f"{case.id}: {type(error).__name__} {str(error)[:400]}")

            async with asyncio.TaskGroup() as group:
                for _ in range(BESIDE):
                    group.create_task(work())
    assert not wrong, "\n".join(wrong)


def test_every_function_has_a_case() -> None:
    played = {case.fun for case in ALL}
    # The other functions of cp ask a station for files.
    received = {"cp.recv", "cp.recv_chunked"}
    assert {name for name in loader.names() if name.partition(".")[0] in MODULES - {"cp"}} | received == played
