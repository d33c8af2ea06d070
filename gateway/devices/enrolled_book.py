"""All enrollments in memory: by did, by name, and the pending ones in the order in which they were heard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.devices.enrolled import BELONGING, Enrolled
from gateway.devices.naming import proposed

PENDING_DEVICES = 2000
"""Devices that wait to be let in; the one heard longest ago gives way."""


class EnrolledBook:
    """What is on disk, and the names that are being given out."""

    def __init__(self, own_name: str = "") -> None:
        self._own_name = own_name
        self._devices: dict[str, Enrolled] = {}
        self._pending: dict[str, None] = {}
        self._names: dict[str, str] = {}
        self._reserved: dict[str, str] = {}
        self.rejoining: dict[str, Enrolled] = {}
        """Devices that belong here and must still come for their answer."""

    def put(self, device: Enrolled) -> None:
        """This is on disk as it is."""
        self.drop(device.did)
        self._devices[device.did] = device
        if device.state == "pending":
            self._pending[device.did] = None
        elif device.state in BELONGING:
            self._names[device.name] = device.did
            if device.rejoining:
                self.rejoining[device.did] = device

    def drop(self, did: str) -> None:
        """It is on disk no more."""
        known = self._devices.pop(did, None)
        self._pending.pop(did, None)
        self.rejoining.pop(did, None)
        if known is not None and known.state in BELONGING:
            self._names.pop(known.name, None)

    def get(self, did: str) -> Enrolled | None:
        """The device with this did."""
        return self._devices.get(did)

    def named(self, name: str) -> Enrolled | None:
        """The device that has this name."""
        did = self._names.get(name)
        return self._devices[did] if did is not None else None

    def everybody(self) -> Iterable[Enrolled]:
        """Every device, in whatever state."""
        return self._devices.values()

    def pending(self) -> Iterator[Enrolled]:
        """The devices that wait, the one heard longest ago first."""
        return (self._devices[did] for did in self._pending)

    @property
    def waiting(self) -> int:
        """How many devices are pending."""
        return len(self._pending)

    @property
    def belonging(self) -> int:
        """How many devices have a name here, or are about to get one."""
        return len(self._names) + len(self._reserved)

    def crowded_out(self, did: str) -> Enrolled | None:
        """Who gives way when this device is to wait as well."""
        if did in self._pending or len(self._pending) < PENDING_DEVICES:
            return None
        return next((self._devices[each] for each in self._pending if each != did), None)

    def holder(self, name: str) -> str | None:
        """Who has a name, or is about to get it."""
        if name == self._own_name:
            return "the station itself"
        did = self._names.get(name) or self._reserved.get(name)
        return f"the device {did}" if did is not None else None

    def goes_by(self, device: Enrolled) -> str:
        """Its name; before it has one the name that it proposes, if nobody here has that, else its did."""
        name = device.name or proposed(device.serial)
        return name if name and (device.name or self.holder(name) is None) else device.did

    def reserve(self, name: str, did: str) -> None:
        """Nobody else gets this name until ``release``."""
        self._reserved[name] = did

    def release(self, name: str) -> None:
        """The name was given, or was not."""
        self._reserved.pop(name, None)

    def find(self, text: str) -> list[Enrolled]:
        """Devices by what somebody typed: a name, a did, a fingerprint, or a serial number that they claim."""
        named = self.named(text)
        if named is not None:
            return [named]
        lowered = text.lower()
        if not text:
            return []
        exact = self._devices.get(lowered)
        if exact is not None:
            return [exact]
        return [
            device
            for device in self._devices.values()
            if text in (device.serial, device.name) or device.fingerprint == lowered
        ]
