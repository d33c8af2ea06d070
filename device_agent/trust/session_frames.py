"""Frames of a session: sealed, counted, tied to one direction and one topic.

    01 | type | sid 8 | counter 8 | ciphertext and tag     type 1: device to station, type 2: station to device

The secret is new at each connect, so counters start at 0 and nothing of them has to be on flash.
"""

from __future__ import annotations

import hashlib
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.trust import hpke

SESSION_SECONDS: Final = 86_400
FRAMES_MAX: Final = 2**32
SID_BYTES: Final = 8
HEADER_BYTES: Final = 18
OVERHEAD_BYTES: Final = HEADER_BYTES + 16
VERSION: Final = 1
UP: Final = 1
DOWN: Final = 2


def frame_sid(frame: bytes) -> bytes:
    """The session a frame says it belongs to. Raises ``Refused``."""
    if len(frame) < OVERHEAD_BYTES or frame[0] != VERSION:
        raise Refused("malformed", "not a frame of a session")
    return frame[2 : 2 + SID_BYTES]


class Session:
    """One end of a session. Times are monotonic seconds; it is over a day after it was opened."""

    __slots__ = ("_in", "_in_last", "_in_type", "_out", "_out_next", "_out_type", "opened", "sid")

    def __init__(self, up_key: bytes, down_key: bytes, sid: bytes, *, device: bool, opened: float) -> None:
        self.sid: Final = sid
        self.opened: Final = opened
        self._out = ChaCha20Poly1305(up_key if device else down_key)
        self._in = ChaCha20Poly1305(down_key if device else up_key)
        self._out_type = UP if device else DOWN
        self._in_type = DOWN if device else UP
        self._out_next = 0
        self._in_last = -1

    @classmethod
    def between(cls, secret: bytes, opening: bytes, *, device: bool, opened: float) -> Session:
        """An end of the session that these bytes of an ``os-ses`` opened with this secret."""
        transcript = hashlib.sha256(opening).digest()
        keys = hpke.derive(secret, transcript, b"os1 ses", 64)
        return cls(keys[:32], keys[32:], transcript[:SID_BYTES], device=device, opened=opened)

    def over(self, now: float) -> bool:
        """Whether another session is needed: this one is a day old, or one side has used up its counter."""
        return now - self.opened >= SESSION_SECONDS or max(self._out_next, self._in_last + 1) >= FRAMES_MAX

    def seal(self, plaintext: bytes, topic: str, now: float) -> bytes:
        """The next frame of this end. Raises ``Refused`` (``session_over``, ``oversized``)."""
        if self.over(now):
            raise Refused("session_over")
        if len(plaintext) + OVERHEAD_BYTES > limits.MESSAGE_BYTES:
            raise Refused("oversized", f"{len(plaintext)} bytes in one frame")
        header = bytes((VERSION, self._out_type)) + self.sid + self._out_next.to_bytes(8, "big")
        self._out_next += 1
        return header + self._out.encrypt(b"\0\0\0\0" + header[10:], plaintext, header + _octets(topic))

    def open(self, frame: bytes, topic: str, now: float) -> bytes:
        """What the other end sealed, once and on this topic. Raises ``Refused``; nothing changes then."""
        if len(frame) > limits.MESSAGE_BYTES:
            raise Refused("oversized", f"{len(frame)} bytes in one frame")
        if frame_sid(frame) != self.sid:
            raise Refused("unknown_session", frame[2:10].hex())
        if frame[1] != self._in_type:
            raise Refused("wrong_direction", str(frame[1]))
        counter = int.from_bytes(frame[10:HEADER_BYTES], "big")
        if counter <= self._in_last:
            raise Refused("replayed_frame", f"{counter} after {self._in_last}")
        if self.over(now) or counter >= FRAMES_MAX:
            raise Refused("session_over")
        header = frame[:HEADER_BYTES]
        try:
            plaintext = self._in.decrypt(b"\0\0\0\0" + header[10:], frame[HEADER_BYTES:], header + _octets(topic))
        except InvalidTag:
            raise Refused("bad_frame", f"{len(frame)} bytes on {topic[:120]}") from None
        self._in_last = counter
        return plaintext


def _octets(topic: str) -> bytes:
    return topic.encode("utf-8", "surrogatepass")
