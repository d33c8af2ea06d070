"""One connection of the API: its place, and how long it may keep the station waiting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from gateway.api.places import Place, Places
from gateway.devices.policy import Operator

_quiet = logging.getLogger("gateway.api.port")
_quiet.setLevel(logging.ERROR)

HEAD_SECONDS = 10.0
"""A connection on which no whole head of a request comes within this time is aborted, also after an earlier request."""

LINGER_SECONDS = 1.0
"""How long the rest of a request is thrown away that was answered early, so that the client gets the answer."""


class Connection(H11Protocol):
    """HTTP/1.1 on a connection that holds a place."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        *,
        place: Place,
        places: Places,
        name_peer: Callable[[asyncio.Transport], tuple[str, int]] | None = None,
    ) -> None:
        super().__init__(config, server_state, {})
        # A client could otherwise fill the log with lines about what is not HTTP.
        self.logger = _quiet
        self._place = place
        self._places = places
        self._name_peer = name_peer
        self._deadline: asyncio.TimerHandle | None = None
        self._leaving = False
        self._application: ASGIApp = self.app

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self._name_peer is not None:
            self.client = self._name_peer(transport)
        self._place.leave = transport.abort
        self.app = self._serve
        self._wait(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(None)
        self._places.free(self._place)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._leaving:
            return
        super().data_received(data)
        if self._answers:
            self._wait(None)

    def on_response_complete(self) -> None:
        self._places.end_stream(self._place)
        if self._leaving:
            return
        super().on_response_complete()
        if not self._answers:
            self._wait(HEAD_SECONDS)

    def shutdown(self) -> None:
        if self._leaving:
            self.transport.abort()
        else:
            super().shutdown()

    # --- who holds the place ---------------------------------------------------------------------------------------

    @property
    def is_refused(self) -> bool:
        """Whether it has no place, and is only told so."""
        return self._place.kind == "refused"

    def belongs_to(self, operator: Operator) -> bool:
        """The caller is known now. False when its share is used up."""
        return self._places.move(self._place, "admin" if operator.may("admin") else "user", operator.name)

    def begin_stream(self) -> bool:
        """Whether its answer may be a stream."""
        return self._places.begin_stream(self._place)

    # --- deadlines -------------------------------------------------------------------------------------------------

    @property
    def _answers(self) -> bool:
        """Whether a request is being answered. Before the first one there is no cycle, which uvicorn's types hide."""
        cycle = getattr(self, "cycle", None)
        return cycle is not None and not cycle.response_complete

    def _wait(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        # close() would wait for the other side, which is what it does not do.
        if not self._answers or self._leaving:
            self.transport.abort()

    def _leave_soon(self) -> None:
        self._leaving = True
        self.flow.resume_reading()
        self._wait(LINGER_SECONDS)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = self.cycle

        async def send_and_close(message: Message) -> None:
            # Who is answered before its body has come is not waited for.
            if message["type"] == "http.response.start" and cycle.more_body:
                message = {**message, "headers": [*message.get("headers", []), CLOSE_HEADER]}
                cycle.transport = _Lingering(self.transport, self._leave_soon)
            await send(message)

        await self._application({**scope, "connection": self}, receive, send_and_close)


class _Lingering(asyncio.Transport):
    """A transport that is left some time after it was closed, so that what was written arrives."""

    def __init__(self, transport: asyncio.Transport, leave_soon: Callable[[], None]) -> None:
        super().__init__()
        self._transport = transport
        self._leave_soon = leave_soon

    def write(self, data: Any) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._leave_soon()
