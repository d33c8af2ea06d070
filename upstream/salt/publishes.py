"""What a Salt master publishes: who said it, and what it says. Pure.

The key of the box is the same for all minions of a master, so a good MAC says only that one of them made it. Hence the
master's own signature is looked at first, and nothing without one is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from device_agent.errors import Refused
from upstream.salt import wire
from upstream.salt.box import Box
from upstream.salt.rsa_keys import MasterKey

PUBLISH_BYTES: Final = 4 * 1024 * 1024
"""The largest publish: a list of 20,000 ids and what goes with it."""

TOPICS: Final = (b"broadcast", b"syndic")
"""Of a master that names topics. It sends a copy of a job for each minion that it means as well; those are not ours."""

_MAP_HEADS: Final = tuple(bytes([head]) for head in range(0x80, 0x90))

SUBSCRIPTIONS: Final = (*TOPICS, *_MAP_HEADS)
"""By what a message begins with: a topic, or, from a master that names none, a short map."""


def signed_box(frames: Sequence[bytes], master: MasterKey) -> bytes:
    """The box in a publish, once it is known to be the master's.

    Raises ``Refused``: ``unsigned``, ``bad_signature``, ``unknown_algorithm``, ``too_large``, ``malformed``.
    """
    if not (len(frames) == 1 or (len(frames) == 2 and frames[0] in TOPICS)):
        raise Refused("malformed", f"a publish of {len(frames)} frames")
    outer = wire.as_fields(wire.envelope(frames[-1], PUBLISH_BYTES))
    if outer.get(b"enc") != b"aes":
        raise Refused("malformed", "a publish that is not encrypted")
    if b"sig" not in outer:
        raise Refused("unsigned", "set sign_pub_messages: True on the master")
    box = wire.binary(outer, "load")
    algorithm = wire.text(outer, "sig_algo") if b"sig_algo" in outer else "PKCS1v15-SHA1"
    master.verify(algorithm, wire.binary(outer, "sig"), box)
    return box


def opened(sealed: bytes, aes: Box) -> dict[str, Any]:
    """What is in it, with ``wire.Unreadable`` for a field that cannot be read.

    Raises ``Refused``: ``bad_mac`` when the master has another key by now, ``malformed``, ``too_large``.
    """
    load = wire.texts(wire.readable_fields(aes.open(sealed), PUBLISH_BYTES))
    if not isinstance(load, dict):
        raise Refused("malformed", "a publish that is no map")
    return load
