"""What the kinds of broker have in common: an address on this machine or elsewhere, and a state to show."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from device_agent.parts import Part


class BrokerPart(Part):
    """A broker the station may rely on once it has opened."""

    name: ClassVar[str] = "broker"

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def expect_end(self) -> None:
        """The station stops; whoever told it so may have told the broker as well."""

    @abstractmethod
    def status(self) -> Mapping[str, Any]:
        """As the API shows it."""
