"""device_agent/trust/signed_job.py: who ordered it, for whom, until when; no part of it has another use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.trust import claims as c
from device_agent.trust import codec, cose, signed_job
from device_agent.trust.deliveries import job_delivery
from device_agent.trust.keys import KemKey, SigningKey, did_text
from device_agent.trust.notices import BITS_BYTES
from device_agent.trust.sealed_claims import header_bytes
from device_agent.trust.signed_job import (
    FUTURE_SECONDS,
    JOB_SKEW,
    JobHeader,
    Order,
    SealedJob,
    check_times,
    open_group,
    open_single,
    read_job,
    seal_for_device,
    seal_for_group,
)
from tests.peers.flips import any_claims, reasons_of_flips, refused_or_read

MASTER = SigningKey(b"\x01" * 32)
OTHER_MASTER = SigningKey(b"\x02" * 32)
DEVICE = SigningKey(b"\x03" * 32)
KEM = KemKey(b"\x04" * 32)
GROUP_KEY = b"\x05" * 32
SALT = b"\x06" * 16
NOW = 1_800_000_000
GROUP = JobHeader(
    sub="all",
    site="site-1",
    issued=NOW,
    expires=NOW + 300,
    jid="20261121192200000000",
    seq=NOW * 1000,
    tgt="cam-*",
    run_limit=12.5,
    epoch=3,
    salt=SALT,
)
SINGLE = replace(GROUP, sub=did_text(DEVICE.did), epoch=None, salt=None, late="run", tgt_type="list")
ORDER = Order(
    fun="test.echo", arg=["a", -1, 2.5, None, {"k": [True, b"\0"]}], kwarg={"b": 2**64 - 1}, user="ann", why="x"
)
LABELS = (c.SUB, c.AUD, c.IAT, c.EXP, c.CTI, c.SEQ, c.TGT, c.TGT_TYPE, c.LATE, c.RUN_LIMIT, c.EPOCH, c.SALT, c.CT)


def group_job(**changes: Any) -> bytes:
    return seal_for_group(MASTER, replace(GROUP, **changes), ORDER, GROUP_KEY, SALT)


def single_job(**changes: Any) -> bytes:
    return seal_for_device(MASTER, replace(SINGLE, **changes), ORDER, KEM.public)


def opened_by_group(body: bytes, signer: SigningKey = MASTER) -> Order:
    return open_group(read_job(body).verified(signer.public), GROUP_KEY)


def opened_by_device(body: bytes, signer: SigningKey = MASTER) -> Order:
    return open_single(read_job(body).verified(signer.public), KEM)


def signed_again(signer: SigningKey, body: bytes, **changes: Any) -> bytes:
    """The same claims, some of them changed, signed by somebody else or once more."""
    labels = {name: label for label, name in c.NAMES.items()}
    claims = dict(cose.read(body, "os-job").claims)
    for name, value in changes.items():
        claims[labels[name]] = value
    return cose.sign(signer, "os-job", claims)


def refused(call: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments, **named)
    return caught.value.reason


def test_a_group_reads_what_its_master_sealed() -> None:
    job = read_job(group_job())
    assert (job.header, job.kid) == (GROUP, MASTER.kid)
    assert open_group(job.verified(MASTER.public), GROUP_KEY) == ORDER


def test_a_device_reads_what_was_sealed_to_it() -> None:
    job = read_job(single_job())
    assert (job.header, job.kid) == (SINGLE, MASTER.kid)
    assert open_single(job.verified(MASTER.public), KEM) == ORDER


def test_whatever_bit_of_a_job_is_turned_over_it_is_refused() -> None:
    assert "bad_signature" in reasons_of_flips(group_job(), opened_by_group)
    assert "bad_signature" in reasons_of_flips(single_job(), opened_by_device)


def test_the_seal_binds_the_header_bytes_as_they_were_received() -> None:
    body = group_job()
    payload = codec.decode(body[1:])[2]
    sealed = read_job(body).verified(MASTER.public)
    assert payload == sealed.ad + codec.encode(c.CT) + codec.encode(sealed.ct)


@pytest.mark.parametrize("seal", [group_job, single_job])
def test_a_second_signer_cannot_adopt_a_sealed_order(seal: Any) -> None:
    opened = opened_by_group if seal is group_job else opened_by_device
    adopted = signed_again(OTHER_MASTER, seal())
    assert read_job(adopted).verified(OTHER_MASTER.public).header == read_job(seal()).header
    assert refused(opened, adopted, OTHER_MASTER) == "not_sealed_to_us"


@pytest.mark.parametrize(
    "changes",
    [{"aud": "site-2"}, {"exp": NOW + 301}, {"seq": NOW * 1000 + 1}, {"tgt": "*"}, {"cti": b"20261121192200000001"}],
)
def test_an_order_does_not_open_under_another_header_of_the_same_signer(changes: dict[str, Any]) -> None:
    assert refused(opened_by_group, signed_again(MASTER, group_job(), **changes)) == "not_sealed_to_us"
    assert refused(opened_by_device, signed_again(MASTER, single_job(), **changes)) == "not_sealed_to_us"


def test_a_device_that_knows_the_group_key_can_forge_nothing() -> None:
    forged = seal_for_group(DEVICE, GROUP, ORDER, GROUP_KEY, SALT)
    assert read_job(forged).kid == DEVICE.kid
    assert refused(opened_by_group, forged) == "bad_signature"


def test_a_group_key_of_another_epoch_opens_nothing() -> None:
    sealed = read_job(group_job()).verified(MASTER.public)
    assert refused(open_group, sealed, b"\x07" * 32) == "not_sealed_to_us"


def test_a_job_for_one_device_is_shut_to_another_and_to_the_group() -> None:
    sealed = read_job(single_job()).verified(MASTER.public)
    assert refused(open_single, sealed, KemKey(b"\x08" * 32)) == "not_sealed_to_us"
    assert refused(open_group, sealed, GROUP_KEY) == "wrong_seal"
    assert refused(open_single, read_job(group_job()).verified(MASTER.public), KEM) == "wrong_seal"


def test_a_sealed_claim_that_is_not_the_last_is_refused_although_it_is_signed() -> None:
    claims = cose.read(group_job(), "os-job").claims
    turned = {c.CT: claims[c.CT], **{label: value for label, value in claims.items() if label != c.CT}}
    assert refused(read_job, cose.sign(MASTER, "os-job", turned)) == "malformed"


def test_a_last_claim_that_ends_like_a_sealed_one_is_not_taken_for_it() -> None:
    claims = cose.read(group_job(), "os-job").claims
    lookalike = codec.encode(c.CT) + codec.encode(bytes(10))
    turned = {c.CT: bytes(10), **{label: value for label, value in claims.items() if label not in {c.CT, c.SALT}}}
    assert refused(read_job, cose.sign(MASTER, "os-job", {**turned, c.SALT: lookalike})) == "malformed"


def test_a_fresh_salt_seals_the_same_order_under_another_key() -> None:
    again = seal_for_group(MASTER, GROUP, ORDER, GROUP_KEY, b"\x09" * 16)
    sealed = read_job(again).verified(MASTER.public)
    assert open_group(sealed, GROUP_KEY) == ORDER
    moved = SealedJob(replace(sealed.header, salt=SALT), sealed.kid, sealed.ad, sealed.ct)
    assert refused(open_group, moved, GROUP_KEY) == "not_sealed_to_us"


@pytest.mark.parametrize(
    "changes",
    [
        {"sub": "cam-1"},
        {"sub": did_text(DEVICE.did)},
        {"aud": "a site"},
        {"cti": b"2026112119220000000x"},
        {"cti": b"2026112119220000000"},
        {"seq": 2**64},
        {"seq": -1},
        {"tgt": ""},
        {"tgt": "x" * (limits.TARGET_CHARACTERS + 1)},
        {"tgt_type": "colour"},
        {"late": "maybe"},
        {"run_limit": 0},
        {"run_limit": 86_400_001},
        {"run_limit": 1.5},
        {"exp": NOW - 1},
        {"exp": NOW + 31 * 86_400},
        {"epoch": 2**32},
        {"epoch": True},
        {"salt": bytes(15)},
        {"nonce": bytes(16)},
    ],
)
def test_a_header_out_of_bounds_is_refused_before_anything_else(changes: dict[str, Any]) -> None:
    reason = refused(read_job, signed_again(MASTER, group_job(), **changes))
    assert reason in {"claim_invalid", "claim_unknown", "bad_identity", "malformed"}


@pytest.mark.parametrize("missing", LABELS)
def test_no_claim_of_a_group_job_may_be_missing(missing: int) -> None:
    claims = {label: value for label, value in cose.read(group_job(), "os-job").claims.items() if label != missing}
    assert refused(read_job, cose.sign(MASTER, "os-job", claims)) in {"claim_missing", "claim_invalid"}


@pytest.mark.parametrize(
    "changes", [{"jid": "1"}, {"site": ""}, {"tgt": ""}, {"expires": NOW - 1}, {"run_limit": 1e6}, {"epoch": None}]
)
def test_nobody_signs_a_job_that_nobody_would_read(changes: dict[str, Any]) -> None:
    assert refused(group_job, **changes) == "claim_invalid"


def test_a_job_of_the_longest_life_may_be_rounded_apart() -> None:
    longest = int(limits.JOB_EXPIRY_MAX_SECONDS)
    assert read_job(group_job(expires=NOW + longest + 1)).header.issued == NOW


def test_the_longest_target_fits_into_a_message_with_a_bitmap_of_every_device() -> None:
    body = group_job(tgt="x" * limits.TARGET_CHARACTERS)
    assert len(job_delivery(body, 300.0, bytes(BITS_BYTES))) <= limits.MESSAGE_BYTES


def test_a_job_that_would_leave_no_room_for_its_bitmap_is_not_signed() -> None:
    order = replace(ORDER, arg=["x" * (limits.MESSAGE_BYTES - 4096)])
    assert refused(seal_for_group, MASTER, GROUP, order, GROUP_KEY, SALT) == "oversized"


def raw_order(plaintext: bytes) -> bytes:
    """A job of a hostile master: any bytes under a signature and a seal that hold."""
    cipher, nonce = signed_job._group_cipher(GROUP_KEY, SALT)
    claims = signed_job._to_claims(GROUP)
    ct = cipher.encrypt(nonce, plaintext, MASTER.kid + header_bytes(claims))
    return cose.sign(MASTER, "os-job", {**claims, c.CT: ct})


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


ABOUT = {"user": "ann", "why": ""}


@pytest.mark.parametrize(
    "order",
    [
        [],
        ["test.echo", [], {}],
        ["test.echo", [], {}, {"user": "ann"}],
        ["test.echo", [], {}, {"user": "a" * 129, "why": ""}],
        ["test.echo", [], {}, {"user": "ann", "why": "w" * 4097}],
        ["test.echo", [], {}, {"user": b"ann", "why": ""}],
        ["os.system; x", [], {}, ABOUT],
        ["test.echo\n", [], {}, ABOUT],
        [1, [], {}, ABOUT],
        ["test.echo", {}, {}, ABOUT],
        ["test.echo", [], [], ABOUT],
        ["test.echo", [0] * 257, {}, ABOUT],
        ["test.echo", [], {1: 2}, ABOUT],
        ["test.echo", [{1: 2}], {}, ABOUT],
        ["test.echo", [2**64], {}, ABOUT],
        ["test.echo", [], {"a": [-(2**63) - 1]}, ABOUT],
        ["test.echo", nested(17), {}, ABOUT],
        ["test.echo", nested(40), {}, ABOUT],
    ],
)
def test_an_order_that_is_not_plain_is_refused(order: Any) -> None:
    assert refused(opened_by_group, raw_order(codec.encode(order))) in {"malformed", "wrong_type", "too_deep"}


def test_arguments_as_deep_as_a_value_may_be_pass() -> None:
    deep = replace(ORDER, arg=nested(limits.VALUE_DEPTH))
    assert opened_by_group(seal_for_group(MASTER, GROUP, deep, GROUP_KEY, SALT)) == deep


@given(st.binary(max_size=200))
def test_any_plaintext_of_a_hostile_master_is_an_order_or_refused(plaintext: bytes) -> None:
    refused_or_read(opened_by_group, raw_order(plaintext))


@given(st.binary(max_size=400))
def test_any_bytes_are_refused(body: bytes) -> None:
    assert refused(read_job, body)


@given(any_claims(LABELS))
def test_any_claims_under_a_good_signature_are_read_or_refused(claims: dict[int, Any]) -> None:
    refused_or_read(opened_by_group, cose.sign(MASTER, "os-job", claims))
    refused_or_read(opened_by_device, cose.sign(MASTER, "os-job", {**claims, c.CT: b""}))


def test_a_job_is_taken_for_two_minutes_past_its_expiry_and_no_longer() -> None:
    check_times(GROUP, GROUP.expires + JOB_SKEW)
    assert refused(check_times, GROUP, GROUP.expires + JOB_SKEW + 1) == "expired"


def test_a_job_from_tomorrow_is_taken_and_one_from_the_day_after_is_not() -> None:
    check_times(GROUP, NOW - FUTURE_SECONDS)
    assert refused(check_times, GROUP, NOW - FUTURE_SECONDS - 1) == "issued_in_future"


def test_against_a_floor_alone_a_job_may_come_from_any_later_time() -> None:
    check_times(GROUP, NOW - 400 * 86_400, exact=False)
    assert refused(check_times, GROUP, GROUP.expires + 121, exact=False) == "expired"


def test_the_folders_of_an_order_travel_sealed_and_are_bounded() -> None:
    order = replace(ORDER, folders=("/var/log", "/srv/site"))
    body = seal_for_group(MASTER, GROUP, order, GROUP_KEY, SALT)
    assert opened_by_group(body) == order
    for folders in (("var",), ("/" + "x" * 256,), ("/x",) * 65, (1,)):
        wrong = replace(ORDER, folders=folders)  # type: ignore[arg-type]  # what no station of this release sends
        assert refused(seal_for_group, MASTER, GROUP, wrong, GROUP_KEY, SALT) == "wrong_type"
