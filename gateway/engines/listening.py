"""HTTP into an engine: one listener with a token, bounded bodies, and a count of everything that is refused."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from device_agent.errors import NotRunning, OutstationError
from device_agent.name_lookup import NameLookup
from gateway.api.accepting_server import AcceptingServer
from gateway.api.acceptor import Acceptor
from gateway.api.connection import HEAD_SECONDS, Connection
from gateway.api.listener import is_loopback
from gateway.api.places import Place, Places
from gateway.devices.policy import Operator
from gateway.engines.context import Context
from gateway.engines.report import Report
from upstream.networks import network_of

log = logging.getLogger(__name__)

CONNECTIONS: Final = 64
SENDER: Final = Operator("sender", frozenset({"admin"}))
"""Whoever was let in: senders have all places among them that strangers cannot have."""

CLOSED_AFTER: Final = frozenset({401, 408, 413, 503})
END_SECONDS: Final = 2
HIGHEST_PORT: Final = 65535


class Turned(Exception):
    """What came is not taken: counted under ``reason``, and told to who sent it."""

    def __init__(self, reason: str, words: str, status: int = 400) -> None:
        super().__init__(words)
        self.reason = reason
        self.status = status


class Came(Struct, frozen=True):
    """A request that was let in."""

    path: str
    headers: Mapping[str, str]
    body: bytes


Take = Callable[[Came], Awaitable[str]]


class Door(Struct, frozen=True, kw_only=True):
    """Where it listens, and who may come in."""

    address: str
    port: int
    token: str = ""
    certificate: str = ""
    key: str = ""
    body_bytes: int = 1024 * 1024

    def check(self) -> None:
        """Raises ``ValueError``: for bounds, and for a door that would be open to everybody."""
        if not 0 <= self.port <= HIGHEST_PORT:
            raise ValueError(f"port: {self.port} is none: 1 to {HIGHEST_PORT}")
        if bool(self.certificate) != bool(self.key):
            raise ValueError("certificate and key go together, one of them is missing")
        if not self.token and not is_loopback(self.address):
            raise ValueError(
                f"address: {self.address} can be reached by others: set token:, or listen on 127.0.0.1 and [::1] alone"
            )
        if self.token and len(self.token) < 16:
            raise ValueError("token: it has less than 16 characters: openssl rand -hex 16")
        if self.certificate:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)


async def listen(context: Context, door: Door, take: Take, *, methods: tuple[str, ...] = ("POST",)) -> None:
    """Serve for ever. What ``take`` returns is the answer. Raises ``OSError`` when it cannot listen there."""
    door.check()

    async def answer(request: Request) -> Response:
        try:
            return PlainTextResponse(await take(await _let_in(request, door, context.report)))
        except Turned as turned:
            context.report.add(f"refused_{turned.reason}")
            peer = request.client.host if request.client is not None else "?"
            log.warning("refused reason=%s peer=%s %s", turned.reason, peer, turned)
            headers = {"Connection": "close"} if turned.status in CLOSED_AFTER else None
            return PlainTextResponse(f"{turned.reason}: {turned}\n", turned.status, headers)
        except NotRunning:
            return PlainTextResponse("the station does not answer now\n", 503)
        except OutstationError as error:
            context.report.add("refused_by_station")
            log.warning("refused by the station: %s", error.what)
            return PlainTextResponse(f"{error.what}\n", 500)

    app = Starlette(routes=[Route("/{path:path}", answer, methods=list(methods))])
    secured: dict[str, Any] = {"ssl_certfile": door.certificate, "ssl_keyfile": door.key} if door.certificate else {}
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=END_SECONDS,
        **secured,
    )
    if not door.certificate and not is_loopback(door.address):
        log.warning("what comes in here is not encrypted: set certificate: and key:")
    addresses = await NameLookup().addresses(door.address, door.port)
    async with contextlib.AsyncExitStack() as stack:
        bound = [stack.enter_context(_bound(*address)) for address in dict.fromkeys(addresses)]
        group = await stack.enter_async_context(asyncio.TaskGroup())
        await AcceptingServer(config, lambda server: _acceptors(bound, server, group)).serve()
    raise OSError(f"cannot listen on {door.address} port {door.port}, or it was ended")


def _acceptors(bound: Sequence[socket.socket], server: AcceptingServer, group: asyncio.TaskGroup) -> list[Acceptor]:
    places = Places(_places_now)

    def stranger(_: socket.socket, address: Any, leave: Callable[[], None]) -> Place | None:
        return places.take("stranger", network_of(str(address[0])), leave)

    def make(place: Place) -> Connection:
        return Connection(server.config, server.server_state, place=place, places=places)

    return [
        Acceptor(
            "engine",
            listening,
            places=places,
            classify=stranger,
            make=make,
            spawn=lambda greeting, _: group.create_task(greeting),
            failures=None,
            context=server.config.ssl,
            handshake_seconds=HEAD_SECONDS,
        )
        for listening in bound
    ]


def _places_now() -> int:
    """Connections at once: half of what the process may open."""
    return min(CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


def _bound(family: int, address: tuple[Any, ...]) -> socket.socket:
    """A socket that listens at one address. Raises ``OSError``."""
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


async def _let_in(request: Request, door: Door, report: Report) -> Came:
    """Who has the token, with a body within bounds. Raises ``Turned``."""
    if door.token:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        token = given.strip() if kind.lower() == "bearer" else ""
        if not hmac.compare_digest(token.encode(), door.token.encode()):
            raise Turned("token", "send it as: Authorization: Bearer TOKEN", 401)
    connection: Connection = request.scope["connection"]
    if not connection.belongs_to(SENDER):
        raise Turned("too_many", "there are too many connections", 503)
    body = b""
    try:
        async with asyncio.timeout(10):
            async for piece in request.stream():
                body += piece
                if len(body) > door.body_bytes:
                    raise Turned("too_large", f"at most {door.body_bytes} bytes", 413)
    except (TimeoutError, ClientDisconnect):
        raise Turned("cut_short", "the body did not come to its end", 408) from None
    report.add("received")
    return Came(request.url.path, dict(request.headers), body)
