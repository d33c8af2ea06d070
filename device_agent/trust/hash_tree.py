"""Salted Merkle trees: one short hash stands for a batch of items, and a path shows that an item is among them.

The tree is that of RFC 9162, section 2.1: leaves and inner nodes are hashed with different prefixes, and the left part
of a tree is the largest power of two that leaves something for the right part. A random salt, drawn after the items are
fixed, is hashed with each node (randomized hashing, NIST SP 800-106), so 16 bytes of SHA-256 are enough: the author of
an item cannot search for two items with one hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from device_agent.errors import Refused

NODE_BYTES: Final = 16


def leaf(salt: bytes, content: bytes) -> bytes:
    """Hash one item."""
    return hashlib.sha256(b"\0" + salt + content).digest()[:NODE_BYTES]


def root_and_paths(salt: bytes, leaves: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """Hash a tree of at least one leaf.

    Returns:
        The root, and for each leaf the hashes beside the way from it to the root, lowest first.
    """
    if len(leaves) == 1:
        return leaves[0], [b""]
    cut = _left_part(len(leaves))
    left, left_paths = root_and_paths(salt, leaves[:cut])
    right, right_paths = root_and_paths(salt, leaves[cut:])
    paths = [path + right for path in left_paths] + [path + left for path in right_paths]
    return _node(salt, left, right), paths


def root_of(salt: bytes, hashed: bytes, index: int, count: int, path: bytes) -> bytes:
    """Hash the way from a leaf to its root. Raises ``Refused`` for a path that no tree of this size has."""
    if count == 1:
        if index or path:
            raise Refused("malformed", "a path beside a single item")
        return hashed
    cut = _left_part(count)
    beside, rest = path[-NODE_BYTES:], path[:-NODE_BYTES]
    if not 0 <= index < count or len(beside) != NODE_BYTES:
        raise Refused("malformed", "a path of another length")
    if index < cut:
        return _node(salt, root_of(salt, hashed, index, cut, rest), beside)
    return _node(salt, beside, root_of(salt, hashed, index - cut, count - cut, rest))


def _left_part(count: int) -> int:
    return 1 << ((count - 1).bit_length() - 1)


def _node(salt: bytes, left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + salt + left + right).digest()[:NODE_BYTES]
