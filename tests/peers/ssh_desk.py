"""A site's book of SSH devices behind a real socket, and the command line that talks to it."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device_agent.trust.policy import SitePolicy
from gateway.api.server import ApiServer
from gateway.api.ssh_devices import SshDevicesApi, Tunnel
from gateway.audit.book import AuditBook
from gateway.devices.ssh_book import SshBook
from gateway.spool.queue import Spool
from gateway.store.reader import Reader
from tests.peers.finished import Finished
from tests.peers.joining import JoinSite, opened_site
from tests.peers.station import Heard, ask

SECONDS = 60.0


@dataclass
class SshDesk:
    """The socket, the site and the book behind it."""

    path: Path
    site: JoinSite
    book: SshBook

    async def ask(self, method: str, where: str, body: Any = None) -> Any:
        """The answer to what must be answered well."""
        heard = await ask(self.path, method, where, body)
        assert heard.status == 200, heard.body
        return heard.json()

    def count(self) -> int:
        """How many devices there are, in memory as on disk."""
        ((found,),) = self.site.look("SELECT count(*) FROM ssh_devices")
        assert len(self.book.all()) == found
        return int(found)

    async def refused(self, status: int, method: str, where: str, body: Any = None) -> dict[str, Any]:
        heard: Heard = await ask(self.path, method, where, body)
        assert heard.status == status, heard.body
        return heard.error

    async def type(self, *line: str, said: str = "", terminal: bool = False) -> Finished:
        """A command line of its own, with this on its stdin, which is a pipe, or a ``terminal``."""
        ours, theirs = os.openpty() if terminal else (-1, asyncio.subprocess.PIPE)
        try:
            return await self._typed(line, said, ours, theirs)
        finally:
            if terminal:
                os.close(ours)
                os.close(theirs)

    async def _typed(self, line: Sequence[str], said: str, ours: int, theirs: int) -> Finished:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gateway.cli.main",
            "--socket",
            str(self.path),
            *line,
            stdin=theirs,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "NO_COLOR": "1"},
        )
        try:
            async with asyncio.timeout(SECONDS):
                if ours >= 0:
                    os.write(ours, said.encode())
                out, error = await process.communicate(said.encode() if ours < 0 else None)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return Finished(process.returncode, out.decode(), error.decode())


def a_print() -> str:
    """The fingerprint of some host key."""
    return f"SHA256:{base64.b64encode(os.urandom(32)).decode().rstrip('=')}"


@asynccontextmanager
async def opened_desk(
    folder: Path, *, devices: bool = True, tunnel: Tunnel | None = None, policy: SitePolicy | None = None
) -> AsyncIterator[SshDesk]:
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(opened_site(folder, policy=policy))
        reader = await stack.enter_async_context(Reader(site.path))
        book = SshBook(site="lisbon", authority=site.authority, enrollment=site.enrollment, reader=reader, bus=site.bus)
        await stack.enter_async_context(book)
        spool = Spool(site.writer, reader, "0" * 16, enabled=False)
        api = SshDevicesApi(
            book=book if devices else None,
            audit=AuditBook(site="lisbon", writer=site.writer, spool=spool, clock=site.clock),
            tunnel=tunnel,
        )
        path = folder / "api.sock"
        await stack.enter_async_context(ApiServer(path, api.operations(), on_stop=lambda: None))
        yield SshDesk(path, site, book)
