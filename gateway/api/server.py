"""HTTP on a unix socket. Who may connect is decided by the file's mode and group; who asks, by the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import pwd
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from device_agent.errors import ConfigInvalid, NotFound, StationFailed
from device_agent.parts import Part
from gateway.api.openapi import document
from gateway.api.operation import Asked, Operation, failure

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


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the station's business."""
        yield


class ApiServer(Part):
    """Serves a table of operations."""

    name: ClassVar[str] = "api"
    drain_seconds: ClassVar[float] = STREAMS_END_SECONDS + 3.0

    def __init__(self, path: Path, operations: Sequence[Operation], *, on_stop: Callable[[], None]) -> None:
        self._path = path
        self._operations = list(operations)
        self._on_stop = on_stop
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._claimed = False

    async def open(self) -> None:
        """Listen. Raises ``ConfigInvalid`` when the socket cannot be made, or another station answers there."""
        self._claim()
        described: dict[str, Any] = {}

        async def describe(_: Asked) -> dict[str, Any]:
            return described

        operations = [*self._operations, Operation("GET", "/openapi.json", "This document", describe)]
        described.update(document(operations))
        routes = [Route(each.path, each.serve, methods=[each.method]) for each in operations]
        app = Starlette(routes=routes, exception_handlers={404: _no_such_path, 405: _no_such_path, Exception: _fault})
        # What is not in the document is not there: no detour by way of a path with one slash less.
        app.router.redirect_slashes = False
        self._server = _Server(
            uvicorn.Config(
                app,
                uds=str(self._path),
                http=_PeerProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=STREAMS_END_SECONDS,
                limit_concurrency=512,
            )
        )
        self._serving = self.spawn(self._server.serve(), "serve")
        async with asyncio.timeout(START_SECONDS):
            while not self._server.started:  # noqa: ASYNC110 - the server offers a flag, not an event
                await asyncio.sleep(0.01)

    async def drain(self) -> None:
        """Take no more requests; streams are ended."""
        self._on_stop()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait({self._serving})

    async def close(self) -> None:
        """Remove the socket, unless it is another station's."""
        if self._claimed:
            self._path.unlink(missing_ok=True)

    def _claim(self) -> None:
        """Leave an unused socket file with the right mode at the path; the server keeps the mode it finds."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists() and not self._path.is_socket():
                raise FileExistsError(errno.EEXIST, "there is something else")
            if self._path.exists():
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.settimeout(1.0)
                    probe.connect(str(self._path))
                raise ConfigInvalid(
                    "another station answers at this socket",
                    where="socket",
                    found=str(self._path),
                    allowed="a path that no running station uses",
                    hint="stop the other one, or set socket: in the settings",
                )
        except (ConnectionRefusedError, FileNotFoundError):
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            with socket.socket(socket.AF_UNIX) as claim:
                claim.bind(str(self._path))
            self._claimed = True
            self._path.chmod(0o660)
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> ConfigInvalid:
        return ConfigInvalid(
            "the API's socket cannot be made",
            where="socket",
            found=f"{self._path}: {error.strerror or error}",
            allowed="a path of at most 107 bytes in a folder that this user may write",
            hint="set socket: in the settings",
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
