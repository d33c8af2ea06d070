"""Modules of a site for its devices without an agent: brought once for all, judged and run in the gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.clock import Clock
from device_agent.errors import PolicyRefused
from gateway.devices.ssh_secrets import Secret
from tests.peers.fleet import Fleet
from tests.peers.released import DOOR, LENS, RELEASE_KEY, lay, release
from tests.peers.ssh_played import PASSWORD, played_device
from tests.peers.ssh_site import SshSite, ssh_site

LOGIN = Secret(password=PASSWORD)


async def run(site: SshSite, fun: str, name: str = "cam-1", arg: list[Any] | None = None) -> Any:
    """What it returned, all being well."""
    ended = (await site.run(fun, name, arg=arg))[name]
    assert ended.outcome == "ok", ended
    return ended.value


async def test_one_device_brings_them_for_all_and_the_station_judges_by_the_list(tmp_path: Path) -> None:
    root = lay(tmp_path / "salt", {"_modules/door.py": DOOR, "_grains/lens.py": LENS})
    release(root)
    fleet = Fleet(now=Clock().wall())
    fleet.next_root(releases=(RELEASE_KEY.public,))
    granted = ("looks", "saltutil.*")
    async with (
        played_device() as camera,
        played_device() as other,
        ssh_site(tmp_path / "site", fleet=fleet, granted=granted, file_roots={"base": [str(root)]}) as site,
    ):
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.add("cam-2", other.port, other.host_keys, LOGIN)
        await site.here("cam-1", "cam-2")
        # What is not known here counts as a shell, which this site was not granted.
        with pytest.raises(PolicyRefused, match=r"door\.status is not granted"):
            await run(site, "door.status")
        assert await run(site, "saltutil.sync_modules") == ["modules.door"]
        assert await run(site, "saltutil.sync_modules", "cam-2") == []
        for name in ("cam-1", "cam-2"):
            assert await run(site, "door.status", name) == {"door": "shut", "times": 1}
        with pytest.raises(PolicyRefused, match=r"door\.open is not granted"):
            await run(site, "door.open")
        assert (await run(site, "sys.list_functions", arg=["door"])) == ["door.open", "door.status"]
        # Its facts are told with what was brought.
        assert await run(site, "saltutil.sync_grains") == ["grains.lens"]
        assert site.device("cam-1").grains["lens"] == {"mm": 35}
        (tmp_path / "site" / "custom" / "_modules" / "door.py").write_text(DOOR.replace("shut", "ajar"))
        ended = (await site.run("door.status", "cam-1"))["cam-1"]
        assert (ended.outcome, (ended.why or "").split(": ")[1]) == ("refused", "altered")
