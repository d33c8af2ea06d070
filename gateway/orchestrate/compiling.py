"""From the names of files to steps that can be taken, or to all that is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.orchestrate import high, ordering
from gateway.orchestrate.deeds import BadStep, deed
from gateway.orchestrate.reading import Reading, StationFiles, Wrong
from gateway.orchestrate.words import ERRORS, SlsFile, Step
from gateway.render import Renderer


class Compiled(Struct, frozen=True):
    """The steps in their order, or what is wrong."""

    steps: list[Step] = []
    errors: list[str] = []


class Compiler:
    """Reads, checks and orders. Nothing is done."""

    def __init__(self, files: StationFiles, renderer: Renderer, device: str) -> None:
        self._files = files
        self._renderer = renderer
        self._device = device

    async def compile(
        self, mods: Sequence[str], saltenv: str, pillar: Mapping[str, Any], *, test: bool = False
    ) -> Compiled:
        """The steps of these files. Raises ``Refused`` (``busy``) when too many renderings wait."""
        reading = Reading(self._files, self._renderer, self._device, pillar)
        try:
            await reading.read(list(mods), saltenv)
        except Wrong as wrong:
            return Compiled(errors=[str(wrong)])
        return compiled(reading.files, reading.errors, test=test)


def compiled(files: Sequence[SlsFile], errors: Sequence[str] = (), *, test: bool = False) -> Compiled:
    """The steps of files that were rendered. Pure."""
    told = list(errors)
    drafts, wrong = high.drafts(files)
    told += wrong
    if told:
        return Compiled(errors=_few(told))
    steps, wrong = ordering.compiled(drafts)
    told += wrong
    for step in steps:
        try:
            deed(step, test=test)
        except BadStep as bad:
            told.append(f"{step.place}: {bad}")
    return Compiled(errors=_few(told)) if told else Compiled(steps)


def _few(errors: list[str]) -> list[str]:
    more = len(errors) - ERRORS
    return [*errors[:ERRORS], f"and {more} more"] if more > 0 else errors
