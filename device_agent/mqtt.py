"""One MQTT connection that keeps itself alive: reconnects, subscribes again, bounds what waits, and tells how it is.

Nothing above this file knows the client inside (``mqtt_client``; MQTT 3.1.1). It has no reconnect, so a new one is made
for each connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import aiomqtt
from aiomqtt.exceptions import MqttConnectError

from device_agent.authority import AuthorityUnknown, context_for
from device_agent.backlog import Backlog
from device_agent.backoff import Backoff
from device_agent.clock import Clock
from device_agent.dial import dial
from device_agent.errors import OutstationError
from device_agent.host_port import host_port
from device_agent.mqtt_client import Client, counting_queue
from device_agent.name_lookup import NameLookup
from device_agent.protocol import limits

log = logging.getLogger(__name__)

CONNECT_SECONDS = 15.0
PUBLISH_SECONDS = 10.0
GOODBYE_SECONDS = 2.0
RECONNECT_FIRST_SECONDS = 0.5
STEADY_SECONDS = 5.0
"""A connection that lasted this long was a good one: the next attempt after it comes quickly."""

PUBLISHES_UNDER_WAY = 100
"""The client's cost for one publish grows with those that wait: four times as much at 10,000 as at 100."""

MESSAGES_PER_TURN = 64
"""Messages handled before other tasks get a turn."""

STUCK_SECONDS = 60.0
"""Longer than any step of a connection may take: whatever did not get on for so long will not."""

NOTHING = "$nothing"

_SUBSCRIPTION_REFUSED = 0x80
_LOGIN_REFUSED = frozenset({4, 5, 134, 135})
"""Bad user name or password, not authorised: as MQTT 3.1.1 numbers them, and as MQTT 5 does."""

_NO_DELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

OnMessage = Callable[[str, bytes], Awaitable[None] | None]
Will = Callable[[], tuple[str, bytes]]


class NotConnected(OutstationError):
    """There is no connection to the broker, or it ended before it took the message."""

    default_id = "mqtt.not_connected"


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker is and who we are to it. With ``unix_socket``, host and port are not used.

    ``authority`` is the SHA-256 of whoever vouches for it; with it we speak TLS.
    """

    host: str = "127.0.0.1"
    port: int = 1883
    unix_socket: str | None = None
    username: str | None = None
    password: str | None = None
    authority: bytes = b""

    def __str__(self) -> str:
        """For logs and errors; without the password."""
        return self.unix_socket or host_port(self.host, self.port)


@dataclass(frozen=True, slots=True)
class LinkState:
    """How the connection is. Times are wall seconds; ``next_attempt`` is None while connected or connecting.

    ``login_refused`` says that the last attempt reached the broker, which did not let us in.
    """

    connected: bool
    since: float
    last_error: str | None = None
    next_attempt: float | None = None
    attempts: int = 0
    login_refused: bool = False


class MqttLink:
    """A connection to a broker.

    ``will`` is asked before each connection for the topic and payload the broker publishes when that one is lost.
    ``on_message`` gets every message, one after another; what it raises ends ``run``. ``on_connected`` runs after each
    (re)connection, when the subscriptions are granted; ``on_lost`` when a connection that got so far has ended.
    ``count`` gets ``mqtt_connects``, ``mqtt_losses`` and ``mqtt_incoming_dropped``.
    """

    def __init__(
        self,
        address: BrokerAddress,
        client_id: str,
        *,
        subscriptions: Sequence[str],
        on_message: OnMessage,
        on_connected: Callable[[], Awaitable[None]],
        on_lost: Callable[[], None],
        count: Callable[[str], None],
        will: Will | None = None,
        incoming: int = 1000,
        keepalive_seconds: int = 30,
        name: str = "mqtt",
        clock: Clock | None = None,
    ) -> None:
        self.address = address
        self.name = name
        self._client_id = client_id
        self._subscriptions = list(subscriptions)
        self._on_message = on_message
        self._on_connected = on_connected
        self._on_lost = on_lost
        self._count = count
        self._will = will
        self._incoming = incoming
        self._keepalive_seconds = keepalive_seconds
        self._clock = clock or Clock()
        self._client: Client | None = None
        self._window = asyncio.Semaphore(PUBLISHES_UNDER_WAY)
        self._lookup = NameLookup()
        self._tls: tuple[BrokerAddress, ssl.SSLContext] | None = None
        self._login_refused = False
        self._handled = 0
        self._progress = (0, self._clock.monotonic())
        self._attempted = self._clock.monotonic()
        self.backlog = Backlog(self._clock)
        """How this end keeps up with what the broker sends it."""
        self.state = LinkState(connected=False, since=self._clock.wall())

    async def run(self) -> None:
        """Connect, serve and connect again, for ever. Ends cleanly (no will is published) when it is cancelled."""
        backoff = Backoff(RECONNECT_FIRST_SECONDS, limits.RECONNECT_CEILING_SECONDS)
        while True:
            began = self._attempted = self._clock.monotonic()
            error = await self._connect_and_serve()
            self.backlog.emptied()
            if self._clock.monotonic() - began >= STEADY_SECONDS:
                backoff.reset()
            wait = backoff.next()
            self._note_failure(error, wait)
            await asyncio.sleep(wait)

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Hand a message to the broker at QoS 0; that is no proof that anyone has it. Raises ``NotConnected``.

        ``retain``: the broker keeps it for whoever subscribes later.
        """
        async with self._window:
            client = self._client
            if client is None:
                raise NotConnected(f"not connected to the broker at {self.address}", found=self.state.last_error)
            try:
                async with asyncio.timeout(PUBLISH_SECONDS):
                    await client.publish(topic, payload, qos=0, retain=retain)
            except TimeoutError:
                raise NotConnected(f"the broker at {self.address} took no message in {PUBLISH_SECONDS:g} s") from None
            except aiomqtt.MqttError as error:
                raise NotConnected(f"the broker at {self.address} did not take a message", found=str(error)) from error

    async def publish_many(self, messages: Iterable[tuple[str, bytes]]) -> int:
        """Hand over messages in order, giving other tasks their turns; returns how many. Raises ``NotConnected``."""
        done = 0
        for topic, payload in messages:
            await self.publish(topic, payload)
            done += 1
            if done % MESSAGES_PER_TURN == 0:
                await asyncio.sleep(0)
        return done

    async def stuck(self) -> str | None:
        """Why this link does not work any more; None while it does. Asks the broker, where there is one.

        A broker that is away is no reason: the link comes back when it does.
        """
        now, client = self._clock.monotonic(), self._client
        if client is None:
            idle = now - self._attempted
            most = STUCK_SECONDS + limits.RECONNECT_CEILING_SECONDS
            return f"no attempt to connect for {idle:.0f} s" if idle > most and not self.state.connected else None
        if self._handled != self._progress[0] or not client.queued:
            self._progress = (self._handled, now)
        elif now - self._progress[1] > STUCK_SECONDS:
            return f"{client.queued} messages wait, none was handled for {now - self._progress[1]:.0f} s"
        try:
            async with asyncio.timeout(PUBLISH_SECONDS):
                # Of what was never subscribed: it changes nothing, and is answered.
                await client.unsubscribe(NOTHING)
        except TimeoutError:
            return f"the broker at {self.address} gave no answer in {PUBLISH_SECONDS:g} s"
        except aiomqtt.MqttError:
            return None
        return None

    async def _connect_and_serve(self) -> str:
        """One connection from its start to its loss; returns why it was lost."""
        self._login_refused = False
        sock: socket.socket | None = None
        try:
            tls = await self._tls_context()
            sock = await self._dialled() if self.address.unix_socket is None else None
        except (OSError, AuthorityUnknown) as error:
            return _words(error)
        client = self._new_client(tls)
        client.connection = sock
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.__aenter__()
        except (aiomqtt.MqttError, OSError) as error:
            self._login_refused = isinstance(error, MqttConnectError) and _code(error.rc) in _LOGIN_REFUSED
            client.drop()
            return _words(error)
        except BaseException:
            client.drop()
            raise
        told = False
        try:
            await self._subscribe(client)
            self._client = client
            self.state = LinkState(connected=True, since=self._clock.wall())
            self._count("mqtt_connects")
            log.info("connected link=%s broker=%s", self.name, self.address)
            told = True
            await self._on_connected()
            await self._serve(client)
        except (aiomqtt.MqttError, NotConnected) as error:
            return f"{error.__cause__ or error}"
        except asyncio.CancelledError:
            self._client = None
            with contextlib.suppress(aiomqtt.MqttError, TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await client.__aexit__(None, None, None)
            raise
        finally:
            self._client = None
            client.drop()
            if told:
                self.state = replace(self.state, connected=False, since=self._clock.wall())
                self._count("mqtt_losses")
                self._on_lost()

    async def _tls_context(self) -> ssl.SSLContext | None:
        """What to connect with where the broker speaks TLS; looked up once for each address."""
        address = self.address
        if not address.authority:
            return None
        if self._tls is None or self._tls[0] != address:
            plain = await self._dialled()
            context = await asyncio.to_thread(context_for, plain, address.host, address.port, address.authority)
            self._tls = (address, context)
        return self._tls[1]

    async def _dialled(self) -> socket.socket:
        """A connection to the broker. Raises ``OSError``."""
        async with asyncio.timeout(CONNECT_SECONDS):
            sock = await dial(self.address.host, self.address.port, self._lookup)
        sock.settimeout(CONNECT_SECONDS)
        return sock

    async def _subscribe(self, client: Client) -> None:
        if not self._subscriptions:
            return
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                granted = await client.subscribe([(topic, 0) for topic in self._subscriptions])
        except TimeoutError:
            raise NotConnected(f"the broker granted no subscription in {CONNECT_SECONDS:g} s") from None
        codes = [code if isinstance(code, int) else code.value for code in granted]
        for topic, code in zip(self._subscriptions, codes, strict=True):
            if code >= _SUBSCRIPTION_REFUSED:
                raise NotConnected(f"the broker refused the subscription to {topic}")

    async def _serve(self, client: Client) -> NoReturn:
        messages = client.messages
        while True:
            message: aiomqtt.Message | None = await anext(messages)
            # The client's iterator costs a task for each message; what has queued meanwhile is taken without it.
            self.backlog.taken()
            while message is not None:
                waiting = self._on_message(message.topic.value, message.payload)
                if waiting is not None:
                    await waiting
                self._handled += 1
                if self._handled % MESSAGES_PER_TURN == 0:
                    await asyncio.sleep(0)
                message = client.next_queued()
            self.backlog.emptied()

    def _note_failure(self, error: str, wait: float) -> None:
        self.state = replace(
            self.state,
            connected=False,
            last_error=error,
            next_attempt=self._clock.wall() + wait,
            attempts=self.state.attempts + 1,
            login_refused=self._login_refused,
        )
        log.warning(
            "not connected link=%s broker=%s error=%r attempts=%d next_attempt_seconds=%.1f",
            self.name,
            self.address,
            error,
            self.state.attempts,
            wait,
        )

    def _new_client(self, tls: ssl.SSLContext | None) -> Client:
        address = self.address
        will = self._will() if self._will is not None else None
        return Client(
            hostname=address.unix_socket or address.host,
            port=address.port,
            transport="unix" if address.unix_socket else "tcp",
            username=address.username,
            password=address.password,
            identifier=self._client_id,
            protocol=aiomqtt.ProtocolVersion.V311,
            clean_session=True,
            keepalive=self._keepalive_seconds,
            will=aiomqtt.Will(will[0], will[1], qos=0, retain=False) if will is not None else None,
            # Without a limit of its own: it would use asyncio.wait_for, which on Python 3.11 swallows a cancellation
            # that comes with the answer. The limits are set around the calls instead.
            timeout=math.inf,
            max_queued_incoming_messages=self._incoming,
            queue_type=counting_queue(self._count),
            socket_options=() if address.unix_socket else (_NO_DELAY,),
            tls_context=tls,
        )


def _words(error: Exception) -> str:
    """Why there is no connection."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    return str(error) or f"no answer in {CONNECT_SECONDS:g} s"


def _code(code: object) -> object:
    """A return code of the broker as a number."""
    return getattr(code, "value", code)
