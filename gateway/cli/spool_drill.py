"""The outage drill as somebody at the terminal sees it: the ledger before, the time that passes, the ledger after."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK
from gateway.cli import spool_views
from gateway.cli.failures import INTERRUPTED
from gateway.cli.spool import own
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.client import StationClient
    from gateway.cli.output import Output
    from gateway.cli.spool_views import SpoolView

LOOK_SECONDS = 1.0


def run(client: StationClient, output: Output, seconds: float, patience: float, *, as_json: bool) -> int:
    """Begin a drill, wait for its end and for what waited; the exit status."""
    before = spool_views.status(client)
    spool_views.begin_drill(client, seconds)
    try:
        if not as_json:
            output.note("before:")
            own(output, before)
        output.note("the uplink is cut; the site works on. Ctrl-C mends it")
        mended = _until_mended(client, output)
        output.note("the uplink is mended; what waited goes up")
        after, waits = _until_gone(client, output, mended, patience)
    except KeyboardInterrupt:
        _wipe(output)
        spool_views.end_drill(client)
        output.note("the uplink is mended; what waits goes up: outstation spool status")
        return INTERRUPTED
    dropped = _dropped(before, after)
    if as_json:
        output.record("drill", {"before": before, "after": after, "dropped": dropped, "pending": waits})
    else:
        output.note("after:")
        own(output, after)
        _verdict(output, before, after, dropped, waits)
    return EXIT_NOT_ALL_OK if waits or dropped else EXIT_OK


def end(client: StationClient, output: Output) -> int:
    """Mend the uplink of a drill that runs."""
    running = spool_views.status(client).drill.running
    spool_views.end_drill(client)
    output.note("the uplink is mended" if running else "no drill is under way")
    return EXIT_OK


def _until_mended(client: StationClient, output: Output) -> SpoolView:
    while True:
        found = spool_views.status(client)
        if not found.drill.running:
            _wipe(output)
            return found
        _say(output, f"cut until {output.time(found.drill.until, '-')}, {_pending(found):,} wait")
        time.sleep(LOOK_SECONDS)


def _until_gone(client: StationClient, output: Output, mended: SpoolView, patience: float) -> tuple[SpoolView, int]:
    """Wait for what had been accepted by then, not for what a busy site accepts since; how much of it waits still."""
    begun = time.monotonic()
    while True:
        found = spool_views.status(client)
        waits = sum(
            max(0, then.accepted - (now.accepted - now.pending))
            for then, now in zip(mended.classes, found.classes, strict=True)
        )
        if not waits or time.monotonic() - begun > patience:
            _wipe(output)
            return found, waits
        _say(output, f"{waits:,} wait")
        time.sleep(LOOK_SECONDS)


def _say(output: Output, words: str) -> None:
    if output.error_on_terminal:
        output.status_line([(words, "")])


def _wipe(output: Output) -> None:
    if output.error_on_terminal:
        output.clear_status_line()


def _verdict(output: Output, before: SpoolView, after: SpoolView, dropped: dict[str, int], waits: int) -> None:
    taken = sum(entry.accepted for entry in after.classes) - sum(entry.accepted for entry in before.classes)
    words = [f"{taken:,} accepted since it began"]
    words.append(
        f"{waits:,} wait still: give it longer with --wait, or look at outstation check" if waits else "all gone up"
    )
    words += [f"{count:,} dropped: {safe(reason)}" for reason, count in sorted(dropped.items())] or ["none dropped"]
    output.note(", ".join(words))


def _pending(found: SpoolView) -> int:
    return sum(entry.pending for entry in found.classes)


def _dropped(before: SpoolView, after: SpoolView) -> dict[str, int]:
    """What was dropped meanwhile, by reason; a state that a newer one replaced is none."""
    counts: dict[str, int] = {}
    for old, new in zip(before.classes, after.classes, strict=True):
        for reason, count in new.dropped.items():
            more = count - old.dropped.get(reason, 0)
            if more and reason != "coalesced":
                counts[reason] = counts.get(reason, 0) + more
    return counts
