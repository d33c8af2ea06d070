"""``http``: questions to other machines, bounded in size and time."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import yaml

from device_agent.beacons.aside import Aside
from device_agent.errors import UsageInvalid
from gateway import render_yaml
from gateway.calls.call import CallFailed
from gateway.calls.functions import Function
from gateway.calls.running import Running

BODY_BYTES: Final = 1024 * 1024
TIMEOUT_SECONDS: Final = 30.0
LONGEST_SECONDS: Final = 300.0
AT_ONCE: Final = 8
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class _Line:
    """The connection of one question, to be cut from another thread: whoever waits in the kernel for it goes on.

    It is cut by a descriptor of its own: the other one may be closed, and its number another connection, at any time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: socket.socket | None = None
        self._is_cut = False

    def hold(self, connected: socket.socket) -> None:
        """The connection that is asked now. Raises ``TimeoutError`` when it is too late to ask."""
        with self._lock:
            if self._is_cut:
                raise TimeoutError("timed out")
            if self._held is not None:
                self._held.close()
            self._held = socket.fromfd(connected.fileno(), connected.family, connected.type)

    def cut(self) -> None:
        """End it, and what comes behind it."""
        with self._lock:
            self._is_cut = True
            if self._held is not None:
                with suppress(OSError):
                    self._held.shutdown(socket.SHUT_RDWR)
                self._held.close()


class _Plain(HTTPConnection):
    """A connection that can be cut."""

    def __init__(self, line: _Line, *arg: Any, **named: Any) -> None:
        super().__init__(*arg, **named)
        self._line = line

    def connect(self) -> None:
        """Connect, with the handshake of TLS where it has one."""
        super().connect()
        self._line.hold(self.sock)


class _Secure(_Plain, HTTPSConnection):
    """One with TLS, whose certificate is verified."""


class _Cuttable(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Asks over connections that can be cut."""

    def __init__(self, line: _Line) -> None:
        super().__init__()
        self._line = line

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        """Without TLS."""
        return self.do_open(partial(_Plain, self._line), req)

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        """With TLS."""
        return self.do_open(partial(_Secure, self._line), req)


class _Elsewhere(urllib.request.HTTPRedirectHandler):
    """Headers are for the address that they were given for, and not for another that it points to."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The next question; None for what is not asked."""
        before, then = urlsplit(req.full_url), urlsplit(newurl)
        if then.scheme not in {"http", "https"}:
            return None
        asked = super().redirect_request(req, fp, code, msg, headers, newurl)
        if asked is not None and (before.scheme, before.netloc) != (then.scheme, then.netloc):
            asked.headers.clear()
        return asked


class HttpRunner:
    """The runner."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)

    def functions(self) -> list[Function]:
        """What it has."""
        return [Function("http.query", self.query)]

    async def query(
        self,
        _: Running,
        url: str,
        method: str = "GET",
        params: dict[str, Any] | None = None,
        data: str | dict[str, Any] | list[Any] | None = None,
        header_dict: dict[str, str] | None = None,
        username: str | None = None,
        password: str | None = None,
        decode: bool = False,
        decode_type: str = "auto",
        status: bool = False,
        headers: bool = False,
        text: bool = False,
        timeout: float = TIMEOUT_SECONDS,
        raise_error: bool = True,
    ) -> dict[str, Any]:
        """Ask an address over HTTP or HTTPS: ``body`` is what it says, and with ``decode`` its value is ``dict``.

        CLI example: ``outstation runner http.query https://recorder.example/health status=True``
        """
        seconds = min(max(0.1, timeout), LONGEST_SECONDS)
        asked = _request(url, method.upper(), params, data, dict(header_dict or {}), username, password)
        async with self._turns:
            code, told, body = await _answer(asked, seconds)
        found: dict[str, Any] = {"body": body}
        if code >= 400:
            if raise_error:
                raise CallFailed({"error": f"HTTP {code}", "status": code, "body": body})
            found["error"] = f"HTTP {code}"
        if status:
            found["status"] = code
        if headers:
            found["headers"] = told
        if text:
            found["text"] = body
        if decode:
            found["dict"] = _decoded(body, decode_type, told)
        return found


def _request(
    url: str,
    method: str,
    params: dict[str, Any] | None,
    data: str | dict[str, Any] | list[Any] | None,
    headers: dict[str, str],
    username: str | None,
    password: str | None,
) -> urllib.request.Request:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageInvalid("this is no address to ask", found=url[:200], allowed="http://… or https://…")
    if method not in METHODS:
        raise UsageInvalid("there is no such method", found=method[:20], allowed=", ".join(sorted(METHODS)))
    if params:
        url = f"{url}{'&' if parts.query else '?'}{urlencode(params, doseq=True)}"
    body = None
    if data is not None:
        body = data.encode() if isinstance(data, str) else json.dumps(data).encode()
        if not isinstance(data, str):
            headers.setdefault("Content-Type", "application/json")
    if username is not None:
        words = f"{username}:{password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(words).decode()}"
    try:
        return urllib.request.Request(url, data=body, headers=headers, method=method)  # noqa: S310 - http and https alone, above
    except ValueError as error:
        raise UsageInvalid("this cannot be asked", found=str(error)[:200]) from None


async def _answer(asked: urllib.request.Request, seconds: float) -> tuple[int, dict[str, str], str]:
    """Status, headers and body, within that time however they drip. Raises ``CallFailed``."""
    line = _Line()
    try:
        async with asyncio.timeout(seconds):
            # In a thread of its own: the few that all the station shares are not for waiting for strangers.
            return await Aside().call(partial(_answered, asked, seconds, line))
    except TimeoutError:
        raise CallFailed({"error": f"its answer took longer than {seconds:g} s"}) from None
    finally:
        line.cut()


def _answered(asked: urllib.request.Request, seconds: float, line: _Line) -> tuple[int, dict[str, str], str]:
    """Status, headers and body. Raises ``CallFailed``."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Elsewhere, _Cuttable(line))
    try:
        try:
            answer = opener.open(asked, timeout=seconds)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            body = bytearray()
            while piece := answer.read1(65_536):
                body += piece
                if len(body) > BODY_BYTES:
                    raise CallFailed({"error": f"it answered with more than {BODY_BYTES} bytes"})
            return answer.status, dict(answer.headers.items()), bytes(body).decode(errors="replace")
    except (OSError, HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        raise CallFailed({"error": f"it cannot be asked: {cause}"[:500]}) from None


def _decoded(body: str, kind: str, headers: dict[str, str]) -> Any:
    """What it says as a value: JSON or YAML, by what the answer says of itself unless that is told."""
    if kind not in {"auto", "json", "yaml", "plain"}:
        raise UsageInvalid("there is no such decode_type", found=kind[:20], allowed="auto, json, yaml, plain")
    if kind == "plain":
        return body
    declared = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    try:
        if kind == "yaml" or (kind == "auto" and "yaml" in declared):
            return render_yaml.read(body)
        return json.loads(body)
    except (ValueError, RecursionError, yaml.YAMLError, render_yaml.TooLarge) as error:
        raise CallFailed({"error": f"its answer cannot be decoded: {error}"[:500], "body": body[:2000]}) from None
