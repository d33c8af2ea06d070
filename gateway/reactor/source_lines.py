"""In which line of its file a reaction stands."""

from __future__ import annotations

from typing import Final

from gateway.reactor.sls import Reaction
from gateway.reactor.written_calls import WrittenCall, written_calls

COLONS: Final = 4
"""Colons of a line up to which an id may reach."""


class SourceLines:
    """The text of one file, read once for all of its reactions."""

    def __init__(self, text: str) -> None:
        self._ids: dict[str, tuple[int, str]] = {}
        for number, line in enumerate(text.split("\n"), start=1):
            if line and not line[0].isspace():
                for name in _ids_in(line):
                    self._ids.setdefault(name, (number, line.strip()))
        self._calls = list(written_calls(text))

    def of(self, reaction: Reaction) -> tuple[int, str]:
        """The number and text of its line: that of its function, below its id where the id is as written.

        ``(0, "")`` where neither is in the text.
        """
        begin, line = self._ids.get(reaction.id, (0, ""))
        first = reaction.said.partition(".")[0]
        behind = [call for call in self._calls if call.line >= begin and call.type == first]
        found = next((call for call in behind if call.said == reaction.said), None) or _computed(behind)
        return (found.line, found.text) if found is not None else (begin, line)


def _computed(calls: list[WrittenCall]) -> WrittenCall | None:
    return next((call for call in calls if not call.fun), None)


def _ids_in(line: str) -> list[str]:
    parts = line.split(":", COLONS)
    return [":".join(parts[:end]).strip("'\"") for end in range(1, len(parts))]
