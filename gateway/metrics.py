"""Counters by name, and refusals by link, reason and peer. In memory: they start at zero with the process."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from device_agent.clock import Clock
from gateway.accept_failures import AcceptFailures
from gateway.devices.allowance import Allowance
from gateway.metric_words import WORDS
from gateway.refusal_causes import is_own

log = logging.getLogger(__name__)

Labelled = tuple[str, Mapping[str, str], int]
"""A number with its name and labels."""

PEERS_NAMED = 1000
REASONS_NAMED = 1000
"""Reasons that are counted by name: one may come from another machine."""

NAME_CHARACTERS = 200
"""A name or a reason is cut to this: another machine may have made it up."""

LOG_EVERY_SECONDS = 10.0
LOG_LINES = 50
LOG_LINES_PER_SECOND = 1.0
"""Lines about refusals of all kinds together, at once and in the long run."""


class Metrics:
    """Counts; and logs each kind of refusal at most once in ten seconds, and all kinds at a bounded rate."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.counters: Counter[str] = Counter()
        self.refusals: Counter[tuple[str, str]] = Counter()
        self.peers: Counter[tuple[str, str, str]] = Counter()
        self._logged: dict[tuple[str, str], float] = {}
        self._lines = Allowance(per_second=LOG_LINES_PER_SECOND, burst=LOG_LINES, clock=clock)
        self.accept_failures = AcceptFailures(self.add, clock)

    def add(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        self.counters[name] += amount

    def refused(self, link: str, reason: str, peer: str, detail: str = "") -> None:
        """Count one refusal; the most refused peers keep their names."""
        reason, peer = reason[:NAME_CHARACTERS], peer[:NAME_CHARACTERS]
        if (link, reason) not in self.refusals and len(self.refusals) >= REASONS_NAMED:
            reason = "other"
        self.refusals[link, reason] += 1
        self.peers[link, reason, peer] += 1
        if len(self.peers) > PEERS_NAMED:
            # Made-up names come once each; who is refused again and again stays.
            del self.peers[min(self.peers, key=self.peers.__getitem__)]
        now = self._clock.monotonic()
        if now - self._logged.get((link, reason), -LOG_EVERY_SECONDS) >= LOG_EVERY_SECONDS and self._lines.take():
            self._logged[link, reason] = now
            if is_own(reason):
                log.error(
                    "not taken for a reason of this station link=%s reason=%s detail=%r", link, reason, detail[:200]
                )
            else:
                log.warning("refused link=%s reason=%s peer=%r detail=%r", link, reason, peer, detail[:200])

    def accept_failed(self, door: str, code: int) -> None:
        """Count a connection that a door could not accept."""
        self.accept_failures.failed(door, code)

    def refused_of(self) -> dict[str, dict[str, int]]:
        """How often what was refused of each peer that is named here, by reason; not what was this station's fault."""
        found: dict[str, dict[str, int]] = {}
        for (_, reason, peer), count in self.peers.items():
            if is_own(reason):
                continue
            reasons = found.setdefault(peer, {})
            reasons[reason] = reasons.get(reason, 0) + count
        return found

    def text(self, gauges: Mapping[str, float], labelled: Sequence[Labelled] = ()) -> str:
        """Everything in Prometheus' text format (https://prometheus.io/docs/instrumenting/exposition_formats/)."""
        samples: list[tuple[str, Mapping[str, str], float]] = []
        samples += [(f"{name}_total", {}, count) for name, count in sorted(self.counters.items())]
        samples += [(name, {}, value) for name, value in sorted(gauges.items())]
        samples += labelled
        samples += [
            ("refused_total", {"link": link, "reason": reason}, count)
            for (link, reason), count in sorted(self.refusals.items())
        ]
        families: dict[str, list[str]] = {}
        for name, labels, value in samples:
            # All samples of a name stand together, in the order in which the names came first.
            families.setdefault(name, []).append(_sample(f"outstation_{name}", labels, value))
        return "".join(f"{_head(name)}{''.join(lines)}" for name, lines in families.items())


def _head(name: str) -> str:
    """What a name means, and its type: what ends in ``_total`` counts up."""
    words = WORDS.get(name, "")
    told = f"# HELP outstation_{name} {words}\n" if words else ""
    return f"{told}# TYPE outstation_{name} {'counter' if name.endswith('_total') else 'gauge'}\n"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    number = value if isinstance(value, int) else f"{value:.15g}"
    return f"{name}{{{pairs}}} {number}\n" if pairs else f"{name} {number}\n"


def _escaped(text: str) -> str:
    """A label's value, which another machine may have made up, so that it stays one."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
