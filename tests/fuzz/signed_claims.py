"""Target: claims of any kind under a signature that holds, and plaintexts of any kind under a seal that opens.

So a device of the site reads what a site gone bad may sign, and a site what its devices may.
"""

from __future__ import annotations

from device_agent.trust import (
    batches,
    codec,
    epochs,
    hpke,
    join,
    join_answer,
    key_change,
    notices,
    release_list,
    sessions,
    time_beacon,
)
from device_agent.trust.chain import Anchor
from device_agent.trust.key_change import read_key_change
from device_agent.trust.policy import check_function, check_reach
from device_agent.trust.release_list import open_release_list
from device_agent.trust.root_list import first_root_list, next_root_list
from device_agent.trust.signed_job import JobHeader, SealedJob, check_times, open_group, open_single, read_job
from device_agent.trust.site_request import open_site_request
from device_agent.trust.time_beacon import open_time_beacon
from tests.fuzz import world
from tests.fuzz.choosing import Reader, chosen
from tests.fuzz.world import CAMERA, DID, FLEET, NOW, signed
from tests.peers.fleet import SITE

MASTER, GATEWAY, DEVICE = FLEET.a.key, FLEET.site.key, CAMERA.key
CONTENT = world.answer_content()
HEADER = JobHeader(sub=DID, site=SITE, issued=NOW, expires=NOW + 60, jid=world.JID, seq=1, tgt="*")


def _first_root_list(payload: bytes) -> object:
    body = world.signed_by_roots(payload)
    anchor = Anchor(None)
    anchor.take_root_lists([body])
    assert Anchor.restored(anchor.export()).root == anchor.root
    return first_root_list(body, FLEET.fingerprint)


def _next_root_list(payload: bytes) -> object:
    body = world.signed_by_roots(payload)
    anchor = world.anchor()
    anchor.take_root_lists([*FLEET.chain, body])
    return next_root_list(body, FLEET.root)


def _site_certificate(payload: bytes) -> object:
    anchor = world.anchor()
    certificate = anchor.take_site_certificate(signed(MASTER, "os-site", payload), NOW)
    anchor.open_device_certificate(CAMERA.certificate, NOW)
    check_function(certificate.policy, "test.ping", ["a" * 64], {})
    check_reach(certificate.policy, group="all", seconds=60.0)
    return certificate


def _revocations(payload: bytes, *, master: bool) -> object:
    anchor = world.anchor()
    taken = anchor.take_revocations(signed(MASTER if master else GATEWAY, "os-rev", payload))
    Anchor.restored(anchor.export())
    return taken


def _answer(payload: bytes, place: int = 3) -> object:
    """An answer of which one part is this: the device's certificate, the site's, or the word."""
    content = list(CONTENT)
    key, typ = {1: (MASTER, "os-site"), 2: (GATEWAY, "os-dev"), 3: (GATEWAY, "os-acc")}[place]
    content[place] = signed(key, typ, payload)
    return _opened(world.sealed_answer(codec.encode(content)))


def _refusal(payload: bytes) -> object:
    return _opened(codec.encode([b"", FLEET.chain, FLEET.site_certificate, signed(GATEWAY, "os-nay", payload)]))


def _opened(answer: bytes) -> object:
    return join_answer.open_response(answer, world.REQUEST, CAMERA.kem, site=SITE, pinned=FLEET.fingerprint, floor=NOW)


def _request(payload: bytes) -> object:
    return join.read_request(codec.encode([signed(DEVICE, "os-enr", payload), b""]))


def _confirm(payload: bytes) -> object:
    word = join.read_confirm(signed(DEVICE, "os-cfm", payload), site=SITE)
    word.verified(DEVICE.public)
    return word


def _job(payload: bytes) -> object:
    job = read_job(signed(MASTER, "os-job", payload))
    sealed = job.verified(MASTER.public)
    check_times(sealed.header, NOW)
    return open_single(sealed, CAMERA.kem) if sealed.header.epoch is None else open_group(sealed, world.GROUP_KEY)


def _order(plaintext: bytes) -> object:
    """A job for one device with this in its seal."""
    ad = b"a header"
    ct = hpke.seal(CAMERA.kem.public, b"os1 job" + MASTER.kid + ad, plaintext)
    return open_single(SealedJob(HEADER, MASTER.kid, ad, ct), CAMERA.kem)


def _prekey(payload: bytes) -> object:
    prekey = sessions.open_prekey(
        signed(GATEWAY, sessions.PREKEY_TYP, payload), world.key_for("job"), site=SITE, now=NOW
    )
    return sessions.open_session(
        DEVICE, prekey, nonce=world.NONCE, secret=bytes(32), version=0, epoch=0, marks=[], now=world.MONOTONIC
    )


def _opening(payload: bytes) -> object:
    read = sessions.read_session(signed(DEVICE, sessions.OPENING_TYP, payload), site=SITE)
    return read.opened(DEVICE.public, world.PREKEY, world.MONOTONIC)


def _bye(payload: bytes) -> object:
    bye = sessions.read_bye(signed(DEVICE, sessions.BYE_TYP, payload), site=SITE)
    bye.verified(DEVICE.public)
    return bye


def _epoch(payload: bytes) -> object:
    body = signed(GATEWAY, epochs.TYP, payload)
    return epochs.open_epoch(body, world.issuer_for("epoch"), CAMERA.kem, device=DID, site=SITE)


def _key_change(payload: bytes) -> object:
    change = read_key_change(signed(DEVICE, key_change.TYP, payload), site=SITE)
    return hpke.seal(change.verified(DEVICE.public, world.SID), b"info", b"plaintext")


READERS: dict[str, Reader] = {
    "root_list": _first_root_list,
    "next_root_list": _next_root_list,
    "site_certificate": _site_certificate,
    "site_request": lambda payload: open_site_request(signed(GATEWAY, "os-srq", payload)),
    "device_certificate": lambda payload: world.anchor().open_device_certificate(
        signed(GATEWAY, "os-dev", payload), NOW
    ),
    "request": _request,
    "confirm": _confirm,
    "answer": _answer,
    "refusal": _refusal,
    "job": _job,
    "order": _order,
    "prekey": _prekey,
    "opening": _opening,
    "session_ok": lambda payload: sessions.open_session_ok(
        signed(GATEWAY, sessions.OK_TYP, payload), world.key_for("job"), device=DID, site=SITE, nonce=world.NONCE
    ),
    "roll_call": lambda payload: sessions.open_roll_call(
        signed(GATEWAY, sessions.ROLL_CALL_TYP, payload), world.key_for("job"), device=DID, site=SITE, sid=world.SID
    ),
    "bye": _bye,
    "epoch": _epoch,
    "revocations_of_a_master": lambda payload: _revocations(payload, master=True),
    "revocations_of_a_site": lambda payload: _revocations(payload, master=False),
    "cancel": lambda payload: notices.open_cancel(
        signed(GATEWAY, notices.CANCEL_TYP, payload), world.key_for("job"), site=SITE
    ),
    "ack": lambda payload: notices.open_ack(signed(GATEWAY, notices.ACK_TYP, payload), world.key_for("job"), site=SITE),
    "answer_site": lambda payload: _answer(payload, 1),
    "answer_device": lambda payload: _answer(payload, 2),
    "release_list": lambda payload: open_release_list(
        signed(world.RELEASE_KEY, release_list.TYP, payload), world.RELEASING
    ),
    "time_beacon": lambda payload: open_time_beacon(
        signed(MASTER, time_beacon.TYP, payload), world.anchor().master_key
    ),
    "batch": lambda payload: batches.open_batch(signed(GATEWAY, batches.BATCH_TYP, payload), world.key_for("job")),
    "key_change": _key_change,
}


def read(body: bytes) -> object:
    """Any bytes."""
    return chosen(READERS, body)
