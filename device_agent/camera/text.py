"""The text that HTTP/1.1 (RFC 9112) and RTSP/1.0 (RFC 2326) share: a first line, headers, a body; all of it bounded."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from device_agent.errors import OutstationError
from device_agent.host import Reader

HEAD_BYTES = 32 * 1024
HEADERS = 128
READ_BYTES = 64 * 1024
CHUNK_LINE_BYTES = 1024

Protocol = Literal["HTTP/1.1", "RTSP/1.0"]

_STATUS = re.compile(rb"^(HTTP/1\.[01]|RTSP/1\.\d) (\d{3})(?: ([^\r\n]*))?$")
_UNSAFE = re.compile(r"[\x00-\x20\x7f]")


class NoAnswer(OutstationError):
    """A camera did not answer, or not in its protocol."""

    default_id = "camera.no_answer"


class Answer(Struct, frozen=True):
    """What came back. Header names are in lower case; one that comes more than once has all its values."""

    status: int
    reason: str
    headers: dict[str, list[str]]
    body: bytes = b""
    cut: bool = False
    """Whether the body was longer than was wanted; then nothing more can be read from its connection."""

    keeps: bool = True
    """Whether the connection can be asked again."""

    def header(self, name: str) -> str:
        """The first value of a header; empty without one."""
        return next(iter(self.headers.get(name, ())), "")


def request(method: str, target: str, protocol: Protocol, headers: dict[str, str]) -> bytes:
    """A request without a body. Raises ``NoAnswer`` for a target or a header that would not stay one line."""
    if _UNSAFE.search(target) or any("\r" in value or "\n" in value for value in headers.values()):
        raise NoAnswer("a blank or a line end cannot be in a request", found=repr(target[:100]))
    lines = [f"{method} {target} {protocol}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", errors="surrogateescape")


class Incoming:
    """Answers from one connection, one after another."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._kept = b""

    async def answer(self, limit: int, *, method: str = "GET") -> Answer:
        """The next final answer with at most ``limit`` bytes of its body. Raises ``NoAnswer`` and ``OSError``."""
        while True:
            found, protocol = _head(await self._until(b"\r\n\r\n", HEAD_BYTES))
            if found.status >= 200:
                break
        length = found.header("content-length").strip()
        coded = found.header("transfer-encoding").lower()
        keeps = "close" not in found.header("connection").lower() and protocol != b"HTTP/1.0"
        if method == "HEAD" or found.status in {204, 304}:
            body, whole = b"", True
        elif "chunked" in coded:
            body, whole = await self._chunked(limit)
        elif length:
            if not length.isdecimal() or len(length) > 15:
                raise NoAnswer("the length of an answer is no number", found=length[:40])
            body = await self._exactly(min(int(length), limit))
            whole = int(length) <= limit
        elif protocol.startswith(b"RTSP"):
            body, whole = b"", True  # There a body always says how long it is.
        else:
            body, whole = await self._to_the_end(limit)
            keeps = False
        return Answer(found.status, found.reason, found.headers, body, not whole, keeps and whole)

    async def _more(self) -> bool:
        piece = await self._reader.read(READ_BYTES)
        self._kept += piece
        return bool(piece)

    async def _until(self, mark: bytes, limit: int) -> bytes:
        while mark not in self._kept:
            if len(self._kept) > limit:
                raise NoAnswer(f"the head of an answer is longer than {limit} bytes")
            if not await self._more():
                what = "the connection ended within an answer" if self._kept else "the connection ended without answer"
                raise NoAnswer(what)
        found, _, self._kept = self._kept.partition(mark)
        if len(found) > limit:
            raise NoAnswer(f"the head of an answer is longer than {limit} bytes")
        return found

    async def _exactly(self, length: int) -> bytes:
        while len(self._kept) < length:
            if not await self._more():
                raise NoAnswer("the connection ended within an answer")
        found, self._kept = self._kept[:length], self._kept[length:]
        return found

    async def _to_the_end(self, limit: int) -> tuple[bytes, bool]:
        while len(self._kept) <= limit:
            if not await self._more():
                found, self._kept = self._kept, b""
                return found, True
        return self._kept[:limit], False

    async def _chunked(self, limit: int) -> tuple[bytes, bool]:
        body = b""
        while True:
            line = (await self._until(b"\r\n", CHUNK_LINE_BYTES)).partition(b";")[0].strip()
            try:
                size = int(line, 16)
            except ValueError:
                raise NoAnswer("a piece of an answer has no length") from None
            if size < 0:
                raise NoAnswer("a piece of an answer has no length")
            if size == 0:
                while await self._until(b"\r\n", CHUNK_LINE_BYTES):
                    continue
                return body, True
            if len(body) + size > limit:
                return body + await self._exactly(limit - len(body)), False
            body += await self._exactly(size)
            await self._until(b"\r\n", CHUNK_LINE_BYTES)


def _head(raw: bytes) -> tuple[Answer, bytes]:
    first, *lines = raw.lstrip(b"\r\n").split(b"\r\n")
    status = _STATUS.match(first)
    if status is None:
        raise NoAnswer("what answers speaks another protocol", found=repr(first[:60]))
    if len(lines) > HEADERS:
        raise NoAnswer(f"an answer has more than {HEADERS} headers")
    headers: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        text = line.decode(errors="replace")
        if text[:1] in {" ", "\t"} and name:  # An old way to go on in the next line.
            headers[name][-1] += f" {text.strip()}"
            continue
        name, mark, value = text.partition(":")
        name = name.strip().lower()
        if mark and name:
            headers.setdefault(name, []).append(value.strip())
    reason = (status[3] or b"").decode(errors="replace")
    return Answer(int(status[2]), reason, headers), status[1]
