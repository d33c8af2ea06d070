"""Our side of ``bench reactor``: a gateway that nobody is above, with its broker and one agent."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec
import zmq

from device_agent.errors import StationFailed
from gateway.bench.reactor_rules import DEVICE
from gateway.cli.client import UnixConnection
from gateway.event_socket import beside
from gateway.fleet.rehearsed import RehearsedFleet
from gateway.rehearsal import Rehearsal, free_ports, join_token

SITE: Final = "lisbon"
AGENT: Final = "agent"
FIRE_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 2.0
"""The station closes a connection that nobody uses a little later."""

CREATED: Final = 201
PREFIXES: Final = (b"bench/done", b"salt/job/")


class StationLine:
    """The API of a station, and its socket for other processes."""

    def __init__(self, api: Path) -> None:
        self._api = UnixConnection(api, FIRE_SECONDS)
        self._used = 0.0
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.linger = 0
        # Nothing of a burst is to be lost because this reader is slow.
        self._socket.rcvhwm = 0
        self._socket.connect(f"ipc://{beside(api)}")
        for prefix in PREFIXES:
            self._socket.subscribe(prefix)

    def close(self) -> None:
        """Leave both."""
        self._api.close()
        self._context.destroy(linger=0)

    def fire(self, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """All in one request, on the disk when this returns. Raises ``StationFailed``."""
        if time.monotonic() - self._used > IDLE_SECONDS:
            self._api.close()
        body = json.dumps({"events": [{"tag": tag, "data": data} for tag, data in events]}).encode()
        self._api.request("POST", "/events", body=body)
        with closing(self._api.getresponse()) as answer:
            said = answer.read()
        self._used = time.monotonic()
        if answer.status != CREATED:
            found = said.decode(errors="replace")[:500]
            raise StationFailed("the station did not take the events", error_id="bench.reactor", found=found)

    def next(self, seconds: float) -> tuple[str, dict[str, Any]] | None:
        """The next event of the socket."""
        if not self._socket.poll(max(1, int(seconds * 1000))):
            return None
        tag, _, body = self._socket.recv().partition(b"\n\n")
        return tag.decode(), msgspec.msgpack.decode(body)


class Product:
    """The gateway and its agent, each a process of its own."""

    def __init__(self, rehearsal: Rehearsal, rules: list[dict[str, Any]]) -> None:
        self._rehearsal = rehearsal
        self._rules = rules

    def start(self) -> StationLine:
        """Start both; the way to the gateway's events. Raises ``StationFailed``."""
        folder = self._rehearsal.folder
        fleet = RehearsedFleet(folder / "fleet")
        fleet.certify(folder / SITE, SITE)
        port, enroll_port = free_ports(2)
        broker = {"host": "127.0.0.1", "port": port, "enroll_port": enroll_port}
        self._rehearsal.gateway_settings(SITE, broker, reactor=self._rules)
        gateway = self._rehearsal.run_station(SITE, "gateway")
        self._rehearsal.start_agent(AGENT, {}, join_token(gateway, uses=1, name=DEVICE), {"drain_seconds": 0.5})
        return StationLine(self._rehearsal.socket_of(SITE))

    @property
    def groups(self) -> list[int]:
        """Its process groups."""
        return [self._rehearsal.children[name].process.pid for name in (SITE, AGENT)]
