"""What an orchestration is made of: files that were rendered, what they declare, and steps. The shapes are Salt's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field

STEPS: Final = 1000
"""Most that one orchestration may have."""

ERRORS: Final = 100
"""Most that are told of what is wrong with its files."""

REQUISITES: Final = (
    "onfail",
    "onfail_any",
    "onfail_all",
    "require",
    "require_any",
    "onchanges",
    "onchanges_any",
    "watch",
    "watch_any",
)
"""In the order in which Salt weighs them when two steps could come next."""

TURNED: Final = ("require_in", "watch_in", "onfail_in", "onchanges_in")
"""Requisites that stand at the other end."""

ABSENT: Final = (
    "prereq",
    "prereq_in",
    "use",
    "use_in",
    "listen",
    "listen_in",
    "onlyif",
    "unless",
    "creates",
    "check_cmd",
    "retry",
    "batch",
    "subset",
)
"""What changes whether, when or where a step runs, and is not there: to leave it out would do something else."""


class SlsFile(Struct, frozen=True, kw_only=True):
    """A file that was rendered. ``lines`` says at which line an id stands, as far as that is known."""

    env: str
    sls: str
    path: str
    data: Any
    lines: Mapping[str, int] = field(default_factory=dict)
    included_from: tuple[str, ...] = ()

    def place(self, name: str = "") -> str:
        """The file, with the line of an id where one is known."""
        line = self.lines.get(name, 0)
        return f"{self.env}:{self.path}:{line}" if line else f"{self.env}:{self.path}"


class Requisite(Struct, frozen=True):
    """What a step requires of another: the kind, and the number of that step."""

    kind: str
    step: int


class Step(Struct, frozen=True, kw_only=True):
    """One call, in its place. ``number`` is Salt's ``__run_num__`` as long as nothing is cut short."""

    number: int
    id: str
    name: str
    state: str
    fun: str
    sls: str
    place: str
    args: dict[str, Any]
    requisites: list[Requisite] = field(default_factory=list)
    failhard: bool = False
    parallel: bool = False

    @property
    def tag(self) -> str:
        """How Salt names a step in a result."""
        return f"{self.state}_|-{self.id}_|-{self.name}_|-{self.fun}"

    @property
    def said(self) -> str:
        """The function as it is written."""
        return f"{self.state}.{self.fun}"


class Draft(Struct, kw_only=True):
    """A step before it has a place: with requisites as they are written, and what orders it."""

    id: str
    name: str
    state: str
    fun: str
    file: SlsFile
    args: dict[str, Any]
    wanted: list[tuple[str, str, str]] = field(default_factory=list)
    """Kind, type (a state's name, ``id`` or ``sls``) and name of each requisite."""

    order: Any = None
    name_order: int = 0

    @property
    def tag(self) -> str:
        """As a step has it."""
        return f"{self.state}_|-{self.id}_|-{self.name}_|-{self.fun}"

    @property
    def place(self) -> str:
        """Its file and line."""
        return self.file.place(self.id)
