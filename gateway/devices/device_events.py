"""Events from devices: on this station's disk once each, in the order in which a device fired them.

A device offers the oldest that it keeps, and offers them again until it is told that they are committed here. What was
taken is the highest sequence of its outbox, written in the commit of the events themselves.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct, field

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.parts import Part
from device_agent.protocol import limits, tags
from device_agent.protocol.device_events import KEEP, MINION_EVENT, Fired, Heard, Page, check, decode_page, encode
from device_agent.protocol.jid import JidMaker
from device_agent.protocol.messages import Event
from device_agent.protocol.outcomes import Outcome
from device_agent.schedule.returns import TAG as SCHEDULED
from gateway.answers import Answers
from gateway.bus import Bus
from gateway.devices.allowance import Allowance
from gateway.metrics import Metrics
from gateway.spool.budget import refusal_reason
from gateway.store.reader import Reader
from gateway.store.writer import Statement, StoreFailed, Writer

BURST: Final = 1000
"""What a device may hand over at once: all that waits on one after an outage."""

PER_SECOND: Final = 10.0

LINK: Final = "device_events"
"""What refusals of single events are counted under."""

_PUT: Final = "INSERT OR REPLACE INTO device_events (device, outbox, through, lost) VALUES (?, ?, ?, ?)"


class ScheduledReturn(Struct, frozen=True, kw_only=True):
    """What a device says of a scheduled run (``schedule.returns``). ``pid`` and its own jid stay there."""

    fun: Annotated[str, Meta(max_length=130)]
    fun_args: list[Any]
    schedule: Annotated[str, Meta(min_length=1, max_length=128)]
    value: Any = field(default=None, name="return")
    retcode: int
    success: bool
    outcome: Outcome
    why: Annotated[str, Meta(max_length=limits.WHY_CHARACTERS)] = ""
    due: Annotated[str, Meta(max_length=64)] = ""
    late_seconds: float | None = None
    metadata: dict[str, Any] | None = None


class _Known:
    """What is on disk of one device's outbox, and how much it may say."""

    __slots__ = ("allowance", "lost", "outbox", "through", "turn")

    def __init__(self, clock: Clock, outbox: bytes = b"", through: int = 0, lost: int = 0) -> None:
        self.outbox = outbox
        self.through = through
        self.lost = lost
        self.allowance = Allowance(per_second=PER_SECOND, burst=BURST, clock=clock)
        self.turn = asyncio.Lock()


class _Sorted(NamedTuple):
    """What becomes of a page: what is taken now, what of that goes up, what never will be taken, and how far that goes.

    ``highest`` is None where nothing is taken now.
    """

    events: list[Event]
    rising: list[Event]
    refusals: list[Refused]
    highest: int | None


class DeviceEvents(Part):
    """Takes the events of this station's devices."""

    name: ClassVar[str] = "device-events"
    drain_seconds: ClassVar[float] = 1.0
    """Nothing is drained: what was taken is on disk, and what was not is offered again."""

    def __init__(self, *, bus: Bus, writer: Writer, reader: Reader, metrics: Metrics, clock: Clock) -> None:
        self._bus = bus
        self._writer = writer
        self._reader = reader
        self._metrics = metrics
        self._clock = clock
        self._of: dict[str, _Known] = {}
        self._jids = JidMaker()

    async def open(self) -> None:
        """Load what was taken."""
        rows = await self._reader.rows("SELECT device, outbox, through, lost FROM device_events")
        for device, outbox, through, lost in rows:
            self._of[device] = _Known(self._clock, outbox, through, lost)

    def answer_with(self, desk: Answers) -> None:
        """Be who is asked."""
        desk.about(KEEP, self.keep)

    async def keep(self, device: str, body: bytes) -> bytes:
        """Events that a device offers; answered when they are on disk. Raises ``Refused``: then it keeps them."""
        page = decode_page(body)
        known = self._known(device)
        # The same page may have come again while the first is written.
        async with known.turn:
            return encode(await self._take(device, page, known))

    def _known(self, device: str) -> _Known:
        known = self._of.get(device)
        if known is None:
            known = self._of[device] = _Known(self._clock)
        return known

    async def _take(self, device: str, page: Page, known: _Known) -> Heard:
        same = page.outbox == known.outbox
        through, told = (known.through, known.lost) if same and page.outbox else (0, 0)
        fresh = [fired for fired in page.events if fired.sequence > through]
        if len(fresh) < len(page.events):
            self._metrics.add("device_events_repeated", len(page.events) - len(fresh))
        sorted_out = self._sorted(device, fresh, known.allowance)
        events, rising, highest = sorted_out.events, sorted_out.rising, sorted_out.highest
        if fresh and highest is None:
            raise Refused("too_many_events", f"more than {PER_SECOND:g} a second and {BURST} at once")
        lost = page.lost - told
        if lost > 0 and not known.allowance.take():
            lost = 0
        if lost > 0:
            gone = self._bus.event(tags.device_events_lost(device), {"id": device, "lost": lost})
            events, rising = [gone, *events], [gone, *rising]
            told = page.lost
        if highest is not None:
            through = highest
        row = (device, page.outbox, through, told)
        await self._commit(events, rising, [(_PUT, [row])] if page.outbox and (fresh or events) else [])
        if page.outbox:
            known.outbox, known.through, known.lost = page.outbox, through, told
        self._metrics.add("device_events", len(events))
        if lost > 0:
            self._metrics.add("device_events_lost", lost)
        for refusal in sorted_out.refusals:
            self._metrics.refused(LINK, refusal.reason, device, refusal.detail)
        through = min(through, page.events[-1].sequence) if page.events else through
        return Heard(through, Counter(refusal.reason for refusal in sorted_out.refusals))

    def _sorted(self, device: str, fresh: list[Fired], allowance: Allowance) -> _Sorted:
        events: list[Event] = []
        rising: list[Event] = []
        refusals: list[Refused] = []
        highest = None
        for fired in fresh:
            if not allowance.take():
                break
            highest = fired.sequence
            try:
                check(device, fired.tag, fired.data)
                tag, data = self._told(device, fired)
            except Refused as refusal:
                refusals.append(refusal)
            else:
                events.append(self._bus.event(tag, data))
                if not fired.local:
                    rising.append(events[-1])
        return _Sorted(events, rising, refusals, highest)

    def _told(self, device: str, fired: Fired) -> tuple[str, dict[str, object]]:
        """The event that this station makes of one. Raises ``Refused``."""
        if fired.tag != SCHEDULED:
            return fired.tag, shape(device, fired)
        # As in Salt the station gives it its job id: a device names no job of others.
        jid = self._jids.next(self._clock.wall())
        return tags.job_return(jid, device), scheduled(device, jid, fired)

    async def _commit(self, events: list[Event], rising: list[Event], beside: list[Statement]) -> None:
        try:
            if events:
                await self._bus.accept(events, beside, upward=rising)
            elif beside:
                await self._writer.commit(beside)
        except StoreFailed as error:
            raise Refused(refusal_reason(error), error.found or error.what) from error


def shape(device: str, fired: Fired) -> dict[str, object]:
    """Salt's shape of an event that a minion fired; what a beacon says is flat.

    Who it was is the station's word: another ``id`` in what a beacon says stands beside, as ``beacon_id``.
    """
    if fired.tag.startswith(tags.BEACON):
        said = fired.data.get("id", device)
        return {**fired.data, "id": device} | ({} if said == device else {"beacon_id": said})
    return {
        "id": device,
        "tag": fired.tag,
        "cmd": MINION_EVENT,
        "pretag": None,
        "data": fired.data,
        "ts": int(fired.at),
    }


def scheduled(device: str, jid: str, fired: Fired) -> dict[str, object]:
    """Salt's shape of the return of a scheduled run, as a master gives it a jid. Raises ``Refused``."""
    try:
        told = msgspec.convert(fired.data, ScheduledReturn)
    except msgspec.ValidationError as error:
        raise Refused("event_data", f"the return of a scheduled run: {error}") from None
    data: dict[str, object] = {"cmd": "_return", "id": device, "jid": jid, "ts": int(fired.at)}
    data |= msgspec.to_builtins(told)
    data["device_jid"] = str(fired.data.get("jid", ""))[:20]
    return {key: value for key, value in data.items() if value is not None or key == "return"}
