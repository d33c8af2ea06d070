"""``__salt__`` and ``__runners__`` of an engine: functions of the station, called through its API.

A function of devices is a job of the station itself (``NAME-station``), which takes what ``station.grants`` allows. In
``__salt__`` a runner is called by its name where no function of devices has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from device_agent import loader
from device_agent.errors import StationFailed
from device_agent.protocol.stations import station_device
from gateway.cli.call_views import CallView, FunctionPage
from gateway.engines.context import Context
from gateway.engines.event_bus import EventBus

EXPIRES_SECONDS: Final = 60.0
FIRING: Final = {"event.send", "event.fire_master"}

LOOK_SECONDS: Final = 0.1


Called = Callable[..., Any]


class Runners(Mapping[str, Called]):
    """``__runners__``: by name, each a function that waits for its answer."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._names: tuple[str, ...] | None = None

    def __getitem__(self, name: str) -> Called:
        if name not in self._known():
            raise KeyError(name)
        return lambda *arg, **kwarg: self._call(name, arg, kwarg)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())

    def _known(self) -> tuple[str, ...]:
        if self._names is None:
            page = self._context.client().ask("GET", "/calls/functions", FunctionPage, query={"kind": "runner"})
            self._names = tuple(each.fun for each in page.functions)
        return self._names

    def _call(self, name: str, arg: tuple[Any, ...], kwarg: dict[str, Any]) -> Any:
        client = self._context.client()
        call = {"kind": "runner", "fun": name, "arg": list(arg), "kwarg": kwarg}
        made = client.ask("POST", "/calls", CallView, body=call)
        # It ends: the station gives every call a limit.
        while made.state == "open":
            time.sleep(LOOK_SECONDS)
            made = client.ask("GET", f"/calls/{made.jid}", CallView)
        if made.state != "ok":
            raise StationFailed(f"{name} ended as {made.state}", found=str(made.value)[:500])
        return made.value


class Functions(Mapping[str, Called]):
    """``__salt__``: by name, each a function that waits for its answer."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._runners = Runners(context)

    def __getitem__(self, name: str) -> Called:
        if name not in loader.names():
            return self._runners[name]
        if name in FIRING:
            return lambda *given, **named: self._fire(name, *given, **named)
        return lambda *arg, **kwarg: self._call(name, arg, kwarg)

    def __iter__(self) -> Iterator[str]:
        yield from loader.names()
        yield from (name for name in self._runners if name not in loader.names())

    def __len__(self) -> int:
        return len(set(self))

    def _fire(self, name: str, first: Any, second: Any = None, **named: Any) -> bool:
        # As Salt has them: event.send TAG data, event.fire_master data TAG.
        tag, data = (first, second) if name == "event.send" else (second, first)
        return EventBus(self._context, listen=False).fire_event({**(data or {}), **named}, tag)

    def _call(self, name: str, arg: tuple[Any, ...], kwarg: dict[str, Any]) -> Any:
        client, target = self._context.client(), station_device(str(self._context.opts["id"]))
        job = {"tgt": target, "tgt_type": "list", "fun": name, "arg": list(arg), "kwarg": kwarg}
        jid = client.create_job({**job, "expires_seconds": EXPIRES_SECONDS}).jid
        for _ in client.watch(jid):
            pass
        for outcome in client.outcomes(jid):
            if outcome.outcome == "ok":
                return outcome.value
            raise StationFailed(f"{name} on {target} ended as {outcome.outcome}", found=outcome.why or jid)
        raise StationFailed(f"{name} on {target} has no outcome", found=jid, hint=f"outstation jobs show {jid}")
