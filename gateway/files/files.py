"""The files of a station: of its own roots first, and what the station above it has, which is kept here.

``find``, ``listed`` and ``read`` are for this station's other rooms; the answers are for its devices and its sites.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

from device_agent.clock import Clock
from device_agent.errors import NotFound, OutstationError, Refused
from device_agent.parts import Part
from device_agent.protocol.file_questions import (
    CHUNK,
    CHUNK_BYTES,
    FIND,
    HASHES,
    LIST,
    MARK_BYTES,
    MARKS_AT_ONCE,
    AskChunk,
    AskHashes,
    FileEntry,
    FindFile,
    ListFiles,
    decode,
    encode,
    page_of,
    sound_folder,
    sound_path,
    url_parts,
)
from device_agent.protocol.messages import COMMITS_CHARACTERS
from device_agent.questions import Unanswered
from gateway.answers import Answers
from gateway.files.fetches import Fetches
from gateway.files.folder_root import FolderRoot, changed
from gateway.files.git_root import GitFiles
from gateway.files.kept_answers import Above, KeptAnswers
from gateway.files.listings import Listings
from gateway.files.served import LISTED_MOST, Patterns, RootFiles
from gateway.files.settings import FileRoots, FilesSettings
from gateway.files.store import ContentStore
from gateway.metrics import Metrics
from gateway.store.reader import Reader
from gateway.store.writer import Writer

log = logging.getLogger(__name__)

MEGABYTE: Final = 1_000_000
READ_SECONDS: Final = 600.0


class Files(Part):
    """The room."""

    name: ClassVar[str] = "files"
    drain_seconds: ClassVar[float] = 1.0

    def __init__(
        self,
        *,
        roots: FileRoots,
        settings: FilesSettings,
        patterns: Patterns,
        folder: Path,
        writer: Writer,
        reader: Reader,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self.above: Above | None = None
        """The uplink, once there is one."""
        self._metrics = metrics
        self.store = ContentStore(folder, settings.cache_megabytes * MEGABYTE, metrics, clock)
        self._roots: dict[str, list[RootFiles]] = {
            saltenv: [
                FolderRoot(root, saltenv, patterns, clock)
                if isinstance(root, str)
                else GitFiles(root, saltenv, patterns, self.store, clock)
                for root in listed
            ]
            for saltenv, listed in roots.items()
        }
        self._above_has: dict[tuple[str, str], FileEntry] = {}
        self._listings = Listings()
        self._kept = KeptAnswers(lambda: self.above, settings.fresh_seconds, writer, reader, clock)
        self.fetches = Fetches(self.store, lambda: self.above, settings.max_bytes_per_second, metrics, clock)
        self._spared: list[Callable[[], Iterable[str]]] = []
        self.store.needed = self._needed

    async def open(self) -> None:
        """Look what the cache has."""
        await self.store.open()
        for answer in await self._kept.all_about(FIND):
            with suppress(Refused):
                entry = decode(answer, FileEntry)
                self._above_has[entry.saltenv, entry.path] = entry

    def spare_for(self, urls: Callable[[], Iterable[str]]) -> None:
        """What these addresses name too, or what is in a folder that they name, does not give way to other contents."""
        self._spared.append(urls)

    def _needed(self) -> set[str]:
        urls = [url for spared in self._spared for url in spared()]
        return {entry.sha256 for entry in self._named(urls)} | self.fetches.under_way()

    async def made_from(self, urls: Iterable[str]) -> str:
        """The commits of what these addresses name, each as ``environment:commit``, as far as they are known here."""
        named = list(urls)
        found = {f"{entry.saltenv}:{entry.commit}" for entry in self._named(named) if entry.commit}
        for saltenv in {place[0] for url in named if (place := _place(url)) is not None}:
            try:
                found |= {f"{saltenv}:{commit}" for commit in await self.commits(saltenv)}
            except OutstationError as error:
                # The job is no worse for it; whoever asks for the file hears the same.
                log.warning("no commit known saltenv=%s error=%s", saltenv, error.what)
        return " ".join(sorted(found))[:COMMITS_CHARACTERS]

    def known_above(self) -> list[FileEntry]:
        """What is known of the station above, in the order in which it was heard."""
        return list(self._above_has.values())

    def gauges(self) -> dict[str, float]:
        """How it stands, for the metrics."""
        return {
            "files_cache_bytes": float(self.store.used_bytes),
            "files_cache_limit_bytes": float(self.store.most_bytes),
            "files_fetching": float(len(self.fetches.views())),
        }

    def _named(self, urls: Iterable[str]) -> Iterator[FileEntry]:
        """What the station above has of these files, and of those under these folders, as far as is known."""
        named = {place for url in urls if (place := _place(url)) is not None}
        if not named:
            return
        for (saltenv, path), entry in self._above_has.items():
            # However many addresses there are: those of the file, of its folders, and of the whole environment.
            words = path.split("/")
            if any((saltenv, "/".join(words[:count])) in named for count in range(len(words) + 1)):
                yield entry

    def answer(self, *desks: Answers) -> None:
        """Answer what these askers want to know of files."""
        for desk in desks:
            desk.about(FIND, self._answer_find)
            desk.about(LIST, self._answer_list)
            desk.about(HASHES, self._answer_hashes)
            desk.about(CHUNK, self._answer_chunk)

    # --- for this station's other rooms --------------------------------------------------------------------------

    async def find(self, path: str, saltenv: str) -> FileEntry | None:
        """What stands at a path; None for nothing. Raises ``Refused``, and ``Unanswered`` when it cannot be known."""
        sound_path(path)
        for root in self._roots.get(saltenv, ()):
            if (entry := await root.find(path)) is not None:
                return entry
        if self.above is None:
            return None
        try:
            said = decode(await self._kept.ask(FIND, encode(FindFile(path, saltenv))), FileEntry)
        except NotFound:
            self._above_has.pop((saltenv, path), None)
            return None
        if (said.path, said.saltenv) != (path, saltenv):
            raise Refused("wrong_answer", f"asked for {path}, told of {said.path}")
        self._above_has[saltenv, path] = said
        return said

    async def listed(self, saltenv: str, under: str = "") -> list[FileEntry]:
        """Every file under a folder, in the order of their paths. Raises as ``find`` does."""
        entries = [await self.find(path, saltenv) for path in await self.paths(saltenv, under) if path[-1] != "/"]
        return [entry for entry in entries if entry is not None]

    async def paths(self, saltenv: str, under: str = "") -> list[str]:
        """The paths of the files under a folder, sorted; a folder without files has a ``/`` behind it."""
        under = sound_folder(under)
        parts: list[Sequence[str]] = [await root.listed() for root in self._roots.get(saltenv, ())]
        if self.above is not None:
            parts += await self._pages_above(saltenv, under)
        return await self._listings.merged(saltenv, under, parts)

    async def environments(self) -> list[str]:
        """Those that have roots here."""
        return sorted(self._roots)

    async def commits(self, saltenv: str) -> list[str]:
        """The commits that are served in an environment here."""
        return [commit for root in self._roots.get(saltenv, ()) if (commit := await root.commit())]

    async def read(self, entry: FileEntry, limit: int) -> bytes:
        """The content of a file of at most so many bytes. Raises ``Refused``, and ``Unanswered`` when it takes long."""
        if entry.size > limit:
            raise Refused("too_large", f"{entry.path} has {entry.size} bytes, at most {limit}")
        data = b""
        try:
            async with asyncio.timeout(READ_SECONDS):
                while len(data) < entry.size:
                    data += await self.piece(AskChunk(entry, len(data)))
        except TimeoutError:
            raise Unanswered(f"{entry.path} did not come in {READ_SECONDS:.0f} s") from None
        return data

    async def piece(self, asked: AskChunk) -> bytes:
        """A piece of a file; nothing when it is not here yet. Raises ``Refused`` and ``NotFound``."""
        entry, offset = asked.entry, asked.offset
        sound_path(entry.path)
        length = min(asked.length, CHUNK_BYTES - offset % CHUNK_BYTES, max(0, entry.size - offset))
        if length == 0:
            return b""
        if self.store.has(entry.sha256):
            if self.store.size(entry.sha256) != entry.size:
                raise Refused("wrong_size", f"{entry.path} has not the {entry.size} bytes that it was said to have")
            piece = await self.store.piece(entry.sha256, offset, length)
            if piece is not None:
                return piece
            await self.store.demote(entry.sha256)
        if (root := await self._root_of(entry)) is not None:
            return await root.piece(entry, offset, length)
        if self.above is None:
            raise changed(entry) if entry.saltenv in self._roots else NotFound(f"there is no {entry.path} here")
        await self._check_known(entry)
        try:
            return await self.fetches.piece(entry, offset, length)
        except Refused as refusal:
            if refusal.reason == "changed":
                self._kept.doubt(FIND, encode(FindFile(entry.path, entry.saltenv)))
            raise

    async def _check_known(self, entry: FileEntry) -> None:
        """Fetch nothing that only whoever asks for it says is there. Raises ``Refused`` (``changed``)."""
        if not self._is_known(entry):
            await self.find(entry.path, entry.saltenv)
            if not self._is_known(entry):
                raise changed(entry)

    def _is_known(self, entry: FileEntry) -> bool:
        known = self._above_has.get((entry.saltenv, entry.path))
        return known is not None and (known.sha256, known.size) == (entry.sha256, entry.size)

    async def _root_of(self, entry: FileEntry) -> RootFiles | None:
        for root in self._roots.get(entry.saltenv, ()):
            if await root.find(entry.path) is not None:
                return root
        return None

    async def _pages_above(self, saltenv: str, under: str) -> list[Sequence[str]]:
        pages: list[Sequence[str]] = []
        after, count = "", 0
        with suppress(NotFound):
            while (after or not pages) and count <= LISTED_MOST:
                answer = await self._kept.ask(LIST, encode(ListFiles(saltenv, under, after)))
                page = self._listings.page(saltenv, under, after, answer)
                pages.append(page.paths)
                after, count = page.next, count + len(page.paths)
        return pages

    # --- answers -------------------------------------------------------------------------------------------------

    async def _answer_find(self, _asker: str, body: bytes) -> bytes:
        wanted = decode(body, FindFile)
        try:
            entry = await self.find(wanted.path, wanted.saltenv)
        except Unanswered as error:
            raise Refused("cut_off", f"{wanted.path} was not asked for before, and {error.what}") from None
        if entry is None:
            raise NotFound(f"there is no {wanted.path} in environment {wanted.saltenv}")
        self._metrics.add("files_found")
        return encode(entry)

    async def _answer_list(self, _asker: str, body: bytes) -> bytes:
        wanted = decode(body, ListFiles)
        try:
            return encode(page_of(await self.paths(wanted.saltenv, wanted.under), wanted.after))
        except Unanswered as error:
            raise Refused("cut_off", f"this folder was not asked for before, and {error.what}") from None

    async def _answer_hashes(self, _asker: str, body: bytes) -> bytes:
        wanted = decode(body, AskHashes)
        entry = wanted.entry
        sound_path(entry.path)
        marks = await self.store.marks(entry.sha256) if self.store.has(entry.sha256) else None
        if marks is None:
            root = await self._root_of(entry)
            if root is not None:
                marks = await root.hashes(entry)
            elif self.above is not None:
                await self._check_known(entry)
                await self.fetches.begun(entry)
                # None yet is no answer that ends anything: whoever asks goes on asking.
                marks = await self.store.marks(entry.sha256) or b""
        if marks is None:
            raise changed(entry)
        return marks[wanted.first * MARK_BYTES : (wanted.first + MARKS_AT_ONCE) * MARK_BYTES]

    async def _answer_chunk(self, _asker: str, body: bytes) -> bytes:
        piece = await self.piece(decode(body, AskChunk))
        self._metrics.add("files_served_bytes", len(piece))
        return piece


def _place(url: str) -> tuple[str, str] | None:
    """Environment and path of an address; None when it is none."""
    try:
        path, saltenv = url_parts(url)
    except Refused:
        return None
    return saltenv, path
