"""The SSH algorithms that this gateway accepts: one table for the scan of host keys and for every login."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from asyncssh.packet import PacketDecodeError, SSHPacket

KEX: Final = (
    "curve25519-sha256",
    "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256",
    "diffie-hellman-group14-sha256",
)
CIPHERS: Final = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes128-ctr",
    "aes256-ctr",
)
MACS: Final = (
    "hmac-sha2-256-etm@openssh.com",
    "hmac-sha2-256",
    "hmac-sha2-512-etm@openssh.com",
    "hmac-sha2-512",
    "hmac-sha1",
)
"""The first of each costs least; the last is all that some cameras know."""

HOST_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    # dropbear before 2020.79 signs with ssh-rsa alone.
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"),
}
"""Kinds of host keys, the preferred one first, each with the signatures by which it proves itself."""


class Offer(NamedTuple):
    """The algorithms that a server offers (RFC 4253, section 7.1)."""

    kex: tuple[str, ...] = ()
    host_keys: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()

    @property
    def kinds(self) -> list[str]:
        """The kinds of host keys that the server has, of those that this gateway knows."""
        return [kind for kind, names in HOST_KEYS.items() if set(names) & set(self.host_keys)]

    def problem(self, host_keys: Sequence[str]) -> str:
        """What this server has not in common with a client that takes these host key algorithms; empty for nothing."""
        asked = {
            "key exchange": (KEX, self.kex),
            "host key": (host_keys, self.host_keys),
            "cipher": (CIPHERS, self.ciphers),
        }
        for what, (ours, theirs) in asked.items():
            if theirs and not set(ours) & set(theirs):
                return f"no common {what} algorithm: it offers {','.join(theirs)}; allowed are {','.join(ours)}"
        return ""


def offer_in(packet: SSHPacket) -> Offer:
    """The offer in a server's KEXINIT message; an empty one for a malformed message."""
    copy = SSHPacket(packet.get_full_payload())
    try:
        copy.get_bytes(17)  # the number of the message, and a cookie
        kex, host_keys, ciphers = copy.get_namelist(), copy.get_namelist(), copy.get_namelist()
    except PacketDecodeError:
        return Offer()
    return Offer(*(tuple(name.decode("ascii", "replace") for name in names) for names in (kex, host_keys, ciphers)))


def algorithms_of(kinds: Iterable[str]) -> list[str]:
    """The signatures by which host keys of these kinds prove themselves."""
    return [name for kind in kinds for name in HOST_KEYS.get(kind, (kind,))]


def host_key_algorithms(host_keys: tuple[str, ...]) -> list[str]:
    """The signatures of the pinned host keys; those of every kind while only fingerprints are known.

    Args:
        host_keys: The pinned keys, as OpenSSH writes them.
    """
    return algorithms_of(dict.fromkeys(line.split(" ", 1)[0] for line in host_keys) or HOST_KEYS)
