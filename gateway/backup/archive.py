r"""A backup as bytes: a header, then chunks encrypted under a key that is made from a passphrase.

    header  "outstation backup" ‖ version ‖ log2 n ‖ r ‖ p ‖ log2 chunk ‖ salt 16 ‖ prefix 7 ‖ check 16 ‖ sum 8
    key     HKDF-Expand(scrypt(passphrase, salt, n, r, p), "os1 backup key")            RFC 7914, RFC 5869
    chunk   ChaCha20-Poly1305(key, nonce = prefix ‖ counter 4 ‖ last 1, aad = header)   RFC 8439, after STREAM

``last`` is 1 for the last chunk alone, and every other one is full; so a chunk that is missing, moved, doubled or of
another backup opens under no nonce. (STREAM: Hoang, Reyhanitabar, Rogaway and Vizar, CRYPTO 2015.) ``check`` tells a
wrong passphrase before anything is decrypted, and ``sum`` a damaged header before it is believed.

Pure over streams. Whoever reads must not believe the beginning before ``finish`` has seen the end.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass
from typing import BinaryIO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from device_agent.errors import StationFailed
from gateway.backup.refusals import BackupRefused

MAGIC: Final = b"outstation backup"
VERSION: Final = 1
SUM_BYTES: Final = 8
TAG_BYTES: Final = 16
SALT_BYTES: Final = 16
PREFIX_BYTES: Final = 7
CHECK_BYTES: Final = 16
LOG_CHUNK: Final = 16
LOG_CHUNK_MIN, LOG_CHUNK_MAX = 5, 20
LOG_N_MAX: Final = 20
MEMORY_MAX: Final = 2**30
P_MAX: Final = 4
CHUNKS_MAX: Final = 2**32

_FIELDS = struct.Struct(f">{len(MAGIC)}sBBBBB{SALT_BYTES}s{PREFIX_BYTES}s{CHECK_BYTES}s")
HEADER_BYTES: Final = _FIELDS.size + SUM_BYTES


@dataclass(frozen=True, slots=True)
class Cost:
    """What scrypt is asked for: n = 2^log_n, r and p. The default takes 128 MiB and about half a second."""

    log_n: int = 17
    r: int = 8
    p: int = 1

    @property
    def memory(self) -> int:
        """Bytes it needs."""
        return 128 * self.r << self.log_n

    @property
    def is_bounded(self) -> bool:
        """Whether a reader takes it upon itself."""
        return 1 <= self.log_n <= LOG_N_MAX and self.r >= 8 and self.memory <= MEMORY_MAX and 1 <= self.p <= P_MAX


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the chunks, as it was read or is written. ``body`` is all of it."""

    cost: Cost
    log_chunk: int
    salt: bytes
    prefix: bytes
    check: bytes
    body: bytes


class SealedWriter:
    """Encrypts what is written into a stream. Only ``finish`` makes it a backup."""

    def __init__(
        self, out: BinaryIO, passphrase: bytes, *, cost: Cost | None = None, log_chunk: int = LOG_CHUNK
    ) -> None:
        cost = cost or Cost()
        salt, prefix = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(PREFIX_BYTES)
        key, check = _stretched(passphrase, salt, cost)
        fields = _FIELDS.pack(MAGIC, VERSION, cost.log_n, cost.r, cost.p, log_chunk, salt, prefix, check)
        self._header = Header(cost, log_chunk, salt, prefix, check, fields + _sum(fields))
        self._cipher = ChaCha20Poly1305(key)
        self._out = out
        self._waiting = bytearray()
        self._counter = 0
        out.write(self._header.body)

    def write(self, data: bytes) -> None:
        """More of the content."""
        size = 2**self._header.log_chunk
        self._waiting += data
        # A chunk that fills exactly may still turn out to be the last.
        while len(self._waiting) > size:
            self._seal(bytes(self._waiting[:size]), last=False)
            del self._waiting[:size]

    def finish(self) -> None:
        """That was all."""
        self._seal(bytes(self._waiting), last=True)
        self._waiting.clear()

    def _seal(self, chunk: bytes, *, last: bool) -> None:
        nonce = _nonce(self._header.prefix, self._counter, last=last)
        self._out.write(self._cipher.encrypt(nonce, chunk, self._header.body))
        self._counter += 1


def read_header(source: BinaryIO, name: str) -> Header:
    """The header of a backup; ``name`` is what errors call it. Raises ``BackupRefused``."""
    body = _filled(source, HEADER_BYTES)
    if body[: len(MAGIC)] != MAGIC:
        raise BackupRefused("not_a_backup", name, "other bytes at its beginning" if body else "an empty file")
    if len(body) < HEADER_BYTES:
        raise BackupRefused("truncated", name, f"{len(body)} bytes")
    if body[len(MAGIC)] != VERSION:
        # A later version may have another header, so its sum says nothing.
        raise BackupRefused("newer", name, f"format {body[len(MAGIC)]}, this release knows {VERSION}")
    fields = body[: _FIELDS.size]
    if body[_FIELDS.size :] != _sum(fields):
        raise BackupRefused("damaged", name, "a header that does not fit its sum")
    _, _, log_n, r, p, log_chunk, salt, prefix, check = _FIELDS.unpack(fields)
    cost = Cost(log_n, r, p)
    if not cost.is_bounded or not LOG_CHUNK_MIN <= log_chunk <= LOG_CHUNK_MAX:
        raise BackupRefused("too_costly", name, f"n = 2^{log_n}, r = {r}, p = {p}, chunks of 2^{log_chunk} bytes")
    return Header(cost, log_chunk, salt, prefix, check, body)


class SealedReader:
    """Gives back what was encrypted, chunk by chunk; bytes that prove nothing are never given out."""

    def __init__(self, source: BinaryIO, header: Header, passphrase: bytes, name: str) -> None:
        key, check = _stretched(passphrase, header.salt, header.cost)
        if not hmac.compare_digest(check, header.check):
            raise BackupRefused("passphrase", name, "one that does not fit this file")
        self._source = source
        self._header = header
        self._name = name
        self._cipher = ChaCha20Poly1305(key)
        self._size = 2**header.log_chunk + TAG_BYTES
        self._ahead = _filled(source, self._size)
        self._opened = b""
        self._place = 0
        self._counter = 0
        self._ended = False

    def read(self, size: int) -> bytes:
        """At most so many bytes; none at the end, which is the end that was written. Raises ``BackupRefused``."""
        if self._place == len(self._opened) and not self._ended:
            self._opened, self._place = self._next_chunk(), 0
        piece = self._opened[self._place : self._place + size]
        self._place += len(piece)
        return piece

    def exactly(self, size: int) -> bytes:
        """So many bytes. Raises ``BackupRefused`` when there are fewer."""
        found = bytearray()
        while len(found) < size:
            piece = self.read(size - len(found))
            if not piece:
                raise BackupRefused("malformed", self._name, f"{len(found)} bytes where {size} should be")
            found += piece
        return bytes(found)

    def finish(self) -> None:
        """That was all of it. Raises ``BackupRefused`` when it was not."""
        if self.read(1):
            raise BackupRefused("malformed", self._name, "more than it says is in it")

    def _next_chunk(self) -> bytes:
        chunk, self._ahead = self._ahead, _filled(self._source, self._size)
        last = not self._ahead
        opened = self._open(chunk, last=last)
        if opened is None:
            raise self._refusal(chunk, last=last)
        self._counter += 1
        self._ended = last
        return opened

    def _open(self, chunk: bytes, *, last: bool) -> bytes | None:
        if len(chunk) < TAG_BYTES or self._counter >= CHUNKS_MAX:
            return None
        try:
            nonce = _nonce(self._header.prefix, self._counter, last=last)
            return self._cipher.decrypt(nonce, chunk, self._header.body)
        except InvalidTag:
            return None

    def _refusal(self, chunk: bytes, *, last: bool) -> BackupRefused:
        """What became of a chunk: it opens as what it should not be, or as nothing at all."""
        start = HEADER_BYTES + self._counter * self._size
        if last and (len(chunk) < TAG_BYTES or self._open(chunk, last=False) is not None):
            return BackupRefused("truncated", self._name, f"{start + len(chunk):,} bytes")
        if not last and self._open(chunk, last=True) is not None:
            return BackupRefused("trailing", self._name, f"bytes after the {start + len(chunk):,} that belong to it")
        end = " or it ends too early" if last else ""
        return BackupRefused("damaged", self._name, f"bytes {start:,} to {start + len(chunk):,} are not its own{end}")


def _stretched(passphrase: bytes, salt: bytes, cost: Cost) -> tuple[bytes, bytes]:
    """The key, and the check that tells whether it is the right one."""
    try:
        secret = Scrypt(salt=salt, length=32, n=2**cost.log_n, r=cost.r, p=cost.p).derive(passphrase)
    except MemoryError:
        raise StationFailed(
            "there is not enough memory to make a key of the passphrase",
            error_id="backup.no_memory",
            found=f"less than {cost.memory // 2**20} MiB free",
            hint="end something that uses memory, or do it on another machine",
        ) from None
    return _expanded(secret, b"os1 backup key", 32), _expanded(secret, b"os1 backup check", CHECK_BYTES)


def _expanded(secret: bytes, label: bytes, size: int) -> bytes:
    return HKDFExpand(hashes.SHA256(), size, label).derive(secret)


def _nonce(prefix: bytes, counter: int, *, last: bool) -> bytes:
    return prefix + counter.to_bytes(4, "big") + bytes([last])


def _sum(fields: bytes) -> bytes:
    """Not a proof, anybody can make it: it tells damage from a wrong passphrase."""
    return hashlib.sha256(fields).digest()[:SUM_BYTES]


def _filled(source: BinaryIO, size: int) -> bytes:
    """So many bytes, or what is left."""
    found = source.read(size)
    while 0 < len(found) < size and (more := source.read(size - len(found))):
        found += more
    return found
