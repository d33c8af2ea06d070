"""Carries events elsewhere, at least once: again while it cannot be done, not for ever, and what is lost is named."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from device_agent.backoff import Backoff
from gateway.engines.feed import Feed, Heard
from gateway.engines.report import Report

log = logging.getLogger(__name__)

FIRST_SECONDS: Final = 0.5
CEILING_SECONDS: Final = 60.0
HOUR: Final = 3600.0


class TryLater(Exception):
    """It could not be done now."""


class NotTaken(Exception):
    """It will never be taken."""


def carry(
    feed: Feed,
    send: Callable[[list[Heard]], None],
    report: Report,
    *,
    batch: int = 1,
    give_up_hours: float = 24.0,
) -> None:
    """For ever: ``send`` each batch until it does not raise. Raises ``ValueError`` for bounds that make no sense."""
    if not 1 <= batch <= 1000 or give_up_hours <= 0:
        raise ValueError(f"batch is 1 to 1000 and give_up_hours above 0, not {batch} and {give_up_hours}")
    for events in feed.batches(batch):
        _one(events, send, report, give_up_hours * HOUR)
        feed.done(events)


def _one(events: list[Heard], send: Callable[[list[Heard]], None], report: Report, give_up_seconds: float) -> None:
    pauses = Backoff(FIRST_SECONDS, CEILING_SECONDS, floor=FIRST_SECONDS / 5)
    began = time.monotonic()
    while True:
        try:
            send(events)
        except NotTaken as error:
            if len(events) > 1:
                # One that is never taken, or too much together, takes no others along.
                half = len(events) // 2
                _one(events[:half], send, report, give_up_seconds)
                _one(events[half:], send, report, give_up_seconds)
                return
            report.add("not_taken", len(events))
            log.error("not taken, and given up: %s events=%s", error, _named(events))
            return
        except TryLater as error:
            if time.monotonic() - began > give_up_seconds:
                report.add("given_up", len(events))
                log.error("given up after %.0f s: %s events=%s", give_up_seconds, error, _named(events))
                return
            report.add("tried_again")
            pause = pauses.next()
            log.warning("trying again in %.1f s: %s", pause, error)
            time.sleep(pause)
        else:
            report.add("carried", len(events))
            return


def _named(events: list[Heard]) -> str:
    first, last = events[0], events[-1]
    more = f" to {last.key} {last.tag}, {len(events)} of them" if len(events) > 1 else ""
    return f"{first.key} {first.tag}{more}"
