"""What a command said that has ended."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    status: int
    out: str
    error: str

    def json(self, kind: str) -> list[dict[str, Any]]:
        """The JSON lines of this type."""
        return [line for line in map(json.loads, self.out.splitlines()) if line["type"] == kind]
