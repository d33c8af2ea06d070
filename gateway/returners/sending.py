"""Sends the returns of jobs to their returners: each by itself, again while one cannot be had, and not for ever."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from device_agent.backoff import Backoff
from device_agent.clock import Clock
from device_agent.errors import StationFailed, UsageInvalid
from device_agent.parts import Part
from device_agent.protocol.messages import Event
from gateway.bus import Bus
from gateway.jobs.request import SentOn
from gateway.metrics import Labelled
from gateway.returners.book import ReturnBook, Todo
from gateway.returners.returned import NotReturned, Returned, Returner
from gateway.returners.settings import ReturnerLimits
from gateway.store.writer import Statement

log = logging.getLogger(__name__)

KINDS: Final = ("rawfile_json", "smtp", "sqlite3", "webhook")
ALIASES: Final = {"file": "rawfile_json", "sqlite": "sqlite3"}
MOST: Final = 8
"""Returners of one job."""

LOOK_SECONDS: Final = 2.0
QUIET_SECONDS: Final = 60.0
"""A job of which nothing is heard is looked at so often."""

PRUNE_SECONDS: Final = 600.0
KEEP_LOST_SECONDS: Final = 30 * 86_400.0
SEND_SECONDS: Final = 330.0
"""No single sending may take longer: each returner has a limit of its own below it."""


class Returners(Part):
    """The returners that are configured, each with a loop of its own."""

    name: ClassVar[str] = "returners"
    drain_seconds: ClassVar[float] = 2.0

    def __init__(
        self, returners: Mapping[str, Returner], *, book: ReturnBook, limits: ReturnerLimits, bus: Bus, clock: Clock
    ) -> None:
        self._returners = dict(returners)
        self._book = book
        self._limits = limits
        self._bus = bus
        self._clock = clock
        self._sent: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._why: dict[str, str] = {}
        self._heard: dict[str, asyncio.Event] = {name: asyncio.Event() for name in returners}
        self._busy: set[str] = set()
        self._late: dict[str, float] = {}
        """Since when a returner does not take what sites that were dark have said since."""
        self._jids: set[str] = set()
        self._draining = False

    def wanted(self, said: str | Sequence[str]) -> SentOn | None:
        """The returners of a job, with what must be in its commit. Raises ``UsageInvalid`` for one that is none."""
        words = said.split(",") if isinstance(said, str) else list(said)
        names = list(dict.fromkeys(ALIASES.get(word.strip(), word.strip()) for word in words if word.strip()))
        unknown = [name for name in names if name not in self._returners]
        if unknown or len(names) > MOST:
            known = ", ".join(self._returners) or "none"
            hints = [name for name in unknown if name in KINDS]
            raise UsageInvalid(
                "there is no such returner here" if unknown else "too many returners",
                error_id="returner.unknown",
                where="ret",
                found=", ".join(unknown or names)[:200],
                allowed=known if unknown else f"at most {MOST}",
                hint=f"configure {hints[0] if hints else ' or '.join(KINDS)} (docs/returners.md)" if unknown else None,
            )

        def beside(jid: str) -> list[Statement]:
            self._jids.add(jid)
            return self._book.adding(jid, names)

        return SentOn(tuple(names), beside) if names else None

    async def open(self) -> None:
        """Go on with what was not sent when the station ended."""
        self._jids.update(await self._book.open_jids())
        for name, returner in self._returners.items():
            self.spawn(self._send(name, returner), name)
        if self._returners:
            self.spawn(self._listen(), "listen")
        self.spawn(self._prune(), "prune")

    async def drain(self) -> None:
        """Let what is being sent come to its end; the rest is on disk."""
        self._draining = True
        while self._busy:  # noqa: ASYNC110 - a drain has a limit
            await asyncio.sleep(0.02)

    async def view(self) -> dict[str, Any]:
        """As the API shows it."""
        waiting = await self._book.waiting()
        return {
            "returners": [
                {
                    "name": name,
                    "waiting": waiting.get(name, 0),
                    "sent": self._sent[name],
                    "failed": self._failed[name],
                    "lost": self._lost[name],
                    "why": self._why.get(name, ""),
                }
                for name in [*self._returners, *sorted(waiting.keys() - self._returners.keys())]
            ],
            "lost": await self._book.lost_lately(),
        }

    def labelled(self) -> list[Labelled]:
        """Numbers with the name of the returner."""
        found: list[Labelled] = []
        for name in self._returners:
            label = {"returner": name}
            found += [
                ("returns_sent_total", label, self._sent[name]),
                ("returns_failed_total", label, self._failed[name]),
                ("returns_lost_total", label, self._lost[name]),
            ]
        return found

    def failing(self) -> list[tuple[str, str]]:
        """Returners whose last attempt was in vain, with why."""
        return sorted(self._why.items())

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Wake up those that wait for a job, when something is heard of it."""
        with self._bus.subscribe("salt/job/*", lambda event: _jid(event) in self._jids) as subscriber:
            while True:
                jids = {_jid(await subscriber.queue.get())}
                while not subscriber.queue.empty():
                    jids.add(_jid(subscriber.queue.get_nowait()))
                with suppress(StationFailed):
                    await self._book.wake(sorted(jids))
                for heard in self._heard.values():
                    heard.set()

    async def _send(self, name: str, returner: Returner) -> None:
        pauses = Backoff(1.0, self._limits.pause_seconds, floor=0.5)
        heard = self._heard[name]
        while not self._draining:
            heard.clear()
            pause = LOOK_SECONDS
            try:
                again = await self._round(name, returner)
                if again is None:
                    pause = pauses.next()
                else:
                    pauses.reset()
                    pause = 0.0 if again else LOOK_SECONDS
            except StationFailed as error:
                log.error("returns wait for the store returner=%s error=%s", name, error.found)
            if pause:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        # What is heard does not end the pause of one that cannot be reached.
                        await (heard.wait() if name not in self._why else asyncio.Event().wait())

    async def _round(self, name: str, returner: Returner) -> bool | None:
        """Everything that is due, one batch of each job; whether there may be more, or None where nothing can be sent.

        One that fails while others do not waits by itself.
        """
        held = False
        more = False
        if later := await self._book.told_later(name, returner.most):
            held = not await self._told_later(name, returner, later)
            more = not held
        for todo in await self._book.due(name):
            if self._draining:
                return False
            returns = await self._book.returns(todo, returner.most)
            if not returns:
                await self._nothing(name, todo)
                continue
            failure = await self._try(name, returner, returns)
            if failure is None:
                await self._book.sent(todo, returns)
                more = True
            elif failure.final or self._is_over(todo):
                await self._lose(name, todo, returns, failure)
                more = True
            else:
                pause = min(self._limits.pause_seconds, 2.0 ** min(todo.tries, 20))
                await self._book.failed(todo, str(failure), self._clock.wall() + pause)
                if not more:
                    return None
        return None if held and not more else more

    async def _told_later(self, name: str, returner: Returner, later: list[Returned]) -> bool:
        """Send them, or give them up; False where they wait, which holds up nothing else."""
        failure = await self._try(name, returner, later)
        if failure is not None:
            now = self._clock.monotonic()
            since = self._late.setdefault(name, now)
            if not failure.final and now - since <= self._limits.give_up_hours * 3600.0:
                return False
            await self._book.lost_later(name, later, str(failure))
            self._count_lost(name, later, failure)
        else:
            await self._book.sent_later(name, later)
        self._late.pop(name, None)
        return True

    async def _nothing(self, name: str, todo: Todo) -> None:
        closed = await self._book.is_closed(todo.jid)
        if closed is None:
            self._lost[name] += 1
            log.error("returns are lost, their job is no longer kept returner=%s jid=%s", name, todo.jid)
            await self._book.gone(todo)
            self._jids.discard(todo.jid)
        elif closed and not await self._book.returns(todo, 1):
            await self._book.done(todo)
        elif not closed:
            await self._book.waits(todo, self._clock.wall() + QUIET_SECONDS)

    async def _try(self, name: str, returner: Returner, returns: list[Returned]) -> NotReturned | None:
        self._busy.add(name)
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await returner.send(returns)
        except NotReturned as failure:
            return self._not_sent(name, returns, failure)
        except TimeoutError:
            return self._not_sent(name, returns, NotReturned(f"it took more than {SEND_SECONDS:.0f} s"))
        except Exception as error:
            # A fault of ours in one returner is not the end of the others, nor of the station.
            log.exception("a returner failed returner=%s", name)
            return self._not_sent(name, returns, NotReturned(f"{type(error).__name__}: {error}"))
        finally:
            self._busy.discard(name)
        self._sent[name] += len(returns)
        self._why.pop(name, None)
        return None

    def _not_sent(self, name: str, returns: Sequence[Returned], failure: NotReturned) -> NotReturned:
        self._failed[name] += 1
        if self._why.get(name) != str(failure):
            record = returns[0].record
            log.warning("not returned returner=%s jid=%s device=%s why=%s", name, record.jid, record.id, failure)
        self._why[name] = str(failure)
        return failure

    def _is_over(self, todo: Todo) -> bool:
        return todo.since is not None and self._clock.wall() - todo.since > self._limits.give_up_hours * 3600.0

    async def _lose(self, name: str, todo: Todo, returns: Sequence[Returned], failure: NotReturned) -> None:
        await self._book.lost(todo, returns, str(failure))
        self._count_lost(name, returns, failure)

    def _count_lost(self, name: str, returns: Sequence[Returned], failure: NotReturned) -> None:
        self._lost[name] += len(returns)
        jids = ", ".join(dict.fromkeys(each.record.jid for each in returns[:10]))
        devices = ", ".join(each.record.id for each in returns[:10])
        log.error("returns are lost returner=%s jid=%s devices=%s why=%s", name, jids, devices, failure)

    async def _prune(self) -> None:
        while True:
            with suppress(StationFailed):
                await self._book.prune(self._clock.wall() - KEEP_LOST_SECONDS)
                # Those that are done, and those whose commit failed.
                self._jids &= set(await self._book.open_jids())
            await asyncio.sleep(PRUNE_SECONDS)


def _jid(event: Event) -> str:
    return event.tag.split("/", 3)[2]
