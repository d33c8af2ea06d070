"""Target: what the swarm's MQTT client reads. It gives the same packets whatever pieces they come in."""

from __future__ import annotations

from device_agent.errors import Refused
from device_agent.lean_mqtt import Packet, Parser


class Differs(AssertionError):
    """The pieces made a difference."""


def read(body: bytes) -> object:
    """Any bytes: the first is the length of the pieces in which the others come the second time."""
    if not body:
        raise Refused("malformed", "nothing at all")
    stream, length = body[1:], max(1, body[0])
    pieces = [stream[place : place + length] for place in range(0, len(stream), length)]
    whole, cut = _packets([stream]), _packets(pieces)
    if isinstance(whole, Refused) is not isinstance(cut, Refused):
        raise Differs(f"whole: {whole!r}, in pieces of {length}: {cut!r}")
    if isinstance(whole, Refused):
        raise whole
    if whole != cut:
        raise Differs(f"in pieces of {length}")
    return whole


def _packets(pieces: list[bytes]) -> list[Packet] | Refused:
    parser = Parser()
    try:
        return [packet for piece in pieces for packet in parser.feed(piece)]
    except Refused as refused:
        return refused
