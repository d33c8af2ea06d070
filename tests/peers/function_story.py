"""What a function must do, as data: calls in their order with what must come back, for any way to a machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from device_agent import loader
from device_agent.ended import Ended
from device_agent.host import Host


class Machine(Protocol):
    """Somewhere functions run."""

    async def call(self, fun: str, *arg: Any, **kwarg: Any) -> Ended:
        """Call a function there."""

    async def sh(self, script: str) -> str:
        """Run a script there, which must end well."""


class OnHost:
    """The machine behind a ``Host``."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def call(self, fun: str, *arg: Any, **kwarg: Any) -> Ended:
        """Call a function through the loader."""
        return await loader.call(fun, self._host, list(arg), kwarg)

    async def sh(self, script: str) -> str:
        """Run a script, which must end well."""
        completed = await self._host.run(["/bin/sh", "-c", script])
        assert completed.returncode == 0, f"{script}\n{completed}"
        return completed.stdout.decode().rstrip()


UNSAID: Any = object()
"""No word on what comes back."""


class Step(NamedTuple):
    """A call. ``value`` is what comes back, or what must be true of it; ``why`` a part of the reason of a failure."""

    fun: str
    arg: tuple[Any, ...] = ()
    kwarg: Mapping[str, Any] = MappingProxyType({})
    value: Any = UNSAID
    outcome: str = "ok"
    why: str = ""
    salt: Literal["value", "shape", "differs", "no"] = "value"
    """What stock Salt answers alike; ``differs`` where it answers otherwise and the page says so, ``no`` where it is
    not asked, for it would leave the machine in another state."""


class Sh(NamedTuple):
    """A script that makes something be so, or shows that it is."""

    script: str
    says: str | None = None
    salt: bool = True
    """Whether it says the same where stock Salt was asked; else it does not run there."""


class Story(NamedTuple):
    """A story; ``kinds`` are the machines on which it holds: with ``busybox-ssh`` only files are changed in it."""

    name: str
    kinds: tuple[str, ...]
    steps: tuple[Step | Sh, ...]
    salt: str | None = ""
    """A script for Debian's machine before stock Salt plays this there too; nothing where it does not."""


async def play(story: Story, machine: Machine) -> None:
    """Go through a story."""
    for step in story.steps:
        if isinstance(step, Sh):
            said = await machine.sh(step.script)
            assert step.says is None or said == step.says, f"{step.script}: {said!r}"
            continue
        ended = await machine.call(step.fun, *step.arg, **step.kwarg)
        assert ended.outcome == step.outcome, f"{step}\n{ended}"
        assert step.why in ended.why, f"{step}\n{ended}"
        if step.value is UNSAID:
            continue
        if isinstance(step.value, Callable):  # type: ignore[arg-type]  # mypy takes the abstract class for no type
            assert step.value(ended.value), f"{step}\n{ended}"
        else:
            assert ended.value == step.value, f"{step}\n{ended}"
