"""The calls of a station: each a row before it is made, with one end, also through a kill.

What a reaction calls is made once more where the station was killed in the middle of it; what somebody typed ends as
interrupted then, since whether it was done is not known, unless its function says that it may be begun again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from msgspec.structs import replace

from device_agent.clock import Clock
from device_agent.errors import OutstationError, PolicyRefused, StationFailed
from device_agent.parts import Part
from device_agent.protocol.carried import carried
from device_agent.protocol.jid import JidMaker
from device_agent.protocol.messages import encode_value
from gateway.bus import Bus
from gateway.calls.binding import bound
from gateway.calls.book import CallBook, Kept
from gateway.calls.call import About, Call, CallFailed, CallRequest, Ended, Kind, State
from gateway.calls.call_events import result, room, told
from gateway.calls.custom import CustomRunners
from gateway.calls.functions import Function, Functions
from gateway.calls.jobs import CallJobs
from gateway.calls.permission import CallPermission
from gateway.calls.running import Running
from gateway.calls.settings import CallSettings
from gateway.devices.policy import Operator
from gateway.metrics import Metrics
from gateway.store.doubt import Doubt
from gateway.store.reader import StoreUnreadable
from gateway.store.writer import Statement, StoreFailed

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 1.0
PRUNE_SECONDS: Final = 600.0
TRIES: Final = 10
"""So often a call is begun again after an end of the station: one that ends the station itself must not for ever."""

DEPTH: Final = 8
PRIVATE_SECONDS: Final = 60.0
PRIVATE_RESULTS: Final = 100
PRIVATE: Final = "for who asked alone"
CUT_OFF: Final = "the call that made it ended while it ran; whether it was done is not known"

Lane = Literal["reaction", "operator"]
LANES: Final[tuple[Lane, ...]] = ("reaction", "operator")


@dataclass
class Under:
    """A call under way, and its end once there is one."""

    call: Call
    function: Function
    lane: Lane
    repeated: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)
    ended: Ended | None = None


class Calls(Part):
    """Takes calls, makes them, a bounded number at once, and keeps how they ended."""

    name: ClassVar[str] = "calls"
    drain_seconds: ClassVar[float] = 5.0

    custom: CustomRunners | None = None
    """Those that the site brought."""

    def __init__(
        self,
        *,
        settings: CallSettings,
        functions: Functions,
        book: CallBook,
        permission: CallPermission,
        jobs: CallJobs,
        jids: JidMaker,
        now: Callable[[], float],
        bus: Bus,
        metrics: Metrics,
        clock: Clock,
        doubt: Doubt,
    ) -> None:
        self._settings = settings
        self.functions = functions
        self.book = book
        self._permission = permission
        self._jobs = jobs
        self._jids = jids
        self._now = now
        self._bus = bus
        self._metrics = metrics
        self._clock = clock
        self._doubt = doubt
        self._open: dict[str, Under] = {}
        self._counts: Counter[Lane] = Counter()
        self._room = {lane: asyncio.Semaphore(settings.at_once) for lane in LANES}
        self._private: dict[str, tuple[str, Any, float]] = {}
        self._draining = False

    async def open(self) -> None:
        """Take up what a kill cut off: again what may be done again, and an end for the rest."""
        for newest in await self.book.newest(1):
            # Jobs and calls share their jids, and a clock may have gone back while the station was down.
            self._jids.after(newest.call.jid)
        kept = await self.book.open()
        again: list[Under] = []
        for each in kept:
            # A call that another gateway may have made is not made again.
            doubt = self._doubt.past()
            function = None if doubt else await self._for_again(each)
            if function is None:
                await self._interrupted(each, doubt)
            else:
                again.append(Under(each.call, function, "reaction", repeated=True))
        if again:
            await self.book.again([under.call.jid for under in again])
            log.info("calls are begun again calls=%d", len(again))
        for under in again:
            self._begin(under)
        self.spawn(self._prune(), "prune")

    async def drain(self) -> None:
        """Take nothing more, and let what is under way come to its end."""
        self._draining = True
        for under in list(self._open.values()):
            await under.done.wait()

    def gauges(self) -> dict[str, float]:
        """How it stands, for the metrics."""
        return {"calls_open": float(len(self._open))}

    async def function(self, kind: Kind, name: str) -> Function:
        """A function of the release or of the site. Raises ``NotFound``, and ``PolicyRefused`` for one not released."""
        if kind == "runner" and name not in self.functions.of(kind) and self.custom is not None:
            own = await self.custom.get(name)
            if own is not None:
                return own
        return self.functions.get(kind, name)

    # --- taking them -----------------------------------------------------------------------------------------------

    async def submit(
        self,
        request: CallRequest,
        operator: Operator,
        *,
        user: str = "",
        why: str = "",
        lane: Lane = "operator",
        direct: bool = False,
        about: About | None = None,
        beside: Callable[[str], Sequence[Statement]] | None = None,
    ) -> str:
        """Take a call; its jid when it is on disk. What ``beside`` says of its jid is in the same commit.

        ``user`` is who asked, to the events of the call. One of a reaction is made again after a kill. Raises
        ``UsageInvalid`` for what is wrong with it, and ``PolicyRefused``, also when the station is busy or stopping.
        """
        if self._counts[lane] >= self._settings.waiting:
            raise PolicyRefused(
                "too many calls are open",
                error_id="calls.busy",
                found=str(self._settings.waiting),
                allowed=f"{self._settings.waiting} (calls.waiting)",
                hint="ask again in a moment",
            )
        under = await self._checked(request, operator, user or str(operator), why, lane, direct=direct, about=about)
        await self._take(under, "", beside(under.call.jid) if beside is not None else ())
        self._begin(under)
        return under.call.jid

    async def refusal(self, call: CallRequest, by: Operator, *, direct: bool, by_name: bool) -> OutstationError | None:
        """Why a call would be refused now; None for one that would be taken. ``by_name``: its arguments are unknown."""
        said, arg, kwarg = f"{call.kind}.{call.fun}", call.arg, call.kwarg
        try:
            function = await self.function(call.kind, call.fun)
            arg, kwarg = (arg, kwarg) if by_name else bound(function.run, said, arg, kwarg, direct=direct)
        except OutstationError as error:
            return error
        return self._permission.refusal(by, said, function, arg, kwarg, by_name=by_name)

    async def within(self, parent: Call, request: CallRequest, key: str) -> Ended:
        """A call that another call makes: it has a row and events of its own, and runs in the other's place."""
        if parent.depth >= DEPTH:
            raise PolicyRefused(
                f"calls make calls at most {DEPTH} deep", error_id="calls.too_deep", found=request.fun[:128]
            )
        while key and (known := await self.book.by_key(key)) is not None:
            ended = await self.wait(known)
            if ended.state != "interrupted":
                return ended
            # It was cut off together with this one, which is made again, and so it is.
            key = f"{key}, again"
        under = await self._checked(request, parent.asker(), parent.user, parent.why, parent=parent, about=parent.about)
        await self._take(under, key)
        await self._made(under)
        assert under.ended is not None
        # What is private is so in the hands of a call as well: what that one returns, all who may look see.
        return under.ended

    def running(self, call: Call, *, repeated: bool = False) -> Running:
        """What a function is given of its call."""
        return Running(call, repeated, self._bus, self.book, self._jobs, self.within)

    def under_way(self, jid: str) -> Under | None:
        """A call that has not ended."""
        return self._open.get(jid)

    async def wait(self, jid: str) -> Ended:
        """The end of a call, which may be there already. Raises ``StationFailed`` for a call that is not known."""
        under = self._open.get(jid)
        if under is not None:
            await under.done.wait()
            assert under.ended is not None
            return under.ended
        kept = await self.book.one(jid)
        if kept is None:
            raise StationFailed(f"no call {jid}", error_id="calls.unknown")
        return kept.ended

    def private(self, jid: str, operator: Operator) -> Any:
        """What a private call returned, for who asked and for a minute; None for anybody else."""
        name, value, until = self._private.get(jid, ("", None, 0.0))
        return value if name == str(operator) and self._clock.monotonic() < until else None

    async def _checked(
        self,
        request: CallRequest,
        operator: Operator,
        user: str,
        why: str,
        lane: Lane = "operator",
        *,
        direct: bool = False,
        about: About | None = None,
        parent: Call | None = None,
    ) -> Under:
        """Raises ``UsageInvalid``, and ``PolicyRefused`` while the station stops or is fenced."""
        if self._draining:
            raise PolicyRefused("the station is stopping", error_id="station.stopping", hint="try again in a moment")
        function = await self.function(request.kind, request.fun)
        if not function.only_looks:
            self._doubt.check()
        arg, kwarg = bound(function.run, f"{request.kind}.{request.fun}", request.arg, request.kwarg, direct=direct)
        call = Call(
            jid=self._jids.next(self._now()),
            kind=request.kind,
            fun=request.fun,
            arg=arg,
            kwarg=kwarg,
            user=user,
            operator=operator.name,
            roles=sorted(operator.roles),
            door=operator.door,
            groups=sorted(operator.groups),
            why=why,
            parent="" if parent is None else parent.jid,
            depth=0 if parent is None else parent.depth + 1,
            seconds=request.timeout or function.seconds or self._settings.timeout_seconds,
            accepted=self._clock.wall(),
            # What another call made is made again by that one, if at all.
            again=parent is None and (lane == "reaction" or function.again),
            about=about,
        )
        return Under(call, function, lane)

    async def _take(self, under: Under, key: str, beside: Sequence[Statement] = ()) -> None:
        """Put it on disk, with what tells of it. Raises ``PolicyRefused`` and ``StoreFailed``."""
        call = under.call
        operator = call.asker()
        rows = await self._permission.calling(
            operator, str(operator), call.kind, under.function, call.arg, call.kwarg, call.jid, call.why
        )
        event = self._bus.event(f"{room(call)}/new", told(call))
        await self._bus.accept([event], [*self.book.adding(call, key), *rows, *beside], upward=False)
        self._metrics.add("calls")

    # --- making them -----------------------------------------------------------------------------------------------

    def _begin(self, under: Under) -> None:
        self._open[under.call.jid] = under
        self._counts[under.lane] += 1
        self.spawn(self._in_turn(under), under.call.jid)

    async def _in_turn(self, under: Under) -> None:
        try:
            async with nullcontext() if under.function.waits else self._room[under.lane]:
                await self._made(under)
        finally:
            self._counts[under.lane] -= 1

    async def _made(self, under: Under) -> None:
        """Run the function and keep what came of it. A stop of the station leaves the row open."""
        call = under.call
        self._open[call.jid] = under
        try:
            ended = under.ended = await self._ran(under)
            if under.function.private and ended.ok:
                under.ended = self._hidden(call, ended)
            await self._keep(call, under.ended)
        except asyncio.CancelledError:
            if under.ended is None and call.parent and not self._draining:
                # Its time was over for the call that made it: it has an end nevertheless.
                under.ended = self._ended(call, "interrupted", CUT_OFF, 1)
                self.spawn(self._keep(call, under.ended), f"end of {call.jid}")
            raise
        finally:
            self._open.pop(call.jid, None)
            under.done.set()

    def _hidden(self, call: Call, ended: Ended) -> Ended:
        """What is kept of a private end; who asked has the whole of it for a minute."""
        while len(self._private) >= PRIVATE_RESULTS:
            del self._private[next(iter(self._private))]
        self._private[call.jid] = (str(call.asker()), ended.value, self._clock.monotonic() + PRIVATE_SECONDS)
        return replace(ended, value=PRIVATE)

    async def _ran(self, under: Under) -> Ended:
        call, running = under.call, self.running(under.call, repeated=under.repeated)
        if not under.function.only_looks and (doubt := self._doubt.stopped()):
            return self._ended(call, "interrupted", doubt, 1)
        try:
            async with asyncio.timeout(call.seconds):
                value = await under.function.run(running, *call.arg, **call.kwarg)
            value = carried(value)
            size = len(encode_value(value))
        except TimeoutError:
            return self._ended(call, "timed_out", f"it was not done in {call.seconds:g} s", 1)
        except CallFailed as failed:
            return self._ended(call, "failed", failed.value, failed.retcode or 1)
        except OutstationError as error:
            await call.until_the_stop(error)
            return self._ended(call, "failed", str(error), 1)
        except Exception as error:
            log.error("a call failed fun=%s jid=%s", call.said, call.jid, exc_info=error)
            return self._ended(call, "failed", f"Exception occurred in {call.kind} {call.fun}: {error!r}", 1)
        if size > self._settings.result_bytes:
            told = f"it returned {size} bytes, at most {self._settings.result_bytes} (calls.result_bytes)"
            return self._ended(call, "failed", told, 1)
        return self._ended(call, "ok", value, 0)

    def _ended(self, call: Call, state: State, value: Any, retcode: int) -> Ended:
        self._metrics.add("calls_ok" if state == "ok" else "calls_failed")
        return Ended(jid=call.jid, state=state, value=value, retcode=retcode, ended=self._clock.wall())

    async def _keep(self, call: Call, ended: Ended) -> None:
        """The end with its event, in one commit, however long the store takes to be well again."""
        event = self._bus.event(f"{room(call)}/ret", {**told(call), **result(ended)})
        while True:
            try:
                await self._bus.accept([event], self.book.ending(ended), upward=False)
            except StoreFailed as error:
                if self._draining:
                    return
                log.error("the end of a call is not on disk, it is tried again jid=%s error=%s", call.jid, error)
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return

    # --- after an end of the station ---------------------------------------------------------------------------------

    async def _for_again(self, kept: Kept) -> Function | None:
        """The function of a call that is to be begun again; None for one that is not."""
        if not kept.call.again or kept.tries >= TRIES:
            return None
        try:
            return await self.function(kept.call.kind, kept.call.fun)
        except OutstationError as error:
            log.error("a call is not begun again jid=%s error=%s", kept.call.jid, error.what)
            return None

    async def _interrupted(self, kept: Kept, doubt: str) -> None:
        call = kept.call
        why = doubt or "the station was ended while it ran; whether it was done is not known"
        if call.again and not doubt:
            why = f"the station was ended {kept.tries + 1} times while it ran"
        with suppress(StoreFailed):
            await self._keep(call, self._ended(call, "interrupted", why, 1))

    async def _prune(self) -> None:
        while True:
            now = self._clock.monotonic()
            self._private = {jid: each for jid, each in self._private.items() if now < each[2]}
            try:
                await self.book.prune()
            except (StoreFailed, StoreUnreadable) as error:
                log.error("old calls not pruned error=%s", error.found)
            await asyncio.sleep(PRUNE_SECONDS)
