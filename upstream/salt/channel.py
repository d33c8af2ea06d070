"""Requests to one Salt master: a few connections side by side, and the session under which they are encrypted.

A connection on which an answer did not come is thrown away: what comes later on it would answer another question.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import zmq
import zmq.asyncio

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.questions import Unanswered
from upstream.salt import wire
from upstream.salt.box import Box, new_nonce
from upstream.salt.rsa_keys import GatewayKey, MasterKey
from upstream.salt.sign_in import PROTOCOL, Session
from upstream.salt.terms import SaltRules

CONNECTIONS: Final = 3
"""Requests at once. A master with the usual five workers has some left for its other minions."""

ASIDE: Final = 2
"""As many more, for what is short and must not wait: a probe, a new sign-in, an announcement."""

WIRE_CEILING_BYTES: Final = 4 * wire.MOST_BYTES
"""Over this libzmq drops the line; between the two we refuse and count."""

STALE: Final = frozenset({"stale_session", "bad_mac", "wrong_nonce"})
"""What is wrong with an answer when the session may be an old one."""

HEARTBEAT_MILLISECONDS: Final = 15_000


def opened(context: zmq.asyncio.Context, kind: int) -> zmq.asyncio.Socket:
    """A socket. Raises ``Unanswered`` when there is none left."""
    try:
        return context.socket(kind)
    except zmq.ZMQError as error:
        raise Unanswered(f"no connection can be made: {error}") from None


def dialled(
    socket: zmq.asyncio.Socket, endpoint: str, *, most_bytes: int = WIRE_CEILING_BYTES, queued: int = 1
) -> zmq.asyncio.Socket:
    """A socket on its way to a master, that notices a dead line. Raises ``Unanswered`` for no address.

    What waits in it is at most ``queued`` messages, each frame at most ``most_bytes``: whoever fills it needs no key.
    Of how many frames a message is libzmq bounds not (docs/salt-wire.md).
    """
    socket.linger = 0
    socket.ipv6 = True
    socket.maxmsgsize = most_bytes
    socket.rcvhwm = queued
    socket.heartbeat_ivl = HEARTBEAT_MILLISECONDS
    socket.heartbeat_timeout = socket.heartbeat_ttl = 3 * HEARTBEAT_MILLISECONDS
    try:
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        socket.close(linger=0)
        raise Unanswered(f"cannot connect to {endpoint}: {error}") from None
    return socket


class Connections:
    """Asks, with so many questions at once, each on a connection of its own that is used again."""

    def __init__(self, context: zmq.asyncio.Context, endpoint: str, at_once: int = CONNECTIONS) -> None:
        self._context = context
        self._endpoint = endpoint
        self._idle: list[zmq.asyncio.Socket] = []
        self._turns = asyncio.Semaphore(at_once)

    async def ask(self, request: bytes, patience: float) -> bytes:
        """The bytes of the answer. Raises ``Unanswered`` after ``patience`` seconds, waiting for a turn included."""
        try:
            async with asyncio.timeout(patience), self._turns, self._connection() as socket:
                await socket.send(request)
                parts = await socket.recv_multipart()
        except TimeoutError:
            raise Unanswered(f"no answer in {patience:g} s") from None
        if len(parts) != 1:
            raise Refused("malformed", f"{len(parts)} frames, expected 1")
        return parts[0]

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[zmq.asyncio.Socket]:
        """One that is idle, or a new one; only one that has had its answer is kept."""
        socket = self._idle.pop() if self._idle else dialled(opened(self._context, zmq.REQ), self._endpoint)
        answered = False
        try:
            yield socket
            answered = True
        finally:
            if answered:
                self._idle.append(socket)
            else:
                socket.close(linger=0)

    def close(self) -> None:
        """Let go of what is idle."""
        while self._idle:
            self._idle.pop().close(linger=0)


class Channel:
    """Encrypted requests under a session that is renewed once when it proves to be stale."""

    def __init__(
        self,
        *,
        rules: SaltRules,
        key: GatewayKey,
        connections: Connections,
        session: Callable[[], Session],
        renew: Callable[[Session], Awaitable[None]],
        clock: Clock,
        heard: Callable[[], None],
    ) -> None:
        """``renew`` signs in again unless that session is not the current one any more; it raises when it may not.

        ``heard`` is called at each answer that the master has made.
        """
        self._rules = rules
        self._key = key
        self._connections = connections
        self._session = session
        self._renew = renew
        self._clock = clock
        self._heard = heard

    async def request(self, cmd: str, fields: Mapping[str, Any], *, patience: float) -> Any:
        """What the master answers, as text where it is text.

        Raises ``Unanswered``, and ``Refused`` when the answer is none, also under a session of just now.
        """
        answer = await self._asked(
            cmd, fields, patience, lambda reply, session, nonce: _opened(reply, session.box, nonce)
        )
        return wire.texts(wire.unpack(answer))

    async def pillar(self, grains: Mapping[str, Any], *, patience: float, **fields: Any) -> dict[str, Any]:
        """Our own pillar, which comes in a box of its own, signed by the master. Raises as ``request``."""
        asked = {"grains": dict(grains), "saltenv": "base", "pillarenv": None, "pillar_override": {}} | fields
        body = await self._asked("_pillar", asked | {"ver": "2"}, patience, self._pillar_opened)
        found = wire.texts(wire.fields_of(body).get(b"pillar"))
        if not isinstance(found, dict):
            raise Refused("malformed", "no pillar in a pillar")
        return found

    async def _asked(
        self, cmd: str, fields: Mapping[str, Any], patience: float, opened: Callable[[bytes, Session, str], bytes]
    ) -> bytes:
        session = self._session()
        try:
            return await self._once(cmd, fields, patience, session, opened)
        except Refused as refusal:
            if refusal.reason not in STALE:
                raise
        await self._renew(session)
        return await self._once(cmd, fields, patience, self._session(), opened)

    async def _once(
        self,
        cmd: str,
        fields: Mapping[str, Any],
        patience: float,
        session: Session,
        opened: Callable[[bytes, Session, str], bytes],
    ) -> bytes:
        nonce = new_nonce()
        rules = self._rules
        load = {
            **fields,
            "cmd": cmd,
            "nonce": nonce,
            "ts": int(self._clock.wall()),
            "tok": self._key.token,
            "id": rules.id,
        }
        request = {
            "enc": "aes",
            "version": PROTOCOL,
            "id": rules.id,
            "enc_algo": rules.encryption_algorithm,
            "sig_algo": rules.signing_algorithm,
            "load": session.box.seal(wire.pack(load)),
        }
        answer = opened(await self._connections.ask(wire.pack(request), patience), session, nonce)
        self._heard()
        return answer

    def _pillar_opened(self, reply: bytes, session: Session, nonce: str) -> bytes:
        value = wire.envelope(reply)
        if not isinstance(value, dict):
            raise Refused("stale_session", "the master does not take our session")
        sealed_key = wire.binary(value, "key")
        key = self._key.decrypt(self._rules.encryption_algorithm, sealed_key).decode("ascii", "replace")
        inner = wire.as_fields(wire.envelope(Box(key).open(wire.binary(value, "pillar"))))
        data = wire.binary(inner, "data")
        self._verify(session.master, wire.binary(inner, "sig"), data)
        body = wire.fields_of(data)
        if body.get(b"key") != sealed_key or body.get(b"nonce") != nonce.encode("ascii"):
            raise Refused("wrong_nonce", "the pillar of another question")
        return data

    def _verify(self, master: MasterKey, signature: bytes, data: bytes) -> None:
        master.verify(self._rules.signing_algorithm, signature, data)


def _opened(reply: bytes, box: Box, nonce: str) -> bytes:
    value = wire.envelope(reply)
    if not isinstance(value, bytes) or value == b"bad load":
        raise Refused("stale_session", "the master does not take our session")
    return box.open(value, nonce)
