"""The beacons of one device: which of them run, and how that changes while it runs.

Each runs as a task of its own. When what is configured changes, those that are concerned stop and begin anew, and the
others go on as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import random
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, Literal

from device_agent import loader
from device_agent.backoff import Backoff
from device_agent.beacons.asked import Changed
from device_agent.beacons.given import Given, InvalidBeacon, NotThere, Options
from device_agent.beacons.kept import FILE, Configured, Kept, all_enabled, configured, of_pillar
from device_agent.beacons.kinds import ALL_ENABLED, BEACONS, KINDS, Begun, begun
from device_agent.beacons.port import Around, Looking
from device_agent.beacons.sending import Sending
from device_agent.beacons.watch import CLOSE_SECONDS, Count, Watch
from device_agent.clock import Clock
from device_agent.ended import FunctionFailed
from device_agent.host import Host
from device_agent.own import Custom, NoCustom, Own

log = logging.getLogger(__name__)

FromPillar = Literal["none", "looks", "all"]
"""Which beacons a pillar may configure: none, those that tell what anybody on the machine may know, or all."""

PILLAR_FIRST_SECONDS: Final = 10.0
"""Within so long after a start the pillar is asked for, not by all devices of a site at once."""

PILLAR_CEILING_SECONDS: Final = 600.0
BROUGHT_SECONDS: Final = 30.0
"""How often it is looked whether a beacon that is configured was brought meanwhile."""


class Beacons:
    """Implements ``OwnBeacons``. ``run`` is a loop of whoever owns it."""

    def __init__(
        self,
        settings: Configured,
        folder: Path,
        *,
        from_pillar: FromPillar,
        host: Host,
        clock: Clock,
        count: Count,
    ) -> None:
        self._kept = Kept(settings, folder / FILE)
        self._folder = folder
        self._from_pillar = from_pillar
        self._host = host
        self._clock = clock
        self._count = count
        self._custom: Custom = NoCustom()
        self._pillar: Configured = {}
        self._changed = asyncio.Event()
        self._running: dict[str, tuple[Any, asyncio.Task[None]]] = {}

    # --- at work -------------------------------------------------------------------------------------------------

    async def run(self, own: Own) -> None:
        """Run them, for ever, as they are configured at each moment."""
        self._custom = own.custom
        await asyncio.to_thread(self._kept.load)
        own.pillar.on_change(lambda: self._take_pillar(own))
        async with asyncio.TaskGroup() as group:
            if self._from_pillar != "none":
                group.create_task(self._ask_pillar(own), name="beacons/pillar")
            while True:
                self._changed.clear()
                await self._settle(own, group)
                await self._changed.wait()

    async def _ask_pillar(self, own: Own) -> None:
        """Once: what changes later is heard when the pillar is asked for by somebody."""
        randomness = random.SystemRandom()
        backoff = Backoff(PILLAR_FIRST_SECONDS, PILLAR_CEILING_SECONDS, floor=1.0, source=randomness)
        await asyncio.sleep(randomness.uniform(0.0, PILLAR_FIRST_SECONDS))
        while True:
            try:
                await own.pillar.load()
            except FunctionFailed as error:
                log.info("the pillar is not known yet, it is asked for again why=%s", error.why)
                await asyncio.sleep(backoff.next())
                continue
            self._take_pillar(own)
            return

    def _take_pillar(self, own: Own) -> None:
        self._pillar = {} if self._from_pillar == "none" else of_pillar(own.pillar.held)
        self._changed.set()

    async def _settle(self, own: Own, group: asyncio.TaskGroup) -> None:
        """Stop what is configured no more, or otherwise, and begin what is new."""
        wanted = self._wanted()
        gone = [name for name, (data, _) in self._running.items() if name not in wanted or wanted[name] != data]
        tasks = [self._running.pop(name)[1] for name in gone]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=2 * CLOSE_SECONDS)
        for name, data in wanted.items():
            if name not in self._running:
                task = group.create_task(self._watch(name, data, own), name=f"beacons/{name}")
                self._running[name] = (copy.deepcopy(data), task)

    def _wanted(self) -> Configured:
        found = configured(self._kept.now, self._pillar)
        if not all_enabled(found):
            return {}
        found.pop(ALL_ENABLED, None)
        if len(found) > BEACONS:
            log.error("too many beacons are configured, the others do not run count=%d most=%d", len(found), BEACONS)
            self._count("beacon_invalid", f"{len(found)} beacons, at most {BEACONS}", self._device())
        return dict(list(found.items())[:BEACONS])

    async def _watch(self, name: str, data: Any, own: Own) -> None:
        try:
            made = self._made(name, data, await asyncio.to_thread(own.custom.beacons))
        except Exception as error:  # noqa: BLE001 - a beacon that cannot be made harms only itself
            log.error("a beacon does not run: %s", error)
            what = " ".join(str(error).split()) or repr(error)
            self._count("beacon_invalid", what, self._device())
            await self._watching(Begun(name, Options(), _Nothing()), own).say_wrong(what)
            if isinstance(error, NotThere):
                await self._brought(name, data, own)
            return
        # As in Salt, a beacon that ran once is disabled then.
        if made.options.enabled and await self._watching(made, own).run():
            self.enable(name, enabled=False)

    async def _brought(self, name: str, data: Any, own: Own) -> None:
        """Wait until a site has brought what is configured, and begin it then."""
        module = Given(name, data).module
        while True:
            await asyncio.sleep(BROUGHT_SECONDS)
            if module in await asyncio.to_thread(own.custom.beacons):
                self._running.pop(name, None)
                self._changed.set()
                return

    def _made(self, name: str, data: Any, brought: Collection[str]) -> Begun:
        made = begun(name, data, brought)
        if name not in self._kept.now and made.beacon.reads and self._from_pillar != "all":
            raise InvalidBeacon(
                f"Beacon {name} can tell what only root may read, and the pillar may not configure it.",
                where=f"beacons.{name}",
                hint="configure it in the agent's settings, or set beacons_from_pillar: all there",
            )
        return made

    def _watching(self, made: Begun, own: Own) -> Watch:
        return Watch(
            made,
            Around(
                self._host,
                self._clock,
                lambda fun, given: loader.call(fun, self._host, [], given, own),
                own.custom,
                self._folder,
            ),
            device=self._device,
            fires=Sending(own, self._clock, self._device),
            running=lambda: [job.fun for job in own.jobs.running()],
            count=self._count,
        )

    def _device(self) -> str:
        return str(self._host.grains.get("id", ""))

    # --- asked ---------------------------------------------------------------------------------------------------

    def listed(self, *, pillar: bool = True, own: bool = True) -> Configured:
        """What is configured."""
        return copy.deepcopy(configured(self._kept.now if own else {}, self._pillar if pillar else {}))

    def available(self) -> list[str]:
        """The beacons that there are."""
        return sorted({*KINDS, *self._custom.beacons()})

    def wrong(self, name: str, data: Any) -> str:
        """What is wrong with a configuration; nothing when nothing is."""
        try:
            begun(name, data, self._custom.beacons())
        except InvalidBeacon as error:
            return str(error)
        return ""

    def put(self, name: str, data: Any) -> Changed:
        """Configure one."""
        if name in self._pillar:
            return Changed(False, f"Cannot update beacon item {name}, because it is configured in pillar.")
        if name not in self._kept.now and len(self._kept.now) >= BEACONS:
            return Changed(False, f"There are {BEACONS} beacons, which is the most.")
        self._kept.now[name] = copy.deepcopy(data)
        self._changed.set()
        return Changed(True)

    def delete(self, name: str) -> Changed:
        """Take one away."""
        if name in self._pillar:
            return Changed(False, f"Cannot delete beacon item {name}, it is configured in pillar.")
        self._kept.now.pop(name, None)
        self._changed.set()
        return Changed(True)

    def enable(self, name: str | None, *, enabled: bool) -> Changed:
        """Have one run or not; without a name all of them."""
        if name is None:
            self._kept.now[ALL_ENABLED] = enabled
        elif name in self._pillar:
            word = "enable" if enabled else "disable"
            return Changed(False, f"Cannot {word} beacon item {name}, it is configured in pillar.")
        elif isinstance(data := self._kept.now.get(name), list):
            rest = [each for each in data if not (isinstance(each, dict) and "enabled" in each)]
            self._kept.now[name] = [*rest, {"enabled": enabled}]
        self._changed.set()
        return Changed(True)

    def reset(self) -> None:
        """Take all of them away."""
        self._kept.now.clear()
        self._changed.set()

    async def save(self) -> str:
        """Have what counts now count at the next start. Raises ``OSError``."""
        await asyncio.to_thread(self._kept.save)
        return str(self._kept.path)


class _Nothing(Looking):
    """In the place of a beacon that cannot be made."""

    async def look(self, _around: Around) -> list[Any]:
        return []
