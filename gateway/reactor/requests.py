"""The job that a reaction asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from device_agent.protocol.stations import station_device
from gateway.jobs.request import JobRequest, Returning, SentOn, without_missing
from gateway.reactor.book import Made, Matched
from gateway.reactor.sls import Reaction

MARK: Final = "reaction"


def mark_of(matched: Matched, made: Made) -> str:
    """Why the job is there: the reaction's key, how deep in a chain it is, its rule and its event."""
    return f"{MARK} {made.key} depth {matched.depth} id {made.reaction.id[:200]} to {matched.event.tag[:512]}"


def request_of(
    reaction: Reaction, site: str, expires_seconds: float, why: str, returning: Callable[[Returning], SentOn | None]
) -> tuple[JobRequest, str]:
    """The job of a reaction, and a sentence about returners that are not here. A ``caller`` is for the station itself.

    A returner that is not here does not stop the job.
    """
    own = reaction.kind == "caller"
    ret, missing = without_missing(returning, reaction.ret)
    request = JobRequest(
        tgt=station_device(site) if own else reaction.tgt,
        tgt_type="list" if own else reaction.tgt_type,
        fun=reaction.fun,
        arg=reaction.arg,
        kwarg=reaction.kwarg,
        ret=ret,
        late="run",
        expires_seconds=expires_seconds,
        why=why,
    )
    return request, missing
