"""Devices that are to be resources at a Salt master, and change as a test says; no gateway around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from device_agent.clock import Clock
from gateway.devices.device import Device
from gateway.metrics import Metrics
from gateway.salt.resource_inventory import ResourceRules
from gateway.salt.resources import Resources

CAMERAS = ResourceRules("camera")


def device(name: str, site: str = "lisbon", **grains: Any) -> Device:
    """One with these grains."""
    return Device(site, name, "mqtt", 0, "1", {"id": name, **grains}, True, 0.0, 0.0, 1)


class ResourceSite:
    """Its devices, and who registers them."""

    def __init__(self, folder: Path, rules: ResourceRules | None = CAMERAS) -> None:
        self.devices: list[Device] = [device("cam-1", os="Debian"), device("lisbon-station")]
        self.revision = 1
        self.resources = Resources(
            rules=rules,
            devices=lambda: self.devices,
            revision=lambda: self.revision,
            marks=folder / "resources",
            metrics=Metrics(Clock()),
            clock=Clock(),
            pause=0.01,
        )
