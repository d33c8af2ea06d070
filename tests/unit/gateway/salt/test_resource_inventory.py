"""What a Salt master with resources is told of the devices: by type, bounded, and no station among them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.salt import resource_inventory
from gateway.salt.resource_inventory import DEVICE_BYTES, Inventory, ResourceRules
from tests.peers.salt_resources import device
from upstream.salt import wire


def grains_of(packed: wire.Packed) -> Any:
    return wire.texts(wire.unpack(packed))


async def test_devices_are_there_by_type_with_their_grains() -> None:
    every = [
        device("lisbon-station"),
        device("cam-2", kind="camera", shell="/bin/sh"),
        device("cam-1", kind="camera"),
        device("door", kind="of iron"),
        device("lamp", kind=["lamp"]),
    ]
    found = await Inventory(ResourceRules("device", by="kind")).registered(every)
    assert found.resources == {"camera": ["cam-1", "cam-2"], "device": ["door", "lamp"]}
    assert grains_of(found.grains["camera:cam-2"]) == {"id": "cam-2", "kind": "camera"}
    assert sorted(found.grains) == ["camera:cam-1", "camera:cam-2", "device:door", "device:lamp"]
    assert (found.count, found.left_out, found.grains_left_out) == (4, 0, 0)


async def test_the_grains_that_are_named_go_up_and_no_others() -> None:
    found = await Inventory(ResourceRules("device", grains=("os", "none"))).registered(
        [device("cam-1", os="Debian", serial="secret")]
    )
    assert grains_of(found.grains["device:cam-1"]) == {"id": "cam-1", "os": "Debian"}


async def test_of_too_many_grains_the_smallest_go_up_and_it_is_said() -> None:
    found = await Inventory(ResourceRules("device")).registered(
        [device("cam-1", a="x" * DEVICE_BYTES, b=1, c="y"), device("cam-2")]
    )
    assert grains_of(found.grains["device:cam-1"]) == {"id": "cam-1", "b": 1, "c": "y"}
    assert found.grains_left_out == 1


async def test_a_large_site_stays_within_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_inventory, "MOST_DEVICES", 50)
    monkeypatch.setattr(resource_inventory, "GRAINS_BYTES", 5000)
    every = [device(f"cam-{number:03}", **{f"g{each}": "v" * 20 for each in range(20)}) for number in range(60)]
    found = await Inventory(ResourceRules("device")).registered(every)
    assert (found.count, found.left_out, found.grains_left_out) == (50, 10, 50)
    assert sum(map(len, found.grains.values())) <= 5000


async def test_what_changed_is_another_inventory_and_what_did_not_is_the_same() -> None:
    inventory = Inventory(ResourceRules("device"))
    one, two = device("cam-1", os="Debian"), device("cam-2")
    first = await inventory.registered([one, two])
    assert await inventory.registered([one, two]) == first
    one.grains = {"id": "cam-1", "os": "Alpine"}
    assert await inventory.registered([one, two]) != first
    assert await inventory.registered([two]) != first
