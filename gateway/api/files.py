"""Files in the API: what is served, which file stands at a path, and what is kept of the station above."""

from __future__ import annotations

from typing import Any

import msgspec

from device_agent.errors import NotFound, OutstationError, Refused, StationFailed, UsageInvalid
from device_agent.protocol.file_questions import FIRST_ENVIRONMENT, url_parts
from gateway.api.operation import Answer, Asked, Operation, whole
from gateway.files.files import Files

PAGE = 10_000
SHOWN = 1000
"""Contents of the cache that are shown, those used last."""


class FilesApi:
    """Operations on files."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation(
                "GET",
                "/files",
                "The files that are served",
                self._list,
                query={
                    "saltenv": "their environment; default base",
                    "under": "only those in this folder",
                    "limit": f"at most so many, up to {PAGE}; default 1000",
                    "after": "those behind this path",
                },
            ),
            Operation(
                "GET",
                "/files/find",
                "Which file stands at a path",
                self._find,
                query={"path": "salt://PATH, or the path alone", "saltenv": "its environment; default base"},
            ),
            Operation("GET", "/files/cache", "What is kept of the station above", self._cache),
        ]

    async def _list(self, asked: Asked) -> Answer:
        saltenv = asked.query.get("saltenv", FIRST_ENVIRONMENT)
        limit, after = whole(asked, "limit", 1000, PAGE), asked.query.get("after", "")
        try:
            paths = await self._files.paths(saltenv, asked.query.get("under", ""))
            commits = await self._files.commits(saltenv)
        except OutstationError as error:
            raise _told(error) from None
        behind = [path for path in paths if path > after]
        return {
            "saltenv": saltenv,
            "environments": await self._files.environments(),
            "commits": commits,
            "paths": behind[:limit],
            "next": behind[limit - 1] if 0 < limit < len(behind) else None,
        }

    async def _find(self, asked: Asked) -> Answer:
        path, saltenv = asked.query.get("path", ""), asked.query.get("saltenv", FIRST_ENVIRONMENT)
        try:
            if "://" in path:
                path, saltenv = url_parts(path, saltenv)
            entry = await self._files.find(path.strip("/"), saltenv)
        except OutstationError as error:
            raise _told(error) from None
        if entry is None:
            raise NotFound(
                f"there is no {path} in environment {saltenv}",
                error_id="files.not_found",
                hint=f"outstation files list --saltenv {saltenv}",
            )
        found: dict[str, Any] = msgspec.to_builtins(entry)
        return {**found, "kept": self._files.store.has(entry.sha256)}

    async def _cache(self, _: Asked) -> Answer:
        store = self._files.store
        names = {entry.sha256: entry for entry in self._files.known_above()}
        views = store.views()
        return {
            "used_bytes": store.used_bytes,
            "most_bytes": store.most_bytes,
            "files": len(views),
            "contents": [
                {
                    "sha256": sha256,
                    "size": content.size,
                    "whole": content.whole,
                    "path": names[sha256].path if sha256 in names else "",
                    "saltenv": names[sha256].saltenv if sha256 in names else "",
                }
                for sha256, content in views[:SHOWN]
            ],
            "fetches": [
                {"path": entry.path, "saltenv": entry.saltenv, "size": entry.size, "here": here, "error": error}
                for entry, here, error in self._files.fetches.views()
            ],
        }


def _told(error: OutstationError) -> OutstationError:
    """What was refused, as an error of whoever asked; what could not be known, as one of the station."""
    if isinstance(error, Refused):
        return UsageInvalid(error.what, error_id=f"files.{error.reason}")
    return StationFailed(error.what, error_id="files.unknown")
