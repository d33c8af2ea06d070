"""What the links of a gateway have in common."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from device_agent.backoff import Backoff
from device_agent.clock import Clock
from upstream.curve import CurveKeys
from upstream.cutting import Cut
from upstream.link_budget import LinkBudget
from upstream.ports import FaultSource, JobIntake, Marks, Outgoing, Prover, Refusals, Roll, StoryTeller, TrustAbove

FIRST_WAIT_SECONDS = 0.5

Spawn = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]


@dataclass(frozen=True)
class Ends:
    """What the links of a gateway have in common: who it is, and whoever holds its end."""

    site: str
    keys: CurveKeys
    outgoing: Outgoing
    roll: Roll
    intake: JobIntake
    refusals: Refusals
    clock: Clock
    trust: TrustAbove | None
    stories: StoryTeller | None
    marks: Marks | None
    budget: LinkBudget
    cut: Cut
    echo_every: float
    silence_limit: float
    random_reauth_delay: float
    prover: Prover | None = None
    faults: FaultSource | None = None


def pause_after_loss(ends: Ends, waits: Backoff, welcomed_at: float) -> float:
    """How long to wait for a master that was there a moment ago; its other gateways have lost it as well."""
    pause = random.SystemRandom().uniform(0.0, max(FIRST_WAIT_SECONDS, ends.random_reauth_delay))
    if ends.clock.monotonic() - welcomed_at > ends.silence_limit:
        waits.reset()
        return pause
    return max(pause, waits.next())
