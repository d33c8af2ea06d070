"""A call of a runner or a wheel: what is asked for, what is kept of it, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta, Struct, field

from device_agent.errors import OutstationError
from gateway.devices.policy import Door, Operator, Role

Kind = Literal["runner", "wheel"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

State = Literal["open", "ok", "failed", "timed_out", "interrupted"]
"""``interrupted``: the station was killed while it ran, and it was not to be run again; or who made it ended first."""

LONGEST_SECONDS: Final = 86_400.0
NAME_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$(?!\n)"


STOPPING: Final = "station.stopping"
"""The error of whoever asks for something while the station stops."""

HIDDEN: Final = frozenset({"password", "passwd", "secret", "token"})
"""Named arguments that are for the function alone: no event, no listing and no audit says them."""

MASK: Final = "**********"


def shown(kwarg: Mapping[str, Any]) -> dict[str, Any]:
    """Named arguments as others may see them."""
    return {name: MASK if name in HIDDEN else value for name, value in kwarg.items()}


class CallRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody asks for. ``timeout`` is seconds; None is what the settings say."""

    kind: Kind = "runner"
    fun: Annotated[str, Meta(max_length=128)]
    arg: list[Any] = []
    kwarg: dict[str, Any] = {}
    timeout: Annotated[float, Meta(gt=0, le=LONGEST_SECONDS)] | None = None


class About(Struct, frozen=True):
    """The device whose key a call is about, because an event of it set off the call: no other is meant by its names.

    ``id`` is what it went by then, which is no more than what it said of itself. ``did`` is empty for another site's.
    """

    did: str
    id: str


class Call(Struct, frozen=True, kw_only=True):
    """A call as it is on disk. ``user`` is what its events say, ``operator`` who it is to the policy.

    ``why`` says what it came of, and stands in every job that it gives; ``parent`` is the call that made it, whose
    ``about`` it has.
    ``again``: it is made once more where the station was killed in the middle of it.
    """

    jid: str
    kind: Kind
    fun: str
    arg: list[Any]
    kwarg: dict[str, Any]
    user: str
    operator: str
    roles: list[Role]
    door: Door = "socket"
    groups: list[str] = field(default_factory=list)
    why: str = ""
    parent: str = ""
    depth: int = 0
    seconds: float
    accepted: float
    again: bool = False
    about: About | None = None

    @property
    def said(self) -> str:
        """The function as events and the policy name it: ``runner.manage.up``."""
        return f"{self.kind}.{self.fun}"

    @property
    def fun_args(self) -> list[Any]:
        """The arguments as Salt's events have them: positional ones, and a mapping of the named ones behind them."""
        return [*self.arg, shown(self.kwarg)] if self.kwarg else list(self.arg)

    def asker(self) -> Operator:
        """Who asked."""
        return Operator(self.operator, frozenset(self.roles), self.door, frozenset(self.groups))

    async def until_the_stop(self, error: OutstationError) -> None:
        """Where ``error`` is that the station stops, and its next start makes this again, wait to be cut off for that.

        An end now would be the last word on it, though it was never done.
        """
        if error.error_id == STOPPING and (self.again or self.parent):
            await asyncio.get_running_loop().create_future()


class Ended(Struct, frozen=True, kw_only=True):
    """How a call ended. ``value`` is what it returned, or the words of its failure."""

    jid: str
    state: State
    value: Any = None
    retcode: int = 0
    ended: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it did what was asked."""
        return self.state == "ok"


class CallFailed(Exception):
    """A function of the station that did not do what was asked: ``value`` says it, and is what it returns."""

    def __init__(self, value: Any, retcode: int = 1) -> None:
        super().__init__(str(value))
        self.value = value
        self.retcode = retcode
