"""A master with few descriptors, and floods at its port for sites and at its socket for events: all else goes on."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.integration.test_site_connections import GREETING
from tests.peers.broker import free_port
from tests.peers.station import SECONDS, StationProcess, ask, station_process
from tests.peers.waiting import until

FILES = 1000
"""What the master may open."""

FLOOD = 500
"""More than both bounds, and fewer than all files: ZeroMQ accepts some before it tells of them."""


@contextmanager
def flood(port: int, events: Path) -> Iterator[None]:
    """Half-open connections at the port for sites, readers that say nothing at the socket for events."""
    with ExitStack() as stack:
        for _ in range(FLOOD):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS))
            with contextlib.suppress(ConnectionError):
                one.sendall(GREETING)
        for _ in range(FLOOD // 4):
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(events))
        yield


async def test_floods_at_two_doors_leave_descriptors_for_everything_else(tmp_path: Path) -> None:
    port = free_port()
    async with station_process(tmp_path, "master", sites={"listen": f"tcp://127.0.0.1:{port}"}) as master:
        assert master.process is not None
        pid = master.process.pid
        before = _descriptors(pid)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        with flood(port, tmp_path / "api-events.sock"):
            for _ in range(20):
                fired = await ask(master.socket, "POST", "/events", {"events": [{"tag": "flood/goes/on", "data": {}}]})
                assert fired.status in {200, 201}
            await until(lambda: _refused(master, "uplink"), what="strangers at the port for sites were ended")
            await until(lambda: _refused(master, "events"), what="readers were ended")
            found = (await ask(master.socket, "GET", "/check")).json()["findings"]
            assert [one for one in found if one["check"] == "open-files" and "accepted" in one["finding"]] == []
            most = before + FILES // 8 + FILES // 16 + 10
            await until(lambda: _descriptors(pid) <= most, what="both doors are down to their bounds")
        await until(lambda: _descriptors(pid) <= before + 10, what="the descriptors are free again")
        assert "no connection can be accepted" not in master.log_text()


def _refused(master: StationProcess, link: str) -> bool:
    return f"refused link={link} reason=too_many_connections" in master.log_text()


def _descriptors(process: int) -> int:
    return sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())
