"""The line on stderr that says how far a job is and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from device_agent.protocol.outcomes import Outcome, State
from gateway.cli.output import Output, Styled
from gateway.cli.text import STYLE, dark_since, safe
from gateway.cli.views import JobView, Progress, SiteProgress

BAR_CELLS = 20


class ProgressLine:
    """One line that is replaced; nothing at all where stderr is no terminal."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._on_screen = False

    def show(self, where: JobView | Progress) -> None:
        """Show where the job stands now."""
        if self._output.error_on_terminal:
            self._output.status_line(progress_parts(where.expected, where.counts, where.waiting, where.sites))
            self._on_screen = True

    def clear(self) -> None:
        """Make room for a line of results."""
        if self._on_screen:
            self._output.clear_status_line()
            self._on_screen = False


def progress_parts(
    expected: int, counts: Mapping[str, int], waiting: Mapping[str, int], sites: Sequence[SiteProgress]
) -> list[Styled]:
    """A bar, the outcomes so far, and what is awaited."""
    done = sum(counts.values())
    filled = min(BAR_CELLS * done // expected, BAR_CELLS) if expected > 0 else 0
    parts: list[Styled] = [
        ("█" * filled, "green"),
        ("░" * (BAR_CELLS - filled), "dim"),
        (f" {done:,}/{expected:,}", "bold"),
    ]
    order = {outcome.value: place for place, outcome in enumerate(Outcome)}
    parts.extend(
        (f"  {counts[outcome]:,} {safe(outcome)}", STYLE.get(outcome, ""))
        for outcome in sorted(counts, key=lambda name: order.get(name, len(order)))
        if counts[outcome]
    )
    words = awaited(waiting, sites)
    if words:
        parts.append((f"  {words}", "dim"))
    return parts


def awaited(waiting: Mapping[str, int], sites: Sequence[SiteProgress]) -> str:
    """What a job waits for: sites that are dark or have not said whom they answer for, else devices."""
    dark = [site for site in sites if site.state == "dark" or (site.state != "closed" and not site.connected)]
    if dark:
        named = [f"{safe(site.site)}, {dark_since(site.last_seen)}" for site in dark[:2]]
        return _of_sites(" and ".join(named), len(dark) - len(named), len(dark))
    silent = [safe(site.site) for site in sites if site.state == "waiting"]
    if silent:
        return _of_sites(" and ".join(silent[:3]), len(silent) - 3, len(silent))
    states = [f"{waiting[state]:,} {state}" for state in State if waiting.get(state)]
    return f"waiting: {', '.join(states)}" if states else ""


def _of_sites(named: str, others: int, total: int) -> str:
    more = f" and {others:,} more" if others > 0 else ""
    return f"waiting for {'site' if total == 1 else 'sites'} {named}{more}"
