"""The join window: for a while, and for a few, devices without a token may ask to be let in. Closed by default.

What it can hold devices to beside time and number: a model, which they say themselves, and a subnet, where the station
runs the broker and so sees from where each client connects (``client_addresses``).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from device_agent.errors import Refused, UsageInvalid
from device_agent.protocol import limits
from device_agent.protocol.globs import compile_glob
from gateway.store.writer import Statement

LONGEST_SECONDS = limits.JOIN_WINDOW_SECONDS
ALL_CAME = "as many devices came as it was open for"

LOAD = (
    "SELECT id, opened, opened_by, closes, most, taken, subnet, model, closed, why FROM join_windows"
    " ORDER BY id DESC LIMIT 1"
)
_ADD = (
    "INSERT INTO join_windows (id, opened, opened_by, closes, most, taken, subnet, model, closed, why)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_TAKE = "UPDATE join_windows SET taken = taken + 1 WHERE id = ?"
_CLOSE = "UPDATE join_windows SET closed = ?, why = ? WHERE id = ? AND closed IS NULL"


@dataclass(frozen=True, slots=True)
class Window:
    """One window. Times are wall seconds; ``closed`` is None while it is open."""

    id: int
    opened: float
    opened_by: str
    closes: float
    most: int
    taken: int
    subnet: str
    model: str
    closed: float | None
    why: str

    def view(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "open": self.closed is None,
            "opened": self.opened,
            "opened_by": self.opened_by,
            "closes": self.closes,
            "max": self.most,
            "taken": self.taken,
            "subnet": self.subnet or None,
            "model": self.model or None,
            "closed": self.closed,
            "why": self.why,
        }


class JoinWindow:
    """The window that is open, or was last. Decided in memory; the statements make it true on disk."""

    def __init__(self) -> None:
        self.last: Window | None = None
        self._until = 0.0

    def load(self, rows: Sequence[Sequence[Any]], now: float, monotonic: float) -> None:
        """Take the row of ``LOAD``: a restart neither closes a window nor makes it longer."""
        for row in rows:
            self.keep(Window(*row), now, monotonic)

    @property
    def open(self) -> Window | None:
        """The open window, if there is one. Time is up only when ``overdue`` was asked."""
        return self.last if self.last is not None and self.last.closed is None else None

    def overdue(self, now: float, monotonic: float) -> bool:
        """Whether the time of the open window is up, by either clock: setting one back does not keep it open."""
        window = self.open
        return window is not None and (now >= window.closes or monotonic >= self._until)

    def opening(
        self, *, seconds: float, most: int, subnet: str, model: str, now: float, by: str
    ) -> tuple[Window, list[Statement]]:
        """A new window, and the statements that open it. Raises ``UsageInvalid`` when one is open."""
        if self.open is not None:
            raise UsageInvalid(
                "a join window is open already",
                error_id="window.open",
                found=f"for {self.open.most} devices, {self.open.taken} of them came",
                hint="outstation keys window show   or   outstation keys window close",
            )
        window = Window(
            id=self.last.id + 1 if self.last is not None else 1,
            opened=now,
            opened_by=by,
            closes=now + seconds,
            most=most,
            taken=0,
            subnet=_network(subnet),
            model=model,
            closed=None,
            why="",
        )
        return window, [(_ADD, [astuple(window)])]

    def closing(self, now: float, why: str) -> tuple[Window, list[Statement]]:
        """The window as it is when closed, and the statements. Raises ``UsageInvalid`` when none is open."""
        if self.open is None:
            raise UsageInvalid("no join window is open", error_id="window.closed", hint="outstation keys window open")
        return replace(self.open, closed=now, why=why), [(_CLOSE, [(now, why, self.open.id)])]

    def keep(self, window: Window, now: float, monotonic: float) -> None:
        """This is on disk as it is."""
        self.last = window
        self._until = monotonic + max(0.0, window.closes - now)

    def check(self, model: str, address: str) -> Window:
        """The window through which a device may come that says this of itself. Raises ``Refused``."""
        window = self.open
        if window is None:
            raise Refused("window_closed", "no join window is open at this site")
        check_terms(window, model, address)
        return window

    def take(self, now: float) -> list[Statement]:
        """One more device came through, at once in memory; the statements do so on disk. The last one closes it."""
        window = self.open
        assert window is not None
        self.last = replace(window, taken=window.taken + 1)
        statements: list[Statement] = [(_TAKE, [(window.id,)])]
        if self.last.taken >= self.last.most:
            self.last, closing = self.closing(now, ALL_CAME)
            statements += closing
        return statements

    def give_back(self) -> None:
        """One did not come through after all: its statements failed."""
        if self.last is not None and self.last.taken:
            self.last = replace(self.last, taken=self.last.taken - 1)
            if self.last.why == ALL_CAME:
                self.last = replace(self.last, closed=None, why="")


def check_terms(window: Window, model: str, address: str) -> None:
    """Whether a window is open for a device that says this of itself. Raises ``Refused``."""
    if window.model and not compile_glob(window.model)(model):
        raise Refused("window_closed", f"the join window is open for another model than {model[:64]!r}")
    if window.subnet and not _inside(address, window.subnet):
        where = f"from {address}" if address else "from an address that the station has not seen"
        raise Refused("window_closed", f"the join window is open for another subnet, and this device comes {where}")


def _network(text: str) -> str:
    """A subnet as it is written. Raises ``UsageInvalid``."""
    if not text:
        return ""
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise UsageInvalid(
            "not a subnet", where="--subnet", found=text[:64], allowed="an address with a length: 192.0.2.0/24"
        ) from None


def _inside(address: str, subnet: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found in ipaddress.ip_network(subnet)
