"""The mine answers a device as stock Salt's mine answers a minion, call by call."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from device_agent import loader
from device_agent.local_host import LocalHost
from device_agent.own import Own
from device_agent.protocol.messages import Hello
from gateway.answers import Within
from tests.peers.function_case import GRAINS
from tests.peers.mine_calls import CALLS, SETTINGS
from tests.peers.salt_call import answers
from tests.peers.salt_release import MINUTES
from tests.peers.ssh_site import ssh_site

pytestmark = [pytest.mark.system, pytest.mark.timeout(60 * MINUTES)]


async def test_each_call_answers_as_stock_salt_does(salt: Path, tmp_path: Path) -> None:
    asked = [
        {
            "fun": each.fun,
            "arg": list(each.arg),
            "kwarg": each.kwarg,
            "given": "",
            "folder": f"{tmp_path}/calls/{number}",
        }
        for number, each in enumerate(CALLS)
    ]
    told = answers(salt, tmp_path / "stock", asked, GRAINS, SETTINGS)
    found = []
    async with ssh_site(tmp_path / "site") as site:
        site.rooms.registry.hello("mqtt", "cam-7", Hello("0" * 16, "1", deepcopy(GRAINS)))
        own = Own(settings=deepcopy(SETTINGS), station=Within(site.kept.to_devices, "cam-7"))
        for each, theirs in zip(CALLS, told, strict=True):
            ended = await loader.call(each.fun, LocalHost(deepcopy(GRAINS)), list(each.arg), dict(each.kwarg), own)
            if {"value": ended.value} != theirs:
                found.append(f"{each}: {ended}, and Salt {theirs}")
    assert not found, "\n".join(found)
