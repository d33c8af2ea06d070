"""How a function says that it ended in another way than by returning a plain value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from msgspec import Struct

from device_agent.errors import OutstationError
from device_agent.protocol.messages import DeviceOutcome


class Restart(Struct, frozen=True):
    """A restart of the device, which ends when it is there again with another boot id (``restarts.py``).

    ``begin`` is called when it is on disk that the device restarts, and returns before it does.
    """

    boot_id: str
    within: float
    begin: Callable[[], Awaitable[None]]


class Ended(Struct, frozen=True):
    """The end of one call. A function that returns anything else has ended ``ok`` with that as its value.

    With ``restart`` it has not ended: what comes back is known after the device has started again.
    """

    value: Any = None
    retcode: int = 0
    outcome: DeviceOutcome = "ok"
    why: str = ""
    restart: Restart | None = None
    retcodes: dict[str, int] | None = None
    """Of each function, where several were called; ``retcode`` is the worst of them."""


class FunctionFailed(OutstationError):
    """A function could not do its work, and says why; ``value`` is what it has to show nevertheless."""

    default_id: ClassVar[str] = "function.failed"

    def __init__(self, why: str, retcode: int = 1, value: Any = None) -> None:
        super().__init__(why)
        self.why = why
        self.retcode = retcode
        self.value = value
