"""How Salt masters are used. The settings have these names, which are Salt's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from upstream.failover import MasterType

EncryptionAlgorithm = Literal["OAEP-SHA224", "OAEP-SHA1"]
SigningAlgorithm = Literal["PKCS1v15-SHA224", "PKCS1v15-SHA1"]


@dataclass(frozen=True)
class SaltRules:
    """Times in seconds."""

    id: str
    """The id under which the masters know this gateway."""
    master_port: int = 4506
    """Where a master takes requests, if its address does not say."""
    publish_port: int = 0
    """Where it publishes; 0 for what it says itself at the sign-in."""
    master_type: MasterType = "str"
    master_alive_interval: float | None = None
    master_failback: bool = False
    master_failback_interval: float = 0.0
    master_shuffle: bool = False
    master_finger: tuple[str, ...] = ()
    """Fingerprints of the masters' keys, as ``salt-key -F master`` shows them; without any the first key is kept."""
    verify_master_pubkey_sign: bool = False
    """Whether a master's key is believed that the masters' signing key has signed, and no other that is new."""
    master_sign_key_name: str = "master_sign"
    always_verify_signature: bool = False
    """Whether a known key must have been signed as well."""
    acceptance_wait_time: float = 10.0
    acceptance_wait_time_max: float = 0.0
    """Up to how long the wait for acceptance grows; 0: it does not."""
    random_reauth_delay: float = 0.0
    """Up to how long a new sign-in is put off at random, after a master was lost or has made new keys."""
    auth_timeout: float = 5.0
    auth_tries: int = 7
    request_channel_timeout: float = 60.0
    keysize: int = 2048
    encryption_algorithm: EncryptionAlgorithm = "OAEP-SHA224"
    signing_algorithm: SigningAlgorithm = "PKCS1v15-SHA224"


_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]\s/]+)(:(?P<port>[0-9]{1,5}))?", re.ASCII)


def endpoint(address: str, port: int) -> tuple[str, int]:
    """The host and the port of ``host``, ``host:port`` or an IPv6 address in brackets. ``ValueError`` for another."""
    match = _ADDRESS.fullmatch(address)
    said = int(match["port"]) if match is not None and match["port"] else port
    if match is None or not 0 < said < 1 << 16:
        raise ValueError(f"{address[:64]}: no host, host:port or [IPv6]:port with a port from 1 to 65535")
    return match["host"], said
