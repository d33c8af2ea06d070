"""What a Salt master publishes becomes a job of this site, or is answered here; it is never met with silence.

The master signs nothing that a device would believe: the job is signed with the site's key, and only what was granted
to the origin ``salt`` is. Whoever is meant by anything else is answered as refused, with the reason in words.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from device_agent.clock import Clock
from device_agent.errors import OutstationError, PolicyRefused, Refused, StationFailed, UsageInvalid
from device_agent.protocol import limits
from device_agent.protocol.messages import OutcomeRecord
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.stations import meanable
from device_agent.protocol.targeting import Target, compile_names, compile_target
from gateway.audit.book import AuditBook
from gateway.devices.device import Device
from gateway.devices.registry import Registry
from gateway.jobs.accept import Acceptance
from gateway.jobs.nodegroups import Nodegroups, TypedKind
from gateway.jobs.record import NOT_RUN_RETCODE
from gateway.jobs.request import JobRequest, Ordered, without_missing
from gateway.metrics import Metrics
from gateway.salt.allowed import refusals
from gateway.salt.asked import ASKED, ORIGIN, JobTable
from gateway.salt.book import SaltBook, too_early, too_old
from gateway.salt.gateway_minion import GatewayMinion
from gateway.salt.order_words import (
    JID_DIGITS,
    LINK,
    denied,
    each_function,
    function_names,
    impossible,
    orderer,
    refusal_words,
    taken_apart_order,
)
from gateway.salt.parting import KINDS, Parting, expression
from gateway.salt.resource_targets import ResourceTargets, by_resource
from gateway.spool.budget import refusal_reason
from gateway.spool.queue import Spool
from gateway.store.writer import Writer
from upstream.salt.order import SaltOrder
from upstream.salt.ports import DeviceAnswer, ReturnsOfJob

log = logging.getLogger(__name__)

NOT_KEPT: Final = (
    "the disk of the gateway failed in the middle of this order; see outstation check there, and try again"
)
UNFORESEEN: Final = "the gateway failed on this order; its log has the reason under this jid"
CLOCKS: Final = "compare date -u on the master and on the gateway, and order it again"


class ImmediateSender(Protocol):
    """Sends to a master at once, past the spool. It drops and counts what has no room or no link."""

    def announce(self, master: str, jid: str, ids: Sequence[str]) -> None:
        """Name the devices whose answers the master is to wait for."""

    def tell(self, master: str, entry: ReturnsOfJob) -> None:
        """Send an answer that is not needed later."""


class SaltOrders:
    """Implements ``upstream.salt.ports.Orders``."""

    def __init__(
        self,
        *,
        site: str,
        acceptance: Acceptance,
        registry: Registry,
        nodegroups: Nodegroups,
        book: SaltBook,
        table: JobTable,
        audit: AuditBook,
        spool: Spool,
        writer: Writer,
        sender: ImmediateSender,
        resources: ResourceTargets,
        own: GatewayMinion,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        """``own`` answers for the gateway's own id."""
        self._site = site
        self._acceptance = acceptance
        self._registry = registry
        self._nodegroups = nodegroups
        self._book = book
        self._table = table
        self._parting = Parting(table, resources, book, acceptance.jids, clock)
        self._audit = audit
        self._spool = spool
        self._writer = writer
        self._sender = sender
        self._resources = resources
        self._own = own
        self._metrics = metrics
        self._clock = clock
        # Several masters may publish one jid at once: it is one job.
        self._one_by_one = asyncio.Lock()
        self._unanswered: Sequence[str] = ()
        """Ids that the order at hand means, for as long as the master was told nothing of them."""

    async def take(self, order: SaltOrder, master: str) -> bool:
        """A verified publish. Returns when it is on disk, or was refused and counted; False where the store failed."""
        async with self._one_by_one:
            self._unanswered = ()
            try:
                await self._take(order, master)
            except Refused as refusal:
                self._metrics.refused(LINK, refusal.reason, master, refusal.detail)
                await self._refuse_now(order, master, f"{refusal.reason}: {refusal.detail}")
            except StationFailed as error:
                detail = f"job {order.jid}: {error.found or error.what}"
                self._metrics.refused(LINK, refusal_reason(error), master, detail)
                self._answer_unanswered(order, master, NOT_KEPT)
                return False
            except OutstationError as error:
                self._metrics.refused(LINK, "bad_order", master, f"job {order.jid}: {error.what}")
                await self._refuse_now(order, master, f"bad_order: {refusal_words(error)}")
            except Exception as error:
                # The boundary to what a master makes up: an order that nobody foresaw must not end the process for all.
                log.exception("an order of a Salt master could not be taken master=%s jid=%s", master, order.jid)
                self._metrics.refused(LINK, "unforeseen", master, f"job {order.jid}: {type(error).__name__}")
                self._answer_unanswered(order, master, f"unforeseen: {UNFORESEEN}")
        return True

    async def _take(self, order: SaltOrder, master: str) -> None:
        # Until it is known who is meant, the gateway answers for its own id.
        self._unanswered = [self._own.id]
        kind = KINDS.get(order.tgt_type)
        if not order.has_target:
            raise Refused("malformed", f"job {order.jid}: {order.fault}")
        if kind is None:
            raise Refused("bad_target", f"job {order.jid}: targets of the kind {order.tgt_type}")
        tgt = expression(order)
        target = self._target(tgt, kind, order) if tgt else None
        meant = await self._meant(target) if target is not None else []
        ids = {device.id for device in meant}
        own = target is not None and self._own.id not in ids and self._own.is_meant(target, master)
        if not meant and not own:
            # As in Salt: whoever is not meant says nothing.
            self._unanswered = ()
            self._metrics.add("salt_orders_for_others")
            return
        self._unanswered = sorted(ids | {self._own.id} if own else ids)
        if order.fault:
            raise Refused("malformed", f"job {order.jid}: {order.fault}")
        if too_old(order.jid, self._clock.wall()):
            raise Refused("old_jid", f"job {order.jid}: by its jid it is older than a day here; {CLOCKS}")
        if too_early(order.jid, self._clock.wall()):
            raise Refused("early_jid", f"job {order.jid}: by its jid it is of a time to come here; {CLOCKS}")
        order = taken_apart_order(order)
        if own:
            await self._answer_own(order, master, alone=not meant)
        if meant:
            await self._for_devices(order, master, meant)

    async def _answer_own(self, order: SaltOrder, master: str, *, alone: bool) -> None:
        """Answer for the gateway's own id. ``alone``: no device is meant, so this counts and audits the order."""
        self._unanswered = [each for each in self._unanswered if each != self._own.id]
        said = self._own.answer(order)
        if said is None:
            if alone:
                self._metrics.add("salt_orders_repeated")
            return
        self._answer_now(order, master, {self._own.id: said})
        if alone and not said.success:
            self._metrics.add("salt_orders_refused")
            await self._audit.refused(denied(order, orderer(order, master), str(said.value).removeprefix("refused: ")))

    async def _for_devices(self, order: SaltOrder, master: str, meant: list[Device]) -> None:
        told, known = order.jid, await self._book.known(order.jid)
        if known is None and await self._book.kept.gave_way(order.jid, master):
            raise Refused("let_go", f"job {order.jid}: it could be a repeat, so many later ones were let go; {CLOCKS}")
        if known is not None:
            meant = await self._parting.left(order, meant, known)
            self._unanswered = sorted({device.id for device in meant})
            if not meant:
                self._metrics.add("salt_orders_repeated")
                return
            # A later part is a job of its own here.
            order = await self._parting.later(order, meant)
        who = orderer(order, master)
        kept_from = refusals(order.auth_list, each_function(order), meant, order.user or "this user")
        if isinstance(order.fun, str) and order.fun in ASKED:
            found = await self._table.answer(order, meant, kept_from, who, master)
            if found is not None:
                whys = sorted({str(said.value) for said in found.values() if said.retcode == NOT_RUN_RETCODE})
                if whys:
                    await self._audit.refused(denied(order, who, whys[0].removeprefix("refused: ")))
                # Part of a batch is known to the master by the jid of the batch.
                self._answer_now(msgspec.structs.replace(order, jid=told), master, found)
                return
        if why := await self._not_kept(order, master, meant, known):
            self._metrics.add("salt_orders_refused")
            await self._audit.refused(denied(order, who, why))
            refused = DeviceAnswer(f"refused: {why}", NOT_RUN_RETCODE, success=False)
            answers = {device.id: refused for device in meant}
            self._answer_now(msgspec.structs.replace(order, jid=told), master, answers)
            return
        # Before it is taken: devices may answer at once, and the master must know then whom it waits for.
        self._sender.announce(master, told, sorted({device.id for device in meant}))
        self._unanswered = ()
        refusal = impossible(order)
        if not refusal and len(kept_from) == len(meant):
            refusal = next(iter(kept_from.values()))
        if refusal:
            await self._refuse(order, told, master, who, meant, refusal)
            self._metrics.add("salt_orders_refused")
            return
        taken = False
        parts = await self._parting.parts(order, meant)
        for number, (part, devices) in enumerate(parts, 1):
            later = [device for _, some in parts[number:] for device in some]
            why = await self._ordered(part, told, master, who, devices, kept_from, later)
            taken = taken or not why
        self._metrics.add("salt_orders_taken" if taken else "salt_orders_refused")

    async def _ordered(
        self,
        part: SaltOrder,
        told: str,
        master: str,
        who: str,
        devices: Sequence[Device],
        kept_from: Mapping[str, str],
        later: Sequence[Device],
    ) -> str:
        """Make a job of a part; why not, when these devices are answered as refused.

        Raises ``StationFailed`` when nothing could be kept; then those who would be ordered ``later`` are answered.
        """
        try:
            why = await self._job(part, told, master, who, devices, kept_from)
            if why:
                await self._refuse(part, told, master, who, devices, why)
        except StationFailed:
            # Whether this part was kept is not known. Those after it were not, and were announced.
            refused = DeviceAnswer(f"refused: {NOT_KEPT}", NOT_RUN_RETCODE, success=False)
            whole = msgspec.structs.replace(part, jid=told)
            self._answer_now(whole, master, {device.id: refused for device in later})
            raise
        return why

    async def _not_kept(self, order: SaltOrder, master: str, meant: Sequence[Device], known: set[str] | None) -> str:
        """Why an order can be neither kept nor spooled; empty when it can."""
        if known is None and await self._acceptance.taken(order.jid):
            # The answers of the job that has it would be taken for this one's.
            return f"a job of this gateway has the jid {order.jid}; order it again"
        if not await self._book.room(order, master, sorted({device.id for device in meant}), self._clock.wall()):
            self._metrics.refused(LINK, "orders_full", master, f"job {order.jid}: too much of what it ordered waits")
            return "too many orders of this master wait for their answers, or for the master to take them; try later"
        return ""

    def _target(self, tgt: str, kind: TypedKind, order: SaltOrder) -> Target:
        """The target, compiled. Raises ``Refused``."""
        try:
            delimiter = order.delimiter if kind in ("grain", "grain_pcre", "pillar", "pillar_pcre") else ":"
            words, known_kind = self._nodegroups.signed(tgt, kind, delimiter)
            if by_resource(words, known_kind):
                return self._resources.compiled(words)
            return compile_names(words) if known_kind == "list" else compile_target(words, known_kind)
        except UsageInvalid as error:
            raise Refused("bad_target", f"job {order.jid}: {error.what}: {error.found}") from None

    async def _meant(self, target: Target) -> list[Device]:
        await self._registry.know(target)
        known = meanable(self._registry.everything(), target.tgt)
        return [device for device in known if target.matches(device.id, device.grains)]

    async def _job(
        self,
        order: SaltOrder,
        told: str,
        master: str,
        who: str,
        meant: Sequence[Device],
        kept_from: Mapping[str, str],
    ) -> str:
        """Make a job of it; the reason when that is refused. Raises ``StationFailed`` when nothing could be kept."""
        tgt, kind = self._parting.signed(order, meant)
        ids = sorted({device.id for device in meant})
        kept = self._book.adding(
            order, function_names(order), master, ids, self._clock.wall(), _unless(told, order.jid)
        )
        ret, missing = without_missing(self._acceptance.returning, order.ret)
        try:
            request = JobRequest(
                tgt=tgt,
                tgt_type=kind,
                delimiter=order.delimiter if kind in ("grain", "grain_pcre", "pillar", "pillar_pcre") else ":",
                fun=function_names(order),
                arg=order.arg,
                kwarg=order.kwarg,
                ret=ret,
                why=missing,
            )
            ordered = Ordered(ORIGIN, order.jid, {name: why for name, why in kept_from.items() if name in ids})
            await self._acceptance.submit(request, who, ordered=ordered, beside=lambda _: kept)
        except (PolicyRefused, UsageInvalid) as error:
            return refusal_words(error)
        return ""

    async def _refuse(
        self, order: SaltOrder, told: str, master: str, who: str, meant: Sequence[Device], why: str
    ) -> None:
        """Everybody who is meant is answered, through the spool like any answer."""
        ids = sorted({device.id for device in meant})
        fun = function_names(order)
        deed = denied(order, who, why)
        if len(order.jid) != JID_DIGITS:
            # What waits in the spool has jids of ours.
            refused = DeviceAnswer(value=f"refused: {why}", retcode=NOT_RUN_RETCODE, success=False)
            self._answer_now(order, master, dict.fromkeys(ids, refused))
            await self._audit.refused(deed)
            return
        now = self._clock.wall()
        records = [
            OutcomeRecord(
                jid=order.jid,
                site=self._site,
                id=device,
                fun=fun[:130],
                outcome=Outcome.REFUSED,
                retcode=NOT_RUN_RETCODE,
                why=why[: limits.WHY_CHARACTERS],
                ended=now,
            )
            for device in ids
        ]
        kept = self._book.adding(order, fun, master, ids, now, _unless(told, order.jid))
        await self._writer.commit([*kept, *self._audit.statements([deed]), *self._spool.adding(records)])
        self._spool.added()

    async def _refuse_now(self, order: SaltOrder, master: str, why: str) -> None:
        """Answer everybody who was told nothing yet, past the spool: of such an order nothing is kept."""
        if self._unanswered:
            self._metrics.add("salt_orders_refused")
            self._answer_unanswered(order, master, why)
            with suppress(StationFailed):
                await self._audit.refused(denied(order, orderer(order, master), why))

    def _answer_unanswered(self, order: SaltOrder, master: str, why: str) -> None:
        ids, self._unanswered = self._unanswered, ()
        if ids:
            self._sender.announce(master, order.jid, ids)
            refused = DeviceAnswer(f"refused: {why[: limits.WHY_CHARACTERS]}", NOT_RUN_RETCODE, success=False)
            self._answer_now(order, master, dict.fromkeys(ids, refused))

    def _answer_now(self, order: SaltOrder, master: str, answers: Mapping[str, DeviceAnswer]) -> None:
        # The caller had something to say of each of them, whatever becomes of what is left of the order.
        self._unanswered = [each for each in self._unanswered if each not in answers]
        items = list(answers.items())
        for start in range(0, len(items), limits.MANIFEST_PAGE):
            some = dict(items[start : start + limits.MANIFEST_PAGE])
            entry = ReturnsOfJob(jid=order.jid, fun=order.fun, answers=some, master_id=order.master_id)
            self._sender.tell(master, entry)


def _unless(told: str, own: str) -> str:
    return "" if told == own else told
