"""What a site says upward, signed, as seeds: a batch, the proof of an item, and an item with its proof."""

from __future__ import annotations

from device_agent.protocol.messages import Event, encode
from device_agent.protocol.proven import with_proof
from device_agent.trust.batches import read_proof, sign_batch
from tests.fuzz import world
from tests.peers.fleet import SITE

(PROOF,) = sign_batch(
    world.FLEET.site.key,
    site=SITE,
    store="0123456789abcdef",
    stream="returns",
    issued=world.NOW,
    salt=world.SALT,
    items=[world.SAID],
)
BATCH = read_proof(PROOF).batch
PROVEN = with_proof(encode(Event(tag="door/1", data={"open": True}, stamp=1.5, site=SITE)), PROOF)
