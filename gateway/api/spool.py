"""The spool in the API: the ledger of this station, of the sites below it, and a recount of the rows."""

from __future__ import annotations

import msgspec

from gateway.api.operation import Answer, Asked, Operation
from gateway.spool.drill import Drill
from gateway.spool.ledger import recount
from gateway.spool.queue import Spool
from gateway.spool.received import SiteLedgers
from gateway.store.aftermath import Aftermath
from gateway.store.trust_state import StoreTrust


class DrillRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the uplink is to be cut."""

    seconds: float


class SpoolApi:
    """Operations on the spool."""

    def __init__(self, spool: Spool, site_ledgers: SiteLedgers, drill: Drill, aftermath: Aftermath) -> None:
        self._spool = spool
        self._aftermath = aftermath
        self._drill = drill
        self._site_ledgers = site_ledgers

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation("GET", "/spool", "What waits for a master, and what became of everything else", self._show),
            Operation("GET", "/spool/verify", "The ledger beside a recount of the rows", self._verify),
            Operation(
                "POST",
                "/spool/drill",
                "Cut the uplink on purpose, for a time",
                self._begin_drill,
                body=DrillRequest,
                action="spool.drill",
            ),
            Operation("POST", "/spool/drill/end", "Mend it before its time", self._end_drill, action="spool.drill.end"),
            Operation(
                "POST",
                "/spool/acknowledge",
                "Acknowledge that the store lost what it had accepted",
                self._acknowledge,
                action="spool.acknowledge",
            ),
        ]

    async def _show(self, _: Asked) -> Answer:
        budgets = self._spool.budget.most
        return {
            "enabled": self._spool.enabled,
            "epoch": self._spool.epoch,
            "classes": [
                {
                    "class": entry.name,
                    "accepted": entry.accepted,
                    "delivered": entry.delivered,
                    "pending": entry.pending,
                    "pending_bytes": entry.pending_bytes,
                    "budget_bytes": budgets[entry.name],
                    "dropped": entry.dropped,
                }
                for entry in await self._spool.entries()
            ],
            "sites": await self._site_ledgers.views(),
            "drill": self._drill.view(),
        }

    async def _begin_drill(self, asked: Asked) -> Answer:
        return await self._drill.begin(asked.body.seconds, asked.user)

    async def _end_drill(self, asked: Asked) -> Answer:
        return await self._drill.end(asked.user)

    async def _acknowledge(self, asked: Asked) -> Answer:
        return {"store": _trust_view(await self._aftermath.acknowledge(asked.user))}

    async def _verify(self, _: Asked) -> Answer:
        found = await recount(self._spool.path)
        return {
            "equal": all(entry.equal for entry in found),
            "classes": [
                {
                    "class": entry.name,
                    "pending": entry.pending,
                    "pending_bytes": entry.pending_bytes,
                    "rows": entry.rows,
                    "rows_bytes": entry.rows_bytes,
                }
                for entry in found
            ],
            "store": _trust_view(self._aftermath.trust),
        }


def _trust_view(trust: StoreTrust) -> dict[str, object]:
    return {
        "state": trust.state,
        "at": trust.at,
        "words": trust.words(),
        "missing": trust.missing,
        "acknowledged": trust.acknowledged,
    }
