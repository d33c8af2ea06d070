"""What Salt asks of a job while it waits, answered from the job table: no device is bothered for it.

``saltutil.find_job`` comes every few seconds for each device that has not answered. ``kill_job`` and its like stop what
has not started, for the master that ordered it and as far as they are granted to it; for what runs they go to the
devices as a job of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from device_agent.errors import NotFound, PolicyRefused
from device_agent.protocol.messages import Job
from device_agent.protocol.outcomes import State
from device_agent.protocol.several import title
from gateway.audit.book import AuditBook
from gateway.audit.deed import Deed
from gateway.devices.device import Device
from gateway.jobs.deliver import Delivery
from gateway.jobs.open_jobs import OpenJob, OpenJobs
from gateway.jobs.permission import Permission
from gateway.jobs.record import NOT_RUN_RETCODE
from gateway.jobs.seal import Sealer, public
from gateway.salt.answers import load_of
from gateway.salt.book import SaltBook
from upstream.salt.order import SaltOrder
from upstream.salt.ports import DeviceAnswer

FIND: Final = "saltutil.find_job"
ENDS: Final = frozenset({"saltutil.kill_job", "saltutil.term_job", "saltutil.signal_job"})
ASKED: Final = frozenset({FIND}) | ENDS
ORIGIN: Final = "salt"
"""What a Salt master may order is granted to this origin."""

DRAFT_SECONDS: Final = 60.0


class JobTable:
    """Answers for the devices."""

    def __init__(
        self,
        *,
        site: str,
        open_jobs: OpenJobs,
        delivery: Delivery,
        audit: AuditBook,
        book: SaltBook,
        sealer: Sealer,
        permission: Permission,
    ) -> None:
        self._site = site
        self._book = book
        self._sealer = sealer
        self._permission = permission
        self._open_jobs = open_jobs
        self._delivery = delivery
        self._audit = audit

    async def answer(
        self, order: SaltOrder, meant: Sequence[Device], kept_from: Mapping[str, str], who: str, master: str
    ) -> dict[str, DeviceAnswer] | None:
        """What each device that is meant would say; None when it is to be a job of its own, which may be refused.

        Raises ``StationFailed`` when a cancel could not be kept.
        """
        jid = _jid(order)
        parts = await self._parts(jid)
        if order.fun == FIND:
            found = {
                device.id: next(filter(None, (self._running(part, device) for part in parts)), {}) for device in meant
            }
            return {name: DeviceAnswer({**running, "jid": jid} if running else {}) for name, running in found.items()}
        if order.fun == "saltutil.signal_job" or not parts:
            return None if parts else {device.id: DeviceAnswer("") for device in meant}
        if kept_from:
            return {
                device.id: DeviceAnswer(f"refused: {kept_from[device.id]}", NOT_RUN_RETCODE, success=False)
                if device.id in kept_from
                else DeviceAnswer("")
                for device in meant
            }
        ids = {device.id for device in meant if device.site == self._site}
        if any(self._has_it(opened, name) for opened in parts for name in ids):
            return None
        if not self._granted(order, meant, who):
            # As a job of its own it is refused, audited and answered like any other.
            return None
        return await self._cancelled(jid, parts, ids, meant, who, master)

    async def aims(self, order: SaltOrder, meant: Sequence[Device]) -> dict[str, list[Device]]:
        """The devices by the jid that each knows of what is to be ended; nothing where all know it by the one given."""
        jid = _jid(order)
        parts = await self._parts(jid)
        found: dict[str, list[Device]] = {}
        for device in meant:
            has_it = (part.job.jid for part in parts if device.site == self._site and device.id in part.waiting)
            found.setdefault(next(has_it, jid), []).append(device)
        return {} if set(found) == {jid} else found

    async def _parts(self, jid: str) -> list[OpenJob]:
        """What is open of a job: all parts of a batch of 3008 have one jid there."""
        found = map(self._open_jobs.get, [jid, *await self._book.parts(jid)])
        return [opened for opened in found if opened is not None]

    def _granted(self, order: SaltOrder, meant: Sequence[Device], who: str) -> bool:
        """Whether every device that is meant would take this order itself."""
        now = self._sealer.now()
        ids = sorted({device.id for device in meant})
        draft = Job(
            jid=order.jid,
            tgt=",".join(ids),
            tgt_type="list",
            fun=str(order.fun),
            arg=order.arg,
            kwarg=order.kwarg,
            user=who,
            issued=now,
            expires=now + DRAFT_SECONDS,
            origin=ORIGIN,
        )
        try:
            self._sealer.may_issue(draft)
        except PolicyRefused:
            return False
        return self._permission.lets_above(draft, ids)

    async def _cancelled(
        self, jid: str, parts: Sequence[OpenJob], ids: set[str], meant: Sequence[Device], who: str, master: str
    ) -> dict[str, DeviceAnswer]:
        """Nobody who is meant has begun: stop the job, if it is an order of this Salt master and nobody else waits."""
        why = ""
        orders = [await self._book.get(opened.job.jid) for opened in parts]
        if any(opened.job.origin == "" for opened in parts):
            why = f"job {jid} was not ordered by a Salt master; cancel it on the gateway"
        elif any(order is None or order.master != master for order in orders):
            why = f"job {jid} was ordered by another Salt master; cancel it there, or on the gateway"
        elif {name for opened in parts for name in opened.waiting} - ids:
            why = f"job {jid} waits for others as well; name all of its devices"
        if why:
            refused = DeviceAnswer(f"refused: {why}", NOT_RUN_RETCODE, success=False)
            return {device.id: refused for device in meant}
        stopped: set[str] = set()
        for opened in parts:
            stopped |= await self._stop(opened, who)
        says = f"Job {jid} is cancelled, it had not started"
        return {device.id: DeviceAnswer(says if device.id in stopped else "") for device in meant}

    async def _stop(self, opened: OpenJob, who: str) -> set[str]:
        """Cancel a job; the devices that waited for it. Raises ``StationFailed``."""
        job, waiting = opened.job, set(opened.waiting)
        fun = title(job.fun, job.arg, job.kwarg)
        deed = Deed(user=who, door="salt", action="cancel", subject=job.tgt, verdict="allow", jid=job.jid, fun=fun)
        try:
            await self._delivery.cancel(job.jid, self._audit.statements([deed]))
        except NotFound:
            waiting = set()
        self._audit.written()
        return waiting

    def _has_it(self, opened: OpenJob, name: str) -> bool:
        waiting = opened.waiting.get(name)
        return waiting is not None and waiting.state is not State.QUEUED

    def _running(self, opened: OpenJob, device: Device) -> dict[str, Any]:
        waiting = opened.waiting.get(device.id) if device.site == self._site else None
        if waiting is None or waiting.state is not State.RUNNING:
            # What is only delivered is not busy: Salt would ask after a silent device for as long as the job lives.
            return {}
        job = public(opened.job)
        if job.tgt_type == "list":
            # Of the names each says its own: thousands of devices may be asked, each with a target of thousands.
            job = replace(job, tgt=device.id)
        return {**load_of(job), "tgt": job.tgt}


def _jid(order: SaltOrder) -> str:
    given = order.arg[0] if order.arg else order.kwarg.get("jid", "")
    return str(given)[:64]
