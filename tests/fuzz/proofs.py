"""Target: every object of trust as it comes from others, tokens, deliveries and the site's retained message too.

Where all of an object is signed, accepting bytes that nobody signed is a find as well.
"""

from __future__ import annotations

from functools import cache

from device_agent.errors import Refused
from device_agent.trust import batches, codec, cose, epochs, hpke, join, keys, notices, sessions
from device_agent.trust.chain import Anchor
from device_agent.trust.deliveries import CancelDelivery, read_delivery
from device_agent.trust.join_answer import NotYet, open_response
from device_agent.trust.key_change import read_key_change
from device_agent.trust.release_list import Releases, open_release_list
from device_agent.trust.root_list import (
    add_signature,
    first_root_list,
    follow,
    next_root_list,
    read_root_list,
    signers,
)
from device_agent.trust.session_frames import frame_sid
from device_agent.trust.signed_job import check_times, open_group, open_single, read_job
from device_agent.trust.site_request import open_site_request
from device_agent.trust.time_beacon import open_time_beacon
from device_agent.trust.token import JoinToken, SiteToken
from tests.fuzz import world
from tests.fuzz.choosing import Reader, chosen, for_reader
from tests.fuzz.files import seeds
from tests.peers.fleet import SITE


class Forged(AssertionError):
    """Bytes that nobody signed were accepted."""


def _root_list(body: bytes) -> object:
    read_root_list(body)
    signers(body)
    return first_root_list(body, world.FLEET.fingerprint), follow([body], world.FLEET.fingerprint)


def _request(body: bytes) -> object:
    request = join.read_request(body)
    join.tag_fits(request, world.TOKEN[1])
    return request


def _answer(body: bytes) -> object:
    answer = open_response(
        body, world.REQUEST, world.CAMERA.kem, site=SITE, pinned=world.FLEET.fingerprint, floor=world.NOW
    )
    # Another signature beside enough good ones makes other bytes of the same root list, so only the word is compared.
    if isinstance(answer, NotYet) and answer.verified and _word(body) not in map(_word, _known("answer")):
        raise Forged("a refusal")
    return answer


def _word(answer: bytes) -> object:
    return codec.decode(answer)[-1]


def _job(body: bytes) -> object:
    job = read_job(body)
    sealed = job.verified(world.issuer_for("job")(job.kid).public)
    check_times(sealed.header, world.NOW)
    return open_single(sealed, world.CAMERA.kem) if sealed.header.epoch is None else open_group(sealed, world.GROUP_KEY)


def _opening(body: bytes) -> object:
    read = sessions.read_session(body, site=SITE)
    return read.opened(world.CAMERA.key.public, world.PREKEY, world.MONOTONIC)


def _epoch(body: bytes) -> object:
    return epochs.open_epoch(body, world.issuer_for("epoch"), world.CAMERA.kem, device=world.DID, site=SITE)


def _frame(body: bytes) -> object:
    frame_sid(body)
    return world.session(device=False).open(body, world.TOPIC, world.MONOTONIC)


def _bundle(body: bytes) -> object:
    bundle = notices.read_bundle(body)
    anchor = world.anchor()
    anchor.take_root_lists(bundle.root_lists)
    for certificate in bundle.site_certificates:
        anchor.take_site_certificate(certificate, world.NOW)
    for listed in bundle.revocations:
        anchor.take_revocations(listed)
    return sessions.open_prekey(bundle.prekey, world.key_for("job"), site=SITE, now=world.NOW)


def _delivery(body: bytes) -> object:
    offered = read_delivery(body)
    if isinstance(offered, CancelDelivery):
        return notices.open_cancel(offered.cancel, world.key_for("job"), site=SITE)
    return _job(offered.job)


def _revocations(body: bytes) -> object:
    anchor = world.anchor()
    anchor.take_revocations(body)
    return Anchor.restored(anchor.export())


def _releases(body: bytes) -> object:
    releases = Releases.restored(body)
    assert Releases.restored(releases.export()).export() == releases.export()
    return releases.current(world.RELEASING)


def _site_certificate(body: bytes) -> object:
    return world.anchor().take_site_certificate(body, world.NOW)


def _confirm(body: bytes) -> object:
    if not join.is_confirm(body):
        raise Refused("malformed", "not a confirmation")
    word = join.read_confirm(body, site=SITE)
    word.verified(world.CAMERA.key.public)
    return word


def _bye(body: bytes) -> object:
    bye = sessions.read_bye(body, site=SITE)
    bye.verified(world.CAMERA.key.public)
    return bye


def _key_change(body: bytes) -> object:
    return read_key_change(body, site=SITE).verified(world.CAMERA.key.public, world.SID)


def _text(body: bytes) -> str:
    """As it comes from an argument or a file."""
    return body.decode("utf-8", "surrogateescape")


def _join_token(body: bytes) -> object:
    token = JoinToken.from_text(_text(body))
    assert JoinToken.from_text(token.text()) == token
    return token


def _site_token(body: bytes) -> object:
    token = SiteToken.from_text(_text(body))
    assert SiteToken.from_text(token.text()) == token
    return token


def _identity(body: bytes) -> object:
    keys.same_fingerprint(_text(body), keys.fingerprint(world.CAMERA.key.public))
    return keys.did_from_text(_text(body))


def _item_proof(body: bytes) -> object:
    proof = batches.read_proof(body)
    batches.check_item(batches.open_batch(proof.batch, world.key_for("job")), proof, world.SAID[1])
    return proof


WHOLLY_SIGNED: dict[str, Reader] = {
    "site_certificate": _site_certificate,
    "site_request": open_site_request,
    "device_certificate": lambda body: world.anchor().open_device_certificate(body, world.NOW),
    "confirm": _confirm,
    "job": _job,
    "prekey": lambda body: sessions.open_prekey(body, world.key_for("job"), site=SITE, now=world.NOW),
    "opening": _opening,
    "session_ok": lambda body: sessions.open_session_ok(
        body, world.key_for("job"), device=world.DID, site=SITE, nonce=world.NONCE
    ),
    "roll_call": lambda body: sessions.open_roll_call(
        body, world.key_for("job"), device=world.DID, site=SITE, sid=world.SID
    ),
    "bye": _bye,
    "frame": _frame,
    "epoch": _epoch,
    "revocations": _revocations,
    "cancel": lambda body: notices.open_cancel(body, world.key_for("job"), site=SITE),
    "ack": lambda body: notices.open_ack(body, world.key_for("job"), site=SITE),
}


def _unforged(name: str, reader: Reader) -> Reader:
    def read_unforged(body: bytes) -> object:
        value = reader(body)
        if body not in _known(name):
            raise Forged(name)
        return value

    return read_unforged


READERS: dict[str, Reader] = {
    **{name: _unforged(name, reader) for name, reader in WHOLLY_SIGNED.items()},
    "kind": cose.kind,
    "root_list": _root_list,
    "next_root_list": lambda body: next_root_list(body, world.FLEET.root),
    "one_more_signature": lambda body: add_signature(body, world.FLEET.roots[2]),
    "request": _request,
    "answer": _answer,
    "answer_content": lambda body: _answer(world.sealed_answer(body)),
    "bundle": _bundle,
    "delivery": _delivery,
    "anchor": Anchor.restored,
    "join_token": _join_token,
    "site_token": _site_token,
    "identity": _identity,
    "kem_key": lambda body: hpke.seal(body, b"info", b"plaintext"),
    "sealed": lambda body: hpke.open_sealed(world.CAMERA.kem, b"info", body),
    "release_list": _unforged("release_list", lambda body: open_release_list(body, world.RELEASING)),
    "releases": _releases,
    "time_beacon": _unforged("time_beacon", lambda body: open_time_beacon(body, world.anchor().master_key)),
    "batch": _unforged("batch", lambda body: batches.open_batch(body, world.key_for("job"))),
    "item_proof": _unforged("item_proof", _item_proof),
    "key_change": _unforged("key_change", _key_change),
}


@cache
def _known(name: str) -> frozenset[bytes]:
    """What somebody did sign: the seeds of this reader."""
    prefix = for_reader(READERS, name, b"")
    return frozenset(body[1:] for body in seeds("proofs").values() if body.startswith(prefix))


def read(body: bytes) -> object:
    """Any bytes."""
    return chosen(READERS, body)
