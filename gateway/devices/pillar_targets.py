"""Targets by pillar: before devices are held against one, what is in the pillar of each must be known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from device_agent.protocol.messages import Grains
from device_agent.protocol.target_terms import Known
from device_agent.protocol.targeting import Target

Know = Callable[[Target], Awaitable[None]]
"""Makes known what a target asks of devices: their grains are ``Known`` then."""


def still_known(before: Grains, grains: Grains) -> Grains:
    """New grains of a device; what was known of its pillar is known until somebody looks anew.

    So a job that a device was meant for finds it meant when it is back.
    """
    return Known(grains, before.pillar) if isinstance(before, Known) else grains


async def unknown(_: Target) -> None:
    """Where there is no pillar: a target by it means nobody."""
