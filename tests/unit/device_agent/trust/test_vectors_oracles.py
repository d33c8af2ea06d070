"""python-cwt and pycose as oracles: they verify our proofs as they are, and we verify theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cwt
import pytest
from cwt import COSE, COSEKey
from cwt.cose_key_interface import COSEKeyInterface
from pycose.algorithms import EdDSA
from pycose.headers import KID, Algorithm
from pycose.keys.curves import Ed25519
from pycose.keys.okp import OKPKey
from pycose.messages.cosemessage import CoseMessage
from pycose.messages.sign1message import Sign1Message
from pycose.messages.signmessage import SignMessage

from device_agent.errors import Refused
from device_agent.trust import claims, cose
from device_agent.trust.cose_sign import read as read_several
from device_agent.trust.device_certificate import open_device_certificate, read_device_certificate
from device_agent.trust.keys import SigningKey
from device_agent.trust.release_list import Released, open_release_list, sign_release_list
from device_agent.trust.root_list import ROOT_TYP, first_root_list
from device_agent.trust.site_certificate import open_site_certificate, read_site_certificate
from tests.peers.fleet import Fleet, signing_key

FLEET = Fleet(now=1_700_000_000)
FOREVER = 4_000_000_000
SITE = FLEET.certify_site(expires=FOREVER)
DEVICE = FLEET.device(expires=FOREVER).certificate
PROOFS = [(SITE, "os-site", FLEET.a.key), (DEVICE, "os-dev", FLEET.site.key)]
both = pytest.mark.parametrize(("body", "typ", "key"), PROOFS, ids=["site", "device"])


def cwt_key(key: SigningKey, *, private: bool = False) -> COSEKeyInterface:
    parts: dict[int, object] = {1: 1, -1: 6, -2: key.public, 2: key.kid, 3: -8}
    return COSEKey.new({**parts, -4: key.private} if private else parts)


def pycose_key(key: SigningKey, *, private: bool = False) -> OKPKey:
    return OKPKey(crv=Ed25519, x=key.public, d=key.private if private else b"")


@both
def test_python_cwt_verifies_our_certificates(body: bytes, typ: str, key: SigningKey) -> None:
    found = cwt.decode(body, cwt_key(key))
    assert found == cose.read(body, typ).claims
    assert found[claims.CNF][1][-2] == (FLEET.site.key if typ == "os-site" else FLEET.device().key).public
    with pytest.raises(cwt.VerifyError):
        cwt.decode(body[:-1] + bytes([body[-1] ^ 1]), cwt_key(key))


@both
def test_pycose_verifies_our_certificates(body: bytes, typ: str, key: SigningKey) -> None:
    message = CoseMessage.decode(body)
    assert isinstance(message, Sign1Message)
    message.key = pycose_key(key)
    assert message.verify_signature()
    assert message.phdr == {Algorithm: EdDSA, KID: key.kid, 16: typ}
    message.key = pycose_key(FLEET.b.key)
    assert not message.verify_signature()


def test_pycose_verifies_our_release_list_and_we_take_the_one_that_it_signs() -> None:
    key = signing_key("release")
    root = replace(FLEET.root, releases=(key.public,))
    ours = sign_release_list(key, version=7, issued=1_700_000_000, files=[Released("_modules/door.py", bytes(32))])
    message = CoseMessage.decode(ours)
    assert isinstance(message, Sign1Message)
    message.key = pycose_key(key)
    assert message.verify_signature()
    theirs = Sign1Message(phdr={Algorithm: EdDSA, KID: key.kid, 16: "os-rls"}, payload=message.payload)
    theirs.key = pycose_key(key, private=True)
    assert open_release_list(theirs.encode(), root).files == open_release_list(ours, root).files


@both
def test_we_verify_what_python_cwt_signs(body: bytes, typ: str, key: SigningKey) -> None:
    payload = cose.read(body, typ).payload
    theirs = COSE.new().encode(payload, cwt_key(key, private=True), protected={1: -8, 4: key.kid, 16: typ})
    assert open_any(theirs, typ, key) == open_any(body, typ, key)
    forged = COSE.new().encode(payload, cwt_key(FLEET.b.key, private=True), protected={1: -8, 4: key.kid, 16: typ})
    with pytest.raises(Refused):
        open_any(forged, typ, key)


@both
def test_we_verify_what_pycose_signs(body: bytes, typ: str, key: SigningKey) -> None:
    message = Sign1Message(phdr={Algorithm: EdDSA, KID: key.kid, 16: typ}, payload=cose.read(body, typ).payload)
    message.key = pycose_key(key, private=True)
    assert open_any(message.encode(), typ, key) == open_any(body, typ, key)


def open_any(body: bytes, typ: str, key: SigningKey) -> object:
    def find_key(_: bytes) -> bytes:
        return key.public

    return open_site_certificate(body, find_key) if typ == "os-site" else open_device_certificate(body, find_key)


def test_python_cwt_verifies_our_root_list() -> None:
    body = FLEET.chain[0]
    assert COSE.new().decode(body, [cwt_key(FLEET.roots[0])]) == read_several(body, ROOT_TYP).payload
    assert COSE.new().decode(body, [cwt_key(FLEET.roots[1])]) == read_several(body, ROOT_TYP).payload


def test_pycose_verifies_every_signature_of_our_root_list() -> None:
    message = CoseMessage.decode(FLEET.chain[0])
    assert isinstance(message, SignMessage)
    assert message.phdr == {16: ROOT_TYP}
    signers: list[Any] = message.signers
    for signer, key in zip(signers, FLEET.roots[:2], strict=True):
        signer.key = pycose_key(key)
        assert signer.verify_signature()


def test_what_the_oracles_saw_is_what_we_read() -> None:
    assert read_site_certificate(SITE).site == "lisbon"
    assert read_device_certificate(DEVICE).name == "cam-1"
    assert first_root_list(FLEET.chain[0], FLEET.fingerprint) == FLEET.root
