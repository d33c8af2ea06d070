"""Public keys and their names as claims carry them: the key somebody proves to have (RFC 8747), and lists of keys."""

from __future__ import annotations

from typing import Any, Final

from device_agent.errors import Refused
from device_agent.trust.claims import CNF, NAMES, take
from device_agent.trust.keys import KID_BYTES, PUBLIC_BYTES, kid

_COSE_KEY: Final = 1
_KEY_TYPE, _OKP = 1, 1
_CURVE, _ED25519 = -1, 6
_PUBLIC = -2


def confirmed_key(public: bytes) -> dict[int, Any]:
    """The claim ``cnf`` over an Ed25519 key."""
    return {_COSE_KEY: {_KEY_TYPE: _OKP, _CURVE: _ED25519, _PUBLIC: public}}


def take_confirmed_key(claims: dict[int, Any]) -> bytes:
    """The Ed25519 key in ``cnf``. Raises ``Refused``."""
    confirmation = take(claims, CNF, dict)
    key = confirmation.get(_COSE_KEY)
    if list(confirmation) != [_COSE_KEY] or type(key) is not dict or list(key) != [_KEY_TYPE, _CURVE, _PUBLIC]:
        raise Refused("claim_invalid", "cnf is not one COSE_Key with type, curve and key")
    public = key[_PUBLIC]
    if type(public) is not bytes or key != confirmed_key(public)[_COSE_KEY] or len(public) != PUBLIC_BYTES:
        raise Refused("claim_invalid", "cnf is not an Ed25519 key")
    return public


def take_publics(claims: dict[int, Any], label: int, *, most: int) -> tuple[bytes, ...]:
    """A list of public keys. Raises ``Refused``."""
    return _take_bytes(claims, label, PUBLIC_BYTES, most)


def take_kids(claims: dict[int, Any], label: int, *, most: int) -> tuple[bytes, ...]:
    """A list of names of keys. Raises ``Refused``."""
    return _take_bytes(claims, label, KID_BYTES, most)


def refuse_doubled(publics: list[bytes]) -> None:
    """Refuse keys of which two have one name: whoever looks a signer up by its kid must find one key."""
    seen = set()
    for public in publics:
        name = kid(public)
        if name in seen:
            raise Refused("doubled_kid", name.hex())
        seen.add(name)


def _take_bytes(claims: dict[int, Any], label: int, size: int, most: int) -> tuple[bytes, ...]:
    values = take(claims, label, list, most=most)
    for value in values:
        if type(value) is not bytes or len(value) != size:
            raise Refused("claim_invalid", f"{NAMES.get(label, label)} has an entry that is not {size} bytes")
    return tuple(values)
