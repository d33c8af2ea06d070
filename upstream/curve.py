"""CURVE keys of a station, and a ZAP answerer that cannot die.

CURVE without a ZAP answerer lets in any client that knows the server's public key, so every server socket here sets a
ZAP domain and ``ZAP_ENFORCE_DOMAIN``. The answerer speaks ZAP 1.0 (https://rfc.zeromq.org/spec/27/) on a socket of its
own and answers from memory. pyzmq's own authenticator runs a callback in a task of its own making: an exception in the
callback ends it, and every later handshake then hangs for ever. Here a request that cannot be read gets a refusal, the
loop belongs to the part that started it, and if it ever ends so does the station.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import zmq
import zmq.asyncio
from zmq.utils import z85

from device_agent.clock import Clock
from device_agent.durable import read_regular, replace_private
from device_agent.errors import ConfigInvalid
from device_agent.protocol import limits
from device_agent.start_errors import start_error
from upstream.ports import Admission, Refusals

log = logging.getLogger(__name__)

ZAP_ADDRESS = "inproc://zeromq.zap.01"
ZAP_DOMAIN = "sites"
_ZAP_VERSION = b"1.0"
_ZAP_REQUEST_FRAMES = 7
_KEY_BYTES = 32


@dataclass(frozen=True)
class CurveKeys:
    """A station's CURVE key pair, in Z85 text (https://rfc.zeromq.org/spec/32/)."""

    public: str
    secret: str


def is_key(text: str) -> bool:
    """Whether this is a CURVE key in Z85: 40 characters for 32 bytes."""
    try:
        return len(text) == 40 and len(z85.decode(text.encode("ascii"))) == _KEY_BYTES
    except (ValueError, KeyError, UnicodeEncodeError, struct.error):
        # The last one is for five characters that stand for more than four bytes can hold.
        return False


def key_text(key: bytes) -> str:
    """A CURVE public key of 32 bytes, as it stands in certificates, in Z85."""
    return z85.encode(key).decode("ascii")


def key_bytes(text: str) -> bytes:
    """A CURVE key in Z85 as the 32 bytes that stand in certificates."""
    return z85.decode(text.encode("ascii"))


def fingerprint(public: str) -> str:
    """80 bits of SHA-256 over the key, as four groups of four base32 letters, to be compared by people."""
    digest = hashlib.sha256(b"os1 curve\0" + z85.decode(public.encode("ascii"))).digest()
    text = base64.b32encode(digest[:10]).decode("ascii").lower()
    return "-".join(text[place : place + 4] for place in range(0, 16, 4))


def load_or_make(path: Path) -> CurveKeys:
    """The keys in a file of mode 0600, made at first use. Raises ``ConfigInvalid`` when the file is not one of ours."""
    try:
        text = read_regular(path).decode("ascii")
    except FileNotFoundError:
        public, secret = (part.decode("ascii") for part in zmq.curve_keypair())
        folder = path.parent.stat()
        # An administrator may make it for a station of another user, whose folder it is.
        owner = (folder.st_uid, folder.st_gid) if os.geteuid() == 0 else None
        replace_private(path, f"public {public}\nsecret {secret}\n".encode("ascii"), owner)
        return CurveKeys(public, secret)
    except UnicodeDecodeError:
        text = ""
    except OSError as error:
        raise start_error(
            error,
            "the station's key file cannot be read",
            where=str(path),
            found=error.strerror,
            allowed="a file of this user, mode 0600",
            hint=f"chown outstation: {path}; chmod 600 {path}",
        ) from None
    fields = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    public, secret = fields.get("public", ""), fields.get("secret", "")
    if not (is_key(public) and is_key(secret)) or zmq.curve_public(secret.encode("ascii")).decode("ascii") != public:
        raise ConfigInvalid(
            "the station's key file is damaged",
            where=str(path),
            found="no matching pair of CURVE keys",
            allowed="the file this station wrote at its first start",
            hint=f"restore {path} from a backup, or move it away and accept the new key on the other end",
        )
    return CurveKeys(public, secret)


class ZapAnswerer:
    """Answers libzmq's question for every CURVE handshake: may this key connect?

    Accepted keys always may. Unknown ones may, at a bounded rate, into quarantine, where only ``SiteHello`` is handled.
    """

    def __init__(self, context: zmq.asyncio.Context, admission: Admission, refusals: Refusals, clock: Clock) -> None:
        self._context = context
        self._admission = admission
        self._refusals = refusals
        self._clock = clock
        self._tokens = float(limits.PENDING_KEYS_PER_SECOND)
        self._filled = clock.monotonic()
        self._socket: zmq.asyncio.Socket | None = None

    def open(self) -> None:
        """Bind; must happen before any CURVE server socket of this context binds."""
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind(ZAP_ADDRESS)

    async def run(self) -> None:
        """Answer until cancelled, then unbind."""
        assert self._socket is not None
        try:
            while True:
                frames = await self._socket.recv_multipart()
                # A ROUTER sees [peer, empty, request…] from libzmq's REQ side.
                peer, request = frames[:2], frames[2:]
                if len(request) < 2:
                    continue
                status, text, user = self._judge(request)
                await self._socket.send_multipart([*peer, _ZAP_VERSION, request[1], status, text, user, b""])
        finally:
            self.close()

    def close(self) -> None:
        """Unbind."""
        if self._socket is not None:
            self._socket.close(linger=0)

    def _judge(self, request: list[bytes]) -> tuple[bytes, bytes, bytes]:
        if len(request) != _ZAP_REQUEST_FRAMES or request[0] != _ZAP_VERSION or request[2] != ZAP_DOMAIN.encode():
            return b"400", b"not a request for this domain", b""
        address, mechanism, credential = request[3].decode("ascii", "replace"), request[5], request[6]
        address = address.removeprefix("::ffff:")
        if mechanism != b"CURVE" or len(credential) != _KEY_BYTES:
            self._refusals.refused("uplink", "not_curve", address)
            return b"400", b"CURVE only", b""
        key = z85.encode(credential)
        if not self._admission.known(key.decode("ascii")) and not self._take_token():
            self._refusals.refused("uplink", "too_many_unknown_keys", address)
            return b"300", b"too many unknown keys, try again", b""
        return b"200", b"OK", key

    def _take_token(self) -> bool:
        now = self._clock.monotonic()
        rate = float(limits.PENDING_KEYS_PER_SECOND)
        self._tokens = min(rate, self._tokens + (now - self._filled) * rate)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
