"""What a station says of itself: the view for the API, and the facts that checks look at."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from device_agent import __version__
from device_agent.protocol.stations import devices_alone
from gateway.checks.box import Box
from gateway.devices.authority import Authority
from gateway.devices.enrolled import Enrolled
from gateway.devices.registry import Registry
from gateway.devices.site_keys import SiteKeys
from gateway.devices.sites import SiteBook
from gateway.jobs.open_jobs import OpenJobs
from gateway.metrics import Labelled, Metrics
from gateway.spool.evidence import Evidences
from gateway.spool.numbers import own_numbers, site_numbers
from gateway.spool.queue import Spool
from gateway.spool.received import SiteLedgers
from gateway.store.aftermath import Aftermath
from gateway.store.health import Failing
from gateway.store.told import Marks
from gateway.store.trust_state import StoreTrust
from gateway.store.watch import StoreWatch
from upstream.curve import CurveKeys, fingerprint


async def _none_failing() -> list[tuple[str, str]]:
    return []


class Reporting(Protocol):
    """A part that can say how it does."""

    def status(self) -> Mapping[str, Any]:
        """Its state by name."""


class StationFacts:
    """Gathers what the parts say."""

    def __init__(
        self,
        *,
        box: Box,
        keys: CurveKeys,
        authority: Authority,
        started: float,
        registry: Registry,
        site_keys: SiteKeys,
        site_book: SiteBook,
        open_jobs: OpenJobs,
        spool: Spool,
        site_ledgers: SiteLedgers,
        metrics: Metrics,
        marks: Marks,
        evidences: Evidences,
        aftermath: Aftermath,
        is_scarce: Callable[[], bool],
        store_watch: StoreWatch,
        beacons_heard: Mapping[str, float],
    ) -> None:
        self._store_watch = store_watch
        self._beacons_heard = beacons_heard
        self._is_scarce = is_scarce
        self._aftermath = aftermath
        self._marks = marks
        self._evidences = evidences
        self._box = box
        self._keys = keys
        self._authority = authority
        self._started = started
        self._registry = registry
        self._enrollment = site_keys
        self._site_book = site_book
        self._open_jobs = open_jobs
        self._spool = spool
        self._site_ledgers = site_ledgers
        self._metrics = metrics
        self.uplink: Reporting | None = None
        self.broker: Reporting | None = None
        self.downlink: Reporting | None = None
        self.ssh: Reporting | None = None
        self.sites_address: str | None = None
        self.enrolled: Callable[[], Iterable[Enrolled]] = tuple
        self.more_gauges: list[Callable[[], dict[str, float]]] = []
        """What other rooms count."""
        self.more_labelled: list[Callable[[], list[Labelled]]] = []
        self.returners_failing: Callable[[], list[tuple[str, str]]] = list
        self.engines_failing: Callable[[], list[tuple[str, str]]] = list
        self.schedule_failing: Callable[[], Coroutine[Any, Any, list[tuple[str, str]]]] = _none_failing
        self.ssh_secrets_lost: Callable[[], list[str]] = list
        self.cache_full: Callable[[], str] = str
        self.files_failing: list[Callable[[], str]] = []
        """Each says of one file or folder of the station, beside the store, why it cannot be written; or nothing."""
        self.mine: Callable[[], Mapping[str, float]] = dict

    async def station_view(self) -> dict[str, Any]:
        """The station, as the API shows it."""
        sites = self._site_book.views()
        own = list(devices_alone(self._registry.own()))
        broker = None
        if self.broker is not None:
            broker = {**self.broker.status(), **(self.downlink.status() if self.downlink is not None else {})}
        return {
            "role": self._box.role,
            "name": self._box.settings.name,
            "version": __version__,
            "started": self._started,
            "public_key": self._keys.public,
            "fingerprint": fingerprint(self._keys.public),
            "joined": self._authority.joined,
            "uplink": self.uplink.status() if self.uplink is not None else None,
            "broker": broker,
            "ssh": self.ssh.status() if self.ssh is not None else None,
            "listen": self.sites_address,
            "devices": len(own) + sum(site["devices"] for site in sites),
            "present": sum(1 for device in own if device.present) + sum(site["present"] for site in sites),
            "sites": len(sites),
            "jobs_open": len(self._open_jobs),
            "spool_pending": await self._spool.pending(),
            "accept_failed": self._metrics.accept_failures.views(),
        }

    async def metrics_text(self) -> str:
        """Counters and gauges in Prometheus' text format."""
        view = await self.station_view()
        gauges = {name: float(view[name]) for name in ("devices", "present", "sites", "jobs_open")}
        gauges |= self.mine()
        counts = view["ssh"] or {}
        gauges |= {f"ssh_{name}": float(value) for name, value in counts.items() if isinstance(value, int)}
        for more in self.more_gauges:
            gauges |= more()
        ledger = own_numbers(await self._spool.entries(), self._spool.budget.most)
        ledger += site_numbers(await self._site_ledgers.views())
        labelled = [each for more in self.more_labelled for each in more()]
        return self._metrics.text(gauges, [*ledger, *labelled])

    def refusals(self) -> list[tuple[str, str, str, int]]:
        """Refused input since the start, most frequent first."""
        return [(*key, count) for key, count in self._metrics.peers.most_common()]

    def state_dir(self) -> str:
        """Where the station keeps its files."""
        return str(self._box.state_dir)

    def key_views(self) -> list[dict[str, Any]]:
        """The keys of sites."""
        return self._enrollment.views()

    def undecided(self) -> list[tuple[str, str]]:
        """State and name of this station's own devices about which an operator must decide."""
        return [(each.state, each.label) for each in self.enrolled() if each.state in ("pending", "quarantined")]

    def fleet_view(self) -> dict[str, Any]:
        """What this station is in its fleet."""
        return self._authority.view()

    def disk_is_full(self) -> bool:
        """Whether the room that was kept for a full disk is in use."""
        return self._is_scarce()

    async def store_failing(self) -> Failing | None:
        """What keeps the store from being written; None while nothing does."""
        return await self._store_watch.look()

    def unwritten(self) -> list[str]:
        """Which files of the station, beside the store, cannot be written, and why."""
        return [words for each in self.files_failing if (words := each())]

    def twins(self) -> list[dict[str, Any]]:
        """What masters say of another gateway with a copy of this store."""
        return self._marks.views()

    def damage(self) -> dict[str, Any] | None:
        """What became of a store that was damaged."""
        return self._aftermath.view()

    def store_trust(self) -> StoreTrust:
        """Whether the store has all that it acknowledged."""
        return self._aftermath.trust

    def witness_failing(self) -> str:
        """Why the witness of the store cannot be written."""
        return self._aftermath.witness_failing

    def now(self) -> float:
        """The time that counts, which is never behind what was certainly signed."""
        return self._authority.now()

    def box(self) -> Box:
        """The machine and the files of this station."""
        return self._box

    def beacons_heard(self) -> Mapping[str, float]:
        """When each link, by its address, last brought a new time beacon, in wall seconds."""
        return self._beacons_heard

    async def spool_classes(self) -> list[dict[str, Any]]:
        """What waits for a master, by class; empty where nothing is spooled."""
        if not self._spool.enabled:
            return []
        budgets = self._spool.budget.most
        return [
            {
                "class": entry.name,
                "pending": entry.pending,
                "pending_bytes": entry.pending_bytes,
                "budget_bytes": budgets[entry.name],
                "dropped": entry.dropped,
            }
            for entry in await self._spool.entries()
        ]

    async def returns_confirmed(self) -> float | None:
        """When a master last confirmed returns."""
        return await self._spool.returns_confirmed()

    async def relayed_sites(self) -> list[dict[str, Any]]:
        """Sites behind relays, and how each proved what it says."""
        return [asdict(site) for site in await self._evidences.sites()]

    def site_views(self) -> list[dict[str, Any]]:
        """The sites below."""
        return self._site_book.views()
