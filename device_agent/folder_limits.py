"""A host whose paths below some folders cannot leave those folders by a link.

A policy rule or a site grant such as ``/var/log/*`` names paths as text. Whoever can make a link in that folder would
otherwise choose what the function reads or writes. On this machine a path is opened part by part (``beneath``). On any
other, and for what commands are given, it is resolved right before: a link that is swapped in between is followed.
"""

from __future__ import annotations

import errno
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from typing import Any, Final

from device_agent import local_files
from device_agent.beneath import LEAVES, beneath_all
from device_agent.host import HOST_READ_BYTES, SHELL, Completed, Host, Reader, Stat, Writer
from device_agent.local_host import LocalHost

RESOLVE: Final = """
top=$(readlink -f "$1") || exit 3
if [ -n "$3" ]; then found=$(readlink -f "$2"); else found=$(readlink -f "${2%/*}")/${2##*/}; fi
case $found in "$top"|"$top"/*) exit 0;; '') exit 0;; esac
exit 4
"""
"""Whether a path stays below a folder: 4 when it does not. Nothing at either place is no way out of it."""

LEFT: Final = 4
RESOLVE_SECONDS: Final = 30.0
RESOLVED_MOST: Final = 256
"""Paths of one command that are resolved; a command with more is refused."""


def limited(host: Host, folders: Sequence[str]) -> Host:
    """The same host with these absolute folders as limits; the host itself without any."""
    if not folders:
        return host
    return _LocalLimits(host, folders) if isinstance(host, LocalHost) else _RemoteLimits(host, folders)


class _FolderLimits:
    """Implements ``Host``."""

    def __init__(self, host: Host, folders: Sequence[str]) -> None:
        self._host = host
        self._folders = sorted(set(folders), key=len)

    @abstractmethod
    def _kept_below(self, folders: Sequence[str], path: str, *, follow: bool) -> AbstractAsyncContextManager[str]:
        """The path to use for one below all of these folders, the outermost first. Raises ``OSError`` (``EXDEV``)."""

    def _folders_of(self, path: str) -> list[str]:
        """The folders that limit this path. Of nested ones each does: one call of the job may have only the inner."""
        return [each for each in self._folders if path.startswith(f"{each}/")]

    @asynccontextmanager
    async def _kept(self, path: str, *, follow: bool = True) -> AsyncIterator[str]:
        folders = self._folders_of(path)
        if not folders:
            yield path
            return
        async with self._kept_below(folders, path, follow=follow) as kept:
            try:
                yield kept
            except OSError as error:
                raise OSError(error.errno, error.strerror, path) from None

    @property
    def grains(self) -> dict[str, Any]:
        return self._host.grains

    async def run(
        self,
        argv: Sequence[str] | str,
        *,
        shell: bool = False,
        stdin: bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        output_limit: int = 65536,
    ) -> Completed:
        """Run a command whose arguments, as far as they are such paths, are resolved first."""
        words = [] if isinstance(argv, str) else argv
        paths = [each for each in dict.fromkeys([*words, cwd or ""]) if self._folders_of(each)]
        if len(paths) > RESOLVED_MOST:
            raise OSError(errno.E2BIG, f"{len(paths)} paths in a granted folder, at most {RESOLVED_MOST}")
        for path in paths:
            async with self._kept(path):
                pass
        return await self._host.run(
            argv, shell=shell, stdin=stdin, cwd=cwd, env=env, timeout=timeout, output_limit=output_limit
        )

    async def read(self, path: str, *, offset: int = 0, limit: int = HOST_READ_BYTES) -> bytes:
        async with self._kept(path) as kept:
            return await self._host.read(kept, offset=offset, limit=limit)

    async def write(
        self, path: str, data: bytes, *, mode: int | None = None, owner: tuple[int, int] | None = None
    ) -> None:
        async with self._kept(path) as kept:
            await self._host.write(kept, data, mode=mode, owner=owner)

    async def append(self, path: str, data: bytes, *, at: int) -> None:
        async with self._kept(path, follow=False) as kept:
            await self._host.append(kept, data, at=at)

    async def replace(self, path: str, target: str) -> None:
        async with self._kept(path, follow=False) as source, self._kept(target, follow=False) as kept:
            await self._host.replace(source, kept)

    async def stat(self, path: str, *, follow: bool = True) -> Stat | None:
        try:
            async with self._kept(path, follow=follow) as kept:
                return await self._host.stat(kept, follow=follow)
        except (FileNotFoundError, NotADirectoryError):
            return None

    async def list(self, path: str) -> list[str]:
        async with self._kept(path) as kept:
            return await self._host.list(kept)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        async with self._kept(path, follow=False) as kept:
            await self._host.remove(kept, recursive=recursive)

    @asynccontextmanager
    async def lock(self, path: str) -> AsyncIterator[None]:
        async with self._kept(path) as kept, self._host.lock(kept):
            yield

    async def connect(self, port: int, *, address: str = "127.0.0.1") -> tuple[Reader, Writer]:
        return await self._host.connect(port, address=address)

    async def facts(self) -> dict[str, Any]:
        return await self._host.facts()


class _LocalLimits(_FolderLimits):
    _host: LocalHost

    async def read(self, path: str, *, offset: int = 0, limit: int = HOST_READ_BYTES) -> bytes:
        if not self._folders_of(path):
            return await self._host.read(path, offset=offset, limit=limit)
        async with self._kept(path) as kept:
            return await self._host.threads.call(path, local_files.read, kept, offset, limit, follow=False)

    async def write(
        self, path: str, data: bytes, *, mode: int | None = None, owner: tuple[int, int] | None = None
    ) -> None:
        if not self._folders_of(path):
            await self._host.write(path, data, mode=mode, owner=owner)
            return
        async with self._kept(path) as kept:
            await self._host.threads.call(path, local_files.write, kept, data, mode, owner, follow=False)

    async def stat(self, path: str, *, follow: bool = True) -> Stat | None:
        if not self._folders_of(path):
            return await self._host.stat(path, follow=follow)
        try:
            async with self._kept(path, follow=follow) as kept:
                return await self._host.threads.call(path, local_files.look, kept, follow=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    async def list(self, path: str) -> list[str]:
        if not self._folders_of(path):
            return await self._host.list(path)
        async with self._kept(path) as kept:
            return await self._host.threads.call(path, local_files.names, kept, follow=False)

    @asynccontextmanager
    async def _kept_below(self, folders: Sequence[str], path: str, *, follow: bool) -> AsyncIterator[str]:
        def opened() -> tuple[ExitStack, str]:
            with ExitStack() as walk:
                kept = beneath_all(walk, folders, path, follow=follow)
                return walk.pop_all(), kept

        stack, kept = await self._host.threads.call_and_own(path, opened, lambda found: found[0].close())
        with stack:
            yield kept


class _RemoteLimits(_FolderLimits):
    @asynccontextmanager
    async def _kept_below(self, folders: Sequence[str], path: str, *, follow: bool) -> AsyncIterator[str]:
        for folder in folders:
            words = [SHELL, "-c", RESOLVE, "resolve", folder, path, "follow" if follow else ""]
            found = await self._host.run(words, timeout=RESOLVE_SECONDS)
            if found.returncode == LEFT:
                raise OSError(errno.EXDEV, LEAVES, path)
            if found.returncode or found.timed_out:
                raise OSError(errno.EACCES, f"the granted folder {folder} cannot be resolved", path)
        yield path
