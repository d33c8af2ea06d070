"""uvicorn, whose connections an ``Acceptor`` takes."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence

import uvicorn

from gateway.api.acceptor import Acceptor


class AcceptingServer(uvicorn.Server):
    """Serves HTTP on the connections of acceptors, which are made when the settings are loaded."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[AcceptingServer], Sequence[Acceptor]]) -> None:
        super().__init__(config)
        self._listening = listening

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the station's business."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - given by uvicorn
        """Listen."""
        await self.lifespan.startup()
        acceptors = self._listening(self)
        for acceptor in acceptors:
            acceptor.start()
        self.servers = list(acceptors)  # type: ignore[arg-type]  # it only closes them
        self.started = True
