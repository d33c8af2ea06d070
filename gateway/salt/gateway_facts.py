"""The gateway's own grains, told to each Salt master, and the pillar that each compiles for the gateway's id.

A stock master resolves ``-G``, ``-P``, ``-S`` and ``-I`` with the grains and the pillar that it has cached of an id. It
caches them when the id asks for its pillar, as a minion does at its start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.protocol.target_terms import Known
from upstream.salt.ports import SaltAbove

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 60.0
AGAIN_SECONDS: Final = 60.0
"""Grains that have changed are told after at most so long."""

LOOK_SECONDS: Final = 1.0
"""How often it looks for the first grains of this machine, after the start."""


class GatewayFacts:
    """Implements ``upstream.salt.ports.MasterFeed``: sends every connected master the gateway's grains."""

    def __init__(
        self, grains: Callable[[], Mapping[str, Any]], *, look: float = LOOK_SECONDS, again: float = AGAIN_SECONDS
    ) -> None:
        """``grains`` returns those of the gateway, with its ``id``; ``look`` and ``again`` are seconds."""
        self._grains = grains
        self._look = look
        self._again = again
        self._pillars: dict[str, Mapping[Any, Any]] = {}

    @property
    def grains(self) -> Mapping[str, Any]:
        """The gateway's grains now."""
        return self._grains()

    def known_to(self, master: str) -> Known:
        """What a target of this master is compared with: the grains, and the pillar that it compiled last."""
        return Known(dict(self._grains()), self._pillars.get(master, {}))

    async def run(self, above: SaltAbove, master: str) -> None:
        """Tell this master the grains, now and after each change, until cancelled. Raises ``Unanswered``."""
        told: Mapping[str, Any] | None = None
        while True:
            grains = dict(self._grains())
            if not grains.keys() - {"id"}:
                await asyncio.sleep(self._look)
                continue
            if grains != told:
                try:
                    self._pillars[master] = await above.pillar(grains, patience=PATIENCE_SECONDS)
                except Refused as refusal:
                    # The master has cached the grains before it compiled the pillar.
                    log.warning("no pillar of the gateway's own id master=%s reason=%s", master, refusal)
                told = grains
            await asyncio.sleep(self._again)
