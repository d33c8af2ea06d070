"""docs/wrong-starts.md, as tests hold units against it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.house.tree import ROOT

PAGE = ROOT / "docs" / "wrong-starts.md"


@dataclass(frozen=True)
class Row:
    """What the page promises of one wrong start."""

    unit: str
    does: str
    status: str

    def fits(self, said: str) -> bool:
        """Whether a status is what the page says; its beginning, where there is more."""
        words = self.status.replace("\\|", "|").split("…")
        return re.match(".*?".join(map(re.escape, words)), said) is not None


def rows(*units: str) -> dict[str, Row]:
    """What the page has of these units, by what is wrong."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[1] in units:
            found[cells[0]] = Row(*cells[1:])
    return found
