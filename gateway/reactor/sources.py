"""The rules and the files that they name, as they are now: on this machine's disk, and under ``salt://``.

They are looked at before each use and read where they changed. What cannot be had is a trouble of its rule alone.
"""

from __future__ import annotations

import asyncio
import glob
import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct, field

from device_agent.errors import OutstationError, Refused
from device_agent.protocol.file_questions import SCHEME, FileEntry, url_parts
from device_agent.utf8_text import NotUtf8, utf8_text
from gateway.owned_files import check_owned
from gateway.reactor.rule_book import RuleBook
from gateway.reactor.rules import RuleMap, parsed, parsed_text
from gateway.reactor.sls import Trouble
from gateway.reactor.throttle import Throttle, Throttles
from gateway.render_frames import Tree
from gateway.render_sls import is_python

log = logging.getLogger(__name__)

FILE_BYTES: Final = 1024 * 1024
TREE_BYTES: Final = 16 * 1024 * 1024
FILES: Final = 5000
SALT_SECONDS: Final = 10.0
ENVIRONMENT: Final = "reactor"

_Look = tuple[int, int, int]


class StationFiles(Protocol):
    """The files that this station serves."""

    async def find(self, path: str, saltenv: str) -> FileEntry | None:
        """What stands at a path."""

    async def read(self, entry: FileEntry, limit: int) -> bytes:
        """Its content."""


class Known(Struct, frozen=True):
    """The rules, their files as a tree for the renderer, and which paths of the map stand for which files."""

    map: RuleMap = RuleMap()
    tree: Tree = field(default_factory=lambda: Tree("", {ENVIRONMENT: {}}))
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    troubles: dict[str, Trouble] = field(default_factory=dict)
    """By path of the map."""

    throttles: dict[str, Throttle] = field(default_factory=dict)

    def of(self, paths: Sequence[str]) -> list[str]:
        """The files of these paths, in their order."""
        return [file for path in paths for file in self.files.get(path, ())]


def label(file: str) -> str:
    """The name of a file in the tree."""
    return file.lstrip("/")


class Sources:
    """The rules of the settings, or of the file that they name."""

    def __init__(self, said: str | list[Any], files: StationFiles, book: RuleBook, throttles: Throttles) -> None:
        self._said = said
        self._throttles = throttles
        self._files = files
        self.book = book
        self._fixed = RuleMap() if isinstance(said, str) else parsed(said)
        self._map: tuple[_Look | None, RuleMap] = (None, self._fixed)
        self._read: dict[str, tuple[_Look, bytes]] = {}
        self._served: dict[str, tuple[str, bytes]] = {}
        self._lock = asyncio.Lock()
        self._looks = 0
        self._looked = False
        self._known = Known(self._fixed)
        self._told: set[str] = set()

    @property
    def any(self) -> bool:
        """Whether there can be rules at all."""
        return isinstance(self._said, str) or bool(self._fixed.rules) or self.book.any

    def addresses(self) -> list[str]:
        """The files under ``salt://`` that the rules name, as they were at the last look."""
        return [path for path in self._known.map.paths() if path.startswith(SCHEME)]

    @property
    def known(self) -> Known | None:
        """The files as they were at the last look; None before the first."""
        return self._known if self._looked else None

    async def now(self) -> Known:
        """The files as they are after this was asked; many who ask at once share a look."""
        asked = self._looks
        async with self._lock:
            if self._looks == asked:
                self._looks += 1
                rules = self.book.changing(await self.settled())
                troubles = await self._fetched(rules)
                self._known = await asyncio.to_thread(self._look, rules, troubles)
                self._looked = True
                self._tell()
            return self._known

    async def settled(self) -> RuleMap:
        """The rules of the settings alone, without what was changed since."""
        if isinstance(self._said, str):
            return await asyncio.to_thread(self._map_now, Path(self._said))
        return self._fixed

    async def _fetched(self, rules: RuleMap) -> dict[str, Trouble]:
        """Have the files under ``salt://``; what was wrong, by path. What was there before counts on meanwhile."""
        troubles: dict[str, Trouble] = {}
        wanted = [path for path in rules.paths() if path.startswith(SCHEME)]
        for path in wanted:
            try:
                async with asyncio.timeout(SALT_SECONDS):
                    entry = await self._files.find(*url_parts(path))
                    if entry is None:
                        self._served.pop(path, None)
                        troubles[path] = Trouble(file=path, what="the station has no such file")
                    elif (known := self._served.get(path)) is None or known[0] != entry.sha256:
                        self._served[path] = (entry.sha256, await self._files.read(entry, FILE_BYTES))
            except (OutstationError, OSError, TimeoutError) as error:
                older = "; the one before counts on" if path in self._served else ""
                troubles[path] = Trouble(file=path, what=f"it cannot be had: {str(error) or 'no answer'}{older}")
        for gone in set(self._served) - set(wanted):
            del self._served[gone]
        return troubles

    def _look(self, rules: RuleMap, troubles: dict[str, Trouble]) -> Known:
        read: dict[str, tuple[_Look, bytes]] = {}
        found: dict[str, tuple[str, ...]] = {}
        contents: dict[str, bytes] = {}
        room = TREE_BYTES
        for path in rules.paths():
            served = self._served.get(path)
            if path.startswith(SCHEME):
                fresh = {} if served is None else {path: served[1]}
            else:
                fresh = {name: read[name][1] for name in self._local(path, read, troubles)}
            room -= sum(len(content) for name, content in fresh.items() if label(name) not in contents)
            if room < 0 or len(contents) + len(fresh) > FILES:
                troubles[path] = Trouble(
                    file=path, what=f"the rules name more than {FILES} files or {TREE_BYTES} bytes"
                )
                break
            found[path] = tuple(fresh)
            contents |= {label(name): content for name, content in fresh.items()}
        self._read = read
        return Known(rules, self._tree(contents), found, troubles, {**rules.throttles, **self._throttles})

    def _map_now(self, path: Path) -> RuleMap:
        try:
            told = path.stat()
            look = (told.st_mtime_ns, told.st_size, told.st_ino)
            if self._map[0] != look:
                if told.st_size > FILE_BYTES:
                    return RuleMap(skipped=(f"{path}: it has {told.st_size} bytes, at most {FILE_BYTES}",))
                self._map = (look, parsed_text(utf8_text(path.read_bytes()), str(path)))
        except OSError as error:
            self._map = (None, RuleMap(skipped=(f"{path}: it cannot be read: {error.strerror}",)))
        except NotUtf8 as error:
            self._map = (None, RuleMap(skipped=(f"{path}:{error.line}: {error}; try: {error.fix(path)}",)))
        return self._map[1]

    def _local(self, path: str, read: dict[str, tuple[_Look, bytes]], troubles: dict[str, Trouble]) -> list[str]:
        if not path.startswith("/"):
            troubles[path] = Trouble(file=path, what="a path begins with / or salt://")
            return []
        found = []
        for name in sorted(glob.glob(path))[: FILES + 1]:  # noqa: PTH207 - a pattern from the top of the file system
            if name in read:
                found.append(name)
                continue
            try:
                name.encode()
            except UnicodeEncodeError:
                # It could be named to nobody: not to the renderer, not on the disk, not in an answer.
                shown = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
                troubles[path] = Trouble(file=shown, what="the name of a file is UTF-8 text")
                continue
            try:
                file = Path(name)
                if not file.is_file():
                    continue
                told = file.stat()
                look = (told.st_mtime_ns, told.st_size, told.st_ino)
                known = self._read.get(name)
                if known is None or known[0] != look:
                    if told.st_size > FILE_BYTES:
                        troubles[path] = Trouble(file=name, what=f"it has {told.st_size} bytes, at most {FILE_BYTES}")
                        continue
                    known = (look, file.read_bytes()[: FILE_BYTES + 1])
                if is_python(known[1]):
                    # At each look: a folder above it may have been opened to others since.
                    check_owned(file)
            except Refused as refused:
                troubles[path] = Trouble(file=name, what=f"a file in Python does not run so: {refused.detail}")
                continue
            except OSError as error:
                troubles[path] = Trouble(file=name, what=f"it cannot be read: {error.strerror}")
                continue
            read[name] = known
            found.append(name)
        if not found and path not in troubles:
            troubles[path] = Trouble(file=path, what="no file is there")
        return found

    def _tree(self, files: dict[str, bytes]) -> Tree:
        whole = hashlib.sha256(ENVIRONMENT.encode())
        for name in sorted(files):
            whole.update(f"{name}\0{len(files[name])}\0".encode(errors="surrogateescape"))
            whole.update(files[name])
        digest = whole.hexdigest()
        known = self._known.tree
        return known if known.digest == digest else Tree(digest, {ENVIRONMENT: files})

    def _tell(self) -> None:
        """Each trouble once in the log, until it is another."""
        words = {*self._known.map.skipped, *(f"{each.file}: {each.what}" for each in self._known.troubles.values())}
        for what in sorted(words - self._told):
            log.error("reactor: %s", what)
        self._told = words
