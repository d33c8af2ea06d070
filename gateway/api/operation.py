"""Operations of the API as data: one table from which the routes and the OpenAPI document are both made."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from device_agent.errors import NotFound, NotRunning, OutstationError, PolicyRefused, UsageInvalid
from device_agent.protocol.messages import AuditVerdict
from gateway.api.door import NOBODY, Door, GroupsUnknown, TokenRefused, TooManyConnections, TooManyFailures
from gateway.api.hidden_arguments import piece_without_arguments, without_arguments
from gateway.audit.deed import Deed
from gateway.devices.policy import Need, Operator, not_allowed, without_file

if TYPE_CHECKING:
    from gateway.api.connection import Connection

BODY_BYTES = 1024 * 1024
BODY_SECONDS = 30.0
"""How long the body of a request may take; of each request, once its head is there."""

_LOOK_AHEAD = r"(?!\\n)"
NOTED = frozenset({"policy.role", "policy.rule", "policy.own_job"})
"""Refusals that whoever made them has put into the audit, with more than is known here."""

EVENT_STREAM = "text/event-stream"


class BodyTooLarge(UsageInvalid):
    """The body has more bytes than a request may have."""


class BodyTooSlow(UsageInvalid):
    """The body did not come in time."""


class TooManyStreams(PolicyRefused):
    """The caller has as many streams open as one may have."""

    default_id = "api.too_many_streams"


Piece = TypeVar("Piece")

_json = msgspec.json.Encoder()


@dataclass(frozen=True)
class Asked:
    """A request, decoded: path and query parameters as text, the body as its type, and who asks by which door."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    operator: Operator
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def user(self) -> str:
        """The name of who asks."""
        return self.operator.name


@dataclass(frozen=True)
class ServerSent:
    """A stream of server-sent events, each as the bytes that it is on the line."""

    pieces: AsyncIterator[bytes]


Answer = Mapping[str, Any] | AsyncIterator[Mapping[str, Any] | None] | ServerSent | str
Handler = Callable[[Asked], Awaitable[Answer]]


@dataclass(frozen=True)
class Operation:
    """One method on one path. ``query`` maps a parameter to its description; ``stream`` answers in JSON lines,
    and with ``server_sent`` in server-sent events to whoever accepts them.

    ``needs`` is what who asks must be allowed to do: looking, for what only looks, and otherwise all, unless it is said
    here. With an ``action`` it is kept for the audit under this word, refused or done; ``own_row`` says that what was
    done is kept by its handler, with more than is known here.
    """

    method: str
    path: str
    summary: str
    handler: Handler
    body: type[Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    stream: bool = False
    server_sent: bool = False
    text: bool = False
    needs: Need | None = None
    action: str = ""
    own_row: bool = False

    @property
    def need(self) -> Need:
        """What who asks must be allowed to do."""
        return self.needs or ("view" if self.method == "GET" else "admin")

    async def serve(self, request: Request) -> Response:
        """Answer one request; an ``OutstationError`` becomes its JSON with the fitting status."""
        operator: Operator = request.scope.get("operator", NOBODY)
        door: Door | None = request.scope.get("door")
        try:
            await self._admit(operator, door, request)
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
                operator=operator,
                headers=request.headers,
            )
            answer = await self.handler(asked)
            if self.action and not self.own_row and door is not None:
                await door.note(self._deed(operator, request, "allow"))
        except OutstationError as error:
            if door is not None and error.error_id.startswith("policy.") and error.error_id not in NOTED:
                await door.note_denied(self._deed(operator, request, "deny", f"{error.what}; {error.found or ''}"))
            return failure(error)
        if not isinstance(answer, str | Mapping) and not _may_stream(request):
            return failure(
                TooManyStreams(
                    "too many streams of this user are open",
                    found=f"{operator.name}: {self.method} {self.path}",
                    allowed="a share for each user (docs/api.md)",
                    hint="close streams that are not used, such as `outstation events`, then ask again",
                )
            )
        if isinstance(answer, str):
            return Response(answer, media_type="text/plain; version=0.0.4")

        site = door.site if door is not None else ""

        def hides() -> bool:
            return door is not None and not door.policy.shows_arguments(operator)

        if isinstance(answer, Mapping):
            answer = without_arguments(answer, operator, site) if hides() else answer
            return Response(_json.encode(answer), self.status, media_type="application/json")
        still_may = (lambda: door.still_may(operator, self.need)) if door is not None else (lambda: True)
        if isinstance(answer, ServerSent):
            allowed, kept_out = _while_allowed(answer.pieces, still_may), {"Cache-Control": "no-store"}
            pieces = (piece_without_arguments(piece, operator, site) if hides() else piece async for piece in allowed)
            return StreamingResponse(pieces, headers=kept_out, media_type=EVENT_STREAM)
        show = (lambda each: without_arguments(each, operator, site)) if hides() else None
        return StreamingResponse(_lines(answer, still_may, show), media_type="application/x-ndjson")

    async def _admit(self, operator: Operator, door: Door | None, request: Request) -> None:
        if operator.may(self.need):
            return
        policy = door.policy if door is not None else without_file("")
        refused = not_allowed(policy, operator, self.need, f"{self.method} {request.url.path}: {self.summary}")
        if door is not None:
            await door.note_denied(self._deed(operator, request, "deny", f"{refused.what}; {operator.role_words()}"))
        raise refused

    def _deed(self, operator: Operator, request: Request, verdict: AuditVerdict, why: str = "") -> Deed:
        return Deed(
            user=operator.name,
            door=operator.door,
            action=self.action or f"{self.method} {self.path}",
            subject=" ".join(str(value) for value in request.path_params.values()),
            verdict=verdict,
            why=why,
            jid=str(request.path_params.get("jid", "")),
        )

    async def _read(self, request: Request) -> Any:
        if self.body is None and self.method == "GET":
            return None
        raw = b""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.stream():
                    raw += chunk
                    if len(raw) > BODY_BYTES:
                        raise BodyTooLarge("the request is too large", where=self.path, allowed=f"{BODY_BYTES} bytes")
        except TimeoutError:
            raise BodyTooSlow(
                "the body of the request did not come in time",
                where=self.path,
                found=f"{len(raw)} bytes after {BODY_SECONDS:.0f} s",
                allowed=f"all of it within {BODY_SECONDS:.0f} s",
                hint="ask again; over a slow line in smaller requests",
            ) from None
        except ClientDisconnect:
            # Nobody will read this answer, and it is no fault of the station's that would belong in its log.
            raise UsageInvalid("the request ended before its body did", where=self.path) from None
        if self.body is None:
            if raw not in (b"", b"{}"):
                raise UsageInvalid(
                    "this operation takes no body", where=self.path, found=f"{len(raw)} bytes", allowed="nothing, or {}"
                )
            return None
        try:
            return msgspec.json.decode(raw or b"{}", type=self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _misfit(str(error), raw, self) from None


def _may_stream(request: Request) -> bool:
    connection: Connection | None = request.scope.get("connection")
    return connection is None or connection.begin_stream()


def _misfit(words: str, raw: bytes, operation: Operation) -> UsageInvalid:
    """The decoder's "Expected … - at `$.events[0].tag`" as an error that names the field and what it has."""
    wanted, _, place = words.partition(" - at `$")
    place = place.rstrip("`").removeprefix(".")
    found, allowed = words, f"JSON as in GET /openapi.json, {getattr(operation.body, '__name__', '')}"
    if place and wanted.startswith("Expected "):
        found = _at(msgspec.json.decode(raw), place)
        kind = wanted.removeprefix("Expected ").partition(", got ")[0].replace(_LOOK_AHEAD, "")
        allowed = f"{kind.replace('`str`', 'text').replace('`', '')}; {allowed}"
    return UsageInvalid(
        "the request is not what this operation takes", where=place or operation.path, found=found, allowed=allowed
    )


def _at(value: Any, place: str) -> str:
    """What stands at ``events[0].tag``, or as near to it as there is anything."""
    for step in re.findall(r"[^.\[\]]+", place):
        if isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
    return repr(value)[:80]


def whole(asked: Asked, name: str, default: int, most: int) -> int:
    """A query parameter as a whole number from 0 to ``most``. Raises ``UsageInvalid``."""
    text = asked.query.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) > most:
        raise UsageInvalid("not a number in range", where=name, found=text[:40], allowed=f"0 to {most}")
    return int(text)


def failure(error: OutstationError) -> Response:
    """An error as JSON."""
    match error:
        case TokenRefused():
            status = 401
        case TooManyFailures() | TooManyStreams():
            status = 429
        case TooManyConnections() | GroupsUnknown():
            status = 503
        case BodyTooLarge():
            status = 413
        case BodyTooSlow():
            status = 408
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
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return Response(_json.encode({"error": error.fields()}), status, headers, "application/json")


async def _lines(
    answers: AsyncIterator[Mapping[str, Any] | None],
    still_may: Callable[[], bool],
    show: Callable[[Mapping[str, Any]], Any] | None,
) -> AsyncIterator[bytes]:
    async for answer in _while_allowed(answers, still_may):
        # None is a keepalive: an empty line, which readers skip.
        yield b"\n" if answer is None else _json.encode(show(answer) if show is not None else answer) + b"\n"


async def _while_allowed(answers: AsyncIterator[Piece], still_may: Callable[[], bool]) -> AsyncIterator[Piece]:
    async for answer in answers:
        # Whose token was revoked while he listened hears no more of it.
        if not still_may():
            if isinstance(answers, AsyncGenerator):
                await answers.aclose()
            return
        yield answer
