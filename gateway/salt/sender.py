"""Tells Salt masters what waits in the spool: answers to whoever ordered the job, the rest to the active master.

An answer is let go when the master has said that it has it. Until then it stays, and is told again after a lost link or
a restart: at least once, and never to two masters, unless the first of them never said.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from device_agent.clock import Clock
from device_agent.errors import Refused, StationFailed
from device_agent.parts import Part
from device_agent.protocol.messages import Item, Job, JobDefinition, OutcomeRecord, decode_item, decode_job
from device_agent.questions import Unanswered
from gateway.jobs.seal import public
from gateway.metrics import Metrics
from gateway.salt.answers import Told, entries, load_of
from gateway.salt.asked import ORIGIN
from gateway.salt.away import AWAY_SECONDS, Away
from gateway.salt.book import Ordered, SaltBook
from gateway.salt.cursor import Cursor
from gateway.salt.line import Chunk, Line
from gateway.salt.not_taken import NOT_TAKEN, NotTaken
from gateway.salt.pace import LINES, Pace
from gateway.salt.posting import Posting
from gateway.salt.remembered import Remembered
from gateway.salt.told_otherwise import plainly, taken_after_all, told_otherwise
from gateway.spool.queue import Spool
from gateway.store.reader import Reader
from upstream.frames import Stream
from upstream.salt.channel import STALE
from upstream.salt.ports import NotConfirmed, ReturnsOfJob, SaltAbove

log = logging.getLogger(__name__)

PRUNE_SECONDS: Final = 3600.0
NO_ANSWERS: Final = 2**62
"""Beyond every sequence: answers have a cursor of their own."""


class SaltSender(Part):
    """Implements ``upstream.salt.ports.Feed`` over the spool, and ``ImmediateSender`` for what must not wait in it."""

    name: ClassVar[str] = "salt-sender"

    def __init__(
        self,
        *,
        spool: Spool,
        book: SaltBook,
        reader: Reader,
        metrics: Metrics,
        clock: Clock,
        gateway: str,
        masters: Callable[[], Sequence[str]],
        syndic_tags: bool = False,
    ) -> None:
        self._spool = spool
        self._book = book
        self._reader = reader
        self._metrics = metrics
        self._clock = clock
        self._masters = masters
        self._lines: dict[str, Line] = {}
        self._paces: dict[str, Pace] = {}
        self._away = Away(clock, masters)
        self._active: str | None = None
        self._claimed: set[int] = set()
        self._posting = asyncio.Lock()
        self._not_taken = NotTaken()
        self._posts = Posting(spool, metrics, self._not_taken, self._read, gateway=gateway, syndic_tags=syndic_tags)
        self._jobs = Remembered()

    async def open(self) -> None:
        """Start to look for what is new."""
        self._away.begin()
        self.spawn(self._spread(), "spread")
        self.spawn(self._look_again(), "away")
        self.spawn(self._prune(), "prune")

    # --- Feed ------------------------------------------------------------------------------------------------------

    async def run(self, above: SaltAbove, master: str) -> None:
        """Tell this master, until cancelled. Raises ``Unanswered`` and ``Refused``."""
        try:
            await self._run(above, master)
        except Unanswered:
            self._metrics.add("salt_unconfirmed")
            raise
        except StationFailed as failed:
            # Nothing was let go: it is told again, as when the master had not answered.
            log.error("telling a Salt master stopped, the store failed master=%s error=%s", master, failed)
            self._metrics.add("salt_store_failures")
            raise Unanswered("the store failed", found=str(failed)) from failed

    async def _run(self, above: SaltAbove, master: str) -> None:
        newest = await self._spool.newest("returns")
        line = Line(above, Cursor("returns", newest), self._paces.setdefault(master, Pace()))
        self._lines[master] = line
        self._away.here(master)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._lane(line, self._announce_open(line, master)), name=f"salt/{master}/open")
                group.create_task(self._lane(line, line.announce()), name=f"salt/{master}/announce")
                group.create_task(self._lane(line, line.answer_at_once()), name=f"salt/{master}/prompt")
                group.create_task(self._lane(line, self._post(line, master)), name=f"salt/{master}/post")
                for number in range(LINES):
                    name = f"salt/{master}/answer-{number}"
                    group.create_task(self._lane(line, self._answer(line, master, number)), name=name)
        except BaseExceptionGroup as group:
            # What ended first is why; the others were cancelled for it.
            raise group.exceptions[0] from None
        finally:
            self._metrics.add("salt_prompt_dropped", line.announcements.qsize() + line.prompt.qsize())
            if self._lines.get(master) is line:
                del self._lines[master]
                self._away.gone(master)

    async def _lane(self, line: Line, work: Coroutine[Any, Any, None]) -> None:
        """One of those that tell a master. What ends it ends all, but not before the others' messages have arrived."""
        try:
            await work
        except (Unanswered, Refused, StationFailed):
            await line.leave()
            raise

    def active(self, master: str, active: bool) -> None:
        """This master is the active one from now on, or is no more."""
        if active:
            self._active = master
        elif self._active == master:
            self._active = None
        self._rewind()

    def masters_changed(self) -> None:
        """What waits for a master that is not in the list any more is for another one; a new one is waited for."""
        self._away.listed(self._lines)
        self._rewind()

    async def emptied(self, master: str) -> None:
        """Return when this master has confirmed all that is for it, or is not there."""
        while (line := self._lines.get(master)) is not None:
            if line.answered.is_set() and line.posted.is_set():
                return
            await line.answered.wait()
            await line.posted.wait()

    # --- ImmediateSender ---------------------------------------------------------------------------------------------

    def announce(self, master: str, jid: str, ids: Sequence[str]) -> None:
        """Say whose answers to wait for. When the master is not there it is said as soon as it is, from the book."""
        self._at_once(master, lambda line: line.announcements.put_nowait((jid, ids)))

    def tell(self, master: str, entry: ReturnsOfJob) -> None:
        """An answer that nobody needs later."""
        self._at_once(master, lambda line: line.prompt.put_nowait(entry))

    def _at_once(self, master: str, put: Callable[[Line], None]) -> None:
        line = self._lines.get(master)
        try:
            if line is None or line.leaving:
                raise asyncio.QueueFull
            put(line)
        except asyncio.QueueFull:
            self._metrics.add("salt_prompt_dropped")

    async def _announce_open(self, line: Line, master: str) -> None:
        """Say again whose answers to wait for: what was said before may not have arrived."""
        for jid, ids in await self._book.to_announce(master, self._clock.wall() - AWAY_SECONDS):
            if line.leaving:
                return
            with line.telling():
                await line.above.announce(jid, ids)

    # --- answers ---------------------------------------------------------------------------------------------------

    async def _answer(self, line: Line, master: str, number: int) -> None:
        while not line.leaving:
            await line.may_tell(number)
            news = line.news
            chunk = Chunk(line.pace.chunk)
            try:
                async with line.turn:
                    await self._fill(chunk, line, master)
                    chunk.handed_over = bool(chunk.sequences)
                    line.busy += chunk.handed_over
                    if not chunk.sequences and not line.busy:
                        line.answered.set()
                if chunk.sequences and not line.leaving:
                    with line.telling():
                        await self._hand_over(chunk, line, master)
            finally:
                # Also when it is the store or a lost link that ends it, in the middle of what was claimed by then.
                self._release(chunk, line)
            if not chunk.sequences:
                await news.wait()

    async def _hand_over(self, chunk: Chunk, line: Line, master: str) -> None:
        still = await self._spool.waiting("returns", chunk.sequences)
        if still != set(chunk.sequences):
            # Somebody else was told some of it meanwhile: the rest is looked for again.
            chunk.settled = not still
            return
        if chunk.records:
            told = entries(chunk.records, await self._told({record.jid for record in chunk.records}, master))
            told = [plainly(each) if self._not_taken.is_odd_job(master, each.jid) else each for each in told]
            try:
                with line.paced(len(chunk.records), self._clock):
                    await line.above.returns(told)
            except (NotConfirmed, Refused) as no:
                # Not where it was only late, or the line was lost.
                doubted = self._not_taken.refused(master, "returns", chunk.told)
                # What looks like an old session costs a sign-in each time: the next message waits as after a lost line.
                at_once = not (isinstance(no, Refused) and no.reason in STALE)
                if len(chunk.told) > 1 and at_once:
                    self._metrics.add("salt_unconfirmed")
                elif doubted:
                    await self._let_go_of(chunk, told, line, master)
                else:
                    raise
                return
            self._metrics.add("salt_answers_sent", len(chunk.records))
        answers = Counter(record.jid for record in chunk.records)
        await self._spool.confirm_items("returns", chunk.sequences, master, [self._book.kept.told(answers)])
        self._not_taken.gone("returns", chunk.told)
        chunk.settled = True

    async def _let_go_of(self, chunk: Chunk, told: Sequence[ReturnsOfJob], line: Line, master: str) -> None:
        """The one answer of a message that the master does not take, once it takes something in its place."""
        (record,), (entry,) = chunk.records, told
        counted = [self._book.kept.told({record.jid: 1})]
        # An answer that has its job with it is told once more below, as each message may cost a sign-in.
        sound = not entry.load and await taken_after_all(line.above, told)
        if sound or await told_otherwise(line.above, told):
            if not sound:
                self._not_taken.odd_job(master, entry.jid)
                log.warning("a Salt master takes answers without their job alone master=%s jid=%s", master, entry.jid)
            self._metrics.add("salt_answers_sent")
            await self._spool.confirm_items("returns", chunk.told, master, counted)
        else:
            words = "an answer that a Salt master does not take is let go master=%s jid=%s device=%s"
            log.error(words, master, entry.jid, record.id)
            await self._spool.drop("returns", chunk.told[0], NOT_TAKEN, counted)
        self._not_taken.gone("returns", chunk.told)

    async def _fill(self, chunk: Chunk, line: Line, master: str) -> None:
        """Claim the next items for this master that nobody else is being told."""
        async for sequence, body in line.cursor.items(self._spool):
            if sequence in self._claimed:
                continue
            item = self._read(body)
            if not await self._is_for(item, master) or sequence in self._claimed:
                continue
            if isinstance(item, OutcomeRecord):
                most = min(chunk.most, self._not_taken.most("returns", sequence))
                if len(chunk.sequences) >= most:
                    # It is told in a smaller message, and has been passed by now.
                    line.cursor.rewind()
                    break
                chunk.most = most
                chunk.told.append(sequence)
                chunk.records.append(item)
            self._claimed.add(sequence)
            chunk.sequences.append(sequence)
            chunk.size += len(body)
            if chunk.full():
                break

    def _release(self, chunk: Chunk, line: Line) -> None:
        self._claimed.difference_update(chunk.sequences)
        line.busy -= chunk.handed_over
        if chunk.sequences and not chunk.settled:
            # Whoever may tell it by now has gone past it, as it was claimed.
            self._rewind()

    def _read(self, body: bytes) -> Item | None:
        try:
            item = decode_item(body)
        except Refused as refusal:
            # It was written by this program: it is let go, and said, so that nothing waits behind it for ever.
            log.error("an item of the spool cannot be read and is let go reason=%s", refusal.reason)
            self._metrics.add("salt_items_unreadable")
            return None
        if isinstance(item, JobDefinition):
            with suppress(Refused):
                job = decode_job(item.job)
                if job.origin != ORIGIN:
                    # The store may have let go of it by the time that its answers go up.
                    self._jobs.put(job.jid, job, len(item.job))
        return item

    async def _is_for(self, item: Item | None, master: str) -> bool:
        if item is None:
            return True
        jid = decode_job(item.job).jid if isinstance(item, JobDefinition) else getattr(item, "jid", "")
        job = await self._job(jid)
        return self._owner(job.master if isinstance(job, Ordered) else None) == master

    def _owner(self, orderer: str | None) -> str | None:
        """Who is to be told of a job now; None while it has to wait."""
        if orderer is None or orderer not in self._masters():
            return self._active
        if orderer in self._lines:
            return orderer
        return self._active if self._away.over(orderer) else None

    async def _told(self, jids: set[str], master: str) -> dict[str, Told]:
        found = {}
        for jid in jids:
            match await self._job(jid):
                case Ordered() as order:
                    arg = order.load.get("arg", [])
                    load = None if order.master == master else order.load
                    found[jid] = Told(
                        order.called, arg if isinstance(arg, list) else [], load, order.master_id, order.told_as
                    )
                case Job() as job:
                    load = load_of(public(job))
                    found[jid] = Told(load["fun"], load["arg"], load)
                case None:
                    found[jid] = Told("", (), {"jid": jid, "fun": "", "arg": [], "tgt": "*", "tgt_type": "glob"})
        return found

    async def _job(self, jid: str) -> Ordered | Job | None:
        if jid in self._jobs:
            return self._jobs[jid]
        order = await self._book.get(jid)
        found: Ordered | Job | None = order
        size = 0 if order is None else order.size
        if order is None:
            rows = await self._reader.rows("SELECT body FROM jobs WHERE jid = ?", (jid,))
            found, size = (decode_job(bytes(rows[0][0])), len(rows[0][0])) if rows else (None, 0)
        self._jobs.put(jid, found, size)
        return found

    # --- events ----------------------------------------------------------------------------------------------------

    async def _post(self, line: Line, master: str) -> None:
        """Events, telemetry and the audit go to the active master, in order, one batch after another."""
        while not line.leaving:
            news = line.news
            stream: Stream | None = None
            if self._active == master:
                async with self._posting:
                    stream = await self._spool.next_stream({"returns": NO_ANSWERS})
                    if stream is not None and self._active == master and not line.leaving:
                        with line.telling():
                            await self._posts.some(line.above, master, stream)
            if stream is None:
                line.posted.set()
                await news.wait()

    # --- what wakes them -------------------------------------------------------------------------------------------

    async def _spread(self) -> None:
        while True:
            await self._spool.changed.wait()
            self._spool.changed.clear()
            for line in list(self._lines.values()):
                line.wake()

    async def _look_again(self) -> None:
        """When a master has been away for long enough, its answers go to the active one."""
        passed: set[str] = set()
        while True:
            left = {master: self._away.until(master) for master in self._masters() if master not in self._lines}
            over = {master for master, seconds in left.items() if seconds <= 0}
            if over - passed:
                self._rewind()
            passed = over
            await asyncio.sleep(min([5.0, *(seconds for seconds in left.values() if seconds > 0)]))

    def _rewind(self) -> None:
        for line in list(self._lines.values()):
            line.cursor.rewind()
            line.wake()

    async def _prune(self) -> None:
        while True:
            try:
                await self._book.prune(self._clock.wall())
            except StationFailed as error:
                log.error("old orders not pruned error=%s", error.found)
            await asyncio.sleep(PRUNE_SECONDS)
