"""One chaos run: everything up, load on, faults one after another, everything healed, and the reckoning."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.chaos.breaking import Breaker
from tests.chaos.coordinator import Coordinator, Finding, drops_beside
from tests.chaos.evidence import drops, gather, kept, open_jobs
from tests.chaos.expect import Watch
from tests.chaos.load import Load
from tests.chaos.network import Network
from tests.chaos.plan import CALM_SECONDS, STORE, Fault, draw, once, undisturbed, windows
from tests.chaos.plant import MASTERS, SITE, STATIONS, Plant

TICK_SECONDS = 0.1
LOOK_SECONDS = 5.0
TELL_SECONDS = 15.0
DRAIN_SECONDS = 240.0
DISK_SLACK_SECONDS = 10.0
MEGABYTES = 384


@dataclass(frozen=True)
class Terms:
    """What a run is; together with the code it is repeatable."""

    seed: int
    seconds: float
    devices: int
    faults: int
    """0: every sort of fault once, as soon as it can be; the seconds are those of that plan then."""
    swarms: int = 4
    master_type: str = "failover"
    keep: Path | None = None
    excused: frozenset[str] = frozenset()
    """Rules whose findings are told and do not fail the run."""


@dataclass
class Result:
    """How it went."""

    findings: list[Finding]
    applied: Counter[str]
    tally: str
    seconds: float
    excused: frozenset[str] = frozenset()
    samples: dict[str, Any] = field(default_factory=dict)

    @property
    def failures(self) -> list[Finding]:
        """What is not excused."""
        return [finding for finding in self.findings if finding.rule not in self.excused]

    @property
    def good(self) -> bool:
        """Whether everything holds."""
        return not self.failures


Tell = Callable[[str], None]


def run(terms: Terms, tell: Tell) -> Result:
    """Run it. Bounded by the seconds of the terms and those of the drain."""
    if terms.faults:
        plan = draw(terms.seed, terms.faults, terms.seconds, terms.swarms)
    else:
        plan = once(terms.seed, terms.swarms)
        terms = replace(terms, seconds=max(fault.end for fault in plan) + CALM_SECONDS)
    for fault in plan:
        tell(f"  {fault}")
    begun = time.monotonic()
    with Network() as network, Plant(network, MEGABYTES, terms.master_type) as plant:
        tell(f"{terms.devices} devices join …")
        plant.establish(terms.devices, terms.swarms)
        tell(f"everybody is here after {time.monotonic() - begun:.0f} s; the faults begin")
        chaos = _Chaos(plant, network, plan, terms, tell)
        chaos.go()
        undrained = chaos.drain()
        findings = chaos.reckon(undrained)
        tally = f"{chaos.coordinator.tally()}; {chaos.watch.tally()}"
        result = Result(findings, chaos.applied, tally, time.monotonic() - begun, terms.excused)
        if not result.good or terms.keep is not None:
            folder = terms.keep or Path(tempfile.mkdtemp(prefix=f"chaos-{terms.seed}-"))
            kept(plant, [str(finding) for finding in findings], chaos.facts(), folder)
            tell(f"kept in {folder}")
        return result


class _Chaos:
    """The director: faults and their undoing at their times, and an eye on everything meanwhile."""

    def __init__(self, plant: Plant, network: Network, plan: Sequence[Fault], terms: Terms, tell: Tell) -> None:
        self._plant = plant
        self._network = network
        self._plan = plan
        self._terms = terms
        self._tell = tell
        self._begun = 0.0
        self._samples: list[tuple[float, Mapping[tuple[str, str], int]]] = []
        self.applied: Counter[str] = Counter()
        self.coordinator = Coordinator()
        self.watch = Watch(plant.stations[SITE], lambda: plant.station_view(SITE), self._now)
        self._breaker = Breaker(plant, network, self.coordinator, self.watch, self._later, tell)
        self._load = Load(self.coordinator, plant.socket_of, terms.seed, terms.swarms, terms.seconds)

    def go(self) -> None:
        """The faults, from the first to the undoing of the last."""
        moments = [(fault.start, True, fault) for fault in self._plan]
        moments += [(fault.end, False, fault) for fault in self._plan]
        moments.sort(key=lambda moment: moment[0])
        self._begun = time.monotonic()
        self._load.begin()
        try:
            with self.watch:
                self._break(moments)
        finally:
            self._load.end()

    def _break(self, moments: list[tuple[float, bool, Fault]]) -> None:
        pause = threading.Event()
        look = tell = 0.0
        while moments or self._now() < self._terms.seconds:
            now = self._now()
            while moments and moments[0][0] <= now:
                _, begins, fault = moments.pop(0)
                if begins:
                    self._tell(f"{self._now():7.1f} s  {fault.kind} {fault.subject} {fault.way}")
                    try:
                        self._breaker.begin(fault)
                    except (OSError, AssertionError, LookupError, subprocess.SubprocessError) as error:
                        self._breaker.failed(fault, error)
                    self.watch.begin(fault, undisturbed(fault, self._plan))
                    self.applied[fault.kind if fault.kind != "kill" else f"kill {fault.subject}"] += 1
                else:
                    self.watch.end(fault)
                    self._breaker.end(fault)
            self._plant.keep_up(time.monotonic())
            if now >= look:
                look = now + LOOK_SECONDS
                self._look()
            if now >= tell:
                tell = now + TELL_SECONDS
                self._tell(f"{now:7.1f} s  {self.coordinator.tally()}; {self._waiting()} wait in the spool")
            pause.wait(TICK_SECONDS)

    def drain(self) -> str:
        """Wait until nothing is under way any more; what still was when the wait was over."""
        self._tell(f"{self._now():7.1f} s  all is healed; waiting until nothing is under way")
        left = "nothing was asked"
        deadline = time.monotonic() + DRAIN_SECONDS
        pause = threading.Event()
        tell = 0.0
        while left and time.monotonic() < deadline:
            self._plant.keep_up(time.monotonic())
            left = self._left()
            if left and self._now() >= tell:
                tell = self._now() + TELL_SECONDS
                self._tell(f"{self._now():7.1f} s  {left}")
            pause.wait(TICK_SECONDS)
        return left

    def reckon(self, undrained: str) -> list[Finding]:
        """Every rule that does not hold."""
        self._look()
        self._plant.last_reports()
        if self.coordinator.gaps:
            # What a master told later is not acknowledged yet, and a recount says so.
            self._plant.command("spool", "acknowledge", station=SITE)
        evidence = gather(
            self._plant,
            endings=self._endings(),
            drops_outside=drops_beside(self._samples, windows(self._plan, STORE), DISK_SLACK_SECONDS),
            undrained=undrained,
        )
        if evidence.verified is None:
            self._tell(f"spool verify was not asked: {evidence.verify_words}")
        findings = self.coordinator.reconcile(evidence) + self.watch.unnamed()
        traces = self._plant.crashes()
        if traces:
            findings.append(Finding("traceback", "a log has a traceback", traces))
        return findings

    def facts(self) -> dict[str, Any]:
        """Who said what, for whoever looks into a failure."""
        return {
            "seed": self._terms.seed,
            "plan": [str(fault) for fault in self._plan],
            "events": self.coordinator.events,
            "orders": self.coordinator.orders,
            "endings": [f"{each.name} {each.status} {each.log}" for each in self._plant.endings],
            "reports": self._plant.reports,
        }

    def _now(self) -> float:
        return time.monotonic() - self._begun

    def _later(self, seconds: float) -> None:
        """A fault took longer than it was to: what comes next comes so much later."""
        self._begun += seconds

    # --- looks ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._plant.take_reports()
        self._samples.append((self._now(), drops(self._plant.store_of(SITE))))

    def _waiting(self) -> Any:
        return self._plant.station_view(SITE).get("spool_pending", "unknown how many")

    def _left(self) -> str:
        for name in STATIONS:
            if not self._plant.answers(name):
                return f"{name} does not answer"
        if missing := self._plant.missing_swarms():
            return f"{missing} are not back"
        view = self._plant.station_view(SITE)
        links = (view.get("uplink") or {}).get("links", [])
        if len(links) < len(MASTERS) or any(link["state"] != "connected" for link in links):
            return f"the gateway has links that are {', '.join(link['state'] for link in links) or 'not there'}"
        for name in (*MASTERS, SITE):
            jobs = open_jobs(self._plant.store_of(name))
            if jobs:
                return f"{name} has {len(jobs)} open jobs: {', '.join(jobs[:5])}"
        waiting = view.get("spool_pending")
        return f"{waiting} items wait in the spool" if waiting else ""

    def _endings(self) -> list[str]:
        """Those for which no fault is the reason."""
        return [
            f"{each.name} with status {each.status} at {each.at - self._begun:.0f} s: {each.log[-400:]}"
            for each in self._plant.endings
            if not (
                each.name == SITE and any(0 <= each.at - at < DISK_SLACK_SECONDS for at in self._breaker.broker_kills)
            )
        ]


def clean(folder: Path) -> None:
    """Forget what an earlier run kept."""
    shutil.rmtree(folder, ignore_errors=True)
