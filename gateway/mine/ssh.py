"""The mine of SSH devices: their values are refreshed here, as an agent does it, within what the site may order.

Nobody signs this, so it is held to what the site's certificate grants, like a job that the site signs itself.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from device_agent import mine
from device_agent.clock import Clock
from device_agent.ended import FunctionFailed
from device_agent.errors import Refused
from device_agent.folder_limits import limited
from device_agent.host import HostLost
from device_agent.parts import Part
from device_agent.protocol.mine import Call, calls
from device_agent.trust.policy import check_function
from device_agent.trust.reach import SHELL_ROLE, needs_shell
from gateway.config import SshSettings
from gateway.devices.authority import Authority
from gateway.devices.registry import Registry
from gateway.downlinks.ssh_presence import LINK
from gateway.downlinks.ssh_stead import Stead
from gateway.metrics import Metrics

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
AT_ONCE: Final = 8


class SshMine(Part):
    """Looks which devices are due."""

    name: ClassVar[str] = "ssh-mine"
    drain_seconds: ClassVar[float] = 1.0
    """Nothing is drained: a refresh that is cut off is made anew at the next start."""

    def __init__(
        self,
        *,
        site: str,
        settings: SshSettings,
        reached: Callable[[], list[Stead]],
        registry: Registry,
        authority: Authority,
        metrics: Metrics,
        clock: Clock,
        randomness: random.Random | None = None,
    ) -> None:
        self._site = site
        self._calls = calls(settings.mine_functions)
        self._seconds = settings.mine_interval * 60.0
        self._reached = reached
        self._registry = registry
        self._authority = authority
        self._metrics = metrics
        self._clock = clock
        self._randomness = randomness or random.SystemRandom()
        self._due: dict[str, float] = {}
        self._busy: set[str] = set()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def open(self) -> None:
        """Begin, where there is anything to do."""
        if self._calls:
            self.spawn(self._run(), "look")

    async def _run(self) -> None:
        while True:
            here = {stead.name: stead for stead in self._reached() if self._is_ours(stead.name)}
            now = self._clock.monotonic()
            known = {stead.name for stead in self._reached()}
            self._due = {name: due for name, due in self._due.items() if name in known}
            for name, stead in here.items():
                if name not in self._due:
                    first = min(mine.FIRST_SECONDS, self._seconds or mine.FIRST_SECONDS)
                    self._due[name] = now + self._randomness.uniform(0.0, first)
                elif self._due[name] <= now and name not in self._busy:
                    self._busy.add(name)
                    self.spawn(self._refresh(stead), f"refresh/{name}")
            await asyncio.sleep(TICK_SECONDS)

    def _is_ours(self, name: str) -> bool:
        known = self._registry.own_device(name)
        return known is not None and known.present and known.link == LINK

    async def _refresh(self, stead: Stead) -> None:
        seconds = mine.AGAIN_SECONDS
        try:
            granted, folders = self._granted(stead.name)
            async with self._turns, stead.line.lend() as host:
                failed = await mine.refresh(granted, limited(host, folders), stead.jobs.own)
            self._metrics.add("ssh_mine_refreshed")
            self._metrics.add("ssh_mine_failed", len(failed))
            seconds = self._seconds * self._randomness.uniform(1.0 - mine.JITTER, 1.0 + mine.JITTER)
        except (FunctionFailed, HostLost) as error:
            log.warning("the mine was not refreshed, tried again device=%s error=%s", stead.name, error)
            self._metrics.add("ssh_mine_not_refreshed")
        finally:
            self._busy.discard(stead.name)
            self._due[stead.name] = self._clock.monotonic() + seconds if seconds else float("inf")

    def _granted(self, device: str) -> tuple[Sequence[Call], Sequence[str]]:
        """What the site may order of its devices by itself, and the folders that its paths must not leave.

        The rest is refused and counted.
        """
        granted, folders = [], list[str]()
        for call in self._calls:
            given = (call.arg, call.kwarg)
            try:
                issuer = self._authority.anchor.issuer(
                    self._authority.signing.kid, "job", self._site, self._authority.now()
                )
                if issuer.policy is None or (needs_shell(call.fun, given) and SHELL_ROLE not in issuer.certifier):
                    raise Refused("not_granted", call.fun)
                folders += check_function(issuer.policy, call.fun, call.arg, call.kwarg)
            except Refused as refusal:
                self._metrics.refused("mine", refusal.reason, device, f"{call.name}: {refusal.detail}")
                continue
            granted.append(call)
        return granted, folders
