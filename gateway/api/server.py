"""HTTP on a unix socket, and with TLS on a port. Who may connect to the socket is decided by the file's mode and group.

Who asks is known before anything is read of what is asked: by the kernel at the socket, by a token at the port.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pwd
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from device_agent.errors import ConfigInvalid, NotFound, PolicyRefused, StationFailed
from device_agent.name_lookup import NameLookup
from device_agent.parts import Part
from gateway.api.door import Door
from gateway.api.listener import Listen, PortProtocol, renew
from gateway.api.openapi import document
from gateway.api.operation import Asked, Operation, failure
from gateway.devices.policy import Operator, without_file
from gateway.devices.policy_file import own_user
from gateway.socket_file import own_socket

log = logging.getLogger(__name__)

START_SECONDS = 10.0
STREAMS_END_SECONDS = 2


class _PeerProtocol(H11Protocol):
    """Names the user at the other end of the socket, as the kernel knows it (SO_PEERCRED, unix(7))."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, user, _ = struct.unpack("3i", credentials)
        try:
            self.client = (pwd.getpwuid(user).pw_name, user)
        except KeyError:
            self.client = (f"uid {user}", user)


class _Entrance:
    """Stands before the operations: names who asks, or turns him away."""

    def __init__(self, app: ASGIApp, door: Door, who: Callable[[Scope], Awaitable[Operator]]) -> None:
        self._app = app
        self._door = door
        self._who = who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            scope["operator"] = await self._who(scope)
        except PolicyRefused as refused:
            await failure(refused)(scope, receive, send)
            return
        scope["door"] = self._door
        await self._app(scope, receive, send)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the station's business."""
        yield


class ApiServer(Part):
    """Serves a table of operations. The port has a server of its own: whoever crowds it leaves the socket alone."""

    name: ClassVar[str] = "api"
    drain_seconds: ClassVar[float] = STREAMS_END_SECONDS + 3.0

    def __init__(
        self,
        path: Path,
        operations: Sequence[Operation],
        *,
        on_stop: Callable[[], None],
        door: Door | None = None,
        listen: Listen | None = None,
    ) -> None:
        self._path = path
        self._operations = list(operations)
        self._on_stop = on_stop
        self._door = door or Door(lambda: without_file(own_user()))
        self._listen = listen
        self._servers: list[_Server] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._claimed = False
        self.port = 0
        """Where it listens beside the socket; 0 without one."""

    async def open(self) -> None:
        """Listen. Raises ``ConfigInvalid`` when the socket cannot be made, or another station answers there."""
        self._claim()
        bound = None if self._listen is None else await self._bound(self._listen)
        routes = self._routes()
        at_socket = self._application(routes, self._door.at_socket)
        await self._serve(at_socket, None, uds=str(self._path), http=_PeerProtocol)
        if self._listen is not None and bound is not None:
            self.port = bound.getsockname()[1]
            secured = self._listen.settings()
            log.log(
                logging.INFO if secured else logging.WARNING,
                "API listens address=%s port=%d tls=%s",
                self._listen.host,
                self.port,
                "yes" if secured else "no, so on loopback alone",
            )
            at_port = self._application(routes, self._door.at_port)
            await self._serve(at_port, [bound], http=PortProtocol, **secured)

    async def drain(self) -> None:
        """Take no more requests; streams are ended."""
        self._on_stop()
        for server in self._servers:
            server.should_exit = True
        if self._serving:
            await asyncio.wait(self._serving)

    def renew_certificate(self) -> None:
        """Take the certificate's files again. Raises ``ConfigInvalid``; then the one before counts on."""
        if self._listen is not None and len(self._servers) > 1:
            renew(self._servers[1].config.ssl, self._listen)

    def _routes(self) -> list[Route]:
        described: dict[str, Any] = {}

        async def describe(_: Asked) -> dict[str, Any]:
            return described

        operations = [*self._operations, Operation("GET", "/openapi.json", "This document", describe)]
        described.update(document(operations))
        return [Route(each.path, each.serve, methods=[each.method]) for each in operations]

    def _application(self, routes: Sequence[Route], who: Callable[[Scope], Awaitable[Operator]]) -> Starlette:
        app = Starlette(
            routes=routes,
            middleware=[Middleware(_Entrance, door=self._door, who=who)],
            exception_handlers={404: _no_such_path, 405: _no_such_path, Exception: _fault},
        )
        # What is not in the document is not there: no detour by way of a path with one slash less.
        app.router.redirect_slashes = False
        return app

    async def _serve(self, app: Starlette, sockets: list[socket.socket] | None, **settings: Any) -> None:
        server = _Server(
            uvicorn.Config(
                app,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                # A header that says for whom it was forwarded would take the place of who the kernel says it is.
                proxy_headers=False,
                timeout_graceful_shutdown=STREAMS_END_SECONDS,
                limit_concurrency=512,
                **settings,
            )
        )
        self._servers.append(server)
        self._serving.add(self.spawn(server.serve(sockets), "serve"))
        async with asyncio.timeout(START_SECONDS):
            while not server.started:  # noqa: ASYNC110 - the server offers a flag, not an event
                await asyncio.sleep(0.01)

    async def _bound(self, listen: Listen) -> socket.socket:
        """The port's socket. Raises ``ConfigInvalid``."""
        listen.check()
        try:
            family, address = (await NameLookup().addresses(listen.host, listen.port))[0]
            bound = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            raise self._not_there(listen, error) from None
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError as error:
            bound.close()
            raise self._not_there(listen, error) from None
        return bound

    @staticmethod
    def _not_there(listen: Listen, error: OSError) -> ConfigInvalid:
        return ConfigInvalid(
            "the API cannot listen there",
            where="api.listen",
            found=f"{listen.address}: {error.strerror or error}",
            allowed="an address of this machine, and a port that nobody uses",
            hint=f"ss -ltnp 'sport = :{listen.port}'",
        )

    async def close(self) -> None:
        """Remove the socket, unless it is another station's."""
        if self._claimed:
            self._path.unlink(missing_ok=True)

    def _claim(self) -> None:
        """Leave an unused socket file with the right mode at the path; the server keeps the mode it finds."""
        with own_socket(self._path, what="the API's socket", setting="socket"):
            self._claimed = True


async def _no_such_path(request: Request, _: Exception) -> Response:
    return failure(
        NotFound(
            "no such operation",
            error_id="api.unknown",
            found=f"{request.method} {request.url.path}",
            hint="GET /openapi.json",
        )
    )


async def _fault(request: Request, error: Exception) -> Response:
    """A fault of ours: the log has its trace (the server raises it again), the client a JSON error like any other."""
    return failure(
        StationFailed(
            f"the station failed at {request.method} {request.url.path}",
            found=type(error).__name__,
            hint="the station's log says more: journalctl -u 'outstation-*'",
        )
    )
