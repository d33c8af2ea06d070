"""Operations of the API as data: one table from which the routes and the OpenAPI document are both made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from device_agent.errors import NotFound, NotRunning, OutstationError, PolicyRefused, UsageInvalid

BODY_BYTES = 1024 * 1024
_json = msgspec.json.Encoder()


@dataclass(frozen=True)
class Asked:
    """A request, decoded: path and query parameters as text, the body as its type, and who asks."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    user: str


Answer = Mapping[str, Any] | AsyncIterator[Mapping[str, Any] | None] | str
Handler = Callable[[Asked], Awaitable[Answer]]


@dataclass(frozen=True)
class Operation:
    """One method on one path. ``query`` maps a parameter to its description; ``stream`` answers in JSON lines."""

    method: str
    path: str
    summary: str
    handler: Handler
    body: type[Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    stream: bool = False
    text: bool = False

    async def serve(self, request: Request) -> Response:
        """Answer one request; an ``OutstationError`` becomes its JSON with the fitting status."""
        try:
            unknown = sorted(set(request.query_params) - set(self.query))
            if unknown:
                raise UsageInvalid(
                    "unknown query parameter",
                    where=self.path,
                    found=", ".join(unknown),
                    allowed=", ".join(self.query) or "none",
                )
            asked = Asked(
                path={name: str(value) for name, value in request.path_params.items()},
                query=dict(request.query_params),
                body=await self._read(request),
                user=_asker(request),
            )
            answer = await self.handler(asked)
        except OutstationError as error:
            return failure(error)
        if isinstance(answer, str):
            return Response(answer, media_type="text/plain; version=0.0.4")
        if isinstance(answer, Mapping):
            return Response(_json.encode(answer), self.status, media_type="application/json")
        return StreamingResponse(_lines(answer), media_type="application/x-ndjson")

    async def _read(self, request: Request) -> Any:
        if self.body is None:
            return None
        raw = b""
        try:
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > BODY_BYTES:
                    raise UsageInvalid("the request is too large", where=self.path, allowed=f"{BODY_BYTES} bytes")
        except ClientDisconnect:
            # Nobody will read this answer, and it is no fault of the station's that would belong in its log.
            raise UsageInvalid("the request ended before its body did", where=self.path) from None
        try:
            return msgspec.json.decode(raw or b"{}", type=self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UsageInvalid(
                "the request body is not what this operation takes",
                where=self.path,
                found=str(error),
                allowed=f"JSON as in GET /openapi.json, {self.body.__name__}",
            ) from None


def whole(asked: Asked, name: str, default: int, most: int) -> int:
    """A query parameter as a whole number from 0 to ``most``. Raises ``UsageInvalid``."""
    text = asked.query.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) > most:
        raise UsageInvalid("not a number in range", where=name, found=text[:40], allowed=f"0 to {most}")
    return int(text)


def failure(error: OutstationError) -> Response:
    """An error as JSON."""
    match error:
        case NotFound():
            status = 404
        case UsageInvalid():
            status = 400
        case PolicyRefused():
            status = 403
        case NotRunning():
            status = 503
        case _:
            status = 500
    return Response(_json.encode({"error": error.fields()}), status, media_type="application/json")


async def _lines(answers: AsyncIterator[Mapping[str, Any] | None]) -> AsyncIterator[bytes]:
    async for answer in answers:
        # None is a keepalive: an empty line, which readers skip.
        yield b"\n" if answer is None else _json.encode(answer) + b"\n"


def _asker(request: Request) -> str:
    """Who asks: the server's protocol puts the user of the socket's other end in the place of an address."""
    client = request.scope.get("client")
    return str(client[0]) if client else "unknown"
