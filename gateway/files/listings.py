"""Listings of several roots as one: put together once for however many want to know, and not in the loop.

A listing may have a hundred thousand paths, and a thousand devices may ask for it page by page.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from device_agent.errors import Refused
from device_agent.protocol.file_questions import Listing, decode, sound_path

MERGED_KEPT: Final = 16
PAGES_KEPT: Final = 512


class Listings:
    """What was put together lately."""

    def __init__(self) -> None:
        self._merged: OrderedDict[tuple[str, str], tuple[list[Sequence[str]], list[str]]] = OrderedDict()
        self._merging = asyncio.Lock()
        self._pages: OrderedDict[tuple[str, str, str], tuple[bytes, Page]] = OrderedDict()

    async def merged(self, saltenv: str, under: str, parts: list[Sequence[str]]) -> list[str]:
        """All paths of these listings that are under a folder, sorted. Nobody changes what this returns."""
        async with self._merging:
            known = self._merged.get((saltenv, under))
            if known is None or [*map(id, known[0])] != [*map(id, parts)]:
                known = self._merged[saltenv, under] = parts, await asyncio.to_thread(_merged, under, parts)
            self._merged.move_to_end((saltenv, under))
            if len(self._merged) > MERGED_KEPT:
                self._merged.popitem(last=False)
            return known[1]

    def page(self, saltenv: str, under: str, after: str, answer: bytes) -> Page:
        """A page that the station above told. Raises ``Refused`` for what is none."""
        key = saltenv, under, after
        known = self._pages.get(key)
        if known is None or known[0] != answer:
            told = decode(answer, Listing)
            fresh = [path for path in told.paths if path > after and is_under(path, under)]
            known = answer, Page([path for path in fresh if _sound(path)], fresh[-1] if told.more and fresh else "")
            self._pages[key] = known
        self._pages.move_to_end(key)
        if len(self._pages) > PAGES_KEPT:
            self._pages.popitem(last=False)
        return known[1]


class Page:
    """Some paths, and behind which the next page begins; nothing for the last one."""

    __slots__ = ("next", "paths")

    def __init__(self, paths: list[str], next_: str) -> None:
        self.paths = paths
        self.next = next_


def is_under(path: str, under: str) -> bool:
    """Whether a path is in a folder, or the file itself; everything is in the root."""
    return not under or path.startswith(f"{under}/") or path == under


def _merged(under: str, parts: list[Sequence[str]]) -> list[str]:
    return sorted({path for part in parts for path in part if is_under(path, under)})


def _sound(path: str) -> bool:
    with suppress(Refused):
        return bool(sound_path(path.removesuffix("/")))
    return False
