"""What an engine knows of its station: set once in its process, before its module is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway.cli.client import StationClient
from gateway.engines.report import Report


class Context(Struct, frozen=True):
    """The engine and its ways to the station. ``folder`` is its own, for what must outlive it; made when it is used."""

    name: str
    opts: dict[str, Any]
    api: Path
    events: Path | None
    folder: Path
    report: Report

    def client(self) -> StationClient:
        """A client of the station's API, as the user that the station runs as."""
        return StationClient(self.api)


_known: list[Context] = []


def current() -> Context:
    """The context of this process. Raises ``RuntimeError`` outside an engine."""
    if not _known:
        raise RuntimeError("this is not the process of an engine")
    return _known[-1]


def use(context: Context) -> None:
    """This is the process of that engine."""
    _known.append(context)
