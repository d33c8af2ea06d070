"""Somebody on the line between a gateway and a stock Salt master: passes on, keeps, changes and makes things up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import zmq

from tests.peers.salt_master import SaltMaster

LOOPBACK = "tcp://127.0.0.1"
SAYS = "inproc://says"
SUBSCRIBES = b"\x01"
MESSAGES = 1000
"""Of those kept, the newest."""


class SaltBetween:
    """Its ports are those of a master for whoever is below."""

    def __init__(self, master: SaltMaster) -> None:
        self.bend: Callable[[bytes], bytes | None] = lambda reply: reply
        """Changes what the master replies; None: nothing comes."""
        self.published: list[list[bytes]] = []
        """What the master has published since."""
        self.replied: list[bytes] = []
        self.subscribed = 0
        """How often somebody has said that he wants to hear something: as often again over each new line."""
        self._context = zmq.Context()
        self._asked = self._context.socket(zmq.ROUTER)
        self._asks: dict[bytes, zmq.Socket[bytes]] = {}
        """A connection to the master for each of those below, as Salt's own clients have it."""
        self._hears = self._context.socket(zmq.XSUB)
        self._publishes = self._context.socket(zmq.XPUB)
        self._told, self._tells = self._context.socket(zmq.PULL), self._context.socket(zmq.PUSH)
        self.address = f"127.0.0.1:{self._asked.bind_to_random_port(LOOPBACK)}"
        self.publish_port = self._publishes.bind_to_random_port(LOOPBACK)
        self._master = f"tcp://{master.address}"
        self._hears.connect(f"{LOOPBACK}:{master.publish_port}")
        self._told.bind(SAYS)
        self._tells.connect(SAYS)

    def say(self, *frames: bytes) -> None:
        """Publish this as the master would."""
        self._tells.send_multipart(list(frames))

    def run(self) -> None:
        """Pass on, until told to end."""
        poller = zmq.Poller()
        for socket in (self._told, self._asked, self._hears, self._publishes):
            poller.register(socket, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._told in ready:
                frames = self._told.recv_multipart()
                if frames == [b""]:
                    return
                self._publishes.send_multipart(frames)
            if self._asked in ready:
                client, *frames = self._asked.recv_multipart()
                if client not in self._asks:
                    self._asks[client] = self._context.socket(zmq.DEALER)
                    self._asks[client].connect(self._master)
                    poller.register(self._asks[client], zmq.POLLIN)
                self._asks[client].send_multipart(frames)
            for client, asks in self._asks.items():
                if asks in ready:
                    self._reply(client, *asks.recv_multipart())
            if self._hears in ready:
                frames = self._hears.recv_multipart()
                self.published = [*self.published[-MESSAGES:], frames]
                self._publishes.send_multipart(frames)
            if self._publishes in ready:
                frames = self._publishes.recv_multipart()
                self.subscribed += frames[0].startswith(SUBSCRIBES)
                self._hears.send_multipart(frames)

    def _reply(self, client: bytes, empty: bytes, reply: bytes) -> None:
        self.replied = [*self.replied[-MESSAGES:], reply]
        bent = self.bend(reply)
        if bent is not None:
            self._asked.send_multipart([client, empty, bent])

    def end(self) -> None:
        self._tells.send(b"")

    def close(self) -> None:
        self._context.destroy(linger=0)


@contextmanager
def between(master: SaltMaster) -> Iterator[SaltBetween]:
    """On the line to this master while the block runs."""
    line = SaltBetween(master)
    thread = threading.Thread(target=line.run, name="salt-between", daemon=True)
    thread.start()
    try:
        yield line
    finally:
        line.end()
        thread.join(10)
        line.close()
