"""Asks a camera over one connection that a host makes: logs in when it is asked to, once, and lets go in any case."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from device_agent.camera.login import Challenge, Login, authorization, best, challenges
from device_agent.camera.text import Answer, Incoming, NoAnswer, Protocol, request
from device_agent.host import Host, Writer
from device_agent.parts import leaves

Found = TypeVar("Found")

UNAUTHORIZED = 401
CLOSE_SECONDS = 1.0
LOGIN_TRIES = 3
USER_AGENT = "outstation"
RTSP_PORT = 554
HTTP_PORT = 80


class Asking:
    """One camera at one port; it is connected again when it has let go. Raises ``NoAnswer``, ``OSError``."""

    def __init__(self, host: Host, address: str, port: int, protocol: Protocol, login: Login) -> None:
        self.challenge: Challenge | None = None
        """What the camera asked a login by, if it did."""

        self._host = host
        self._address = address
        self._port = port
        self._protocol = protocol
        self._login = login
        self._incoming: Incoming | None = None
        self._writer: Writer | None = None
        self._asked = 0
        self._nonce = ""
        self._uses = 0

    async def __aenter__(self) -> Self:
        """Nothing is connected yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go."""
        await self._let_go()

    @property
    def logs_in(self) -> bool:
        """Whether there is a login to give."""
        return bool(self._login)

    def target(self, path: str) -> str:
        """What the first line of a request names."""
        if self._protocol == "HTTP/1.1":
            return path
        return f"rtsp://{self._place(RTSP_PORT)}{path}"

    async def ask(self, method: str, path: str, limit: int, headers: dict[str, str] | None = None) -> Answer:
        """One answer, with the login if the camera wants one and there is one. A refused login is not tried again."""
        target = self.target(path)
        answer = await self._once(method, target, limit, headers or {})
        # A camera may give a new nonce for each request, or say that the one it just gave is too old already; an
        # answer to a login by a new nonce is about the login.
        for tries in range(LOGIN_TRIES):
            if answer.status != UNAUTHORIZED or not self._login:
                break
            offered = challenges(answer.headers.get("www-authenticate", []))
            if tries and not any(each.stale for each in offered):
                break
            self.challenge = best(offered)
            answer = await self._once(method, target, limit, headers or {})
        if answer.status == UNAUTHORIZED and self.challenge is None:
            offered = challenges(answer.headers.get("www-authenticate", []))
            self.challenge = offered[0] if offered else None
        return answer

    async def _once(self, method: str, target: str, limit: int, headers: dict[str, str]) -> Answer:
        fresh = self._incoming is None
        try:
            return await self._exchange(method, target, limit, headers)
        except (NoAnswer, ConnectionError):
            await self._let_go()
            if fresh:
                raise
        # It let go of a connection that it was asked on before: that is its right, and says nothing.
        return await self._exchange(method, target, limit, headers)

    async def _exchange(self, method: str, target: str, limit: int, headers: dict[str, str]) -> Answer:
        if self._incoming is None or self._writer is None:
            reader, self._writer = await self._host.connect(self._port, address=self._address)
            self._incoming = Incoming(reader)
        self._asked += 1
        sent = {"User-Agent": USER_AGENT, **headers}
        sent |= {"CSeq": str(self._asked)} if self._protocol == "RTSP/1.0" else {"Host": self._place(HTTP_PORT)}
        if self.challenge is not None and self._login:
            nonce = self.challenge.parameters.get("nonce", "")
            self._uses = self._uses + 1 if nonce == self._nonce else 1
            self._nonce = nonce
            sent["Authorization"] = authorization(
                self.challenge, self._login, method, target, cnonce=os.urandom(16).hex(), count=self._uses
            )
        self._writer.write(request(method, target, self._protocol, sent))
        await self._writer.drain()
        answer = await self._incoming.answer(limit, method=method)
        if not answer.keeps:
            await self._let_go()
        return answer

    async def _let_go(self) -> None:
        writer, self._writer, self._incoming = self._writer, None, None
        if writer is None:
            return
        writer.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await writer.wait_closed()
        except (OSError, TimeoutError):
            return  # It is closed on this side, whatever the other one makes of that.

    def _place(self, usual: int) -> str:
        name = f"[{self._address}]" if ":" in self._address else self._address
        return name if self._port == usual else f"{name}:{self._port}"


async def together(*coroutines: Coroutine[Any, Any, Found]) -> list[Found]:
    """Several answers at once; the error of one is the error of all, as it is and not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failed:
        raise next(iter(leaves(failed))) from failed
    return [task.result() for task in tasks]
