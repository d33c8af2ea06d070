"""What a Salt master publishes becomes a job of this site, or is answered here; it is never met with silence.

The master signs nothing that a device would believe: the job is signed with the site's key, and only what was granted
to the origin ``salt`` is. Whoever is meant by anything else is answered as refused, with the reason in words.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from device_agent.clock import Clock
from device_agent.errors import OutstationError, PolicyRefused, Refused, StationFailed, UsageInvalid
from device_agent.protocol import limits
from device_agent.protocol.messages import OutcomeRecord
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.several import joined, split
from device_agent.protocol.stations import meanable
from device_agent.protocol.targeting import compile_names, compile_target
from gateway.audit.book import AuditBook
from gateway.audit.deed import Deed
from gateway.devices.device import Device
from gateway.devices.policy import call_text
from gateway.devices.registry import Registry
from gateway.jobs.accept import Acceptance
from gateway.jobs.nodegroups import Nodegroups, TypedKind
from gateway.jobs.record import NOT_RUN_RETCODE
from gateway.jobs.request import JobRequest, Ordered, without_missing
from gateway.metrics import Metrics
from gateway.salt.allowed import refusals
from gateway.salt.asked import ASKED, ORIGIN, JobTable
from gateway.salt.book import SaltBook, too_early, too_old
from gateway.salt.parting import KINDS, Parting, expression
from gateway.salt.resource_targets import ResourceTargets, by_resource
from gateway.spool.budget import refusal_reason
from gateway.spool.queue import Spool
from gateway.store.writer import Writer
from gateway.typed_arguments import taken_apart
from upstream.salt.order import SaltOrder
from upstream.salt.ports import DeviceAnswer, ReturnsOfJob

log = logging.getLogger(__name__)

JID_DIGITS: Final = 20
LINK: Final = "salt"
"""Under which what is refused is counted."""

NOT_KEPT: Final = (
    "the disk of the gateway failed in the middle of this order; see outstation check there, and try again"
)


class Telling(Protocol):
    """Who tells a master at once, past the spool. What finds no room, or nobody to tell, is dropped and counted."""

    def announce(self, master: str, jid: str, ids: Sequence[str]) -> None:
        """Whose answers to wait for."""

    def tell(self, master: str, entry: ReturnsOfJob) -> None:
        """An answer that nobody needs later."""


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
        telling: Telling,
        resources: ResourceTargets,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
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
        self._telling = telling
        self._resources = resources
        self._metrics = metrics
        self._clock = clock
        # Several masters may publish one jid at once: it is one job.
        self._one_by_one = asyncio.Lock()

    async def take(self, order: SaltOrder, master: str) -> bool:
        """A verified publish. Returns when it is on disk, or was refused and counted; False where the store failed."""
        try:
            async with self._one_by_one:
                await self._take(order, master)
        except Refused as refusal:
            self._metrics.refused(LINK, refusal.reason, master, refusal.detail)
        except StationFailed as error:
            self._metrics.refused(LINK, refusal_reason(error), master, f"job {order.jid}: {error.found or error.what}")
            return False
        except OutstationError as error:
            self._metrics.refused(LINK, "bad_order", master, f"job {order.jid}: {error.what}")
        except Exception as error:
            # The boundary to what a master makes up: an order that nobody foresaw must not end the process for all.
            log.exception("an order of a Salt master could not be taken master=%s jid=%s", master, order.jid)
            self._metrics.refused(LINK, "unforeseen", master, f"job {order.jid}: {type(error).__name__}")
        return True

    async def _take(self, order: SaltOrder, master: str) -> None:
        kind = KINDS.get(order.tgt_type)
        if kind is None:
            raise Refused("bad_target", f"job {order.jid}: targets of the kind {order.tgt_type}")
        order = _taken_apart(order)
        if too_old(order.jid, self._clock.wall()):
            raise Refused("old_jid", f"job {order.jid}: nobody here could tell it from a repeat")
        if too_early(order.jid, self._clock.wall()):
            raise Refused("early_jid", f"job {order.jid}: the clock of the master, or of this gateway, is wrong")
        tgt = expression(order)
        meant = await self._meant(tgt, kind, order) if tgt else []
        if not meant:
            # As in Salt: whoever is not meant says nothing.
            self._metrics.add("salt_orders_for_others")
            return
        told, known = order.jid, await self._book.known(order.jid)
        if known is None and await self._book.kept.gave_way(order.jid, master):
            raise Refused("let_go", f"job {order.jid}: nobody here could tell it from a repeat, so much came since")
        if known is not None:
            meant = await self._parting.left(order, meant, known)
            if not meant:
                self._metrics.add("salt_orders_repeated")
                return
            # A later part is a job of its own here.
            order = await self._parting.later(order, meant)
        who = _who(order, master)
        kept_from = refusals(order.auth_list, _names(order), meant, order.user or "this user")
        if isinstance(order.fun, str) and order.fun in ASKED:
            found = await self._table.answer(order, meant, kept_from, who, master)
            if found is not None:
                whys = sorted({str(said.value) for said in found.values() if said.retcode == NOT_RUN_RETCODE})
                if whys:
                    await self._audit.refused(_denied(order, who, whys[0].removeprefix("refused: ")))
                # Part of a batch is known to the master by the jid of the batch.
                self._answer_now(msgspec.structs.replace(order, jid=told), master, found)
                return
        if why := await self._not_kept(order, master, meant, known):
            self._metrics.add("salt_orders_refused")
            await self._audit.refused(_denied(order, who, why))
            refused = DeviceAnswer(f"refused: {why}", NOT_RUN_RETCODE, success=False)
            answers = {device.id: refused for device in meant}
            self._answer_now(msgspec.structs.replace(order, jid=told), master, answers)
            return
        # Before it is taken: devices may answer at once, and the master must know then whom it waits for.
        self._telling.announce(master, told, sorted({device.id for device in meant}))
        refusal = _impossible(order)
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

    async def _meant(self, tgt: str, kind: TypedKind, order: SaltOrder) -> list[Device]:
        try:
            delimiter = order.delimiter if kind in ("grain", "grain_pcre", "pillar", "pillar_pcre") else ":"
            words, known_kind = self._nodegroups.signed(tgt, kind, delimiter)
            if by_resource(words, known_kind):
                target = self._resources.compiled(words)
            elif known_kind == "list":
                target = compile_names(words)
            else:
                target = compile_target(words, known_kind)
        except UsageInvalid as error:
            raise Refused("bad_target", f"job {order.jid}: {error.what}: {error.found}") from None
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
        kept = self._book.adding(order, _fun(order), master, ids, self._clock.wall(), _unless(told, order.jid))
        ret, missing = without_missing(self._acceptance.returning, order.ret)
        try:
            request = JobRequest(
                tgt=tgt,
                tgt_type=kind,
                delimiter=order.delimiter if kind in ("grain", "grain_pcre", "pillar", "pillar_pcre") else ":",
                fun=_fun(order),
                arg=order.arg,
                kwarg=order.kwarg,
                ret=ret,
                why=missing,
            )
            ordered = Ordered(ORIGIN, order.jid, {name: why for name, why in kept_from.items() if name in ids})
            await self._acceptance.submit(request, who, ordered=ordered, beside=lambda _: kept)
        except (PolicyRefused, UsageInvalid) as error:
            return _words(error)
        return ""

    async def _refuse(
        self, order: SaltOrder, told: str, master: str, who: str, meant: Sequence[Device], why: str
    ) -> None:
        """Everybody who is meant is answered, through the spool like any answer."""
        ids = sorted({device.id for device in meant})
        fun = _fun(order)
        deed = _denied(order, who, why)
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

    def _answer_now(self, order: SaltOrder, master: str, answers: Mapping[str, DeviceAnswer]) -> None:
        items = list(answers.items())
        for start in range(0, len(items), limits.MANIFEST_PAGE):
            some = dict(items[start : start + limits.MANIFEST_PAGE])
            entry = ReturnsOfJob(jid=order.jid, fun=order.fun, answers=some, master_id=order.master_id)
            self._telling.tell(master, entry)


def _taken_apart(order: SaltOrder) -> SaltOrder:
    """The order with each NAME=VALUE among its arguments as a named one, as a minion takes them."""
    if isinstance(order.fun, str):
        arg, kwarg = taken_apart(order.arg, order.kwarg)
        return msgspec.structs.replace(order, arg=arg, kwarg=kwarg)
    each = [joined(*taken_apart(*split(given))) if isinstance(given, list) else given for given in order.arg]
    return msgspec.structs.replace(order, arg=each)


def _denied(order: SaltOrder, who: str, why: str) -> Deed:
    """What the audit says of an order that was refused."""
    return Deed(
        user=who,
        door=LINK,
        action="run",
        subject=f"{order.tgt_type}: {order.tgt if isinstance(order.tgt, str) else ','.join(order.tgt)}",
        verdict="deny",
        why=why,
        jid=order.jid,
        fun=_fun(order),
        arguments=call_text("", order.arg, order.kwarg).strip(),
    )


def _who(order: SaltOrder, master: str) -> str:
    """Who asked, as jobs and the audit name him: nobody of this station has an @ in his name."""
    user = "".join(letter if letter.isprintable() and not letter.isspace() else "_" for letter in order.user[:64])
    return f"{user or 'unknown'}@{master}"[:128]


def _unless(told: str, own: str) -> str:
    return "" if told == own else told


def _fun(order: SaltOrder) -> str:
    return order.fun if isinstance(order.fun, str) else ",".join(order.fun)


def _names(order: SaltOrder) -> list[str]:
    """Every function that is named, whatever stands between the names."""
    return _fun(order).split(",")


def _impossible(order: SaltOrder) -> str:
    if not isinstance(order.fun, str) and len(order.fun) == 1:
        return "a list of one function; order it by its name alone"
    if odd := next((name for name in ([order.fun] if isinstance(order.fun, str) else order.fun) if "," in name), ""):
        return f"{odd[:130]} is no function; several are a list of names, with a list of arguments for each"
    if len(order.jid) != JID_DIGITS:
        return "this gateway takes jids of 20 digits; set unique_jid: False on the master"
    return ""


def _words(error: OutstationError) -> str:
    """A refusal in the words that ``salt`` shows: what, what was found, and what mends it."""
    parts: list[Any] = [error.what, error.found]
    text = ": ".join(str(part) for part in parts if part)
    if error.error_id == "policy.not_granted":
        return f"not_granted: {text}; what a Salt master may order is granted to the site with --origin {ORIGIN}"
    return f"{text}; allowed: {error.allowed}" if error.allowed else text
