"""What ``outstation check`` has to say of each fault while it lasts, and a thread that looks whether it does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from device_agent.errors import OutstationError
from gateway.cli.client import StationClient
from gateway.cli.views import Finding as Found
from tests.chaos.coordinator import Finding
from tests.chaos.plan import Fault

LOOK_SECONDS = 0.7
END_SECONDS = 30.0


@dataclass(frozen=True)
class Look:
    """What a station said at one moment."""

    findings: Sequence[Found] = ()
    links: Sequence[dict[str, Any]] = ()

    def says(self, check: str, *words: str) -> bool:
        """Whether a check finds something wrong, in these words."""
        return any(
            each.check == check
            and each.severity in ("error", "warning")
            and all(word in each.finding for word in words)
            for each in self.findings
        )


@dataclass(frozen=True)
class Expectation:
    """``holds`` must be true at some moment of a fault that lasts for ``seconds``; ``words`` are what is expected."""

    words: str
    seconds: float
    holds: Callable[[Look, Fault], bool]
    early: float = 0.0
    """Moments before this one count for nothing, in seconds from the begin of the fault."""


def _master(look: Look, fault: Fault) -> bool:
    name = fault.subject[-1] if fault.subject != "links" else ""
    return look.says("uplink", f"master-{name}")


EXPECTED: dict[tuple[str, str], Expectation] = {
    ("fill", "disk"): Expectation("disk: full", 3.0, lambda look, _: look.says("disk")),
    ("disk", "gateway"): Expectation("store: cannot be written", 4.0, lambda look, _: look.says("store")),
    ("descriptors", "gateway"): Expectation("open-files", 3.0, lambda look, _: look.says("open-files")),
    ("names", "link-a"): Expectation(
        "uplink: the name of the master", 8.0, lambda look, _: look.says("uplink", "master-a", "name")
    ),
    ("ipv6", "link-b"): Expectation(
        "a link that is connected over IPv6",
        8.0,
        lambda look, fault: any(
            link["state"] == "connected" and f"master-{fault.subject[-1]}" in link["address"] for link in look.links
        ),
        early=5.0,
    ),
    **{
        (kind, subject): Expectation("uplink: a master is away", 8.0, _master)
        for kind, subject in (
            ("cut", "link-a"), ("cut", "link-b"), ("cut", "links"), ("kill", "master-a"), ("kill", "master-b")
        )
    },
}  # fmt: skip


@dataclass
class _Watched:
    fault: Fault
    expectation: Expectation
    from_second: float
    looks: int = 0
    seen: bool = False
    last: list[str] = field(default_factory=list)


class Watch:
    """Looks at the gateway while there are faults that it has to name."""

    def __init__(self, client: StationClient, view: Callable[[], dict[str, Any]], now: Callable[[], float]) -> None:
        self._client = client
        self._view = view
        self._now = now
        self._lock = threading.Lock()
        self._watched: list[_Watched] = []
        self._closed: list[_Watched] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="check", daemon=True)
        self.findings: list[Finding] = []
        """What other threads looked for and did not find."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(END_SECONDS)

    def begin(self, fault: Fault, seconds: float) -> None:
        """A fault begins, with which the gateway is alone for so long."""
        expectation = EXPECTED.get((fault.kind, fault.subject))
        if expectation is not None and seconds >= expectation.seconds:
            with self._lock:
                self._watched.append(_Watched(fault, expectation, self._now() + expectation.early))

    def end(self, fault: Fault) -> None:
        """It is undone."""
        with self._lock:
            self._closed += [each for each in self._watched if each.fault is fault]
            self._watched = [each for each in self._watched if each.fault is not fault]

    def unnamed(self) -> list[Finding]:
        """Faults that were never named."""
        named = [
            f"{each.fault}, expected {each.expectation.words}, {each.looks} looks: {'; '.join(each.last)}"
            for each in self._closed
            if not each.seen
        ]
        found = [Finding("not_named", "check did not name a fault while it lasted", named)] if named else []
        return [*found, *self.findings]

    def tally(self) -> str:
        """How many faults were named, in words."""
        return f"check named {sum(each.seen for each in self._closed)} of {len(self._closed)} faults it was asked for"

    def look(self) -> Look:
        """What the gateway says now; nothing where it does not answer."""
        try:
            findings = self._client.findings()
        except (OutstationError, OSError, ValueError):
            return Look()
        return Look(findings, (self._view().get("uplink") or {}).get("links", []))

    def look_once(self) -> None:
        """Look at what every open fault should be named by."""
        with self._lock:
            open_now = [each for each in self._watched if not each.seen]
        if not open_now:
            return
        before = self._now()
        look = self.look()
        for each in open_now:
            if before < each.from_second:
                continue
            each.looks += 1
            each.seen = each.expectation.holds(look, each.fault)
            each.last = [f"{found.check}: {found.finding}" for found in look.findings if found.severity != "ok"][:6]

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self.look_once()
