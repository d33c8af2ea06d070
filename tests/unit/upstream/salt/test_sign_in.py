"""upstream/salt/sign_in.py."""

from __future__ import annotations

import base64
import contextlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from tests.peers.refusals import reason
from tests.peers.salt_double import Bend, SaltDouble, public_pem, rsa_key
from upstream.salt import wire
from upstream.salt.box import new_nonce
from upstream.salt.rsa_keys import GatewayKey, MasterKey, file_fingerprint, fingerprint
from upstream.salt.sign_in import Full, NotVouched, OtherKey, Pending, Rejected, Session, SignIn
from upstream.salt.terms import EncryptionAlgorithm, SaltRules, SigningAlgorithm

RULES = SaltRules(id="gw-1")


VOUCHED = replace(RULES, verify_master_pubkey_sign=True)
SIGNING = MasterKey(public_pem(rsa_key("signing")))


def sign_in(master: SaltDouble | None = None, rules: SaltRules = RULES, signing: MasterKey | None = SIGNING) -> SignIn:
    known = MasterKey(master.pem) if master is not None else None
    return SignIn(rules, GatewayKey(rsa_key("gateway")), known, new_nonce(), signing)


def vouched_for(name: str, by: str = "signing") -> SaltDouble:
    """A master whose key somebody has signed."""
    master = SaltDouble(name)
    master.signing = rsa_key(by)
    return master


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("enc", ["OAEP-SHA224", "OAEP-SHA1"])
@pytest.mark.parametrize("sig", ["PKCS1v15-SHA224", "PKCS1v15-SHA1"])
def test_let_in(pinned: bool, enc: EncryptionAlgorithm, sig: SigningAlgorithm) -> None:
    master = SaltDouble()
    ours = sign_in(master if pinned else None, replace(RULES, encryption_algorithm=enc, signing_algorithm=sig))
    came = ours.outcome(master.accepts(ours.request()))
    assert isinstance(came, Session)
    assert (came.aes.key, came.box.key) == (master.aes.key, master.session.key)
    assert (came.publish_port, came.master.pem) == (4505, master.pem)


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize(("ret", "kind"), [(True, Pending), (False, Rejected), ("full", Full)])
def test_not_let_in(pinned: bool, ret: object, kind: type) -> None:
    master = SaltDouble()
    ours = sign_in(master if pinned else None)
    assert isinstance(ours.outcome(master.says(ours.request(), ret)), kind)


def test_nobody_but_the_master_says_that_a_key_is_rejected() -> None:
    ours = sign_in(SaltDouble())
    assert reason(ours.outcome, SaltDouble("other").says(ours.request(), False)) == "bad_signature"


def test_an_answer_to_another_sign_in() -> None:
    master = SaltDouble()
    earlier, now = sign_in(master), sign_in(master)
    assert reason(now.outcome, master.says(earlier.request(), True)) == "wrong_nonce"
    assert reason(now.outcome, master.accepts(earlier.request())) == "wrong_nonce"


def test_a_changed_key_is_refused_and_shown() -> None:
    ours, other = sign_in(SaltDouble()), SaltDouble("other")
    with pytest.raises(OtherKey) as refused:
        ours.outcome(other.accepts(ours.request()))
    assert refused.value.reason == "master_key_changed"
    assert refused.value.pem == other.pem
    for double in (SaltDouble(), other):
        assert file_fingerprint(double.pem) in refused.value.detail, "as Salt 3008 prints it"
        assert fingerprint(double.pem) in refused.value.detail, "as Salt 3006 and 3007 print it"


@pytest.mark.parametrize("pinned", [True, False])
def test_a_fingerprint_decides_whether_a_key_is_kept_or_not(pinned: bool) -> None:
    master, other = SaltDouble(), SaltDouble("other")
    rules = replace(RULES, master_finger=("00:" * 31 + "00", fingerprint(master.pem)))
    ours = sign_in(master if pinned else None, rules)
    assert isinstance(ours.outcome(master.accepts(ours.request())), Session)
    theirs = sign_in(other if pinned else None, rules)
    with pytest.raises(OtherKey) as refused:
        theirs.outcome(other.accepts(theirs.request()))
    assert (refused.value.reason, refused.value.by_settings) == ("master_key_changed", True)


@pytest.mark.parametrize("known", [None, SaltDouble()])
def test_a_key_that_the_signing_key_vouches_for_is_believed(known: SaltDouble | None) -> None:
    other = vouched_for("other")
    ours = sign_in(known, VOUCHED)
    came = ours.outcome(other.accepts(ours.request()))
    assert isinstance(came, Session)
    assert came.master.pem == other.pem


@pytest.mark.parametrize("known", [None, SaltDouble()])
@pytest.mark.parametrize(
    ("bend", "signing", "words"),
    [
        (lambda body: body.pop("pub_sig"), SIGNING, "no signature"),
        (lambda body: body.update(pub_sig=7), SIGNING, "no signature"),
        (lambda body: body.update(pub_sig=b"\xff"), SIGNING, "another key"),
        (lambda body: body.update(pub_sig=base64.b64encode(bytes(256))), SIGNING, "another key"),
        (lambda body: body.update(pub_sig=b""), SIGNING, "another key"),
        (lambda body: None, MasterKey(SaltDouble("other").pem), "another key"),
        (lambda body: None, None, "no key here"),
    ],
)
def test_a_key_that_nobody_vouches_for_is_refused_in_words(
    known: SaltDouble | None, bend: Bend, signing: MasterKey | None, words: str
) -> None:
    other = vouched_for("other")
    ours = sign_in(known, VOUCHED, signing)
    with pytest.raises(NotVouched) as refused:
        ours.outcome(other.accepts(ours.request(), bend))
    assert refused.value.reason == "master_key_not_vouched"
    assert words in refused.value.detail
    for form in (file_fingerprint, fingerprint):
        assert form(other.pem) in refused.value.detail
        assert words != "another key" or form((signing or SIGNING).pem) in refused.value.detail


def test_the_signature_of_one_key_vouches_for_no_other() -> None:
    known, honest, evil = SaltDouble(), vouched_for("other"), SaltDouble("evil")
    seen = dict[str, Any]()
    ours = sign_in(known, VOUCHED)
    honest.accepts(ours.request(), seen.update)
    with pytest.raises(NotVouched):
        ours.outcome(evil.accepts(ours.request(), with_field("pub_sig", seen["pub_sig"])))
    # Who shows an honest key with its signature must have that key as well.
    stolen = {"pub_key": honest.pem, "pub_sig": seen["pub_sig"]}
    assert reason(ours.outcome, evil.accepts(ours.request(), lambda body: body.update(stolen))) == "bad_signature"


def test_a_known_key_needs_a_signature_only_where_the_settings_say_so() -> None:
    master = SaltDouble()
    ours = sign_in(master, VOUCHED, None)
    assert isinstance(ours.outcome(master.accepts(ours.request())), Session)
    always = sign_in(master, replace(VOUCHED, always_verify_signature=True))
    assert reason(always.outcome, master.accepts(always.request())) == "master_key_not_vouched"
    assert isinstance(always.outcome(vouched_for("master").accepts(always.request())), Session)


@pytest.mark.parametrize("between", ["", " ", "\x0b", "\t"])
def test_no_other_key_stands_beside_the_lines_that_have_the_fingerprint(between: str) -> None:
    master, evil = SaltDouble(), SaltDouble("evil")
    first = evil.pem.replace("\n", between)
    rules = replace(RULES, master_finger=(fingerprint(master.pem),))
    for text in (
        "\n".join([first, *master.pem.split("\n")[1:]]),
        f"{first}\n{master.pem}",
        f"{evil.pem}\n{master.pem}",
    ):
        ours = sign_in(None, rules)
        assert reason(ours.outcome, evil.accepts(ours.request(), with_field("pub_key", text))) == "malformed"


def test_a_fingerprint_counts_for_a_key_that_is_vouched_for_too() -> None:
    master, other = SaltDouble(), vouched_for("other")
    ours = sign_in(master, replace(VOUCHED, master_finger=(fingerprint(master.pem),)))
    assert reason(ours.outcome, other.accepts(ours.request())) == "master_key_changed"


def test_nothing_vouches_for_a_key_where_the_settings_do_not_say_so() -> None:
    ours = sign_in(SaltDouble())
    assert reason(ours.outcome, vouched_for("other").accepts(ours.request())) == "master_key_changed"


def without(name: str) -> Bend:
    return lambda body: body.pop(name)


def with_field(name: str, value: object) -> Bend:
    return lambda body: body.update({name: value})


def swapped(body: dict[str, Any]) -> None:
    """The key for publishes is one that the master encrypted for us, and did not sign."""
    body["aes"], body["session"] = body["session"], body["aes"]


@pytest.mark.parametrize(
    ("bend", "why"),
    [
        (without("pub_key"), "malformed"),
        (without("aes"), "malformed"),
        (without("session"), "old_master"),
        (without("sig"), "malformed"),
        (without("nonce"), "wrong_nonce"),
        (without("publish_port"), "malformed"),
        (with_field("publish_port", 0), "malformed"),
        (with_field("publish_port", True), "malformed"),
        (with_field("publish_port", "4505"), "malformed"),
        (with_field("aes", b"x" * 256), "not_for_us"),
        (with_field("aes", 7), "malformed"),
        (with_field("session", []), "malformed"),
        (with_field("sig", b"x" * 256), "bad_signature"),
        (with_field("nonce", "0" * 32), "wrong_nonce"),
        (with_field("nonce", {}), "wrong_nonce"),
        (with_field("pub_key", b"\xff"), "malformed"),
        (with_field("pub_key", "garbage"), "malformed"),
        (with_field("ret", 7), "malformed"),
        (swapped, "bad_signature"),
    ],
)
def test_each_check_fails_closed(bend: Bend, why: str) -> None:
    master = SaltDouble()
    ours = sign_in(master)
    assert reason(ours.outcome, master.accepts(ours.request(), bend)) == why


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"", "malformed"),
        (b"\xc1", "malformed"),
        (b"\x91" * 1000, "too_deep"),
        (b"\x00" * 100_000, "too_large"),
        (wire.pack({"enc": [0] * 20}), "too_large"),
        (wire.pack({"load": wire.pack([0] * 80), "sig": b""}), "too_large"),
        (wire.pack("bad load"), "sign_in_refused"),
        (wire.pack([]), "sign_in_refused"),
        (wire.pack(None), "sign_in_refused"),
        (wire.pack({"enc": "clear", "load": {"ret": "bad enc algo"}}), "sign_in_refused"),
        (wire.pack({"enc": "clear", "load": {"ret": True, "nonce": "x"}}), "sign_in_refused"),
        (wire.pack({}), "malformed"),
        (wire.pack({"load": b"x"}), "malformed"),
        (wire.pack({"load": b"x", "sig": 7}), "malformed"),
        (wire.pack({"load": wire.pack([]), "sig": b"x"}), "malformed"),
    ],
)
def test_what_is_no_answer_is_refused(reply: bytes, why: str) -> None:
    assert reason(sign_in(SaltDouble()).outcome, reply) == why


def test_one_changed_byte_of_what_is_signed() -> None:
    master = SaltDouble()
    ours = sign_in(master)
    reply = wire.unpack(master.accepts(ours.request()))
    load = bytearray(reply[b"load"])
    load[-1] ^= 1
    assert reason(ours.outcome, wire.pack({"load": bytes(load), "sig": reply[b"sig"]})) in {
        "bad_signature",
        "malformed",
    }
    assert reason(ours.outcome, wire.pack({"load": reply[b"load"], "sig": b"x" * 256})) == "bad_signature"


@given(
    st.dictionaries(st.sampled_from(["load", "sig", "enc", "ret"]), st.binary(max_size=40) | st.integers() | st.none())
)
def test_any_answer_is_refused(reply: dict[str, object]) -> None:
    with contextlib.suppress(Refused):
        raise AssertionError(sign_in().outcome(wire.pack(reply)))
