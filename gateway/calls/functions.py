"""The functions that a station has for itself: by kind and name, each with who may call it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from device_agent.errors import NotFound, OutstationError
from gateway.calls.call import KINDS, Kind
from gateway.devices.policy import Need

Run = Callable[..., Awaitable[Any]]
"""Takes the running call (``gateway.calls.running``) first, then the arguments that are shown of it."""


Refusal = Callable[..., OutstationError | None]
"""Takes the operator first, then the arguments of the call."""


@dataclass(frozen=True)
class Function:
    """One function. ``name`` is ``module.function``.

    ``need`` is what who calls must be allowed to do. ``ruled``: the rules of the policy are asked about it as well,
    where there are any; not where it asks them itself about what it does. ``private``: what it returns is for who asked
    alone, and is neither kept nor in an event. ``refused`` says why it is there and cannot be called. ``again``: it is
    made once more, from its beginning, where the station was killed in the middle of it.
    """

    name: str
    run: Run
    need: Need = "run"
    ruled: bool = True
    private: bool = False
    again: bool = False
    seconds: float | None = None
    refused: str = ""
    waits: bool = False
    """Whether it mostly waits: it takes none of the places of those that run at the same time."""

    fires: bool = False
    """Whether it fires events of its own, though it only looks."""

    looks: bool = False
    """Whether it only looks though it needs more, since rules of its own say who may see what."""

    refusal: Refusal | None = None
    """Tells, without doing anything, what this function would raise because its job or event is not allowed."""

    @property
    def only_looks(self) -> bool:
        """Whether it changes nothing."""
        return self.looks or self.need == "view"

    @property
    def for_templates(self) -> bool:
        """Whether a reactor's file may call it while it is rendered: it only looks, and nothing comes of it."""
        return self.only_looks and not (self.private or self.fires or self.refused)

    @property
    def doc(self) -> str:
        """What it says of itself."""
        return inspect.getdoc(self.run) or ""


@dataclass
class Functions:
    """Every function. A module of runners or wheels registers its own when the station is put together."""

    _found: dict[Kind, dict[str, Function]] = field(default_factory=lambda: {kind: {} for kind in KINDS})

    def add(self, kind: Kind, functions: Iterable[Function]) -> None:
        """Register functions. A name that is there already is a mistake of this program."""
        for function in functions:
            assert function.name not in self._found[kind], function.name
            self._found[kind][function.name] = function

    def of(self, kind: Kind) -> Mapping[str, Function]:
        """All of a kind, by name."""
        return self._found[kind]

    def get(self, kind: Kind, name: str) -> Function:
        """One function. Raises ``NotFound``."""
        found = self._found[kind].get(name)
        if found is None:
            near = get_close_matches(name, self._found[kind], n=3)
            raise NotFound(
                f"unknown function: {kind}.{name}",
                error_id="calls.unknown_function",
                allowed=" or ".join(near) if near else None,
                hint=f"outstation {kind} doc.{kind}" if kind == "runner" else "outstation runner doc.wheel",
            )
        return found
