"""A camera played with plain sockets: HTTP with a picture and RTSP with two streams, and the ways they misbehave."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

USER, PASSWORD, REALM = "viewer", "s3cret/wörd", 'Dome "7", lobby'
PICTURE = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x0b\x08\x01\xe0\x02\x80\x01\x01\x11\x00" + bytes(2000) + b"\xff\xd9"
"""The first segments of a JPEG of 640 by 480; nobody here looks further."""

DESCRIPTION = """v=0
o=- 1 1 IN IP4 192.0.2.20
s=Dome 7
t=0 0
a=control:*
m=video 0 RTP/AVP 96
b=AS:4096
a=rtpmap:96 H264/90000
a=fmtp:96 packetization-mode=1;profile-level-id=4D001F;sprop-parameter-sets=Z00AH5WoFAFu,aO48gA==
a=framesize:96 1920-1080
a=framerate:25.0
a=control:rtsp://viewer:{password}@192.0.2.20/stream1/track1
m=audio 0 RTP/AVP 8
a=control:track2
a=recvonly
"""

_PARAMETER = re.compile(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|([^\s,]+))')


@dataclass
class PlayedCamera:
    """What it is told to be, and what it was asked."""

    login: str = "none"
    """none, basic, or the algorithm of a digest."""

    quality: str = 'qop="auth", '
    lets_go: bool = False
    chunked: bool = False
    new_nonces: bool = False
    picture_path: str = "/snapshot.jpg"
    picture: bytes = PICTURE
    server: str = "PlayedCam/1.0"
    misbehave: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] | None = None
    asked: list[str] = field(default_factory=list)
    refused: int = 0
    passwords_seen: list[str] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    _nonces: dict[str, int] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection to its end."""
        self.connections += 1
        try:
            if self.misbehave is not None:
                await self.misbehave(reader, writer)
                return
            while head := await _head(reader):
                await self._answer(head, writer)
                if self.lets_go:
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.split("\r\n")
        method, target, protocol = first.split()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.asked.append(f"{method} {target}")
        given: dict[str, str] = {"Server": self.server}
        if "cseq" in headers:
            given["CSeq"] = headers["cseq"]
        if not self._lets_in(method, target, headers.get("authorization", "")):
            if "authorization" in headers:
                self.refused += 1
            self._write(writer, protocol, "401 Unauthorized", given, b"no", self._challenges())
            return
        status, body = self._found(method, target, protocol, given)
        self._write(writer, protocol, status, given, body)
        await writer.drain()

    def _found(self, method: str, target: str, protocol: str, given: dict[str, str]) -> tuple[str, bytes]:
        if protocol.startswith("RTSP"):
            if method == "OPTIONS":
                given["Public"] = "OPTIONS, DESCRIBE, SETUP, PLAY"
                return "200 OK", b""
            if method == "DESCRIBE" and target.endswith("/stream1"):
                given |= {"Content-Type": "application/sdp", "Content-Base": f"rtsp://{USER}:{PASSWORD}@192.0.2.20/"}
                return "200 OK", DESCRIPTION.format(password=PASSWORD).encode()
            return "404 Not Found", b""
        if target == self.picture_path:
            given["Content-Type"] = "image/jpeg"
            return "200 OK", self.picture
        if target == "/":
            return "200 OK", f"<html><TITLE>Dome\n 7 {PASSWORD}</title></html>".encode()
        return "404 Not Found", b"nothing here"

    def _write(
        self,
        writer: asyncio.StreamWriter,
        protocol: str,
        status: str,
        headers: dict[str, str],
        body: bytes,
        challenges: tuple[str, ...] = (),
    ) -> None:
        lines = [f"{protocol} {status}", *(f"{name}: {value}" for name, value in headers.items())]
        lines += [f"WWW-Authenticate: {challenge}" for challenge in challenges]
        if self.chunked and protocol.startswith("HTTP"):
            pieces = [body[place : place + 700] for place in range(0, len(body), 700)]
            body = b"".join(f"{len(piece):x};x=1\r\n".encode() + piece + b"\r\n" for piece in pieces) + b"0\r\n\r\n"
            lines.append("Transfer-Encoding: chunked")
        else:
            lines.append(f"Content-Length: {len(body)}")
        if self.lets_go:
            lines.append("Connection: close")
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + body)

    def _challenges(self) -> tuple[str, ...]:
        if self.login == "basic":
            return ('Basic realm="a camera"',)
        nonce = f"n{next(self._numbers)}"
        self._nonces[nonce] = 0
        realm = REALM.replace('"', '\\"')
        weak = f'Digest realm="{realm}", {self.quality}nonce="{nonce}", opaque="o,o"'
        strong = f"{weak}, algorithm={self.login}"
        if self.login.startswith("MD5"):
            return (weak if self.login == "MD5" else strong,)
        return weak, f'{strong}, Basic realm="x"'

    def _lets_in(self, method: str, target: str, given: str) -> bool:
        if self.login == "none":
            return True
        scheme, _, rest = given.partition(" ")
        if scheme == "Basic":
            sent = base64.b64decode(rest).decode()
            self.passwords_seen.append(sent)
            return self.login == "basic" and sent == f"{USER}:{PASSWORD}"
        if scheme != "Digest":
            return False
        told = {name: re.sub(r"\\(.)", r"\1", quoted) or bare for name, quoted, bare in _PARAMETER.findall(rest)}
        if told["nonce"] not in self._nonces or told["uri"] != target or told["username"] != USER:
            return False
        if told["realm"] != REALM:
            return False
        right = self._response(told, method)
        if self.new_nonces:
            del self._nonces[told["nonce"]]
        elif "nc" in told:
            count = int(told["nc"], 16)
            if count <= self._nonces[told["nonce"]]:
                return False
            self._nonces[told["nonce"]] = count
        return told["response"] == right

    def _response(self, told: dict[str, str], method: str) -> str:
        made = hashlib.sha256 if self.login.startswith("SHA-256") else hashlib.md5
        if told.get("algorithm", "MD5") != self.login:
            return "-"

        def digest(text: str) -> str:
            return made(text.encode()).hexdigest()

        secret = digest(f"{USER}:{REALM}:{PASSWORD}")
        if self.login.endswith("-sess"):
            secret = digest(f"{secret}:{told['nonce']}:{told['cnonce']}")
        asked = digest(f"{method}:{told['uri']}")
        if "qop" not in told:
            return digest(f"{secret}:{told['nonce']}:{asked}")
        return digest(f"{secret}:{told['nonce']}:{told['nc']}:{told['cnonce']}:{told['qop']}:{asked}")


@asynccontextmanager
async def played_camera(camera: PlayedCamera) -> AsyncIterator[PlayedCamera]:
    """A camera at a port of 127.0.0.1; it speaks both protocols there."""
    server = await asyncio.start_server(camera.serve, "127.0.0.1", 0)
    camera.port = server.sockets[0].getsockname()[1]
    try:
        yield camera
    finally:
        server.close()


async def _head(reader: asyncio.StreamReader) -> str:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode().removesuffix("\r\n\r\n")
    except asyncio.IncompleteReadError:
        return ""
