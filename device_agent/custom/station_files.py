"""Code as it is fetched from the files that a station serves."""

from __future__ import annotations

import asyncio
from typing import Final

from device_agent import files
from device_agent.custom.sync import Found
from device_agent.errors import Refused
from device_agent.protocol.file_questions import CHUNK, CHUNK_BYTES, AskChunk, FileEntry, encode
from device_agent.questions import Station

AGAIN_SECONDS: Final = 0.5
AGAIN_TIMES: Final = 240
"""A file that the station fetches itself first is asked for so often."""


class StationFiles:
    """Implements ``CodeSource`` over questions. Raises ``FunctionFailed`` where the station cannot tell."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._entries: dict[tuple[str, str], FileEntry] = {}

    async def paths(self, saltenv: str, under: str) -> list[str]:
        """What stands under a folder."""
        found = await files.listed(self._station, saltenv, under)
        return [path for path in found if path.startswith(f"{under}/") and not path.endswith("/")]

    async def find(self, saltenv: str, path: str) -> Found | None:
        """What stands at a path; None for nothing."""
        entry = await files.find(self._station, path, saltenv)
        if entry is None:
            return None
        self._entries[saltenv, path] = entry
        return Found(entry.size, bytes.fromhex(entry.sha256))

    async def read(self, saltenv: str, path: str, found: Found) -> bytes:
        """What was found there, piece by piece; whoever asked verifies it. Raises ``Refused`` and ``Unanswered``."""
        entry, body, waited = self._entries[saltenv, path], b"", 0
        while len(body) < found.size:
            length = min(CHUNK_BYTES - len(body) % CHUNK_BYTES, found.size - len(body))
            try:
                piece = await self._station.ask(CHUNK, encode(AskChunk(entry, len(body), length)))
            except Refused as refused:
                if refused.reason != "busy":
                    raise
                piece = b""
            if len(piece) > length:
                raise Refused("wrong_answer", f"{path}: {len(piece)} bytes where {length} were asked for")
            if not piece:
                waited += 1
                if waited > AGAIN_TIMES:
                    raise Refused("not_here", f"{path}: the station has not got it in time")
                await asyncio.sleep(AGAIN_SECONDS)
            body += piece
        return body
