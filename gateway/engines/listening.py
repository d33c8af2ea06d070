"""HTTP into an engine: one listener with a token, bounded bodies, and a count of everything that is refused."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from device_agent.errors import NotRunning, OutstationError
from gateway.api.listener import PortProtocol, is_loopback
from gateway.engines.context import Context
from gateway.engines.report import Report

log = logging.getLogger(__name__)

CONNECTIONS: Final = 64
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
            return PlainTextResponse(f"{turned.reason}: {turned}\n", turned.status)
        except NotRunning:
            return PlainTextResponse("the station does not answer now\n", 503)
        except OutstationError as error:
            context.report.add("refused_by_station")
            log.warning("refused by the station: %s", error.what)
            return PlainTextResponse(f"{error.what}\n", 500)

    app = Starlette(routes=[Route("/{path:path}", answer, methods=list(methods))])
    config: dict[str, Any] = {"ssl_certfile": door.certificate, "ssl_keyfile": door.key} if door.certificate else {}
    server = _Server(
        uvicorn.Config(
            app,
            host=door.address,
            port=door.port,
            http=PortProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=END_SECONDS,
            **config,
        )
    )
    if not door.certificate and not is_loopback(door.address):
        log.warning("what comes in here is not encrypted: set certificate: and key:")
    await server.serve()
    raise OSError(f"cannot listen on {door.address} port {door.port}, or it was ended")


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """SIGTERM ends an engine as it ends any program."""
        yield


async def _let_in(request: Request, door: Door, report: Report) -> Came:
    """Who has the token, with a body within bounds. Raises ``Turned``."""
    if door.token:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        token = given.strip() if kind.lower() == "bearer" else ""
        if not hmac.compare_digest(token.encode(), door.token.encode()):
            raise Turned("token", "send it as: Authorization: Bearer TOKEN", 401)
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
