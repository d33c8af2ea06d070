"""How the outcomes of a job are printed: as they come, folded on a terminal, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from device_agent.protocol.outcomes import Outcome
from gateway.cli.output import Output, Styled
from gateway.cli.text import STYLE, meaning, moment, safe, value_lines
from gateway.cli.views import OutcomeView

FOLDED_ABOVE = 20
"""On a terminal, more devices than this are shown once per equal answer."""

NAME_CELLS = 20
OUTCOME_CELLS = 11


@dataclass
class Group:
    """Devices that gave the same answer."""

    value: object
    names: list[str] = field(default_factory=list)


class Results:
    """Prints outcomes. With ``fold``, those that are ok are held until it is known how many devices there are."""

    def __init__(self, output: Output, *, as_json: bool, fold: bool) -> None:
        self._output = output
        self._as_json = as_json
        self._fold = fold and output.on_terminal and not as_json
        self._groups: dict[str, Group] = {}
        self._site_of: dict[str, str | None] = {}

    def holds(self, outcome: OutcomeView) -> bool:
        """Whether this outcome will wait, so that nothing is printed for it now."""
        return self._fold and outcome.outcome == Outcome.OK

    def add(self, outcome: OutcomeView) -> None:
        """Take an outcome: print it, or hold it."""
        if self._as_json:
            self._output.json(msgspec.to_builtins(outcome))
        elif self.holds(outcome):
            key = json.dumps(outcome.value, sort_keys=True)
            self._groups.setdefault(key, Group(outcome.value)).names.append(self._name(outcome))
        else:
            self._print(self._name(outcome), outcome.outcome, outcome_words(outcome, self._output.now()), outcome.value)

    def due(self, expected: int) -> bool:
        """Whether what is held can be printed: so few devices are expected that each is listed."""
        return bool(self._groups) and 0 < expected <= FOLDED_ABOVE

    def settle(self, expected: int) -> None:
        """Print what is held: each device when they are few, else each different answer once."""
        held = sum(len(group.names) for group in self._groups.values())
        few = max(held, expected) <= FOLDED_ABOVE
        for group in sorted(self._groups.values(), key=lambda group: -len(group.names)):
            if few or len(group.names) == 1:
                for name in group.names:
                    self._print(name, Outcome.OK, "", group.value)
            else:
                self._print(f"{len(group.names):,} × ok", "", "", group.value)
        self._groups.clear()

    def _name(self, outcome: OutcomeView) -> str:
        """The id; with its site when another site has already answered under the same id."""
        if self._site_of.setdefault(outcome.id, outcome.site) == outcome.site:
            return safe(outcome.id)
        return f"{safe(outcome.id)} ({safe(outcome.site or '')})"

    def _print(self, name: str, outcome: str, words: str, value: object) -> None:
        lines = value_lines(value, cut=self._output.on_terminal)
        inline = "" if words or len(lines) > 1 else lines[0]
        below: Sequence[str] = () if inline or (value is None and words) else lines
        style = STYLE.get(outcome, "")
        if self._output.on_terminal:
            parts: list[str | Styled] = [f"{name.ljust(NAME_CELLS)}  "]
            if outcome:
                parts.append((f"{safe(outcome).ljust(OUTCOME_CELLS)}  ", style))
            self._output.line(*parts, words or inline)
        else:
            self._output.line("\t".join([name, safe(outcome), words or inline]))
        for line in below:
            self._output.line(f"    {line}")


def outcome_words(outcome: OutcomeView, now: float) -> str:
    """Why an outcome is not ok, and when the device was last heard; nothing for one that is ok."""
    if outcome.outcome == Outcome.OK:
        return ""
    words = meaning(outcome.outcome)
    if outcome.why:
        words += f": {safe(outcome.why)}"
    elif outcome.retcode:
        words += f": exit status {outcome.retcode}"
    if outcome.seen is not None:
        words += f"; last seen {moment(outcome.seen, now)}"
    return words
