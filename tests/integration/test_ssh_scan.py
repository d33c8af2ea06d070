"""The host keys of real SSH servers, and what is said of what is none."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.downlinks.ssh_scan import ScanFailed, scan
from tests.peers.broker import free_port
from tests.peers.ssh_beds import dropbear, openssh


@pytest.mark.parametrize("server", [openssh, dropbear])
async def test_every_host_key_of_a_server_is_seen_with_the_fingerprint_that_openssh_shows(
    server: Callable[..., object], tmp_path: Path
) -> None:
    with server(tmp_path) as bed:  # type: ignore[attr-defined] # both are context managers
        found = await scan("127.0.0.1", bed.port)
        assert {key.line for key in found} == set(bed.host_keys)
        for key in found:
            (tmp_path / "line").write_text(key.line)
            assert key.fingerprint in await asyncio.to_thread(shown, tmp_path / "line")
        assert found[0].kind == "ssh-ed25519", "the best one first"


def shown(path: Path) -> str:
    """What OpenSSH shows of a key."""
    return subprocess.run(["ssh-keygen", "-lf", path], capture_output=True, text=True, check=True).stdout


@asynccontextmanager
async def answering(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """A server that says whatever this says."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def _web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()


async def _flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def _lines(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"welcome\r\n" * 4096)
        await writer.drain()


async def _old(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-1.5-old\r\n")
    await writer.drain()


async def _garbage(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-\x1b[2Jevil\r\n" + bytes(range(256)) * 64)
    await writer.drain()


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (_nothing, "handshake within"),
        (_web, "ended"),
        (_flood, "speak SSH"),
        (_lines, "speak SSH"),
        (_old, "speak SSH"),
        (_garbage, ""),
    ],
    ids=["nothing", "web", "flood", "lines", "old", "garbage"],
)
async def test_what_is_no_ssh_server_is_said_in_words(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], word: str
) -> None:
    async with answering(answer) as port:
        with pytest.raises(ScanFailed) as failed:
            await scan("127.0.0.1", port, seconds=2)
    found = failed.value.found or ""
    assert word in found
    assert found.isprintable()
    assert len(found) <= 200
    assert failed.value.where == f"127.0.0.1:{port}"


async def test_where_nothing_listens_and_what_has_no_address() -> None:
    with pytest.raises(ScanFailed) as refused:
        await scan("127.0.0.1", free_port())
    assert "nothing listens there" in str(refused.value)
    with pytest.raises(ScanFailed) as unknown:
        await scan("no-such-camera.invalid", 22)
    assert "no address" in str(unknown.value)
