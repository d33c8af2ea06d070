"""Signs what this site says upward where a relay passes it on. Implements ``upstream.ports.Prover``."""

from __future__ import annotations

import secrets

from msgspec.structs import replace

from device_agent.errors import Refused
from device_agent.protocol.proven import signed_form, split_proof, with_proof
from device_agent.trust.batches import BATCH_ITEMS, SALT_BYTES, sign_batch
from gateway.devices.authority import Authority
from upstream.frames import DeviceRecord, Stream, encode_record

STORY = "story"
RECORDS = "records"


class SiteProver:
    """Signs with the site's key. A station that belongs to no fleet signs nothing: no master could verify it."""

    def __init__(self, site: str, authority: Authority) -> None:
        self._site = site
        self._authority = authority
        self._told = 0

    def items(self, epoch: str, stream: Stream, items: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Items of the spool, each with its proof; what a site below said keeps the proof it came with."""
        return self._proven(epoch, stream, items)

    def told(self, epoch: str, items: list[bytes]) -> list[bytes]:
        """Items of a job's story. Their numbers rise with the time, also across restarts."""
        first = max(self._told + 1, int(self._authority.now() * 1e6))
        self._told = first + len(items)
        return [body for _, body in self._proven(epoch, STORY, list(enumerate(items, start=first)))]

    def records(self, epoch: str, records: list[DeviceRecord]) -> list[DeviceRecord]:
        """Registry rows of this site, each beside its signed form. Rows of sites below keep what they came with."""
        own = [record for record in records if record.site == self._site]
        signed = self._proven(epoch, RECORDS, [(record.revision, encode_record(record)) for record in own])
        if not split_proof(signed[0][1])[1] if signed else True:
            return records
        proven = {record.id: body for record, (_, body) in zip(own, signed, strict=True)}
        return [
            replace(record, proven=proven[record.id]) if record.site == self._site else record for record in records
        ]

    def _proven(self, epoch: str, stream: str, items: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        if self._authority.anchor.root is None:
            return items
        proofs: dict[int, bytes] = {}
        unsigned: list[tuple[int, bytes]] = []
        for sequence, body in items:
            try:
                if not split_proof(body)[1]:
                    unsigned.append((sequence, signed_form(body)))
            except Refused:
                # A damaged row goes up as it is: the station above refuses it and counts it.
                continue
        for place in range(0, len(unsigned), BATCH_ITEMS):
            batch = unsigned[place : place + BATCH_ITEMS]
            signed = sign_batch(
                self._authority.signing,
                site=self._site,
                store=epoch,
                stream=stream,
                issued=int(self._authority.now()),
                salt=secrets.token_bytes(SALT_BYTES),
                items=batch,
            )
            proofs |= {sequence: proof for (sequence, _), proof in zip(batch, signed, strict=True)}
        return [
            (sequence, with_proof(body, proofs[sequence]) if sequence in proofs else body) for sequence, body in items
        ]
