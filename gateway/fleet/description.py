"""A master as it describes itself to the holders of the root keys: name, keys and addresses, signed by itself.

The signature proves that whoever wrote it has the key, and that nothing was changed on the way. It does not prove who
that is: the holders compare the fingerprint with what the master shows.
"""

from __future__ import annotations

import re
from typing import Any

from device_agent.errors import Refused, UsageInvalid
from device_agent.protocol.messages import SITE_ID_PATTERN
from device_agent.trust import cose
from device_agent.trust.carried_keys import confirmed_key, take_confirmed_key
from device_agent.trust.claims import ADDRESSES, CNF, CURVE, KEM, NAME, only, take, take_matching
from device_agent.trust.keys import PUBLIC_BYTES, SigningKey, kid
from device_agent.trust.root_list import ADDRESSES_MAX, MasterKey
from gateway.brackets import address_fault
from gateway.config import TCP_PATTERN
from gateway.fleet import armor

TYP = "os-mas"


def describe(key: SigningKey, master: MasterKey) -> str:
    """The line that a master gives to the holders of the root keys. Raises ``UsageInvalid`` for a bad address."""
    claims: dict[int, Any] = {
        NAME: master.name,
        CNF: confirmed_key(master.sig),
        KEM: master.kem,
        CURVE: master.curve,
        ADDRESSES: list(master.addresses),
    }
    for address in master.addresses:
        check_address(address)
    return armor.wrap("os-master", cose.sign(key, TYP, claims))


def read_description(text: str) -> MasterKey:
    """The master in a line; without roles. Raises ``UsageInvalid``."""
    body = armor.unwrap("os-master", text)
    try:
        proof = cose.read(body, TYP)
        claims = proof.claims
        only(claims, NAME, CNF, KEM, CURVE, ADDRESSES)
        sig = take_confirmed_key(claims)
        if proof.kid != kid(sig):
            raise Refused("unknown_issuer", "a description is signed by the key it is about")
        proof.verified(sig)
        addresses = take(claims, ADDRESSES, list, most=ADDRESSES_MAX)
        return MasterKey(
            name=take_matching(claims, NAME, SITE_ID_PATTERN),
            sig=sig,
            kem=take(claims, KEM, bytes, size=PUBLIC_BYTES),
            curve=take(claims, CURVE, bytes, size=PUBLIC_BYTES),
            addresses=tuple(check_address(str(address)) for address in addresses),
            roles=(),
        )
    except Refused as refusal:
        raise UsageInvalid(
            "this description of a master proves nothing",
            error_id="fleet.bad_description",
            found=str(refusal),
            allowed=armor.KINDS["os-master"],
            hint="make it again on that master: outstation master init",
        ) from None


def check_address(address: str) -> str:
    """An address that a master can be reached at. Raises ``UsageInvalid``."""
    port = address.rpartition(":")[2]
    everywhere = address.removeprefix("tcp://").rpartition(":")[0] in {"0.0.0.0", "*", "[::]"}  # noqa: S104 - these are refused here
    fault = address_fault(address)
    if fault or not re.match(TCP_PATTERN, address) or not port.isdigit() or not 1 <= int(port) <= 65_535 or everywhere:
        raise UsageInvalid(
            "gateways cannot connect to this address",
            error_id="fleet.bad_address",
            found=address,
            allowed=fault or "tcp://HOST:PORT as gateways reach it, such as tcp://203.0.113.7:4510",
            hint="outstation master init --address tcp://HOST:PORT",
        )
    return address
