"""A machine on which nothing is there and nothing happens: for functions that are called with anything."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from device_agent.host import HOST_READ_BYTES, Completed, Reader, Stat, Writer


class EmptyHost:
    """Implements ``Host``: every command ends well and says nothing, every file is absent, and writing is forgotten."""

    def __init__(self, grains: dict[str, Any]) -> None:
        self.grains = grains

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
        return Completed(0, b"", b"")

    async def read(self, path: str, *, offset: int = 0, limit: int = HOST_READ_BYTES) -> bytes:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    async def write(
        self, path: str, data: bytes, *, mode: int | None = None, owner: tuple[int, int] | None = None
    ) -> None:
        return

    async def append(self, path: str, data: bytes, *, at: int) -> None:
        return

    async def replace(self, path: str, target: str) -> None:
        return

    async def stat(self, path: str, *, follow: bool = True) -> Stat | None:
        return None

    async def list(self, path: str) -> list[str]:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def lock(self, path: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def connect(self, port: int, *, address: str = "127.0.0.1") -> tuple[Reader, Writer]:
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    async def facts(self) -> dict[str, Any]:
        return dict(self.grains)
