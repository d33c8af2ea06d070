"""What a site says upward, signed by the site: one signature for a batch of items, and with each item its own proof.

A relay takes batches apart and sends the items on in batches of its own. The proof of an item therefore stands alone:
it has the signed batch, which holds the root of a hash tree, and the item's place and path in that tree. It also holds
the identity of the item: the site, the epoch of its store, the stream and the sequence there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.protocol.proven import PROOF_BYTES
from device_agent.trust import codec, cose, hash_tree
from device_agent.trust.addressees import take_site
from device_agent.trust.claims import AUD, COUNT, IAT, NONCE, ROOT, STORE, STREAM, only, take, take_matching, take_time
from device_agent.trust.cose import FindKey
from device_agent.trust.keys import SigningKey

BATCH_TYP: Final = "os-bat"
BATCH_ITEMS: Final = 64
"""Items under one signature."""

SALT_BYTES: Final = 16
STORE_BYTES: Final = 8
STREAM_PATTERN: Final = r"^[a-z]{1,16}$(?!\n)"


@dataclass(frozen=True, slots=True)
class Batch:
    """A signed batch: who said it, when, and where its items stand in the site's store."""

    site: str
    kid: bytes
    issued: int
    salt: bytes = field(repr=False)
    store: str
    stream: str
    count: int
    root: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ItemProof:
    """The proof of one item as it was read; nothing of it is known to be true. ``batch`` is the signed batch."""

    batch: bytes = field(repr=False)
    sequence: int
    index: int
    path: bytes = field(repr=False)


def sign_batch(
    key: SigningKey,
    *,
    site: str,
    store: str,
    stream: str,
    issued: int,
    salt: bytes,
    items: Sequence[tuple[int, bytes]],
) -> list[bytes]:
    """Sign items of one stream; returns the proof of each. Raises ``Refused`` for a batch that no reader accepts."""
    if not 1 <= len(items) <= BATCH_ITEMS:
        raise Refused("claim_invalid", f"{len(items)} items in a batch")
    leaves = [hash_tree.leaf(salt, _content(sequence, body)) for sequence, body in items]
    root, paths = hash_tree.root_and_paths(salt, leaves)
    claims: dict[int, Any] = {
        AUD: site,
        IAT: issued,
        NONCE: salt,
        STORE: bytes.fromhex(store),
        STREAM: stream,
        COUNT: len(items),
        ROOT: root,
    }
    _from_claims(claims, key.kid)
    batch = cose.sign(key, BATCH_TYP, claims)
    return [
        codec.encode([batch, sequence, index, path])
        for index, ((sequence, _), path) in enumerate(zip(items, paths, strict=True))
    ]


def read_proof(body: bytes) -> ItemProof:
    """Take the proof of an item apart without believing it. Raises ``Refused``."""
    parts = codec.decode(body, limit=PROOF_BYTES)
    if type(parts) is not list or [type(part) for part in parts] != [bytes, int, int, bytes]:
        raise Refused("malformed", "a proof has a batch, a sequence, an index and a path")
    batch, sequence, index, path = parts
    if not (0 <= sequence < 2**63 and 0 <= index < BATCH_ITEMS):
        raise Refused("malformed", "a sequence or an index out of bounds")
    return ItemProof(batch, sequence, index, path)


def open_batch(body: bytes, find_key: FindKey) -> Batch:
    """Open a batch by a signer that counts. Raises ``Refused``."""
    signed = cose.open_signed(body, BATCH_TYP, find_key)
    return _from_claims(signed.claims, signed.kid)


def read_batch(body: bytes) -> Batch:
    """Read a batch without verifying it. Raises ``Refused``."""
    unverified = cose.read(body, BATCH_TYP)
    return _from_claims(unverified.claims, unverified.kid)


def check_item(batch: Batch, proof: ItemProof, item: bytes) -> None:
    """Check that an item is in a batch at the place that its proof names. Raises ``Refused``."""
    hashed = hash_tree.leaf(batch.salt, _content(proof.sequence, item))
    if hash_tree.root_of(batch.salt, hashed, proof.index, batch.count, proof.path) != batch.root:
        raise Refused("not_in_batch", f"item {proof.sequence} of {batch.stream} is not what {batch.site} signed")


def _content(sequence: int, body: bytes) -> bytes:
    return sequence.to_bytes(8, "big") + body


def _from_claims(claims: dict[int, Any], kid: bytes) -> Batch:
    only(claims, AUD, IAT, NONCE, STORE, STREAM, COUNT, ROOT)
    batch = Batch(
        site=take_site(claims),
        kid=kid,
        issued=take_time(claims, IAT),
        salt=take(claims, NONCE, bytes, size=SALT_BYTES),
        store=take(claims, STORE, bytes, size=STORE_BYTES).hex(),
        stream=take_matching(claims, STREAM, STREAM_PATTERN),
        count=take(claims, COUNT, int, most=BATCH_ITEMS),
        root=take(claims, ROOT, bytes, size=hash_tree.NODE_BYTES),
    )
    if not batch.count:
        raise Refused("claim_invalid", "a batch without items")
    return batch
