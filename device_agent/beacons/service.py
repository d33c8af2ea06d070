"""``service``: whether services run."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from device_agent.beacons.given import INTERVAL_MOST, Given
from device_agent.beacons.port import Around, Found, Looking
from device_agent.init_systems.found import init_system
from device_agent.init_systems.names import is_service_name

_OPTIONS = ("delay", "emitatstartup", "is_running_state", "onchangeonly", "uncleanshutdown")


class _Wanted(Struct, frozen=True):
    onchangeonly: bool
    emitatstartup: bool
    delay: float
    is_running_state: bool | None
    uncleanshutdown: str | None


class _Last:
    """What was found of a service whose changes alone are told; ``since`` when it is not told yet."""

    __slots__ = ("running", "since")

    def __init__(self, running: bool, since: float | None) -> None:
        self.running = running
        self.since = since


class Services(Looking):
    """``services``: by name what is wanted of each; nothing is a wish as well."""

    def __init__(self, given: Given) -> None:
        given.only("services")
        if "services" not in given.values:
            raise given.wrong("requires services.", None, "- services: {mosquitto: {}}")
        services = given.values["services"]
        if not isinstance(services, dict):
            sentence = "Services configuration item for service beacon must be a dictionary."
            raise given.says(sentence, services, "mosquitto: {}")
        self._wanted = {str(name): _wanted(given, str(name), each) for name, each in services.items()}
        self._last: dict[str, _Last] = {}

    async def look(self, around: Around) -> list[Found]:
        """Each service that is as it is told of it."""
        init = await init_system(around.host)
        found = []
        for name, wanted in self._wanted.items():
            running = await init.running(name)
            if wanted.is_running_state not in {None, running}:
                continue
            said: dict[str, Any] = {"running": running}
            if wanted.uncleanshutdown is not None and not running:
                said["uncleanshutdown"] = await around.host.stat(wanted.uncleanshutdown) is not None
            if self._due(name, wanted, running, around.clock.monotonic()):
                found.append(Found({name: said, "service_name": name}, tag=name, same=running))
        return found

    def _due(self, name: str, wanted: _Wanted, running: bool, now: float) -> bool:
        """Whether it is told now."""
        if not wanted.onchangeonly:
            return True
        last = self._last.get(name)
        if last is None:
            last = self._last[name] = _Last(running, now if wanted.emitatstartup else None)
        elif last.running != running:
            last.running, last.since = running, now
        if last.since is None or now - last.since < wanted.delay:
            return False
        last.since = None
        return True


def _wanted(given: Given, name: str, options: Any) -> _Wanted:
    if not is_service_name(name):
        raise given.wrong("has a name that no service can have.", name, "mosquitto: {}")
    # A name with nothing behind it is what Salt's own examples once were.
    if options is None:
        options = {}
    if not isinstance(options, dict):
        raise given.wrong("must be a list of dictionaries.", options, f"{name}: {{onchangeonly: true}}")
    for option, value in options.items():
        if option not in _OPTIONS:
            raise given.wrong(f"has no option {option} for {name}.", value, ", ".join(_OPTIONS))
    running = options.get("is_running_state")
    file = options.get("uncleanshutdown")
    return _Wanted(
        onchangeonly=given.typed("onchangeonly", options.get("onchangeonly", False), bool, "a boolean"),
        emitatstartup=given.typed("emitatstartup", options.get("emitatstartup", True), bool, "a boolean"),
        delay=given.number("delay", options.get("delay", 0), 0.0, INTERVAL_MOST),
        is_running_state=None if running is None else given.typed("is_running_state", running, bool, "a boolean"),
        uncleanshutdown=None if file is None else given.typed("uncleanshutdown", file, str, "a path"),
    )
