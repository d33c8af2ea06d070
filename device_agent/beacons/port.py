"""What a beacon is: it looks at its machine now and then, and says what it found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from msgspec import Struct

from device_agent.beacons.given import Given
from device_agent.clock import Clock
from device_agent.ended import Ended
from device_agent.host import Host
from device_agent.own import Custom

LOOK_SECONDS: Final = 10.0
"""Between two looks of a beacon that is told no ``interval``. Salt looks every second, which a small camera feels."""


class Found(Struct, frozen=True):
    """One thing that a beacon has to say.

    ``tag`` goes behind the tag of the beacon. ``about`` is what of the machine it is about, if the tag does not say
    it already; as long as ``same`` stays the same, it is the same news.
    """

    data: dict[str, Any]
    tag: str = ""
    about: str = ""
    same: Any = True


class Around(Struct, frozen=True):
    """Where a beacon looks: its machine, the functions of the device, and the folders of the kernel."""

    host: Host
    clock: Clock
    call: Callable[[str, dict[str, Any]], Awaitable[Ended]]
    """Calls a function of the device with named arguments."""
    custom: Custom
    """The beacons that the site brought."""
    folder: Path
    """What a beacon is to remember after a restart of the agent lies here."""
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


class Beacon(Protocol):
    """One configured beacon. ``interval``: seconds between two looks unless its configuration says otherwise.

    What it found is ``momentary`` when it is told once, as a line in a log is; else it holds until a look does not
    find it any more. ``reads``: what it says may be what only root may read.
    """

    interval: ClassVar[float]
    momentary: ClassVar[bool]
    reads: ClassVar[bool]

    def __init__(self, given: Given) -> None:
        """From what is configured. Raises ``InvalidBeacon``; nothing is looked at yet."""

    async def look(self, around: Around) -> list[Found]:
        """What there is to say now. It may raise anything: that is told as the beacon's error."""

    async def close(self) -> None:
        """Let go of what the looks have opened. A later look opens it again."""


class Looking:
    """What most beacons are: conditions of the machine, that anybody on it may know, and nothing kept open."""

    interval: ClassVar[float] = LOOK_SECONDS
    momentary: ClassVar[bool] = False
    reads: ClassVar[bool] = False

    async def close(self) -> None:
        """There is nothing to let go."""
