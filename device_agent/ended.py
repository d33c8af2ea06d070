"""How a function says that it ended in another way than by returning a plain value."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from device_agent.errors import OutstationError
from device_agent.protocol.messages import DeviceOutcome


class Ended(Struct, frozen=True):
    """The end of one call. A function that returns anything else has ended ``ok`` with that as its value."""

    value: Any = None
    retcode: int = 0
    outcome: DeviceOutcome = "ok"
    why: str = ""


class FunctionFailed(OutstationError):
    """A function could not do its work, and says why; ``value`` is what it has to show nevertheless."""

    default_id: ClassVar[str] = "function.failed"

    def __init__(self, why: str, retcode: int = 1, value: Any = None) -> None:
        super().__init__(why)
        self.why = why
        self.retcode = retcode
        self.value = value
