"""One fleet with one device, in memory and the same in each run: whom the readers under test believe."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from device_agent.trust import codec, cose, cose_sign, hpke, join
from device_agent.trust.chain import Anchor, Issuer
from device_agent.trust.cose import FindKey
from device_agent.trust.join_answer import Terms, accept
from device_agent.trust.key_change import sign_key_change
from device_agent.trust.keys import SigningKey, did_text
from device_agent.trust.release_list import Released, Releases, sign_release_list
from device_agent.trust.session_frames import Session
from device_agent.trust.sessions import Prekey, open_prekey, sign_prekey
from device_agent.trust.time_beacon import sign_time_beacon
from tests.peers.fleet import SITE, Fleet, kem_key, signing_key

FLEET: Final = Fleet()
NOW: Final = FLEET.now
CAMERA: Final = FLEET.device("cam-1")
DID: Final = did_text(CAMERA.key.did)
MONOTONIC: Final = 1000.0
EPOCH: Final = 3
GROUP_KEY: Final = b"\x05" * 32
NONCE: Final = b"\x09" * 16
SID: Final = b"\x0a" * 8
SALT: Final = b"\x0b" * 16
JID: Final = "20261121031500000000"
TOKEN: Final = (b"\x06" * 8, b"\x07" * 16)
TOPIC: Final = f"os/{SITE}/d/{DID}/up/f"
RELEASE_KEY: Final = signing_key("release")
RELEASING: Final = replace(FLEET.root, releases=(RELEASE_KEY.public,))
RELEASED: Final = (Released("_grains/lens.py", bytes(32)), Released("_modules/door.py", bytes(32), {"status": "looks"}))
RELEASE_LIST: Final = sign_release_list(RELEASE_KEY, version=3, issued=NOW, files=RELEASED)
KEY_CHANGE: Final = sign_key_change(CAMERA.key, site=SITE, sid=SID, kem=kem_key("another").public)
SIGNED: Final = {
    "release_list": RELEASE_LIST,
    "time_beacon": sign_time_beacon(FLEET.a.key, NOW),
    "key_change": KEY_CHANGE,
}
PREKEY: Final = kem_key("prekey")
PREKEY_BODY: Final = sign_prekey(FLEET.site.key, site=SITE, public=PREKEY.public, issued=NOW, instance=b"\x0c" * 8)
SAID: Final = (7, b"an item")
"""An item of a site and its sequence."""

REQUEST: Final = join.request(CAMERA.key, CAMERA.kem.public, nonce=NONCE, serial="SN-1", model="P3245")
TERMS: Final = Terms(issued=NOW, epoch=EPOCH, group_key=GROUP_KEY, index=7, password="secret", port=8883)

_anchor: Final = FLEET.anchor()


def anchor() -> Anchor:
    """What a party of the fleet believes; whatever it takes is forgotten with the next input."""
    return copy.deepcopy(_anchor)


def releases() -> bytes:
    """The state of somebody who has taken the release list."""
    taken = Releases()
    taken.take(RELEASE_LIST, RELEASING)
    return taken.export()


def issuer_for(role: str) -> Callable[[bytes], Issuer]:
    """Who may sign as this."""
    return lambda kid: _anchor.issuer(kid, role, SITE, NOW)


def key_for(role: str) -> FindKey:
    """The key of who may sign as this."""
    return lambda kid: _anchor.issuer(kid, role, SITE, NOW).public


def prekey() -> Prekey:
    """The site's prekey, as a device has it."""
    return open_prekey(PREKEY_BODY, key_for("job"), site=SITE, now=NOW)


def session(*, device: bool) -> Session:
    """One end of a session that has just begun."""
    return Session.between(b"\x0d" * 32, b"an opening", device=device, opened=MONOTONIC)


def signed(key: SigningKey, typ: str, payload: bytes) -> bytes:
    """Any bytes under a signature that holds."""
    protected = codec.encode({cose.HEADER_ALGORITHM: cose.EDDSA, cose.HEADER_KID: key.kid, cose.HEADER_TYP: typ})
    signature = key.sign(codec.encode(["Signature1", protected, b"", payload]))
    return cose.SIGN1_TAG + codec.encode([protected, {}, payload, signature])


def signed_by_roots(payload: bytes) -> bytes:
    """Any bytes under the signatures of two root holders."""
    protected = codec.encode({cose.HEADER_TYP: "os-root"})
    signatures = []
    for root in FLEET.roots[:2]:
        own = codec.encode({cose.HEADER_ALGORITHM: cose.EDDSA, cose.HEADER_KID: root.kid})
        content = codec.encode(["Signature", protected, own, b"", payload])
        signatures.append([own, {}, root.sign(content)])
    return cose_sign.SIGN_TAG + codec.encode([protected, {}, payload, signatures])


def answer_content() -> list[Any]:
    """What a rightful answer to our request has in its seal: root lists, two certificates, a word."""
    answer = accept(
        FLEET.site.key,
        join.read_request(REQUEST.payload),
        root_lists=FLEET.chain,
        site_certificate=FLEET.site_certificate,
        device_certificate=CAMERA.certificate,
        site=SITE,
        terms=TERMS,
    )
    content: list[Any] = codec.decode(hpke.open_sealed(CAMERA.kem, _answer_info(), codec.decode(answer)[0]))
    return content


def sealed_answer(plaintext: bytes) -> bytes:
    """Any bytes as the sealed part of an answer to our request."""
    return codec.encode([hpke.seal(CAMERA.kem.public, _answer_info(), plaintext), b""])


def _answer_info() -> bytes:
    return b"os1 enr" + hashlib.sha256(REQUEST.body).digest()
