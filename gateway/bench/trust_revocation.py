"""A revocation, for ``bench trust``: a new list, what all are told, and another group key for each device left."""

from __future__ import annotations

import secrets

from device_agent.trust.chain import Anchor
from device_agent.trust.epochs import GROUP_KEY_BYTES, open_epoch, seal_epoch
from device_agent.trust.notices import bundle, read_bundle
from device_agent.trust.revocations import sign_revocations
from gateway.bench.trust_fleet import EPOCH, SITE, Fleet, new_keys
from gateway.bench.trust_sizes import of_proofs
from gateway.bench.trust_turn import Turn, Watch


class Revocation:
    """A site that puts one device out, and the devices that are left."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._group_key = b""

    def turn(self, turn: Turn, watch: Watch) -> None:
        """The ``first`` turn begins with the device that goes; all others of all turns are left."""
        fleet = self._fleet
        gone = new_keys().sig.kid
        left = [new_keys() for _ in range(turn.count - turn.first)]
        if turn.first:
            self._group_key = secrets.token_bytes(GROUP_KEY_BYTES)
        told, bodies = b"", []
        with watch.on("revocation"):
            if turn.first:
                told = self._list(gone)
            bodies += [
                seal_epoch(
                    fleet.site.sig,
                    device=keys.did,
                    site=SITE,
                    issued=fleet.now,
                    epoch=EPOCH + 1,
                    revocation=True,
                    group_key=self._group_key,
                    kem_public=keys.kem.public,
                )
                for keys in left
            ]
        anchor = fleet.anchor()
        if turn.first:
            watch.ok(self._is_out(anchor, told, gone), "revocation")
            watch.made(of_proofs(revocations=read_bundle(told).revocations[0]))
        opened = [
            open_epoch(
                body, lambda kid: anchor.issuer(kid, "epoch", SITE, fleet.now), keys.kem, device=keys.did, site=SITE
            )
            for body, keys in zip(bodies, left, strict=True)
        ]
        watch.ok(sum(epoch.key == self._group_key and epoch.revocation for epoch in opened), "revocation")
        if bodies:
            watch.made(of_proofs(epoch=bodies[0]))

    def _list(self, gone: bytes) -> bytes:
        """As ``gateway.devices.revocation`` and the downlink's retained message do it."""
        fleet = self._fleet
        listed = sign_revocations(fleet.site.sig, version=1, kids=[gone], issued=fleet.now, site=SITE)
        return bundle(fleet.root_lists, [fleet.site_certificate], fleet.prekey_body, [listed])

    def _is_out(self, anchor: Anchor, told: bytes, gone: bytes) -> bool:
        """Whether who reads the retained message takes the list, and the device for revoked."""
        for body in read_bundle(told).revocations:
            anchor.take_revocations(body)
        return anchor.device_revoked(gone, SITE)
