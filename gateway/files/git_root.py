"""A root that is a git repository: the files of one commit, read from its objects and not from its working tree.

The repository is read with the ``git`` program and nothing of it is believed: no settings of its own are used that
could run something, nothing is fetched, and what the program prints is bounded.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Final

from device_agent.clock import Clock
from device_agent.errors import OutstationError, Refused
from device_agent.protocol.file_questions import CHUNK_BYTES, FILE_BYTES, FileEntry, sound_path
from gateway.files.folder_root import changed
from gateway.files.served import LISTED_MOST, Patterns
from gateway.files.settings import GitRoot
from gateway.files.store import ContentStore, disk_refusal, mark_of

GIT_SECONDS: Final = 60.0
TREE_BYTES: Final = 64 * 1024 * 1024
WORD_BYTES: Final = 4096
LOOK_SECONDS: Final = 2.0
"""A branch is looked up again after so long."""

ENVIRONMENT: Final = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
SAFE: Final = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never")
FILES: Final = (b"100644", b"100755")


class Tree:
    """The files of one commit: path to object and size."""

    def __init__(self, commit: str, blobs: dict[str, tuple[str, int]]) -> None:
        self.commit = commit
        self.blobs = blobs
        self.paths = list(blobs)


class GitFiles:
    """Implements ``RootFiles``."""

    def __init__(self, settings: GitRoot, saltenv: str, patterns: Patterns, store: ContentStore, clock: Clock) -> None:
        self._settings = settings
        self._saltenv = saltenv
        self._patterns = patterns
        self._store = store
        self._clock = clock
        self._tree: Tree | None = None
        self._looked = 0.0
        self._looking = asyncio.Lock()
        self._taking = asyncio.Lock()
        self._contents: dict[str, str] = {}

    async def find(self, path: str) -> FileEntry | None:
        tree = await self._now()
        blob = tree.blobs.get(path)
        if blob is None:
            return None
        sha256 = await self._content(*blob)
        return FileEntry(path, self._saltenv, blob[1], sha256, tree.commit)

    async def listed(self) -> list[str]:
        return (await self._now()).paths

    async def hashes(self, entry: FileEntry) -> bytes:
        marks = await self._store.marks(entry.sha256) if await self._here(entry) else None
        if marks is None:
            raise changed(entry)
        return marks

    async def piece(self, entry: FileEntry, offset: int, length: int) -> bytes:
        for _ in range(2):
            if not await self._here(entry):
                break
            piece = await self._store.piece(entry.sha256, offset, length)
            if piece is not None:
                return piece
            # What is wrong on the disk is read from the repository anew.
            self._store.drop(entry.sha256)
        raise changed(entry)

    async def commit(self) -> str:
        return (await self._now()).commit

    async def _here(self, entry: FileEntry) -> bool:
        """Whether the content is in the store: it was put there, or is what the commit has at this path."""
        if not self._store.has(entry.sha256):
            found = await self.find(entry.path)
            return found is not None and found.sha256 == entry.sha256
        return True

    async def _now(self) -> Tree:
        """The tree of the commit that the ref names now."""
        async with self._looking:
            now = self._clock.monotonic()
            if self._tree is None or now - self._looked > LOOK_SECONDS:
                said = await self._git("rev-parse", "--verify", "--quiet", f"{self._settings.ref}^{{commit}}")
                commit = said.decode("ascii", "replace").strip()
                if self._tree is None or self._tree.commit != commit:
                    self._tree = Tree(commit, await self._blobs(commit))
                self._looked = now
            return self._tree

    async def _blobs(self, commit: str) -> dict[str, tuple[str, int]]:
        folder = self._settings.root.strip("/")
        place = f"{commit}:{folder}" if folder else commit
        said = await self._git("ls-tree", "-r", "-z", "--long", "--full-tree", place, limit=TREE_BYTES)
        return await asyncio.to_thread(self._served, said)

    def _served(self, said: bytes) -> dict[str, tuple[str, int]]:
        blobs: dict[str, tuple[str, int]] = {}
        for line in said.split(b"\0"):
            words, _, name = line.partition(b"\t")
            if not name:
                continue
            mode, kind, blob, size = words.split()
            # Links and other repositories are not followed: what they mean is outside of the commit.
            if kind != b"blob" or mode not in FILES or int(size) > FILE_BYTES:
                continue
            try:
                path = sound_path(name.decode())
            except (UnicodeDecodeError, Refused):
                continue
            if self._patterns.serve(path):
                blobs[path] = (blob.decode(), int(size))
        if len(blobs) > LISTED_MOST:
            raise Refused("too_many_files", f"more than {LISTED_MOST} files in {self._settings.git}")
        return blobs

    async def _content(self, blob: str, size: int) -> str:
        """The SHA-256 of an object, which is in the store afterwards."""
        async with self._taking:
            known = self._contents.get(blob)
            if known is None or not self._store.has(known):
                known = self._contents[blob] = await self._taken(blob, size)
            return known

    async def _taken(self, blob: str, size: int) -> str:
        self._store.make_room(size)
        draft = self._store.draft()
        whole, marks, found = hashlib.sha256(), bytearray(), 0
        process = await self._started("cat-file", "blob", blob)
        try:
            async with asyncio.timeout(GIT_SECONDS):
                assert process.stdout is not None
                with draft.open("wb") as file:
                    while chunk := await _next_chunk(process.stdout):
                        whole.update(chunk)
                        marks += mark_of(chunk)
                        found += len(chunk)
                        await asyncio.to_thread(file.write, chunk)
                status = await process.wait()
            if status or found != size:
                raise Refused("unreadable", f"git gave {found} of {size} bytes of object {blob}")
            await self._store.adopt(draft, whole.hexdigest(), size, bytes(marks))
        except TimeoutError:
            raise Refused("unreadable", f"git took more than {GIT_SECONDS:.0f} s for object {blob}") from None
        except OSError as error:
            raise disk_refusal(error) from None
        finally:
            await _ended(process)
            draft.unlink(missing_ok=True)
        return whole.hexdigest()

    async def _git(self, *words: str, limit: int = WORD_BYTES) -> bytes:
        process = await self._started(*words)
        said = bytearray()
        try:
            async with asyncio.timeout(GIT_SECONDS):
                assert process.stdout is not None
                while data := await process.stdout.read(65_536):
                    said += data
                    if len(said) > limit:
                        raise Refused("too_many_files", f"git {words[0]} says more than {limit} bytes")
                status = await process.wait()
        except TimeoutError:
            raise Refused("unreadable", f"git {words[0]} took more than {GIT_SECONDS:.0f} s") from None
        finally:
            await _ended(process)
        if status:
            raise Refused(
                "unreadable", f"{self._settings.git} has no {self._settings.ref} with a folder {self._settings.root!r}"
            )
        return bytes(said)

    async def _started(self, *words: str) -> asyncio.subprocess.Process:
        repository = Path(self._settings.git)
        try:
            return await asyncio.create_subprocess_exec(
                *("git", *SAFE, "-C", str(repository), *words),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=DEVNULL,
                env={"PATH": os.environ.get("PATH", os.defpath), **ENVIRONMENT},
            )
        except OSError as error:
            raise OutstationError(f"git does not start: {error.strerror}") from None


async def _next_chunk(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readexactly(CHUNK_BYTES)
    except asyncio.IncompleteReadError as error:
        return error.partial


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()
