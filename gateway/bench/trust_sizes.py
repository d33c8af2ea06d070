"""How long the byte strings are that our objects are signed over, sealed from and bound to: the reference's too."""

from __future__ import annotations

import hashlib

from device_agent.trust import codec, cose, cose_sign, hpke
from device_agent.trust.claims import CT
from device_agent.trust.device_certificate import DEVICE_TYP
from device_agent.trust.epochs import TYP as EPOCH_TYP
from device_agent.trust.join import REQUEST_TYP, Request
from device_agent.trust.join_answer import ACCEPT_TYP
from device_agent.trust.keys import KID_BYTES, KemKey
from device_agent.trust.revocations import TYP as REVOCATIONS_TYP
from device_agent.trust.root_list import ROOT_TYP
from device_agent.trust.sealed_claims import take_sealed
from device_agent.trust.session_frames import HEADER_BYTES, OVERHEAD_BYTES
from device_agent.trust.sessions import OK_TYP, OPENING_TYP, PREKEY_TYP
from device_agent.trust.signed_job import TYP as JOB_TYP
from device_agent.trust.site_certificate import SITE_TYP

AEAD_TAG_BYTES = 16
TYPES = {
    "site_certificate": SITE_TYP,
    "prekey": PREKEY_TYP,
    "opening": OPENING_TYP,
    "session_ok": OK_TYP,
    "revocations": REVOCATIONS_TYP,
    "epoch": EPOCH_TYP,
}
LABELS = {"opening": len(b"os1 ses"), "epoch": len(b"os1 ep"), "single": len(b"os1 job") + KID_BYTES}
"""What stands before the header's bytes where something is sealed under them."""


def of_proofs(**bodies: bytes) -> dict[str, int]:
    """Of the proofs in ``TYPES``, and of what is sealed in them."""
    sizes = {}
    for name, body in bodies.items():
        proof = cose.read(body, TYPES[name])
        sizes[name] = len(proof.content)
        if CT in proof.claims:
            sizes[f"{name}_info"] = LABELS[name] + len(take_sealed(proof.claims, proof.payload)[0])
    return sizes


def of_root_list(body: bytes) -> dict[str, int]:
    """Of a root list."""
    return {"root_list": len(cose_sign.read(body, ROOT_TYP).signatures[0].content)}


def of_joining(asked: Request, answer: bytes, kem: KemKey) -> dict[str, int]:
    """Of a request to join and the answer that accepts it."""
    sealed, _ = codec.decode(answer)
    info = b"os1 enr" + hashlib.sha256(asked.body).digest()
    plain = hpke.open_sealed(kem, info, sealed)
    _, _, certificate, word = codec.decode(plain)
    return {
        "request": len(cose.read(asked.body, REQUEST_TYP).content),
        "request_body": len(asked.body),
        "answer": len(plain),
        "answer_info": len(info),
        "device_certificate": len(cose.read(certificate, DEVICE_TYP).content),
        "accept": len(cose.read(word, ACCEPT_TYP).content),
    }


def of_job(kind: str, body: bytes) -> dict[str, int]:
    """Of a job to the ``group`` or to a ``single`` device."""
    proof = cose.read(body, JOB_TYP)
    header, ct = take_sealed(proof.claims, proof.payload)
    bound = {"group_aad": KID_BYTES} if kind == "group" else {"single_info": LABELS[kind]}
    return {
        f"{kind}_job": len(proof.content),
        f"{kind}_order": len(ct) - (AEAD_TAG_BYTES if kind == "group" else hpke.OVERHEAD_BYTES),
        **{name: label + len(header) for name, label in bound.items()},
    }


def of_frame(frame: bytes, topic: str) -> dict[str, int]:
    """Of a frame of a session."""
    return {"frame": len(frame) - OVERHEAD_BYTES, "frame_aad": HEADER_BYTES + len(topic.encode())}
