"""device_agent/trust/notices.py and deliveries.py: what a station tells all its devices, and the hints beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.trust import claims as c
from device_agent.trust import codec, cose, notices
from device_agent.trust.deliveries import CancelDelivery, JobDelivery, cancel_delivery, job_delivery, read_delivery
from device_agent.trust.keys import SigningKey
from device_agent.trust.notices import (
    BITS_BYTES,
    LISTED,
    Acknowledged,
    Bundle,
    Cancelled,
    bundle,
    open_ack,
    open_ack_for,
    open_cancel,
    read_bundle,
    sign_ack,
    sign_cancel,
)
from tests.peers.flips import any_claims, flipped, reasons_of_flips, refused_or_read

SITE = SigningKey(b"\x01" * 32)
NOW = 1_800_000_000
JID = "20261121192200000000"


def find(kid: bytes) -> bytes:
    if kid != SITE.kid:
        raise Refused("unknown_issuer", kid.hex())
    return SITE.public


def read_cancel(body: bytes) -> Cancelled:
    return open_cancel(body, find, site="lisbon")


def read_ack(body: bytes) -> Acknowledged:
    return open_ack(body, find, site="lisbon")


def ack(**changes: Any) -> bytes:
    return sign_ack(SITE, **{"site": "lisbon", "jids": [JID], "bitmap": b"\x80", "issued": NOW, **changes})


def test_a_device_whose_bit_is_clear_does_not_look_further() -> None:
    other = SigningKey(b"\x02" * 32)
    forged = sign_ack(other, site="lisbon", jids=[JID], bitmap=b"\x80", issued=NOW)
    assert open_ack_for(6, ack(), find, site="lisbon") is None
    assert open_ack_for(6, forged, find, site="lisbon") is None
    assert open_ack_for(7, ack(), find, site="lisbon") == read_ack(ack())
    assert refused(open_ack_for, 7, forged, find, site="lisbon") == "unknown_issuer"


CANCEL = sign_cancel(SITE, site="lisbon", jid=JID, issued=NOW)


def refused(call: Callable[..., object], *arguments: object, **named: object) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments, **named)
    return caught.value.reason


def test_a_cancelled_job_is_named_by_its_site() -> None:
    assert read_cancel(CANCEL) == Cancelled(JID, NOW, SITE.kid)
    assert refused(read_cancel, sign_cancel(SITE, site="porto", jid=JID, issued=NOW)) == "wrong_site"
    assert refused(sign_cancel, SITE, site="lisbon", jid="1", issued=NOW) == "claim_invalid"


def test_returns_on_disk_are_named_by_their_site() -> None:
    assert read_ack(ack()) == Acknowledged((JID,), b"\x80", NOW, SITE.kid)
    assert refused(read_ack, ack(site="porto")) == "wrong_site"


def test_a_device_cannot_make_another_drop_its_outbox() -> None:
    device = SigningKey(b"\x02" * 32)
    forged = sign_ack(device, site="lisbon", jids=[JID], bitmap=b"\xff", issued=NOW)
    assert refused(read_ack, forged) == "unknown_issuer"


def test_the_longest_confirmation_fits_and_a_longer_one_is_not_signed() -> None:
    most = [f"{number:020d}" for number in range(limits.OPEN_JOBS)]
    body = ack(jids=most, bitmap=bytes(BITS_BYTES))
    assert len(read_ack(body).jids) == limits.OPEN_JOBS
    assert len(body) <= limits.MESSAGE_BYTES
    assert refused(ack, jids=[*most, JID]) == "claim_invalid"
    assert refused(ack, bitmap=bytes(BITS_BYTES + 1)) == "claim_invalid"


def test_no_notice_is_taken_for_another() -> None:
    assert refused(read_ack, CANCEL) == "wrong_kind"
    assert refused(read_cancel, ack()) == "wrong_kind"


@pytest.mark.parametrize(("body", "read"), [(CANCEL, read_cancel), (ack(), read_ack)])
def test_whatever_bit_is_turned_over_it_is_refused(body: bytes, read: Callable[[bytes], object]) -> None:
    assert "bad_signature" in reasons_of_flips(body, read)


READERS: dict[str, Callable[[bytes], object]] = {notices.CANCEL_TYP: read_cancel, notices.ACK_TYP: read_ack}


@given(st.sampled_from(sorted(READERS)), any_claims([c.AUD, c.IAT, c.CTI, c.JIDS, c.BITS]))
def test_any_claims_under_a_good_signature_are_read_or_refused(typ: str, claims: dict[int, Any]) -> None:
    refused_or_read(READERS[typ], cose.sign(SITE, typ, claims))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_read(body: bytes) -> None:
    assert refused(read_cancel, body)
    assert refused(read_ack, body)
    refused_or_read(read_bundle, body)
    refused_or_read(read_delivery, body)


# --- the bundle ----------------------------------------------------------------------------------------------------


def test_a_bundle_is_read_as_it_was_put_together() -> None:
    body = bundle([b"root 1", b"root 2"], [b"site"], b"prekey", [])
    assert read_bundle(body) == Bundle([b"root 1", b"root 2"], [b"site"], b"prekey", [])


@pytest.mark.parametrize(
    "parts", [1, [], [[], [], b""], [[], [], "", []], [[1], [], b"", []], [b"", [], b"", []], [[b""] * 65, [], b"", []]]
)
def test_a_bundle_of_other_parts_is_refused(parts: Any) -> None:
    assert refused(read_bundle, codec.encode(parts)) == "malformed"


def test_a_bundle_that_no_device_would_take_is_not_made() -> None:
    assert refused(bundle, [b""] * (LISTED + 1), [], b"", []) == "malformed"
    assert refused(bundle, [bytes(limits.MESSAGE_BYTES)], [], b"", []) == "oversized"


def test_whatever_bit_of_a_bundle_is_turned_over_nothing_but_a_refusal_is_raised() -> None:
    for body in flipped(bundle([b"root"], [b"site"], b"prekey", [b"revoked"])):
        refused_or_read(read_bundle, body)


# --- deliveries ----------------------------------------------------------------------------------------------------


def test_a_job_and_a_cancellation_are_told_apart_on_their_topic() -> None:
    assert read_delivery(job_delivery(b"job", 12.5, b"\x80")) == JobDelivery(b"job", 12.5, b"\x80")
    assert read_delivery(job_delivery(b"job", 12.5, None)) == JobDelivery(b"job", 12.5, None)
    assert read_delivery(cancel_delivery(b"cancel", None)) == CancelDelivery(b"cancel", None)


def test_a_job_whose_time_is_over_has_none_left() -> None:
    assert read_delivery(job_delivery(b"job", -3.0, None)) == JobDelivery(b"job", 0.0, None)


@pytest.mark.parametrize(
    "parts",
    [
        b"",
        [],
        [b""],
        ["", None],
        [b"", 1, None, None],
        [b"", -1, None],
        [b"", 1.5, None],
        [b"", 2**40, None],
        [b"", True, None],
        [b"", 1, bytes(BITS_BYTES + 1)],
        [b"", "x"],
    ],
)
def test_a_delivery_of_other_parts_is_refused(parts: Any) -> None:
    assert refused(read_delivery, codec.encode(parts)) == "malformed"


def test_whatever_bit_of_a_delivery_is_turned_over_nothing_but_a_refusal_is_raised() -> None:
    for body in flipped(job_delivery(b"a job", 300.0, b"\xff\x01")):
        refused_or_read(read_delivery, body)
