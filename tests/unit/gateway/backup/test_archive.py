"""gateway/backup/archive.py: what comes out is what went in, or nothing."""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Callable

import pytest

from device_agent.errors import EXIT_USAGE
from gateway.backup.archive import (
    HEADER_BYTES,
    SUM_BYTES,
    TAG_BYTES,
    Cost,
    SealedReader,
    SealedWriter,
    read_header,
)
from gateway.backup.refusals import BackupRefused

CHEAP = Cost(log_n=1)
LOG_CHUNK = 5
CHUNK = 2**LOG_CHUNK
STEP = CHUNK + TAG_BYTES
PASSPHRASE = b"six words that were drawn by lot"
CONTENT = bytes(range(3 * CHUNK - 7))
"""Two full chunks and one that is not."""


def sealed(content: bytes = CONTENT, passphrase: bytes = PASSPHRASE, pieces: int = 1000) -> bytes:
    """An archive of small chunks, written in pieces of so many bytes."""
    out = io.BytesIO()
    writer = SealedWriter(out, passphrase, cost=CHEAP, log_chunk=LOG_CHUNK)
    for place in range(0, len(content), pieces):
        writer.write(content[place : place + pieces])
    writer.finish()
    return out.getvalue()


def opened(body: bytes, passphrase: bytes = PASSPHRASE, pieces: int = 1000) -> bytes:
    """All of it, up to its end."""
    source = io.BytesIO(body)
    archive = SealedReader(source, read_header(source, "b.backup"), passphrase, "b.backup")
    found = b""
    while piece := archive.read(pieces):
        found += piece
    archive.finish()
    return found


def refused(body: bytes, passphrase: bytes = PASSPHRASE) -> str:
    """Why it is refused; every refusal says what would be right and how to mend it."""
    with pytest.raises(BackupRefused) as error:
        opened(body, passphrase)
    refusal = error.value
    assert refusal.exit_status == EXIT_USAGE
    assert all((refusal.where == "b.backup", refusal.found, refusal.allowed, refusal.hint))
    return refusal.reason


def with_header(body: bytes, change: Callable[[bytearray], None]) -> bytes:
    """Its header changed by somebody who knows how it is made."""
    header = bytearray(body[: HEADER_BYTES - SUM_BYTES])
    change(header)
    return bytes(header) + hashlib.sha256(header).digest()[:SUM_BYTES] + body[HEADER_BYTES:]


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK - 7])
@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_what_went_in_comes_out_whatever_its_size(size: int, pieces: int) -> None:
    content = CONTENT[:size]
    body = sealed(content, pieces=pieces)
    assert opened(body, pieces=pieces) == content
    assert len(body) == HEADER_BYTES + size + max(1, -(-size // CHUNK)) * TAG_BYTES


def test_the_same_content_is_never_the_same_bytes() -> None:
    one, other = sealed(), sealed()
    assert one[-len(CONTENT) :] != other[-len(CONTENT) :]
    assert CONTENT[:8] not in one


def test_every_bit_counts() -> None:
    body = sealed()
    reasons = set()
    for place in range(len(body)):
        for bit in range(8):
            changed = bytearray(body)
            changed[place] ^= 1 << bit
            reasons.add(refused(bytes(changed)))
    assert reasons == {"not_a_backup", "newer", "damaged"}


def test_every_length_but_the_whole_is_refused() -> None:
    body = sealed()
    reasons = {refused(body[:length]) for length in range(len(body))}
    assert reasons == {"not_a_backup", "truncated", "damaged"}
    # Cut where a chunk ends it is well formed in every byte, and still not the end.
    for chunks in range(3):
        assert refused(body[: HEADER_BYTES + chunks * STEP]) == "truncated"


def test_what_was_added_is_refused() -> None:
    full = sealed(CONTENT[: 2 * CHUNK])
    assert refused(full + b"x") == "trailing"
    assert refused(full + sealed()[HEADER_BYTES:]) == "trailing"
    assert refused(sealed() + b"x") == "damaged"


def test_chunks_keep_their_places() -> None:
    body = sealed()
    header, first, second, last = (
        body[:HEADER_BYTES],
        body[HEADER_BYTES : HEADER_BYTES + STEP],
        body[HEADER_BYTES + STEP : HEADER_BYTES + 2 * STEP],
        body[HEADER_BYTES + 2 * STEP :],
    )
    assert opened(header + first + second + last) == CONTENT
    for chunks in ((second, first, last), (first, first, last), (first, last), (second, last), (last,), (first, last)):
        assert refused(header + b"".join(chunks)) in {"damaged", "truncated"}


def test_a_chunk_of_another_archive_with_the_same_passphrase_is_refused() -> None:
    mine, foreign = sealed(), sealed()
    place = HEADER_BYTES + STEP
    assert refused(mine[:place] + foreign[place : place + STEP] + mine[place + STEP :]) == "damaged"
    assert refused(foreign[:HEADER_BYTES] + mine[HEADER_BYTES:]) == "damaged"


def test_a_wrong_passphrase_is_told_from_damage() -> None:
    body = sealed()
    for wrong in (b"", PASSPHRASE[:-1], PASSPHRASE + b"\n", PASSPHRASE.upper()):
        assert refused(body, wrong) == "passphrase"


def test_nothing_is_given_out_of_a_chunk_that_proves_nothing() -> None:
    body = bytearray(sealed())
    body[HEADER_BYTES + STEP] ^= 1
    source = io.BytesIO(bytes(body))
    archive = SealedReader(source, read_header(source, "b"), PASSPHRASE, "b")
    assert archive.read(1000) == CONTENT[:CHUNK]
    for _ in range(2):
        with pytest.raises(BackupRefused):
            archive.read(1)


def test_less_than_is_asked_for_is_refused_and_so_is_more() -> None:
    source = io.BytesIO(sealed())
    archive = SealedReader(source, read_header(source, "b"), PASSPHRASE, "b")
    assert archive.exactly(CHUNK + 3) == CONTENT[: CHUNK + 3]
    with pytest.raises(BackupRefused) as error:
        archive.finish()
    assert error.value.reason == "malformed"
    with pytest.raises(BackupRefused) as error:
        archive.exactly(len(CONTENT))
    assert error.value.reason == "malformed"


@pytest.mark.parametrize(
    ("place", "value"),
    [(18, 0), (18, 21), (18, 255), (19, 0), (19, 7), (20, 0), (20, 5), (21, 4), (21, 21)],
)
def test_costs_are_bounded_before_anything_is_computed(place: int, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object, **__: object) -> None:
        raise AssertionError("a passphrase was stretched")

    def change(header: bytearray) -> None:
        header[place] = value

    body = with_header(sealed(), change)
    monkeypatch.setattr("gateway.backup.archive.Scrypt", nothing)
    assert refused(body) == "too_costly"


def test_the_most_that_is_taken_is_a_gigabyte_of_memory() -> None:
    assert Cost(20, 8, 1).is_bounded
    assert Cost(20, 8, 1).memory == 2**30
    assert not Cost(20, 9, 1).is_bounded
    assert Cost().memory == 128 * 2**20


def test_too_little_memory_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def poor(*_: object, **__: object) -> None:
        raise MemoryError

    body = sealed()
    monkeypatch.setattr("gateway.backup.archive.Scrypt", poor)
    with pytest.raises(Exception, match="not enough memory"):
        opened(body)


def test_a_file_of_a_later_format_is_not_called_damaged() -> None:
    def change(header: bytearray) -> None:
        header[17] = 2

    assert refused(with_header(sealed(), change)) == "newer"


def test_the_format_is_this_one() -> None:
    """Read here with nothing but what the page says of it, so that it cannot change unnoticed."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    body = sealed(b"abc")
    magic, version, log_n, r, p, log_chunk, salt, prefix, check = struct.unpack(">17sBBBBB16s7s16s", body[:61])
    assert (magic, version, log_n, r, p, log_chunk) == (b"outstation backup", 1, 1, 8, 1, 5)
    secret = hashlib.scrypt(PASSPHRASE, salt=salt, n=2**log_n, r=r, p=p, dklen=32)
    assert HKDFExpand(SHA256(), 16, b"os1 backup check").derive(secret) == check
    key = HKDFExpand(SHA256(), 32, b"os1 backup key").derive(secret)
    nonce = prefix + bytes(4) + b"\x01"
    assert ChaCha20Poly1305(key).decrypt(nonce, body[69:], body[:69]) == b"abc"
