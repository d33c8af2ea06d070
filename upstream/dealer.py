"""The socket of a gateway's uplink."""

from __future__ import annotations

import zmq
import zmq.asyncio

from device_agent.protocol import limits
from upstream.curve import CurveKeys


class LinkLost(Exception):
    """The link to the current master is of no more use; the text says why."""


def connected_dealer(
    context: zmq.asyncio.Context, keys: CurveKeys, address: str, server_key: str
) -> zmq.asyncio.Socket:
    """A DEALER on its way to a master, with these keys; it takes no frame over the bound and notices a dead line.

    Raises ``LinkLost`` for an address or a key that is none.
    """
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.ipv6 = "[" in address
    socket.sndhwm = socket.rcvhwm = 1000
    socket.maxmsgsize = limits.UPLINK_FRAME_BYTES
    socket.curve_publickey = keys.public.encode("ascii")
    socket.curve_secretkey = keys.secret.encode("ascii")
    socket.heartbeat_ivl, socket.heartbeat_timeout, socket.heartbeat_ttl = 15_000, 45_000, 45_000
    try:
        socket.curve_serverkey = server_key.encode("ascii")
        socket.connect(address)
    except zmq.ZMQError as error:
        socket.close(linger=0)
        raise LinkLost(f"cannot connect to {address}: {error}") from None
    return socket
