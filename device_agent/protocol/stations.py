"""A station as a device: the name that it answers by, and which targets can mean one. Pure.

A target means a station only where the word "station" stands in it. So nobody restarts a gateway who meant all cameras,
and whoever reads a signed target sees whether stations can be meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol, TypeVar

WORD: Final = "station"


class Named(Protocol):
    """A device with its site."""

    @property
    def site(self) -> str: ...

    @property
    def id(self) -> str: ...


Device = TypeVar("Device", bound=Named)


def station_device(site: str) -> str:
    """The name by which a station is a target: no other device of its site has it."""
    return f"{site}-{WORD}"


def is_station(device: Named) -> bool:
    """Whether this is a station and not one of its devices."""
    return device.id == station_device(device.site)


def can_mean_stations(tgt: str) -> bool:
    """Whether a target, as it is signed, can mean a station."""
    return WORD in tgt


def meanable(devices: Iterable[Device], tgt: str) -> Iterator[Device]:
    """The devices that a target can mean at all."""
    stations_too = can_mean_stations(tgt)
    return (device for device in devices if stations_too or not is_station(device))


def devices_alone(devices: Iterable[Device]) -> Iterator[Device]:
    """Without the stations among them."""
    return (device for device in devices if not is_station(device))
