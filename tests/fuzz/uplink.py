"""Target: the frames between a site and its masters. What was accepted can be written again, and is accepted again."""

from __future__ import annotations

from tests.fuzz.choosing import Reader, accepted_again, chosen
from upstream.frames import decode_from_master, decode_from_site, decode_group_keys, encode


def _from_site(body: bytes) -> object:
    frame = decode_from_site(body)
    accepted_again(decode_from_site, encode(frame))
    return frame


def _from_master(body: bytes) -> object:
    frame = decode_from_master(body)
    accepted_again(decode_from_master, encode(frame))
    return frame


def _group_keys(body: bytes) -> object:
    keys = decode_group_keys(body)
    accepted_again(decode_group_keys, encode(keys))
    return keys


READERS: dict[str, Reader] = {
    "from_site": _from_site,
    "from_master": _from_master,
    "group_keys": _group_keys,
}


def read(body: bytes) -> object:
    """Any bytes."""
    return chosen(READERS, body)
