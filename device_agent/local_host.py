"""The machine this process runs on, as a Host. What may wait for a disk does so in a thread of ``disk_threads``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from device_agent import local_files, lock_file
from device_agent.disk_threads import DISK_THREADS, DiskThreads
from device_agent.facts import collect
from device_agent.host import HOST_READ_BYTES, Completed, Reader, Stat, Writer
from device_agent.local_command import run_here
from device_agent.own import GRAINS_FILE


class LocalHost:
    """Implements ``Host``."""

    def __init__(
        self, grains: dict[str, Any], grains_file: str = GRAINS_FILE, threads: DiskThreads = DISK_THREADS
    ) -> None:
        self.threads = threads
        self._grains = grains
        self._grains_file = grains_file

    @property
    def grains(self) -> dict[str, Any]:
        """The facts given at construction."""
        return self._grains

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
        """Run a command here; see ``local_command.py``."""
        return await run_here(
            argv,
            shell=shell,
            stdin=stdin,
            cwd=cwd,
            env=env,
            timeout=timeout,
            output_limit=output_limit,
            threads=self.threads,
        )

    async def read(self, path: str, *, offset: int = 0, limit: int = HOST_READ_BYTES) -> bytes:
        return await self.threads.call(path, local_files.read, path, offset, limit)

    async def write(
        self, path: str, data: bytes, *, mode: int | None = None, owner: tuple[int, int] | None = None
    ) -> None:
        await self.threads.call(path, local_files.write, path, data, mode, owner)

    async def append(self, path: str, data: bytes, *, at: int) -> None:
        await self.threads.call(path, local_files.append, path, data, at)

    async def replace(self, path: str, target: str) -> None:
        await self.threads.call(path, local_files.replace, path, target)

    async def stat(self, path: str, *, follow: bool = True) -> Stat | None:
        return await self.threads.call(path, local_files.look, path, follow=follow)

    async def list(self, path: str) -> list[str]:
        return await self.threads.call(path, local_files.names, path)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        await self.threads.call(path, local_files.remove, path, recursive=recursive)

    def lock(self, path: str) -> AbstractAsyncContextManager[None]:
        return lock_file.held(path, self.threads)

    async def connect(self, port: int, *, address: str = "127.0.0.1") -> tuple[Reader, Writer]:
        try:
            return await asyncio.open_connection(address, port)
        except OSError as error:
            if error.errno is None or error.errno <= 0:
                raise  # No number of the system's: it says itself what it is.
            raise OSError(error.errno, f"{os.strerror(error.errno)}: {address} port {port}") from None

    async def facts(self) -> dict[str, Any]:
        return await collect(self, str(self._grains.get("id", "")), self._grains_file)
