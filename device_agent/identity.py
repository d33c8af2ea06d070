"""Who a device is and whom it believes: its keys, its place in a site, and what it must not forget.

On a real device this is one file, readable by its owner alone, replaced whole and only after it is on disk. A file that
is damaged stops the agent: a new identity in its place would be another device, and nobody would know why.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from pathlib import Path
from typing import Final

from device_agent import RELEASED
from device_agent.durable import read_regular, replace_private
from device_agent.errors import ConfigInvalid, Refused
from device_agent.start_errors import start_error
from device_agent.trust import codec
from device_agent.trust.chain import STATE_BYTES, Anchor
from device_agent.trust.epochs import GroupKeys
from device_agent.trust.floor import Floor
from device_agent.trust.keys import KemKey, SigningKey, did_text, fingerprint, new_private
from device_agent.trust.sealing_keys import SealingKeys

log = logging.getLogger(__name__)

MAGIC: Final = b"OSIDENT1"
DIGEST_BYTES: Final = 32
FILE: Final = "identity"
SEALING_FILE: Final = "sealing-keys"
"""Beside it, and not in it: an agent of release 0.1.0 takes no identity with more in it than it wrote."""

_PLAIN: dict[str, type | tuple[type, ...]] = {
    "site": str,
    "name": str,
    "certificate": bytes,
    "index": (int, type(None)),
    "password": str,
    "host": str,
    "join_port": int,
    "port": int,
    "tls_port": int,
    "authority": bytes,
    "tls": bool,
}
_LIVE: dict[str, type] = {
    "sig": bytes,
    "kem": bytes,
    "anchor": bytes,
    "site_kid": bytes,
    "epoch": int,
    "group_key": bytes,
    "floor": int,
}


class Identity:
    """Everything one device must remember. ``changed`` says that it is not on disk as it is here.

    ``site`` is empty until it has joined one. ``host`` and ``join_port`` are where it joined, ``port`` and ``tls_port``
    (0 for none) where its broker expects it since, ``authority`` the SHA-256 of whoever vouches for the broker's TLS,
    which is spoken when ``tls`` or the settings wish for it.
    ``anchor`` is whom it believes, ``groups`` its group keys, ``floor`` the least that the time can be.
    """

    __slots__ = (
        "anchor",
        "authority",
        "certificate",
        "changed",
        "did",
        "floor",
        "groups",
        "host",
        "index",
        "join_port",
        "name",
        "password",
        "port",
        "sealing",
        "sig",
        "site",
        "tls",
        "tls_port",
    )

    def __init__(self, sig: SigningKey, kem: KemKey, anchor: Anchor, floor: Floor) -> None:
        self.sig: Final = sig
        self.sealing: Final = SealingKeys(kem, sig.did)
        self.did: Final = did_text(sig.did)
        self.anchor = anchor
        self.groups: Final = GroupKeys()
        self.floor: Final = floor
        self.site = ""
        self.name = ""
        self.certificate = b""
        self.index: int | None = None
        self.password = ""
        self.host = ""
        self.join_port = 0
        self.port = 0
        self.tls_port = 0
        self.authority = b""
        self.tls = False
        self.changed = True

    @property
    def kem(self) -> KemKey:
        """The key of its certificate, which others seal to."""
        return self.sealing.current

    @property
    def kems(self) -> tuple[KemKey, ...]:
        """Every key that opens what is sealed to this device."""
        return self.sealing.all

    def sealed_to_another(self) -> None:
        """Somebody seals to a key that this device does not have: the station is told which one it has."""
        self.sealing.told_wrong = True

    @property
    def fingerprint(self) -> str:
        """What a person compares before accepting it."""
        return fingerprint(self.sig.public)

    @property
    def joined(self) -> bool:
        """Whether it belongs to a site."""
        return bool(self.certificate)

    def to_bytes(self) -> bytes:
        """All of it, private keys included."""
        body = codec.encode(
            {
                **{name: getattr(self, name) for name in _PLAIN},
                "sig": self.sig.private,
                "kem": self.kem.private,
                "anchor": self.anchor.export(),
                "site_kid": self.groups.site_kid,
                "epoch": self.groups.epoch,
                "group_key": self.groups.newest,
                "floor": self.floor.value,
            }
        )
        return MAGIC + hashlib.sha256(body).digest() + body

    @classmethod
    def from_bytes(cls, content: bytes) -> Identity:
        """What ``to_bytes`` gave. Raises ``Refused``."""
        body = content[len(MAGIC) + DIGEST_BYTES :]
        if content[: len(MAGIC)] != MAGIC:
            raise Refused("malformed", "it does not begin like an identity")
        if hashlib.sha256(body).digest() != content[len(MAGIC) : len(MAGIC) + DIGEST_BYTES]:
            raise Refused("malformed", "its checksum is wrong")
        values = codec.decode(body, STATE_BYTES)
        if type(values) is not dict or set(values) != {*_PLAIN, *_LIVE}:
            raise Refused("malformed", "another release wrote it")
        for name, kind in (*_PLAIN.items(), *_LIVE.items()):
            if not isinstance(values[name], kind):
                raise Refused("malformed", f"{name} is of another kind")
        identity = cls(
            SigningKey(values["sig"]),
            KemKey(values["kem"]),
            Anchor.restored(values["anchor"]),
            Floor(values["floor"], RELEASED),
        )
        identity.groups.hold(values["site_kid"], values["epoch"], values["group_key"])
        for name in _PLAIN:
            setattr(identity, name, values[name])
        if identity.anchor.root is not None:
            identity.floor.root_signed(identity.anchor.root.issued)
        identity.changed = False
        return identity


def new_identity() -> Identity:
    """A device nobody has seen yet."""
    return Identity(SigningKey(new_private()), KemKey(new_private()), Anchor(None), Floor(built=RELEASED))


class IdentityFile:
    """An identity on flash. One process may have it open: the agent's lock on its folder sees to that."""

    def __init__(self, folder: Path) -> None:
        self.path: Final = folder / FILE
        self.sealing_path: Final = folder / SEALING_FILE
        self._sealing = b""
        # A write whose waiter was cancelled goes on in its thread; the next one must not pass it.
        self._turn = threading.Lock()

    def load(self) -> Identity | None:
        """The identity, or None where there never was one. Raises ``ConfigInvalid`` for a file that is damaged."""
        try:
            content = read_regular(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise start_error(
                error, f"the identity cannot be read: {error.strerror or error}", where=str(self.path)
            ) from error
        try:
            identity = Identity.from_bytes(content)
        except (Refused, ValueError) as error:
            raise ConfigInvalid(
                "the identity of this device is damaged",
                where=str(self.path),
                found=error.detail if isinstance(error, Refused) else str(error),
                hint="put a copy of it back; or move it away, and this machine joins again as a new device",
            ) from error
        self._restore_sealing(identity)
        return identity

    def save(self, content: bytes, sealing: bytes = b"") -> None:
        """Replace the identity, after its sealing keys if there are any; both are on disk when this returns.

        In this order a key is on flash before a certificate names it. What is replaced is overwritten when the sealing
        keys have changed, as one of them may be to go. Raises ``OSError``.
        """
        with self._turn:
            changed = bool(sealing) and sealing != self._sealing
            if changed:
                replace_private(self.sealing_path, sealing, wipe=True)
                self._sealing = sealing
            replace_private(self.path, content, wipe=changed)

    def _restore_sealing(self, identity: Identity) -> None:
        """A file that cannot be read does not stop the agent: the key of the certificate stands in the identity, and
        the station is told of it again.
        """
        try:
            self._sealing = read_regular(self.sealing_path)
            identity.sealing.restore(self._sealing)
        except FileNotFoundError:
            return
        except (OSError, Refused, ValueError) as error:
            log.error("the sealing keys beside the identity are lost path=%s error=%s", self.sealing_path, error)
            identity.sealed_to_another()

    def load_or_begin(self) -> Identity:
        """The identity, made now where there never was one. Raises ``ConfigInvalid``."""
        identity = self.load()
        if identity is not None:
            return identity
        identity = new_identity()
        try:
            self.save(identity.to_bytes())
        except OSError as error:
            raise start_error(
                error, f"the identity cannot be written: {error.strerror or error}", where=str(self.path)
            ) from error
        identity.changed = False
        return identity
