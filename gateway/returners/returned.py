"""A return as returners get it: Salt's names, and our outcome beside them."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from device_agent.clock import stamp
from device_agent.protocol.messages import Job, OutcomeRecord
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.several import title
from gateway.jobs.record import called


class Returned(Struct, frozen=True):
    """What one device answered to a job. ``number`` is the row of its outcome."""

    number: int
    job: Job
    record: OutcomeRecord

    def fields(self) -> dict[str, Any]:
        """By Salt's names, as it gives a return to a returner."""
        job, record = self.job, self.record
        return {
            "jid": record.jid,
            "id": record.id,
            "fun": record.fun or title(job.fun, job.arg, job.kwarg),
            # What only a device may read is not told to others.
            "fun_args": [] if job.sealed else called(job)[1],
            "return": record.value,
            "retcode": record.retcode,
            "success": record.outcome is Outcome.OK,
            "user": job.user,
            "tgt": job.tgt,
            "tgt_type": job.tgt_type,
            "outcome": record.outcome.value,
            "why": record.why,
            "site": record.site,
            "_stamp": stamp(record.ended),
        }

    @property
    def key(self) -> str:
        """The same for the same return, however often it is sent."""
        return f"{self.record.jid}-{self.record.site}-{self.record.id}-{self.record.outcome.value}"


class NotReturned(Exception):
    """It could not be sent. ``final``: trying again is of no use."""

    def __init__(self, why: str, *, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


class Returner(Protocol):
    """Sends returns somewhere. ``most`` is how many at once."""

    most: int

    async def send(self, returns: list[Returned]) -> None:
        """All of them, or none of them counts as sent. Raises ``NotReturned``."""
