"""A beacon that a site brought runs like those of the release, as its signed file says, and harms only itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from device_agent.custom.loading import Function, functions_in, loaded
from device_agent.custom.modules import CustomModules
from device_agent.custom.sync import sync
from device_agent.errors import Refused
from device_agent.own import NoCustom
from tests.peers.beacon_bench import NAME, Bench
from tests.peers.fleet import Fleet
from tests.peers.released import RELEASE_KEY, FolderSource, lay, release
from tests.peers.waiting import until

DOOR = b"""
async def validate(config):
    return ("pin" in config[0], "it takes a pin")

async def beacon(host, config):
    pin = config[0]["pin"]
    name = config[-1]["_beacon_name"]
    return [{"tag": "a/b", "pin": pin, "name": name}, {"open": True}]
"""


class Brought(NoCustom):
    """One file."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    def beacons(self) -> list[str]:
        return ["door", "load"]

    async def beacon(self, name: str) -> dict[str, Function]:
        assert name == "door"
        return functions_in(await loaded("_beacons/door.py", self.body))


def bench(folder: Path, data: list[dict[str, Any]], custom: NoCustom) -> Bench:
    made = Bench(folder, {"door": [*data, {"interval": 0.1}]})
    made.own = msgspec.structs.replace(made.own, custom=custom)
    return made


async def test_it_runs_as_those_of_the_release_do(tmp_path: Path) -> None:
    door = bench(tmp_path, [{"pin": 7}], Brought(DOOR))
    async with door.running():
        await until(lambda: len(door.kept.events) >= 2)
        assert "door" in door.beacons.available()
    assert door.kept.events == [
        (f"salt/beacon/{NAME}/door/a/b", {"id": NAME, "pin": 7, "name": "door"}),
        (f"salt/beacon/{NAME}/door/", {"id": NAME, "open": True}),
    ]


@pytest.mark.parametrize(
    ("data", "body", "error"),
    [
        ([{"pins": 7}], DOOR, "Configuration for door beacon is not valid: it takes a pin"),
        ([{"pin": 7}], b"async def look(host): pass", "_beacons/door.py has no async def beacon(host, config)"),
        ([{"pin": 7}], b"async def beacon(host, config): return 7", "beacon returned no list of dictionaries"),
        ([{"pin": 7}], b"async def beacon(host, config): 1 / 0", "ZeroDivisionError"),
        ([{"pin": 7}], b"import time\nasync def beacon(host, config):\n  while True: time.sleep(0.01)", "did not end"),
    ],
)
async def test_what_is_wrong_with_it_is_told(
    data: list[dict[str, Any]], body: bytes, error: str, tmp_path: Path
) -> None:
    door = bench(tmp_path, [*data, {"timeout": 0.5}], Brought(body))
    async with door.running():
        await until(lambda: door.kept.events)
    assert error in door.kept.events[0][1]["error"]


async def test_one_that_was_not_brought_or_not_signed_is_told(tmp_path: Path) -> None:
    class Unsigned(Brought):
        async def beacon(self, name: str) -> dict[str, Function]:
            raise Refused("unsigned", f"_beacons/{name}.py is not in version 1 of the release list")

    for custom, error in (
        (Unsigned(DOOR), "unsigned: _beacons/door.py"),
        (NoCustom(), 'Beacon "door" is not available'),
    ):
        door = bench(tmp_path, [{"pin": 7}], custom)
        async with door.running():
            await until(lambda: door.kept.events)  # noqa: B023 - called at once
        assert error in door.kept.events[0][1]["error"]


async def test_one_that_is_brought_later_begins_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device_agent.beacons.beacons.BROUGHT_SECONDS", 0.05)
    here: list[str] = []

    class Later(Brought):
        def beacons(self) -> list[str]:
            return here

    door = bench(tmp_path, [{"pin": 7}], Later(DOOR))
    async with door.running():
        await until(lambda: door.kept.events)
        assert "is not available" in door.kept.events[0][1]["error"]
        here.append("door")
        await until(lambda: any("pin" in data for data in door.kept.of("door")))


async def test_a_file_that_was_altered_after_it_was_brought_runs_no_more(tmp_path: Path) -> None:
    root = replace(Fleet().root, releases=(RELEASE_KEY.public,))
    base = lay(tmp_path / "base", {"_beacons/door.py": DOOR.decode()})
    release(base)
    source = FolderSource(base=base)
    modules = CustomModules(tmp_path / "custom", lambda: root, source=lambda _station: source)
    assert (await sync(modules, source, ["beacons"], ["base"])).changed == {"beacons": ["beacons.door"]}
    assert modules.beacons() == ["door"]
    assert set(await modules.beacon("door")) == {"beacon", "validate"}
    (tmp_path / "custom/_beacons/door.py").write_bytes(DOOR + b"# more")
    with pytest.raises(Refused) as refused:
        await modules.beacon("door")
    assert refused.value.reason == "altered"
