"""HTTP on a unix socket, and with TLS on a port. Who may connect to the socket is decided by the file's mode and group.

Who asks is known before anything is read of what is asked: by the kernel at the socket, by a token at the port.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from device_agent.errors import ConfigInvalid, NotFound, PolicyRefused, StationFailed
from device_agent.name_lookup import NameLookup
from device_agent.parts import Part
from device_agent.start_errors import start_error
from gateway.accept_failures import AcceptFailures
from gateway.api.accepting_server import AcceptingServer
from gateway.api.acceptor import Acceptor
from gateway.api.connection import HEAD_SECONDS, Connection
from gateway.api.door import Door, GroupsUnknown, TooManyConnections
from gateway.api.listener import Listen, renew
from gateway.api.openapi import document
from gateway.api.operation import Asked, Operation, failure
from gateway.api.places import Place, Places, places_now
from gateway.devices.policy import Operator, without_file
from gateway.devices.policy_file import own_user
from gateway.socket_file import own_socket, user_at
from upstream.networks import network_of

log = logging.getLogger(__name__)

DoorName = Literal["socket", "port"]

START_SECONDS = 10.0
STREAMS_END_SECONDS = 2


class _Entrance:
    """Stands before the operations: names the caller, or turns it away."""

    def __init__(self, app: ASGIApp, door: Door, who: Callable[[Scope], Awaitable[Operator]]) -> None:
        self._app = app
        self._door = door
        self._who = who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection = scope["connection"]
        try:
            if connection.is_refused:
                raise too_many(str((scope.get("client") or ("unknown",))[0]))
            operator = scope["operator"] = await self._who(scope)
            if not connection.belongs_to(operator):
                self._door.turned_away(operator.name)
                raise too_many(operator.name)
        except (PolicyRefused, GroupsUnknown) as refused:
            response = failure(refused)
            # The connection of a caller that was not let in is not kept.
            response.headers["Connection"] = "close"
            await response(scope, receive, send)
            return
        scope["door"] = self._door
        await self._app(scope, receive, send)


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
        failures: AcceptFailures | None = None,
    ) -> None:
        self._path = path
        self._operations = list(operations)
        self._on_stop = on_stop
        self._door = door or Door(lambda: without_file(own_user()))
        self._listen = listen
        self._failures = failures
        self.places: dict[DoorName, Places] = {"socket": Places(places_now), "port": Places(places_now)}
        """Who holds how many connections at which door."""
        self._servers: list[AcceptingServer] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._bound_here: list[socket.socket] = []
        self.port = 0
        """Where it listens beside the socket; 0 without one."""

    async def open(self) -> None:
        """Listen. Raises ``ConfigInvalid`` when the socket cannot be made, or another station answers there."""
        at_path = self._claim()
        bound = None if self._listen is None else await self._bound(self._listen)
        routes = self._routes()
        at_socket = self._application(routes, self._door.at_socket)
        await self._serve("socket", at_socket, at_path)
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
            await self._serve("port", at_port, bound, **secured)

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

    async def _serve(self, door: DoorName, app: Starlette, bound: socket.socket, **secured: Any) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            # A header that says for whom it was forwarded would take the place of who the kernel says it is.
            proxy_headers=False,
            timeout_graceful_shutdown=STREAMS_END_SECONDS,
            **secured,
        )
        server = AcceptingServer(config, lambda server: [self._acceptor(door, bound, server)])
        self._servers.append(server)
        self._serving.add(self.spawn(server.serve(), "serve"))
        async with asyncio.timeout(START_SECONDS):
            while not server.started:  # noqa: ASYNC110 - the server offers a flag, not an event
                await asyncio.sleep(0.01)

    def _acceptor(self, door: DoorName, bound: socket.socket, server: AcceptingServer) -> Acceptor:
        places, name_peer = self.places[door], peer_of if door == "socket" else None

        def make(place: Place) -> Connection:
            return Connection(server.config, server.server_state, place=place, places=places, name_peer=name_peer)

        return Acceptor(
            f"api.{door}",
            bound,
            places=places,
            classify=self._at_socket if door == "socket" else self._at_port,
            make=make,
            spawn=self.spawn,
            failures=self._failures,
            context=server.config.ssl,
            handshake_seconds=HEAD_SECONDS,
        )

    def _at_socket(self, connection: socket.socket, _: Any, leave: Callable[[], None]) -> Place | None:
        """A place for a user of this machine. Who has no share left may be an admin of whom that is not known yet."""
        places = self.places["socket"]
        name, user = user_at(connection)
        is_admin = self._door.is_admin(name, user)
        place = places.take("admin" if is_admin else "user", name, leave)
        if place is None and is_admin is None:
            place = places.take("admin", name, leave)
            if place is not None:
                self.spawn(self._settle(place, name, user), "settle")
        if place is None:
            self._door.turned_away(name)
            return places.take("refused", name, leave)
        return place

    def _at_port(self, _: socket.socket, address: Any, leave: Callable[[], None]) -> Place | None:
        """A place for a stranger: until it has shown a token it is known by its network alone."""
        places, network = self.places["port"], network_of(str(address[0]))
        before = places.refused
        place = places.take("stranger", network, leave)
        if places.refused > before:
            self._door.turned_away(network)
        return place

    async def _settle(self, place: Place, name: str, user: int) -> None:
        try:
            is_admin = (await self._door.at_socket({"client": (name, user)})).may("admin")
        except GroupsUnknown:
            # Groups that are not known give this user nothing.
            is_admin = False
        if not is_admin and not self.places["socket"].move(place, "user", name):
            self._door.turned_away(name)

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
        self._bound_here.append(bound)
        return bound

    @staticmethod
    def _not_there(listen: Listen, error: OSError) -> ConfigInvalid:
        return start_error(
            error,
            "the API cannot listen there",
            where="api.listen",
            found=f"{listen.address}: {error.strerror or error}",
            allowed="an address of this machine, and a port that nobody uses",
            hint=f"ss -ltnp 'sport = :{listen.port}'" if error.errno == errno.EADDRINUSE else "ip address",
        )

    async def close(self) -> None:
        """Remove the socket, unless it is another station's."""
        for bound in self._bound_here:
            bound.close()
        if self._bound_here:
            self._path.unlink(missing_ok=True)

    def _claim(self) -> socket.socket:
        """The socket at the path, with the right mode. Raises ``ConfigInvalid``."""
        bound = own_socket(self._path, what="the API's socket", setting="socket")
        self._bound_here.append(bound)
        return bound


def peer_of(transport: asyncio.Transport) -> tuple[str, int]:
    """The user at the other end of a connection."""
    return user_at(transport.get_extra_info("socket"))


def too_many(holder: str) -> TooManyConnections:
    """The error for a caller whose share of the connections is used up."""
    return TooManyConnections(
        "there are too many connections to this station",
        found=f"no place is left for {holder}",
        allowed="a share for each user and each address; some places are kept for admins (docs/api.md)",
        hint="close connections that are not used, such as streams of events, then ask again",
    )


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
