"""The files of pillar roots: looked at before each use, read where they changed, and known by their content.

A link that leads out of its root or to a folder, a file that is too large, and what cannot be read are left out, and
named in the log.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.render_frames import Tree

log = logging.getLogger(__name__)

FILE_BYTES: Final = 1024 * 1024
TREE_BYTES: Final = 32 * 1024 * 1024
FILES: Final = 20_000

_Look = tuple[int, int, int, int]


class PillarTree:
    """All environments as they are on the disk now."""

    def __init__(self, roots: Mapping[str, list[str]]) -> None:
        self._roots = {env: [Path(root) for root in places] for env, places in roots.items()}
        self._read: dict[str, tuple[_Look, bytes]] = {}
        self._named: set[str] = set()
        self._lock = asyncio.Lock()
        self._looks = 0
        self._tree = Tree("", {})

    async def now(self) -> Tree:
        """The files as they are after this was asked; many who ask at once share a look."""
        asked = self._looks
        async with self._lock:
            # A look that began after this was asked will do.
            if self._looks == asked:
                self._looks += 1
                self._tree = await asyncio.to_thread(self._look)
            return self._tree

    def _look(self) -> Tree:
        seen: dict[str, tuple[_Look, bytes]] = {}
        environments: dict[str, dict[str, bytes]] = {}
        room, count = TREE_BYTES, FILES
        for env, roots in self._roots.items():
            files = environments[env] = {}
            for root in roots:
                for path, content in self._below(root, seen):
                    if path in files:
                        continue
                    room, count = room - len(content), count - 1
                    if room < 0 or count < 0:
                        self._name(str(root), f"the roots hold more than {FILES} files or {TREE_BYTES} bytes")
                        continue
                    files[path] = content
        self._read = seen
        return self._same_or(environments)

    def _same_or(self, environments: dict[str, dict[str, bytes]]) -> Tree:
        whole = hashlib.sha256()
        for env, files in environments.items():
            whole.update(f"{env}\0{len(files)}\0".encode())
            for path in sorted(files):
                whole.update(f"{path}\0{len(files[path])}\0".encode(errors="surrogateescape"))
                whole.update(files[path])
        digest = whole.hexdigest()
        return self._tree if self._tree.digest == digest else Tree(digest, environments)

    def _below(self, root: Path, seen: dict[str, tuple[_Look, bytes]]) -> list[tuple[str, bytes]]:
        real = os.path.realpath(root)
        found = []
        for folder, folders, names in os.walk(root, onerror=self._name_unread):
            for name in folders:
                full = os.path.join(folder, name)  # noqa: PTH118 - thousands of paths, and walk gives text
                if os.path.islink(full):  # noqa: PTH114 - thousands of paths, and walk gives text
                    self._name(full, "it is a link to a folder")
            folders[:] = sorted(name for name in folders if name != ".git")
            for name in sorted(names):
                full = os.path.join(folder, name)  # noqa: PTH118 - thousands of paths, and walk gives text
                content = self._content(full, real, seen)
                if content is not None:
                    found.append((os.path.relpath(full, root), content))
        return found

    def _content(self, full: str, root: str, seen: dict[str, tuple[_Look, bytes]]) -> bytes | None:
        try:
            if os.path.commonpath([os.path.realpath(full), root]) != root:
                self._name(full, "it is a link that leads out of its root")
                return None
            told = os.stat(full)  # noqa: PTH116 - thousands of paths, and walk gives text
            if not stat.S_ISREG(told.st_mode):
                # Whoever opens a pipe waits for who writes into it.
                self._name(full, "it is no file")
                return None
            look = (told.st_mtime_ns, told.st_ctime_ns, told.st_size, told.st_ino)
            known = self._read.get(full)
            if known is None or known[0] != look:
                if told.st_size > FILE_BYTES:
                    self._name(full, f"it has {told.st_size} bytes, at most {FILE_BYTES}")
                    return None
                with open(full, "rb") as file:  # noqa: PTH123 - thousands of paths, and walk gives text
                    content = file.read(FILE_BYTES + 1)
                if len(content) > FILE_BYTES:
                    self._name(full, f"it grew beyond {FILE_BYTES} bytes")
                    return None
                known = (look, content)
        except OSError as error:
            self._name(full, f"it cannot be read: {error.strerror}")
            return None
        seen[full] = known
        return known[1]

    def _name_unread(self, error: OSError) -> None:
        self._name(str(error.filename), f"it cannot be read: {error.strerror}")

    def _name(self, path: str, why: str) -> None:
        if path not in self._named and len(self._named) < FILES:
            self._named.add(path)
            log.error("pillar file left out path=%s why=%s", path, why)
