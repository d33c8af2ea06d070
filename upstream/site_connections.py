"""The connections at the port for sites: those of sites that said hello, and a bounded number of strangers."""

from __future__ import annotations

import errno
import resource
import socket
from collections import UserDict
from typing import Any, NamedTuple

import zmq

from upstream.connection_watch import ConnectionWatch
from upstream.networks import network_of
from upstream.peer import Peer
from upstream.ports import DoorRefusals

DOOR = "sites"
STRANGERS = 1024
"""Connections without a hello. Fewer where the station may open few files: an eighth of those."""

SHARE_OF_FILES = 8
PATIENCE_SECONDS = 120.0
"""A connection on which no hello was heard for so long is ended. The handshake itself has 10 s."""


class Source(NamedTuple):
    """From where a message came."""

    key: str
    """The CURVE key that ZAP let in."""
    address: str
    descriptor: int


class SiteConnections(ConnectionWatch):
    """Bounds the strangers at the port for sites."""

    def __init__(self, refusals: DoorRefusals) -> None:
        super().__init__(
            DOOR,
            most=strangers_now,
            holder_of=_network_at,
            refused=lambda reason, network: refusals.refused("uplink", reason, network),
            accept_failed=refusals.accept_failed,
            patience_seconds=PATIENCE_SECONDS,
        )


class Peers(UserDict[bytes, Peer]):
    """The peers that said hello, by routing id. Their connections are known, all others are a stranger's."""

    def __init__(self, connections: ConnectionWatch) -> None:
        self._connections = connections
        super().__init__()

    def __setitem__(self, identity: bytes, peer: Peer) -> None:
        super().__setitem__(identity, peer)
        self._connections.known(peer.descriptor)

    def __delitem__(self, identity: bytes) -> None:
        peer = self.data[identity]
        super().__delitem__(identity)
        self._connections.unknown(peer.descriptor)


def source_of(frame: Any) -> Source:
    """From where a frame came. Raises ``zmq.ZMQError`` for one without a key."""
    address = str(frame.get("Peer-Address")).removeprefix("::ffff:")
    return Source(str(frame.get("User-Id")), address, int(frame.get(zmq.SRCFD)))


def strangers_now() -> int:
    """How many there may be, as many files as the process may open now."""
    return min(STRANGERS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE_OF_FILES)


def _network_at(connection: socket.socket) -> str:
    """The network at the other end. Raises ``OSError`` for what is no connection over a network.

    A stranger may have hung up already, and the descriptor may be that of the API's socket by now.
    """
    if connection.family not in {socket.AF_INET, socket.AF_INET6}:
        raise OSError(errno.EAFNOSUPPORT, "no connection over a network")
    return network_of(str(connection.getpeername()[0]))
