"""A stranger who connects to the port for sites and hangs up at once, while the station has other things to do.

libzmq closes such a connection before anything else looks at it. The kernel gives its descriptor to the next file that
is opened, which may be a connection at the API's unix socket.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from upstream.connection_watch import ConnectionWatch
from upstream.site_connections import SiteConnections

SECONDS = 60.0


class Refusals:
    """Counts nothing."""

    def refused(self, where: str, reason: str, who: str = "", detail: str = "") -> None:
        """A connection was ended."""

    def accept_failed(self, door: str, code: int) -> None:
        """A connection could not be accepted."""


@pytest.fixture
def router() -> Iterator[zmq.Socket[bytes]]:
    context = zmq.Context[Any]()
    socket_ = context.socket(zmq.ROUTER)
    yield socket_
    socket_.close(linger=0)
    context.term()


def test_a_descriptor_that_is_something_else_by_now_ends_nothing(router: zmq.Socket[bytes], tmp_path: Path) -> None:
    watch = SiteConnections(Refusals())
    watch.start(router.context, router)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "api.sock"))
        listening.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "api.sock"))
            served, _ = listening.accept()
            with served, (tmp_path / "file").open("wb") as file:
                for descriptor in (served.fileno(), client.fileno(), file.fileno(), listening.fileno(), 9999):
                    watch._heard(zmq.EVENT_ACCEPTED, descriptor)
                assert watch.strangers == 5
                client.sendall(b"still there")
                assert served.recv(100) == b"still there"
    watch.stop()


async def test_a_watch_that_fails_says_so_and_holds_libzmq_up_in_nothing(router: zmq.Socket[bytes]) -> None:
    def fails(_: socket.socket) -> str:
        raise IndexError("a fault in the station")

    watch = ConnectionWatch(
        "sites", most=lambda: 10, holder_of=fails, refused=lambda *_: None, accept_failed=lambda *_: None
    )
    watch.start(router.context, router)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    # One stays: at connections that are gone already the thread looks no further.
    with socket.create_connection(("127.0.0.1", port)):
        for _ in range(50):
            with socket.create_connection(("127.0.0.1", port)):
                continue
        try:
            with pytest.raises(RuntimeError, match="nothing watches"):
                async with asyncio.timeout(SECONDS):
                    await watch.run()
        finally:
            watch.stop()
