"""Registry rows that a relay brings of the sites behind it: what the site signed counts, not what the relay says.

A relay numbers the rows itself, and may say that a device is not here, which is withholding. All else is taken out of
the signed row. An older signed row is refused: the newest one is kept beside the device.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from device_agent.errors import Refused
from device_agent.protocol.proven import split_proof
from device_agent.trust.batches import read_batch, read_proof
from gateway.devices.site_prover import RECORDS
from gateway.metrics import Metrics
from gateway.spool.evidence import Evidence, Evidences
from gateway.store.reader import Reader
from gateway.store.writer import Statement
from upstream.frames import DeviceRecord, decode_record

_SET = "UPDATE devices SET proven = ? WHERE site = ? AND id = ? AND link = ?"


class ProvenRecords:
    """Judges the rows of one page."""

    def __init__(self, *, evidences: Evidences, reader: Reader, metrics: Metrics) -> None:
        self._evidences = evidences
        self._reader = reader
        self._metrics = metrics

    async def judged(
        self, link: str, records: Sequence[DeviceRecord], *, passes_on: bool
    ) -> tuple[list[DeviceRecord], list[Statement]]:
        """The rows that are taken, and the statements that keep their proofs, for the commit that keeps the rows."""
        await self._evidences.load()
        taken: list[DeviceRecord] = []
        for record in records:
            try:
                taken.append(record if record.site == link else await self._believed(link, record))
            except Refused as refusal:
                self._evidences.refused(record.site, link, refusal.reason)
                self._metrics.refused("uplink", refusal.reason, link, f"device {record.id} of {record.site}")
        kept = [
            (record.proven or None, record.site, record.id, link)
            for record in taken
            if passes_on or record.site != link
        ]
        return taken, [(_SET, kept), *self._evidences.changed()]

    async def _believed(self, link: str, record: DeviceRecord) -> DeviceRecord:
        body, proof = split_proof(record.proven) if record.proven else (b"", b"")
        evidence = self._evidences.of(record.site, link, body, proof)
        if evidence is None:
            if self._evidences.must_prove(record.site):
                raise Refused("unproven")
            self._evidences.unproven(record.site, link)
            return replace(record, proven=b"")
        said = decode_record(body)
        if (said.site, said.id, said.revision, evidence.stream) != (
            record.site,
            record.id,
            evidence.sequence,
            RECORDS,
        ):
            raise Refused("not_in_batch", f"a proof of another row than that of {record.id}")
        await self._need_newest(said, evidence)
        return replace(said, revision=record.revision, present=said.present and record.present, proven=record.proven)

    async def _need_newest(self, said: DeviceRecord, evidence: Evidence) -> None:
        rows = await self._reader.rows("SELECT proven FROM devices WHERE site = ? AND id = ?", (said.site, said.id))
        if not rows or not rows[0][0]:
            return
        read = read_proof(split_proof(bytes(rows[0][0]))[1])
        # What is on disk was verified when it came.
        known = read_batch(read.batch)
        older = read.sequence > evidence.sequence if known.store == evidence.store else known.issued > evidence.issued
        if older:
            raise Refused("repeated", f"an older row of {said.id}")
