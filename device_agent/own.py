"""Own: what a function may know of the device beside its machine: its jobs, its settings and its own facts.

A function that needs it has a keyword-only parameter annotated ``Own``, which no argument from outside can set. An
agent fills it in, and so does whoever stands in for a device without one; what is not filled in is empty.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Protocol

from msgspec import Struct, field

from device_agent.beacons.asked import OwnBeacons
from device_agent.custom.loading import Function
from device_agent.custom.sync import Synced
from device_agent.errors import Refused
from device_agent.events import Events
from device_agent.host import Host
from device_agent.pillar import HeldPillar
from device_agent.questions import NoStation, Station
from device_agent.schedule.port import Schedule
from device_agent.trust.reach import Reach

GRAINS_FILE = "/etc/outstation/grains"
"""Where a device keeps the facts that it was told, as Salt keeps them in its own folder."""

CACHE_DIR = "/var/cache/outstation"
"""Where a device without an agent keeps the files that it was told to keep."""

NO_GRAINS_FILE = ""
"""Of a simulated device: the file would be that of the machine it is simulated on, for all of them."""


class RunningJob(Struct, frozen=True):
    """A job under way on this device."""

    jid: str
    fun: str
    arg: list[Any]
    kwarg: dict[str, Any]
    tgt: str
    tgt_type: str
    user: str
    pid: int
    """The process that runs it: the agent's, or the gateway's for a device without an agent."""


class OwnJobs(Protocol):
    """The jobs of the device that a function runs on."""

    def running(self) -> list[RunningJob]:
        """What runs now, the asking job too."""

    def stop(self, jid: str, why: str) -> bool:
        """End a running job at once, as failed for this reason. False when no such job runs."""


class NoJobs:
    """For a function that is called without a job."""

    def running(self) -> list[RunningJob]:
        return []

    def stop(self, jid: str, why: str) -> bool:  # noqa: ARG002 - it has the methods that its port has
        return False


class Custom(Protocol):
    """The code that a site brought to the device beside its release (``custom.modules``)."""

    async def function(self, name: str) -> Function | None:
        """A function by its name; None when there is none. Raises ``Refused`` for one that may not run."""

    async def functions(self) -> dict[str, Function]:
        """Every function that may run and loads."""

    def reach(self, fun: str) -> Reach | None:
        """The class of a function; None for one that was not brought."""

    def beacons(self) -> list[str]:
        """The beacons that were brought, by name."""

    async def beacon(self, name: str) -> dict[str, Function]:
        """The functions of a beacon that was brought. Raises ``Refused`` for one that may not run."""

    async def sync(self, station: Station, kinds: Sequence[str], saltenvs: Sequence[str]) -> Synced:
        """Bring these kinds from the files of a station. Raises ``Unanswered`` and ``OSError``."""

    async def told(self, host: Host, grains: dict[str, Any]) -> dict[str, Any]:
        """The grains of a device with what the site's modules tell of it."""

    @property
    def grain_problems(self) -> dict[str, str]:
        """Why facts are missing that it should have told, by file, at the last look."""


class NoCustom:
    """Where a site brings nothing."""

    grain_problems: ClassVar[dict[str, str]] = {}

    async def function(self, name: str) -> Function | None:  # noqa: ARG002 - the signature is its port's
        return None

    async def functions(self) -> dict[str, Function]:
        return {}

    def reach(self, fun: str) -> Reach | None:  # noqa: ARG002 - the signature is its port's
        return None

    def beacons(self) -> list[str]:
        return []

    async def beacon(self, name: str) -> dict[str, Function]:
        raise Refused("unreadable", f"{name} was not brought")

    async def told(self, host: Host, grains: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - the signature is its port's
        return grains

    async def sync(self, station: Station, kinds: Sequence[str], saltenvs: Sequence[str]) -> Synced:  # noqa: ARG002 - the signature is its port's
        return Synced({kind: [] for kind in kinds})


class Own(Struct, frozen=True):
    """What belongs to the device. ``settings`` is what of its settings may be read."""

    jobs: OwnJobs = field(default_factory=NoJobs)
    settings: dict[str, Any] = field(default_factory=dict)
    grains_file: str = GRAINS_FILE
    cache_dir: str = CACHE_DIR
    writing_grains: Lock = field(default_factory=Lock)
    """Held from the reading of its own facts to their writing: of two jobs at once neither loses the other's."""
    regrain: Callable[[], Awaitable[None]] | None = None
    """Collects the facts anew after the file of its own facts changed."""
    station: Station = field(default_factory=NoStation)
    """Whoever it can ask."""
    custom: Custom = field(default_factory=NoCustom)
    """What a site brought."""
    pillar: HeldPillar = field(default_factory=HeldPillar)
    """The device's pillar, asked for when it is first needed."""
    events: Events | None = None
    """Where its events go; None where there is no station."""
    schedule: Schedule | None = None
    """What it runs by itself; None where there is no agent."""
    beacons: OwnBeacons | None = None
    """What it watches on itself; None where nothing runs between two jobs."""
    job: RunningJob | None = None
    """The job that the function is called for."""
