"""The socket on which a station hears its sites."""

from __future__ import annotations

import zmq
import zmq.asyncio

from device_agent.protocol import limits
from device_agent.start_errors import start_error
from upstream.connection_watch import ConnectionWatch
from upstream.curve import ZAP_DOMAIN, CurveKeys

BACKLOG = 1024
"""Connections that wait to be accepted: in the shorter queue of libzmq a site does not get through a flood."""

HANDSHAKE_MILLISECONDS = 10_000


def bound_router(
    context: zmq.asyncio.Context, keys: CurveKeys, listen: str, connections: ConnectionWatch
) -> zmq.asyncio.Socket:
    """A ROUTER that listens with these keys, takes no frame over the bound and notices dead lines.

    Of how many frames a message is libzmq bounds not (docs/trust.md, limits).

    Raises ``ConfigInvalid`` when the address cannot be used.
    """
    socket = context.socket(zmq.ROUTER)
    socket.linger = 0
    socket.ipv6 = "[" in listen or "*:" in listen
    socket.router_mandatory = True
    socket.sndhwm = socket.rcvhwm = 1000
    socket.maxmsgsize = limits.UPLINK_FRAME_BYTES
    socket.curve_server = True
    socket.curve_secretkey = keys.secret.encode("ascii")
    socket.zap_domain = ZAP_DOMAIN.encode("ascii")
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    socket.heartbeat_ivl, socket.heartbeat_timeout, socket.heartbeat_ttl = 15_000, 45_000, 45_000
    socket.backlog, socket.handshake_ivl = BACKLOG, HANDSHAKE_MILLISECONDS
    connections.start(context, socket)
    try:
        socket.bind(listen)
    except zmq.ZMQError as error:
        socket.close(linger=0)
        # For a name that nobody resolves, and for an interface that is not there, ZeroMQ says ENODEV.
        raise start_error(
            OSError(error.errno, str(error)),
            "the address for sites cannot be used",
            where="sites.listen",
            found=f"{listen}: {error}",
            allowed="tcp://ADDRESS:PORT that is free on this machine",
            hint="see: ip address; choose another port, or stop what uses this one: ss -ltnp",
        ) from None
    return socket
