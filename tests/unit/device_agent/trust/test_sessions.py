"""device_agent/trust/sessions.py: who opens a session with whom; no word of it can be used for another."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import cose, sessions
from device_agent.trust.cose import FindKey
from device_agent.trust.keys import KemKey, SigningKey, did_text
from device_agent.trust.sessions import (
    PREKEY_SECONDS,
    SessionOk,
    SessionOpening,
    open_prekey,
    open_roll_call,
    open_session,
    open_session_ok,
    prekey_id,
    read_bye,
    read_session,
    sign_bye,
    sign_prekey,
    sign_roll_call,
    sign_session_ok,
)
from tests.peers.flips import any_claims, reasons_of_flips, refused_or_read

SITE = SigningKey(b"\x01" * 32)
DEVICE = SigningKey(b"\x02" * 32)
OTHER_DEVICE = SigningKey(b"\x03" * 32)
PREKEY = KemKey(b"\x04" * 32)
DID = did_text(DEVICE.did)
NONCE = b"\x05" * 16
SECRET = b"\x06" * 32
INSTANCE = b"\x07" * 8
NOW = 1_800_000_000


def only_key(key: SigningKey) -> FindKey:
    def find(kid: bytes) -> bytes:
        if kid != key.kid:
            raise Refused("unknown_issuer", kid.hex())
        return key.public

    return find


FIND = only_key(SITE)


def prekey_body(**changes: Any) -> bytes:
    return sign_prekey(
        SITE, **{"site": "site-1", "public": PREKEY.public, "issued": NOW, "instance": INSTANCE, **changes}
    )


def opening(key: SigningKey = DEVICE, **changes: Any) -> SessionOpening:
    prekey = open_prekey(prekey_body(), FIND, site="site-1", now=NOW)
    words = {
        "nonce": NONCE,
        "secret": SECRET,
        "version": 3,
        "epoch": 4,
        "marks": [(SITE.kid, 9)],
        "now": 0.0,
        **changes,
    }
    return open_session(key, prekey, **words)


def refused(call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments, **named)
    return caught.value.reason


# --- the prekey ----------------------------------------------------------------------------------------------------


def read_prekey(body: bytes) -> object:
    return open_prekey(body, FIND, site="site-1", now=NOW)


def test_a_prekey_says_its_site_its_station_and_how_long_it_counts() -> None:
    prekey = open_prekey(prekey_body(), FIND, site="site-1", now=NOW)
    assert (prekey.kem, prekey.instance, prekey.kid) == (PREKEY.public, INSTANCE, SITE.kid)
    assert prekey.id == prekey_id(PREKEY.public) == hashlib.sha256(PREKEY.public).digest()[:8]


def test_a_prekey_counts_for_two_days_and_no_longer() -> None:
    assert open_prekey(prekey_body(), FIND, site="site-1", now=NOW + PREKEY_SECONDS).expires == NOW + PREKEY_SECONDS
    assert refused(open_prekey, prekey_body(), FIND, site="site-1", now=NOW + PREKEY_SECONDS + 121) == "expired"
    assert refused(read_prekey, prekey_body(seconds=PREKEY_SECONDS + 1)) == "claim_invalid"


def test_a_prekey_of_another_site_or_of_a_stranger_is_refused() -> None:
    assert refused(read_prekey, prekey_body(site="site-2")) == "wrong_site"
    stranger = sign_prekey(DEVICE, site="site-1", public=PREKEY.public, issued=NOW, instance=INSTANCE)
    assert refused(read_prekey, stranger) == "unknown_issuer"


def test_a_prekey_from_later_than_a_floor_is_taken() -> None:
    assert open_prekey(prekey_body(), FIND, site="site-1", now=NOW - 400 * 86_400).issued == NOW


def test_whatever_bit_of_a_prekey_is_turned_over_it_is_refused() -> None:
    assert "bad_signature" in reasons_of_flips(prekey_body(), read_prekey)


# --- the opening ---------------------------------------------------------------------------------------------------


def test_an_opening_tells_the_station_what_the_device_knows() -> None:
    read = read_session(opening().body, site="site-1")
    assert (read.did, read.nonce, read.version, read.epoch) == (DID, NONCE, 3, 4)
    assert (read.marks, read.prekey) == (((SITE.kid, 9),), prekey_id(PREKEY.public))


def test_whatever_bit_of_an_opening_is_turned_over_it_is_refused() -> None:
    def read(body: bytes) -> object:
        return read_session(body, site="site-1").opened(DEVICE.public, PREKEY, 0.0)

    assert "bad_signature" in reasons_of_flips(opening().body, read)


def test_both_ends_of_an_opening_read_each_other() -> None:
    made = opening()
    station = read_session(made.body, site="site-1").opened(DEVICE.public, PREKEY, 0.0)
    assert station.sid == made.session.sid == hashlib.sha256(made.body).digest()[:8]
    assert station.open(made.session.seal(b"up", "topic", 0.0), "topic", 0.0) == b"up"
    assert made.session.open(station.seal(b"down", "topic", 0.0), "topic", 0.0) == b"down"


def test_the_same_opening_has_the_same_digest_so_that_a_station_can_refuse_a_second_sight() -> None:
    made, again = opening(), opening()
    assert read_session(made.body, site="site-1").digest == hashlib.sha256(made.body).digest()
    assert read_session(again.body, site="site-1").digest != read_session(made.body, site="site-1").digest


def test_an_opening_for_another_site_is_refused() -> None:
    assert refused(read_session, opening().body, site="site-2") == "wrong_site"


def test_a_device_cannot_open_a_session_in_the_name_of_another() -> None:
    claims = dict(cose.read(opening().body, "os-ses").claims)
    forged = read_session(cose.sign(OTHER_DEVICE, "os-ses", claims), site="site-1")
    assert forged.did == DID
    assert refused(forged.opened, DEVICE.public, PREKEY, 0.0) == "bad_signature"
    assert refused(forged.opened, OTHER_DEVICE.public, PREKEY, 0.0) == "unknown_issuer"


def test_a_device_cannot_adopt_the_secret_of_another_opening() -> None:
    claims = {**cose.read(opening().body, "os-ses").claims, c.SUB: did_text(OTHER_DEVICE.did)}
    adopted = read_session(cose.sign(OTHER_DEVICE, "os-ses", claims), site="site-1")
    assert refused(adopted.opened, OTHER_DEVICE.public, PREKEY, 0.0) == "not_sealed_to_us"


def test_an_opening_sealed_to_a_wiped_prekey_stays_shut() -> None:
    read = read_session(opening().body, site="site-1")
    assert refused(read.opened, DEVICE.public, KemKey(b"\x08" * 32), 0.0) == "not_sealed_to_us"


def test_a_secret_of_another_length_is_refused() -> None:
    read = read_session(opening(secret=b"short").body, site="site-1")
    assert refused(read.opened, DEVICE.public, PREKEY, 0.0) == "malformed"


def test_of_many_marks_the_signers_met_last_go_along() -> None:
    marks = [(bytes([number]) * 8, number) for number in range(40)]
    assert list(read_session(opening(marks=marks).body, site="site-1").marks) == marks[-16:]


@pytest.mark.parametrize(
    "marks",
    [
        [[bytes(8), 1]] * 17,
        [[bytes(8), 1], [bytes(8), 2]],
        [[bytes(7), 1]],
        [[bytes(8), -1]],
        [[bytes(8), 2**64]],
        [[bytes(8), True]],
        [[bytes(8)]],
        [1],
    ],
)
def test_marks_out_of_bounds_are_refused(marks: Any) -> None:
    claims = cose.read(opening().body, "os-ses").claims
    body = cose.sign(DEVICE, "os-ses", {**claims, c.MARKS: marks})
    assert refused(read_session, body, site="site-1") in {"claim_invalid", "malformed"}


# --- the station's word, and the last will -------------------------------------------------------------------------

WORD = SessionOk(issued=NOW, epoch=5, version=2, index=77)


def ok_body(key: SigningKey = SITE, **changes: Any) -> bytes:
    return sign_session_ok(key, **{"device": DID, "site": "site-1", "nonce": NONCE, "word": WORD, **changes})


def read_ok(body: bytes) -> SessionOk:
    return open_session_ok(body, FIND, device=DID, site="site-1", nonce=NONCE)


def test_the_station_answers_one_opening_of_one_device() -> None:
    assert read_ok(ok_body()) == SessionOk(NOW, 5, 2, 77, SITE.kid)
    assert refused(read_ok, ok_body(nonce=bytes(16))) == "wrong_nonce"
    assert refused(read_ok, ok_body(device=did_text(OTHER_DEVICE.did))) == "not_for_us"
    assert refused(read_ok, ok_body(site="site-2")) == "wrong_site"
    assert refused(read_ok, ok_body(OTHER_DEVICE)) == "unknown_issuer"


def roll_call_body(**changes: Any) -> bytes:
    return sign_roll_call(SITE, **{"device": DID, "site": "site-1", "sid": bytes(8), "issued": NOW, **changes})


def read_roll_call(body: bytes) -> object:
    return open_roll_call(body, FIND, device=DID, site="site-1", sid=bytes(8))


def test_a_roll_call_is_about_the_session_that_the_device_has_now() -> None:
    assert read_roll_call(roll_call_body()) == NOW
    assert refused(read_roll_call, roll_call_body(sid=b"\x01" * 8)) == "unknown_session"
    assert refused(read_roll_call, roll_call_body(device=did_text(OTHER_DEVICE.did))) == "not_for_us"


def test_a_last_will_is_that_of_one_connection_and_signed_by_its_device() -> None:
    bye = read_bye(sign_bye(DEVICE, site="site-1", nonce=NONCE), site="site-1")
    assert (bye.did, bye.nonce) == (DID, NONCE)
    bye.verified(DEVICE.public)
    assert refused(bye.verified, OTHER_DEVICE.public) == "unknown_issuer"
    claims = cose.read(sign_bye(DEVICE, site="site-1", nonce=NONCE), "os-bye").claims
    forged = read_bye(cose.sign(OTHER_DEVICE, "os-bye", claims), site="site-1")
    assert refused(forged.verified, DEVICE.public) == "bad_signature"


def read_own_bye(body: bytes) -> object:
    read_bye(body, site="site-1").verified(DEVICE.public)
    return None


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (ok_body(), read_ok),
        (roll_call_body(), read_roll_call),
        (sign_bye(DEVICE, site="site-1", nonce=NONCE), read_own_bye),
    ],
)
def test_whatever_bit_of_a_word_is_turned_over_it_is_refused(body: bytes, read: Callable[[bytes], object]) -> None:
    assert "bad_signature" in reasons_of_flips(body, read)


def test_no_word_is_taken_for_another() -> None:
    assert refused(read_ok, roll_call_body()) == "wrong_kind"
    assert refused(read_roll_call, ok_body()) == "wrong_kind"
    assert refused(read_bye, opening().body, site="site-1") == "wrong_kind"


# --- any bytes -----------------------------------------------------------------------------------------------------


def read_opened(body: bytes) -> object:
    return read_session(body, site="site-1").opened(DEVICE.public, PREKEY, 0.0)


READERS: dict[str, tuple[SigningKey, Callable[[bytes], object]]] = {
    sessions.PREKEY_TYP: (SITE, read_prekey),
    sessions.OPENING_TYP: (DEVICE, read_opened),
    sessions.OK_TYP: (SITE, read_ok),
    sessions.ROLL_CALL_TYP: (SITE, read_roll_call),
    sessions.BYE_TYP: (DEVICE, read_own_bye),
}


@given(st.sampled_from(sorted(READERS)), st.binary(max_size=300))
def test_any_bytes_are_refused(typ: str, body: bytes) -> None:
    assert refused(READERS[typ][1], body)


@given(
    st.sampled_from(sorted(READERS)),
    any_claims(
        [c.SUB, c.AUD, c.IAT, c.EXP, c.KEM, c.INSTANCE, c.NONCE, c.VER, c.EPOCH, c.MARKS, c.PREKEY, c.SID, c.CT]
    ),
)
def test_any_claims_under_a_good_signature_are_read_or_refused(typ: str, claims: dict[int, Any]) -> None:
    key, read = READERS[typ]
    refused_or_read(read, cose.sign(key, typ, claims))
