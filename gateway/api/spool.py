"""The spool in the API: the ledger of this station, of the sites below it, and a recount of the rows."""

from __future__ import annotations

from gateway.api.operation import Answer, Asked, Operation
from gateway.spool.ledger import recount
from gateway.spool.queue import Spool
from gateway.spool.received import SiteLedgers


class SpoolApi:
    """Operations on the spool."""

    def __init__(self, spool: Spool, site_ledgers: SiteLedgers) -> None:
        self._spool = spool
        self._site_ledgers = site_ledgers

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation("GET", "/spool", "What waits for a master, and what became of everything else", self._show),
            Operation("GET", "/spool/verify", "The ledger beside a recount of the rows", self._verify),
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
        }

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
        }
