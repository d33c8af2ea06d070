"""What the API says of the reactor, as types."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class TroubleView(Struct, frozen=True, kw_only=True):
    """What is wrong, and where. A line of 0 is one that is not known."""

    file: str
    what: str
    id: str = ""
    line: int = 0
    level: str = "error"
    text: str = ""

    @property
    def place(self) -> str:
        """The file with the line."""
        return f"{self.file}:{self.line}" if self.line else self.file


class ThrottleView(Struct, frozen=True, kw_only=True):
    """What bounds a file of a rule; ``events`` are those that it bounded, by what became of them."""

    file: str
    throttle: str
    events: dict[str, int] = {}


class RuleView(Struct, frozen=True, kw_only=True):
    """A rule. ``tried`` is the tag of the event that its files were rendered with.

    ``added`` is one of ``reactor.add``, and not of the settings.
    """

    tag: str
    added: bool = False
    paths: list[str] = []
    files: list[str] = []
    troubles: list[TroubleView] = []
    tried: str = ""
    throttles: list[ThrottleView] = []


class RulesPage(Struct, frozen=True, kw_only=True):
    """All rules; ``reactions`` are counts by how they ended. ``taken_away`` are tags that the settings name in vain."""

    rules: list[RuleView]
    taken_away: list[str] = []
    skipped: list[str] = []
    reactions: dict[str, int] = {}


class OutcomeOfReaction(Struct, frozen=True, kw_only=True):
    """How its job ended on one device."""

    site: str
    device: str
    outcome: str
    value: Any = None
    why: str = ""


class ReactionView(Struct, frozen=True, kw_only=True):
    """A call, and what came of it where it was made. ``job`` is ``open``, ``closed`` or ``gone``, or empty."""

    id: str
    file: str
    rule: str
    said: str
    kind: str
    fun: str
    tgt: str = ""
    tgt_type: str = "glob"
    arg: list[Any] = []
    kwarg: dict[str, Any] = {}
    key: str = ""
    state: str = ""
    jid: str = ""
    why: str = ""
    job: str = ""
    outcomes: list[OutcomeOfReaction] = []


class RenderedView(Struct, frozen=True, kw_only=True):
    """What a file says to an event."""

    file: str
    rule: str
    rendered: Any


class PlanView(Struct, frozen=True, kw_only=True):
    """What an event would set off."""

    tag: str
    rules: list[str]
    files: list[RenderedView]
    reactions: list[ReactionView]
    troubles: list[TroubleView]


class ReplayedView(Struct, frozen=True, kw_only=True):
    """What a recorded event would set off."""

    number: int
    tag: str
    stamp: float
    site: str
    rules: list[str]
    reactions: list[ReactionView]
    troubles: list[TroubleView]


class ReplayPage(Struct, frozen=True, kw_only=True):
    """Recorded events that match, of those that were ``looked`` at, up to the moment ``at``.

    ``guarded`` are those of the reactor's own doing, which set off nothing. ``next`` is where to go on.
    """

    events: list[ReplayedView]
    looked: int
    guarded: int
    at: float
    next: dict[str, int] | None
    skipped: list[str] = []


class ReplayTotals(Struct, kw_only=True):
    """What it came to. ``reactions`` are counts by kind, ``files`` by the file that asks for them."""

    looked: int = 0
    guarded: int = 0
    matched: int = 0
    reactions: dict[str, int] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    errors: int = 0
    warnings: int = 0


class ThrottledView(Struct, frozen=True, kw_only=True):
    """What a throttle made of an event. ``joined`` is the event whose reaction stands for it, 0 for none."""

    glob: str
    file: str
    key: str = ""
    state: str
    why: str = ""
    joined: int = 0


class MatchedView(Struct, frozen=True, kw_only=True):
    """An event that matched a rule, and what it set off."""

    number: int
    tag: str
    data: dict[str, Any]
    stamp: float
    site: str
    depth: int
    state: str
    why: str
    troubles: list[TroubleView]
    reactions: list[ReactionView]
    throttled: list[ThrottledView] = []


class WhyPage(Struct, frozen=True):
    """Events, the newest first."""

    events: list[MatchedView]
