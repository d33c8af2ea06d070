"""gateway/files/received.py: what devices hand over is taken where that is allowed, bounded, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from device_agent.errors import Refused
from device_agent.protocol.file_questions import CHUNK_BYTES, FIND, PUSH, FindFile, PushPiece, encode
from gateway.files.settings import FilesSettings
from tests.peers.file_server import server, sha256


async def test_a_station_that_takes_no_files_takes_none(tmp_path: Path) -> None:
    async with server(tmp_path / "up", {}) as made:
        with pytest.raises(Refused, match="not_taken"):
            await made.ask(PUSH, encode(PushPiece("a", 1, sha256(b"x"), 0, b"x")))
        with pytest.raises(Refused, match="not_found"):
            await made.ask(FIND, encode(FindFile("a")))


@pytest.mark.parametrize(
    ("piece", "reason"),
    [
        (PushPiece("../a", 1, "0" * 64, 0, b"x"), "bad_path"),
        (PushPiece("a", 2, "0" * 64, 1, b"x"), "out_of_order"),
        (PushPiece("a", 1, "0" * 64, 0, b"x"), "corrupt"),
        (PushPiece("a", 1, "0" * 64, 0, b"xy"), "too_large"),
    ],
)
async def test_a_piece_that_cannot_be_is_refused(tmp_path: Path, piece: PushPiece, reason: str) -> None:
    async with server(tmp_path / "up", {}, settings=FilesSettings(receive=True)) as made:
        with pytest.raises(Refused, match=reason):
            await made.ask(PUSH, encode(piece))
        assert not list((tmp_path / "up").glob("received/*/files/*"))


async def test_the_last_piece_may_come_twice(tmp_path: Path) -> None:
    data = os.urandom(CHUNK_BYTES + 5)
    first = PushPiece("a", len(data), sha256(data), 0, data[:CHUNK_BYTES])
    last = PushPiece("a", len(data), sha256(data), CHUNK_BYTES, data[CHUNK_BYTES:])
    async with server(tmp_path / "up", {}, settings=FilesSettings(receive=True)) as made:
        for piece in (first, last, last):
            assert await made.ask(PUSH, encode(piece)) == b""
        assert (tmp_path / "up/received/cam-7/files/a").read_bytes() == data
        with pytest.raises(Refused, match="out_of_order"):
            await made.ask(PUSH, encode(PushPiece("b", len(data), sha256(data), CHUNK_BYTES, data[CHUNK_BYTES:])))


async def test_a_file_that_grows_while_it_is_handed_over_takes_no_more_than_there_is_room_for(tmp_path: Path) -> None:
    settings = FilesSettings(receive=True, receive_megabytes=1)
    async with server(tmp_path / "up", {}, settings=settings) as made:
        kept = bytes(CHUNK_BYTES)
        for number in range(7):
            await made.ask(PUSH, encode(PushPiece(f"kept-{number}", len(kept), sha256(kept), 0, kept)))
        large = bytes(2 * CHUNK_BYTES)
        await made.ask(PUSH, encode(PushPiece("b", 5, sha256(large), 0, large[:4])))
        with pytest.raises(Refused, match="out_of_order"):
            await made.ask(PUSH, encode(PushPiece("b", len(large), sha256(large), 4, large[:CHUNK_BYTES])))
        with pytest.raises(Refused, match="too_large"):
            await made.ask(PUSH, encode(PushPiece("b", len(large), sha256(large), 0, large[:CHUNK_BYTES])))
        with pytest.raises(Refused, match="bad_path"):
            await made.ask(PUSH, encode(PushPiece("/".join("a" * 40), 1, sha256(b"x"), 0, b"x")))
