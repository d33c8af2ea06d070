"""Both ends of the rope as a test holds them: the real parts, and ends that the test plays itself."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import zmq
import zmq.asyncio

from device_agent.clock import Clock
from device_agent.protocol.messages import encode_value
from tests.peers.ports import EPOCH, SECONDS, Above, Below
from upstream import frames
from upstream.curve import CurveKeys
from upstream.frames import FromMaster, FromSite
from upstream.ports import Answering, Prover, StoryTeller
from upstream.sites import Sites
from upstream.uplink import MasterAddress, Uplink, UplinkRules

ECHO_SECONDS = 0.1

PATIENT_SECONDS = 60.0
"""So long a master may be silent where its silence is not what a test is about, however busy the machine is."""

SILENT_SECONDS = 1.0
"""After so long its silence is noticed where it is; a test must bear that the link is lost more often than that."""

SPOKEN_EVERY_SECONDS = 1.0
"""What a test's own site says while the test does something else; a master waits far longer."""

Frame = TypeVar("Frame")
Done = TypeVar("Done")

_ENDS = {
    event.to_bytes(2, sys.byteorder)
    for event in (
        zmq.EVENT_DISCONNECTED,
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
        zmq.EVENT_HANDSHAKE_FAILED_AUTH,
    )
}


def new_keys() -> CurveKeys:
    """Keys that nobody knows yet."""
    public, secret = (part.decode("ascii") for part in zmq.curve_keypair())
    return CurveKeys(public, secret)


def sites_part(
    above: Above,
    keys: CurveKeys,
    *,
    listen: str = "tcp://127.0.0.1:*",
    clock: Clock | None = None,
    answers: Answering | None = None,
) -> Sites:
    """The master's end, on a port the kernel chooses."""
    return Sites(
        station="central",
        listen=listen,
        keys=keys,
        admission=above,
        inbox=above,
        watch=above,
        refusals=above,
        clock=clock or Clock(),
        answers=answers,
    )


def uplink_part(
    below: Below,
    *masters: MasterAddress,
    keys: CurveKeys | None = None,
    site: str = "lisbon",
    echo_seconds: float = ECHO_SECONDS,
    stories: StoryTeller | None = None,
    prover: Prover | None = None,
    **rules: Any,
) -> Uplink:
    """The gateway's end; ``rules`` are those of ``UplinkRules``. No link is lost for silence unless they say when."""
    rules = {"master_alive_interval": PATIENT_SECONDS, **rules}
    return Uplink(
        site=site,
        keys=keys or new_keys(),
        masters=masters,
        echo_seconds=echo_seconds,
        outgoing=below,
        roll=below.roll,
        intake=below,
        refusals=below,
        clock=Clock(),
        stories=stories,
        prover=prover,
        rules=UplinkRules(**rules),
    )


def connected(uplink: Uplink) -> bool:
    """Whether it says so."""
    return bool(uplink.status()["state"] == "connected")


class PlayedSite:
    """A DEALER in the hands of a test: anything can be sent, and what comes back is kept."""

    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self.socket = socket
        self.news: zmq.asyncio.Socket = socket.get_monitor_socket()
        """What becomes of the connection (zmq_socket_monitor(3))."""
        self.heard: list[FromMaster] = []

    async def say(self, *sent: FromSite | bytes) -> None:
        """Each as a message of its own; bytes go as they are."""
        for frame in sent:
            async with asyncio.timeout(SECONDS):
                await self.socket.send(frame if isinstance(frame, bytes) else frames.encode(frame))

    async def hello(self, site: str = "lisbon", epoch: str = EPOCH, **changed: Any) -> None:
        """The first words."""
        fields: dict[str, Any] = {"protocol": frames.PROTOCOL, "site": site, "epoch": epoch, "release": "0", **changed}
        await self.say(frames.SiteHello(**fields))

    async def try_hello(self, site: str = "lisbon") -> None:
        """Speak without having been let in; returns when the connection has ended."""
        with suppress(zmq.Again):
            await self.socket.send(
                frames.encode(frames.SiteHello(protocol=frames.PROTOCOL, site=site, epoch=EPOCH, release="0")),
                flags=zmq.NOBLOCK,
            )
        await self.ended()

    async def ended(self) -> None:
        """Wait until the connection has ended; it is not made again, so what is said afterwards would wait for ever."""
        async with asyncio.timeout(SECONDS):
            while (await self.news.recv_multipart())[0][:2] not in _ENDS:
                pass

    async def hears(self, kind: type[Frame]) -> Frame:
        """The next frame of this kind; others are kept in ``heard``."""
        async with asyncio.timeout(SECONDS):
            while True:
                frame = frames.decode_from_master(await self.socket.recv())
                self.heard.append(frame)
                if isinstance(frame, kind):
                    return frame

    async def speaks_while(self, act: Callable[[], Done]) -> Done:
        """Do what blocks, beside this loop: it says echoes meanwhile as a gateway does, since who is silent is dark."""
        async with asyncio.TaskGroup() as group:
            acting = group.create_task(asyncio.to_thread(act))
            while not acting.done():
                await self.say(frames.Echo(0))
                await asyncio.wait({acting}, timeout=SPOKEN_EVERY_SECONDS)
        return acting.result()

    async def hears_nothing_before_the_echo(self) -> list[FromMaster]:
        """What came in front of an echo's answer."""
        before = len(self.heard)
        await self.say(frames.Echo(4711))
        await self.hears(frames.EchoReply)
        return self.heard[before:-1]


@asynccontextmanager
async def played_site(
    address: str, server_key: str, keys: CurveKeys | None = None, *, curve: bool = True
) -> AsyncIterator[PlayedSite]:
    """A connection to a master; without ``curve`` it brings no keys at all."""
    mine = keys or new_keys()
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    # A connection that was refused is not tried again: a test counts what it caused.
    socket.reconnect_ivl = -1
    if curve:
        socket.curve_serverkey = server_key.encode("ascii")
        socket.curve_publickey = mine.public.encode("ascii")
        socket.curve_secretkey = mine.secret.encode("ascii")
    # It listens to the news before there are any.
    site = PlayedSite(socket)
    socket.connect(address)
    try:
        yield site
    finally:
        context.destroy(linger=0)


class PlayedMaster:
    """A ROUTER in the hands of a test. Everything that sites say is kept; it answers as it is told."""

    def __init__(self, socket: zmq.asyncio.Socket, keys: CurveKeys) -> None:
        self._socket = socket
        self.keys = keys
        self.heard: list[FromSite] = []
        self.hellos = 0
        self.answers = True
        """Whether it answers at all; a frozen program whose machine still acknowledges answers nothing."""
        self.welcome: FromMaster = frames.SiteWelcome("played", {}, 0)
        self.first_welcomes: list[FromMaster] = []
        """What the first hellos are answered, before all others are answered ``welcome``."""
        self.confirms = True
        self.newest = b""

    @property
    def address(self) -> MasterAddress:
        """As an entry of ``masters``."""
        return MasterAddress(self._socket.getsockopt_string(zmq.LAST_ENDPOINT), self.keys.public)

    @property
    def roles(self) -> list[bool]:
        """What sites said it is, each time: active or not."""
        return [frame.active for frame in self.heard if isinstance(frame, frames.SiteRole)]

    def batches(self) -> list[frames.Batch]:
        """What came of the spool."""
        return [frame for frame in self.heard if isinstance(frame, frames.Batch)]

    async def say(self, *sent: FromMaster | bytes | list[bytes]) -> None:
        """To whoever said hello last; bytes go as they are, a list as one message of several frames."""
        for frame in sent:
            parts = frame if isinstance(frame, list) else [frame if isinstance(frame, bytes) else frames.encode(frame)]
            async with asyncio.timeout(SECONDS):
                await self._socket.send_multipart([self.newest, *parts])

    async def goes_away(self) -> None:
        """It is lost at once, and answers nothing until it is told to again."""
        self.answers = False
        await self.say(frames.HelloAgain())

    async def run(self) -> None:
        """Hear and answer until cancelled."""
        while True:
            identity, body = await self._socket.recv_multipart()
            frame = frames.decode_from_site(body)
            self.heard.append(frame)
            if isinstance(frame, frames.SiteHello):
                self.newest = identity
                self.hellos += 1
            if not self.answers:
                continue
            match frame:
                case frames.SiteHello():
                    await self.say(self.first_welcomes.pop(0) if self.first_welcomes else self.welcome)
                case frames.Echo(nonce=nonce):
                    await self.say(frames.EchoReply(nonce))
                case frames.Batch(epoch=epoch, stream=stream, items=items) if self.confirms:
                    await self.say(frames.Confirmed(epoch, stream, items[-1][0]))
                case frames.DeviceRecords(records=records) if self.confirms:
                    await self.say(frames.RecordsConfirmed(records[-1].revision))
                case _:
                    pass


@asynccontextmanager
async def played_master(keys: CurveKeys | None = None) -> AsyncIterator[PlayedMaster]:
    """A master that lets everybody in, until it is told otherwise."""
    mine = keys or new_keys()
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.ROUTER)
    socket.linger = 0
    socket.curve_server = True
    socket.curve_secretkey = mine.secret.encode("ascii")
    socket.bind("tcp://127.0.0.1:*")
    master = PlayedMaster(socket, mine)
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(master.run())
            try:
                yield master
            finally:
                running.cancel()
    finally:
        context.destroy(linger=0)


class Master:
    """The real end above, with its keys and its ports."""

    def __init__(self, above: Above, clock: Clock | None = None, answers: Answering | None = None) -> None:
        self.above = above
        self.keys = new_keys()
        self.part: Sites = sites_part(above, self.keys, clock=clock, answers=answers)

    @property
    def address(self) -> MasterAddress:
        return MasterAddress(self.part.address, self.keys.public)

    @asynccontextmanager
    async def site(
        self, *, accepted: bool = True, hello: bool = True, name: str = "lisbon"
    ) -> AsyncIterator[PlayedSite]:
        """A connection that the test plays; accepted and welcome unless told otherwise."""
        keys = new_keys()
        if accepted:
            self.above.states[keys.public] = "accepted"
        async with played_site(self.part.address, self.keys.public, keys) as played:
            if hello:
                await played.hello(name)
                if accepted:
                    await played.hears(frames.SiteWelcome)
            yield played


@asynccontextmanager
async def master_of(
    above: Above, clock: Clock | None = None, answers: Answering | None = None
) -> AsyncIterator[Master]:
    made = Master(above, clock, answers)
    async with made.part:
        yield made


def record(number: int, **changed: Any) -> frames.DeviceRecord:
    """What a site says of one of its devices."""
    given: dict[str, Any] = {
        "id": f"cam-{number}",
        "site": "lisbon",
        "link": "mqtt",
        "agent": "0.1.0",
        "grains": encode_value({"number": number}),
        "present": True,
        "first_seen": 1.0,
        "last_seen": 2.0,
        "revision": number,
        **changed,
    }
    return frames.DeviceRecord(**given)


def accept_all(above: Above) -> None:
    """Accept whoever asked so far."""
    for key in above.states:
        above.states[key] = "accepted"
