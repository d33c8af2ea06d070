"""The station as a target: a downlink with one device, which is the station itself.

It takes jobs as an agent does: sealed, signed by whoever may order jobs of this site, once, with a journal of its own
on disk. Beside what its issuer may, a job needs a grant in the settings of this station: looking, unless they say more.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Final

from device_agent.beacons.beacons import Beacons
from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.errors import ConfigInvalid, OutstationError, Refused
from device_agent.events import Handed
from device_agent.grains import own_grains
from device_agent.heard import Delivery
from device_agent.jobs import Jobs
from device_agent.journal_file import FileJournal
from device_agent.local_host import LocalHost
from device_agent.own import Custom, Own
from device_agent.parts import Part
from device_agent.protocol.jid import JidMaker
from device_agent.protocol.links import Answered, Parcel, Returns
from device_agent.protocol.messages import Grains, Hello, Job
from device_agent.protocol.several import calls
from device_agent.protocol.stations import station_device
from device_agent.signed_delivery import vouched
from gateway.answers import Answers, Within
from gateway.devices.authority import Authority
from gateway.devices.epochs import Epochs
from gateway.devices.registry import Registry
from gateway.downlinks.hearing import ResealPort
from gateway.downlinks.sealing import sealed_for
from gateway.downlinks.ssh_judgement import Judge, SteadJudgement
from gateway.downlinks.ssh_outgoing import Outgoing
from gateway.downlinks.ssh_starts import DoubtedStarts
from gateway.downlinks.under_way import UnderWay
from gateway.metrics import Metrics
from gateway.own.grants import check_station_grants
from gateway.own.settings import OwnSettings
from gateway.store.damage import ROW, decode
from gateway.store.doubt import Doubt
from gateway.store.reader import Reader

log = logging.getLogger(__name__)

LINK: Final = "station"
AGENT: Final = "station"
"""What stands where an agent says its version."""

JOURNAL: Final = "station-journal"
TICK_SECONDS: Final = 1.0


class StationTarget(Part):
    """Implements ``Downlink`` for the station itself."""

    name: ClassVar[str] = LINK
    drain_seconds: ClassVar[float] = 2.0

    def __init__(
        self,
        *,
        site: str,
        role: str,
        settings: OwnSettings,
        state_dir: Path,
        authority: Authority,
        epochs: Epochs,
        registry: Registry,
        returns: Returns,
        reseal: ResealPort,
        answers: Answers,
        custom: Custom,
        reader: Reader,
        metrics: Metrics,
        clock: Clock,
        doubt: Doubt,
    ) -> None:
        self._site = site
        self._id = station_device(site)
        self._settings = settings
        self._extra: Grains = {**settings.grains, LINK: role}
        self._registry = registry
        self._returns = returns
        self._answers = answers
        self._reader = reader
        self._metrics = metrics
        self._clock = clock
        self._starts = DoubtedStarts(doubt)
        self._grains: Grains = {**self._extra, "id": self._id}
        self._complete, self._regraining = False, asyncio.Lock()
        self._host = LocalHost(self._grains, settings.grains_file)
        self._beacons = Beacons(
            settings.beacons,
            state_dir,
            from_pillar="none",
            host=self._host,
            clock=clock,
            count=lambda reason, detail, device: metrics.refused(LINK, reason, device, detail),
        )
        self._path = state_dir / JOURNAL
        self._journal = FileJournal(self._path)
        self.health = self._journal.health
        self._judge = Judge(site, authority, epochs)
        self._judge.custom = custom
        self._judgement: SteadJudgement | None = None
        self._outgoing = Outgoing(returns=returns, reseal=reseal, metrics=metrics, link=LINK)
        self._jobs: Jobs | None = None
        self._under_way = UnderWay()

    async def open(self) -> None:
        """Be here. The machine is looked at afterwards: what it says of itself may take a while."""
        if (known := self._registry.own_device(self._id)) is not None and known.place is not None:
            log.error("a device has the name of the station, which is no target therefore device=%s", self._id)
            return
        fresh = not await asyncio.to_thread(self._path.exists)
        opened = await self._journal.open()
        if fresh and (damaged := await self._damaged()) is not None:
            # The store was restored, and the journal was not: what ran since the backup must not run again.
            await self._journal.refuse_until(JidMaker().next(damaged))
        if opened.set_aside is not None:
            log.error("the station's journal was damaged: set aside as %s", opened.set_aside)
        self._judgement = SteadJudgement(self._judge, self._journal.marks())
        self._jobs = Jobs(
            lend=lambda: nullcontext(self._host),
            journal=self._journal,
            send=lambda body: self._outgoing.say(self._id, body),
            spawn=self._spawn_job,
            clock=self._clock,
            counters=Counters(),
            starts=self._starts,
            own=Own(
                grains_file=self._settings.grains_file,
                regrain=self.regrain,
                station=Within(self._answers, self._id),
                custom=self._judge.custom,
                events=Handed(Within(self._answers, self._id), self._clock),
                beacons=self._beacons,
            ),
        )
        # Until the machine was looked at, the grains of the previous start count: their absence is no change.
        before = known.grains if known is not None else {}
        self._complete = bool(before)
        self._registry.stand(LINK, self._id, AGENT, {**before, **self._grains}, changes=False)
        self._returns.hello(self._id, Hello(secrets.token_hex(8), AGENT, self._grains, *self._journal.oldest()))
        self.spawn(self._outgoing.run(), "outgoing")
        self._jobs.heard_again(self._clock.monotonic())
        self._jobs.resume()
        self.spawn(self._look(), "grains")
        self.spawn(self._beacons.run(self._jobs.own), "beacons")
        self.spawn(self._tick(self._jobs), "tick")

    async def drain(self) -> None:
        """Begin no job any more, wait for those that run, and hand over what was said."""
        if self._jobs is None:
            return
        self._jobs.draining = True
        await self._under_way.quiet()
        await self._outgoing.settle()

    async def close(self) -> None:
        """Let the journal go."""
        if self._jobs is not None:
            await self._journal.close()

    async def _damaged(self) -> float | None:
        """When the store was damaged, or restored from a backup; None for never."""
        rows = await self._reader.rows("SELECT value FROM station WHERE key = ?", (ROW,))
        damage = decode(rows[0][0]) if rows else None
        return damage.at if damage is not None else None

    # --- Downlink --------------------------------------------------------------------------------------------------

    async def deliver(self, parcel: Parcel, remaining: float, names: Sequence[str]) -> None:
        """Take a job."""
        body, _ = sealed_for(parcel, self._site)
        if self._jobs is None or self._judgement is None or self._id not in names:
            return
        if body is None:
            self._metrics.add("station_not_sealed")
            return
        try:
            delivery = vouched(body, remaining, self._judgement, self._clock.monotonic())
        except Refused as refused:
            self._metrics.refused(LINK, refused.reason, self._id, refused.detail)
            return
        # As the registry has them, with what targets by pillar ask for.
        known = self._registry.own_device(self._id)
        grains = known.grains if known is not None else self._grains
        self._jobs.deliver(_Granted(delivery, self._settings.grants, self._judge.custom), self._id, grains)

    async def cancel(self, jid: str, names: Sequence[str]) -> None:
        """Do not start a job."""
        if self._jobs is not None and self._id in names:
            self._jobs.cancel(jid, named=True)

    async def confirm(self, answered: Answered) -> None:
        """Its returns are on disk."""
        if self._jobs is not None:
            self._jobs.confirm([jid for jid, names in answered.items() if self._id in names])

    def _spawn_job(self, job: Coroutine[Any, Any, None]) -> None:
        self.spawn(self._under_way.counted(job), "job")

    # --- what it says of itself ------------------------------------------------------------------------------------

    async def regrain(self) -> None:
        """Look at the machine anew, and tell of it. Raises ``ConfigInvalid`` for grains that no message can carry."""
        # One at a time: of two at once the one that began first, with older facts, may end last.
        async with self._regraining:
            grains = await own_grains(self._host, self._id, self._extra, self._grains)
            grains = await self._judge.custom.told(self._host, grains)
            self._grains.clear()
            self._grains.update(grains)
            self._registry.stand(LINK, self._id, AGENT, deepcopy(grains), changes=self._complete)
            self._complete = True

    async def _look(self) -> None:
        while True:
            try:
                await self.regrain()
            except (ConfigInvalid, OutstationError) as error:
                log.error("the grains of this station were not refreshed error=%s", error)
            if not self._settings.grains_refresh_seconds:
                return
            await asyncio.sleep(self._settings.grains_refresh_seconds)

    async def _tick(self, jobs: Jobs) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._registry.heard(self._id)
            jobs.tick(self._clock.monotonic())
            await self._journal.flush()


class _Granted(Delivery):
    """A job that runs only if this station's settings grant it as well."""

    __slots__ = ("_custom", "_grants", "_inner")

    def __init__(self, inner: Delivery, grants: Sequence[str], custom: Custom) -> None:
        super().__init__(inner.jid, inner.tgt, inner.tgt_type, inner.kid, inner.seq)
        self._inner = inner
        self._grants = grants
        self._custom = custom

    def open(self) -> tuple[Job, float]:
        job, remaining = self._inner.open()
        for fun, arg, kwarg in calls(job.fun, job.arg, job.kwarg):
            check_station_grants(self._grants, fun, (arg, kwarg), self._custom.reach)
        return job, remaining
