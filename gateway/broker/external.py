"""Mode ``external``: somebody else runs the broker; the downlink's own state says whether it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.broker.part import BrokerPart


class ExternalBroker(BrokerPart):
    """An address, and nothing to start or stop."""

    def status(self) -> Mapping[str, Any]:
        """As the API shows it."""
        return {"mode": "external", "host": self.host, "port": self.port}
