"""device_agent/trust/join_answer.py: a device belongs to a site when everything holds, judged in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.trust import claims as c
from device_agent.trust import codec, cose, hpke, join, join_answer
from device_agent.trust.join import JoinRequest, Request, read_request, response_tag
from device_agent.trust.join_answer import STATES, Accepted, NotYet, Terms, accept, open_response, refuse
from device_agent.trust.keys import SigningKey
from tests.peers.fleet import SITE, Fleet, kem_key, party, signing_key
from tests.peers.flips import any_claims, reasons_of_flips, refused_or_read

FLEET = Fleet()
CAMERA = FLEET.device("cam-1")
TOKEN = (b"\x06" * 8, b"\x07" * 16)
TERMS = Terms(
    issued=FLEET.now + 5,
    epoch=3,
    group_key=b"\x05" * 32,
    index=7,
    password="secret",
    port=8883,
    authority=b"\x08" * 32,
    tls_port=8884,
)


def request(token: tuple[bytes, bytes] | None = None, nonce: bytes = b"\x09" * 16) -> Request:
    return join.request(CAMERA.key, CAMERA.kem.public, nonce=nonce, serial="SN-1", model="P3245", token=token)


REQUEST = request()
WITH_TOKEN = request(TOKEN)


def accepting(
    own: Request = REQUEST,
    *,
    signer: SigningKey = FLEET.site.key,
    secret: bytes | None = None,
    claimed: JoinRequest | None = None,
    **changes: Any,
) -> bytes:
    fields = {
        "root_lists": FLEET.chain,
        "site_certificate": FLEET.site_certificate,
        "device_certificate": CAMERA.certificate,
        "site": SITE,
        "terms": TERMS,
    }
    return accept(signer, claimed or read_request(own.payload), secret=secret, **{**fields, **changes})


def judged(payload: bytes, own: Request = REQUEST, **changes: Any) -> Accepted | NotYet:
    fields = {"site": SITE, "pinned": FLEET.fingerprint, "floor": float(FLEET.now), **changes}
    return open_response(payload, own, CAMERA.kem, **fields)


def accepted(payload: bytes, own: Request = REQUEST, **changes: Any) -> Accepted:
    answer = judged(payload, own, **changes)
    assert isinstance(answer, Accepted)
    return answer


def refused(call: Callable[..., object], *arguments: object, **named: object) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments, **named)
    return caught.value.reason


def resealed(parts: Sequence[Any], own: Request = REQUEST) -> bytes:
    """What somebody else than a station might seal to a device: anybody can, the key is public."""
    return codec.encode([hpke.seal(own.kem, join_answer._info(own.body), codec.encode(list(parts))), b""])


def parts_of(payload: bytes, own: Request = REQUEST) -> list[Any]:
    parts: list[Any] = codec.decode(hpke.open_sealed(CAMERA.kem, join_answer._info(own.body), codec.decode(payload)[0]))
    return parts


def test_an_accepted_device_knows_its_fleet_its_site_itself_and_the_terms() -> None:
    answer = accepted(accepting())
    assert answer.terms == TERMS
    assert answer.root_lists == FLEET.chain
    assert (answer.site.site, answer.certificate.name) == (SITE, "cam-1")
    assert answer.anchor.issuer(FLEET.site.kid, "job", SITE, FLEET.now).kind == "site"


def test_a_site_without_tls_says_nothing_of_it() -> None:
    plain = replace(TERMS, authority=None, tls_port=None)
    assert accepted(accepting(terms=plain)).terms == plain


def test_a_device_certificate_of_a_master_counts_as_well() -> None:
    certificate = FLEET.device("cam-1", issuer=FLEET.b).certificate
    assert accepted(accepting(device_certificate=certificate)).certificate.issuer == FLEET.b.kid


def test_a_device_that_knows_no_site_yet_takes_the_one_that_accepts_it() -> None:
    assert accepted(accepting(), site=None).site.site == SITE


def test_an_older_pin_is_followed_to_the_newest_root_list() -> None:
    fleet = Fleet()
    pinned = fleet.fingerprint
    fresh = [signing_key(f"later root {number}") for number in range(3)]
    fleet.next_root(keys=[*fleet.roots[:2], *fresh[:2]], roots=tuple(root.public for root in fresh))
    answer = accepted(accepting(root_lists=fleet.chain), pinned=pinned)
    assert answer.root.version == 2


# --- the order -----------------------------------------------------------------------------------------------------


def test_a_rogue_station_that_does_not_know_the_token_is_refused() -> None:
    assert refused(judged, accepting(WITH_TOKEN), WITH_TOKEN) == "bad_tag"
    assert refused(judged, accepting(WITH_TOKEN, secret=b"\x01" * 16), WITH_TOKEN) == "bad_tag"
    assert accepted(accepting(WITH_TOKEN, secret=TOKEN[1]), WITH_TOKEN).terms == TERMS


def test_a_tag_that_nobody_can_check_is_refused() -> None:
    assert refused(judged, accepting(secret=TOKEN[1])) == "bad_tag"


def test_the_tag_is_judged_before_the_seal() -> None:
    for_another = replace(read_request(WITH_TOKEN.payload), kem=kem_key("cam-2").public)
    wrong_both = accepting(WITH_TOKEN, claimed=for_another, secret=b"\x01" * 16)
    assert refused(judged, wrong_both, WITH_TOKEN) == "bad_tag"
    right_tag = accepting(WITH_TOKEN, claimed=for_another, secret=TOKEN[1])
    assert refused(judged, right_tag, WITH_TOKEN) == "not_sealed_to_us"


def test_an_answer_to_another_request_is_not_sealed_to_this_one() -> None:
    earlier = request(nonce=b"\x01" * 16)
    assert refused(judged, accepting(earlier)) == "not_sealed_to_us"


def test_the_pin_is_judged_before_the_chain() -> None:
    stranger = Fleet("porto")
    unsigned = [stranger.next_root(keys=[signing_key("nobody")])]
    assert refused(judged, accepting(root_lists=unsigned), pinned=b"\x01" * 16) == "wrong_root"
    assert refused(judged, accepting(root_lists=unsigned)) == "too_few_signatures"


def test_the_chain_is_judged_before_the_site() -> None:
    outsider = Fleet()
    certificate = outsider.certify_site(master=party("outsider"), site=party("porto"))
    assert refused(judged, accepting(site_certificate=certificate)) == "unknown_issuer"


def test_the_site_is_judged_before_our_own_certificate() -> None:
    foreign = FLEET.device("cam-2").certificate
    expired = FLEET.certify_site(issued=FLEET.now - 90, expires=FLEET.now - 60)
    late = float(FLEET.now + 3600)
    assert refused(judged, accepting(site_certificate=expired, device_certificate=foreign), floor=late) == "expired"
    assert refused(judged, accepting(device_certificate=foreign), floor=late) == "not_for_us"


def test_our_own_certificate_is_judged_before_the_nonce() -> None:
    parts = parts_of(accepting())
    other_nonce = replace(read_request(REQUEST.payload), nonce=bytes(16))
    word = parts_of(accepting(claimed=other_nonce))[3]
    foreign = FLEET.device("cam-2").certificate
    assert refused(judged, resealed([parts[0], parts[1], foreign, word])) == "not_for_us"
    assert refused(judged, resealed([parts[0], parts[1], parts[2], word])) == "wrong_nonce"


def test_a_site_certificate_that_is_past_the_floor_is_refused_whatever_time_the_site_says() -> None:
    end = FLEET.now + 30 * 86_400
    early = accepting(terms=replace(TERMS, issued=FLEET.now))
    assert accepted(early, floor=float(end)).site.expires == end
    assert refused(judged, early, floor=float(end + 121)) == "expired"


def test_the_root_list_in_the_answer_raises_the_floor_it_is_judged_by() -> None:
    fleet = Fleet()
    fleet.next_root(issued=FLEET.now + 90 * 86_400)
    assert refused(judged, accepting(root_lists=fleet.chain), floor=0.0) == "expired"


def test_a_site_that_is_not_the_one_of_our_token_is_refused() -> None:
    assert refused(judged, accepting(), site="porto") == "wrong_site"


def test_a_device_certificate_for_another_site_is_refused() -> None:
    certificate = FLEET.device("cam-1", issuer=FLEET.a, site="porto").certificate
    assert refused(judged, accepting(device_certificate=certificate)) == "wrong_site"


def test_a_device_certificate_over_another_sealing_key_is_refused() -> None:
    certificate = FLEET.device("cam-1", kem=kem_key("cam-2").public).certificate
    assert refused(judged, accepting(device_certificate=certificate)) == "not_for_us"


def test_the_terms_are_those_of_the_site_that_was_shown() -> None:
    assert refused(judged, accepting(signer=FLEET.a.key)) == "unknown_issuer"
    assert refused(judged, accepting(signer=CAMERA.key)) == "unknown_issuer"
    assert refused(judged, accepting(site="porto")) == "wrong_site"


def test_a_site_that_may_not_enrol_accepts_nobody() -> None:
    certificate = FLEET.certify_site(roles=("job",))
    by_master = FLEET.device("cam-1", issuer=FLEET.a).certificate
    assert refused(judged, accepting(site_certificate=certificate, device_certificate=by_master)) == "no_role"


def test_without_a_pin_the_first_root_is_trusted_and_the_rest_still_has_to_hold() -> None:
    assert accepted(accepting(), pinned=None).root.fingerprint == FLEET.fingerprint
    foreign = FLEET.device("cam-2").certificate
    assert refused(judged, accepting(device_certificate=foreign), pinned=None) == "not_for_us"
    assert refused(judged, accepting(root_lists=[]), pinned=None) == "malformed"


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": 0},
        {"epoch": 2**32},
        {"group_key": b"short"},
        {"index": limits.DEVICES_PER_STATION},
        {"password": ""},
        {"password": "a\nb"},
        {"password": "é"},
        {"password": "x" * 129},
        {"port": 0},
        {"port": 65_536},
        {"tls_port": None},
        {"tls_port": 0},
        {"authority": None},
        {"authority": b"short"},
    ],
)
def test_terms_out_of_bounds_are_not_given(changes: dict[str, Any]) -> None:
    assert refused(accepting, terms=replace(TERMS, **changes)) in {"claim_invalid", "claim_missing"}


# --- a refusal -----------------------------------------------------------------------------------------------------


def refusing(**changes: Any) -> bytes:
    fields = {
        "request_body": REQUEST.body,
        "device": CAMERA.did,
        "site": SITE,
        "issued": FLEET.now,
        "state": "pending",
        "text": "compare the fingerprint, then accept it",
        "root_lists": FLEET.chain,
        "site_certificate": FLEET.site_certificate,
    }
    return refuse(changes.pop("signer", FLEET.site.key), **{**fields, **changes})


@pytest.mark.parametrize("state", STATES)
def test_a_refusal_by_our_site_says_that_it_was_verified(state: Any) -> None:
    answer = judged(refusing(state=state))
    assert answer == NotYet(state, "compare the fingerprint, then accept it", verified=True, issued=FLEET.now)


def test_a_refusal_that_anybody_may_have_said_is_not_verified() -> None:
    hearsay = judged(refusing(signer=signing_key("anybody"), root_lists=[], site_certificate=b"", state="revoked"))
    assert isinstance(hearsay, NotYet)
    assert not hearsay.verified


def test_without_a_pin_no_refusal_is_verified() -> None:
    answer = judged(refusing(), pinned=None)
    assert isinstance(answer, NotYet)
    assert not answer.verified


def test_a_refusal_that_shows_a_certificate_has_to_hold() -> None:
    assert refused(judged, refusing(signer=signing_key("anybody"))) == "unknown_issuer"
    assert refused(judged, refusing(), pinned=b"\x01" * 16) == "wrong_root"
    assert refused(judged, refusing(site_certificate=FLEET.certify_site(roles=("job",)))) == "no_role"


def test_a_refusal_of_another_request_or_device_is_refused() -> None:
    assert refused(judged, refusing(request_body=b"another")) == "wrong_nonce"
    assert refused(judged, refusing(device=FLEET.device("cam-2").did)) == "not_for_us"
    assert refused(judged, refusing(site="porto")) == "wrong_site"


def test_a_sentence_that_would_steer_a_terminal_is_refused() -> None:
    assert refused(judged, refusing(text="\x1b[2J")) == "claim_invalid"
    assert refused(judged, refusing(state="sometime")) == "claim_invalid"


def test_a_sentence_that_is_too_long_is_cut() -> None:
    answer = judged(refusing(text="x" * 1000))
    assert isinstance(answer, NotYet)
    assert answer.text == "x" * 300


# --- any bytes -----------------------------------------------------------------------------------------------------


def test_whatever_bit_of_an_acceptance_is_turned_over_it_is_refused() -> None:
    assert "not_sealed_to_us" in reasons_of_flips(accepting(), judged)


def test_whatever_bit_of_an_acceptance_with_a_token_is_turned_over_its_tag_fits_no_more() -> None:
    payload = accepting(WITH_TOKEN, secret=TOKEN[1])
    assert "bad_tag" in reasons_of_flips(payload, lambda body: judged(body, WITH_TOKEN))


def test_whatever_bit_of_the_terms_inside_is_turned_over_they_are_refused() -> None:
    parts = parts_of(accepting())
    anchor, _, site, now = join_answer._judge_site(
        FLEET.chain, FLEET.site_certificate, site=SITE, pinned=FLEET.fingerprint, floor=0.0
    )

    def read(word: bytes) -> object:
        key = join_answer._enroller(anchor, cose.read(word, "os-acc").kid, site, now)
        return join_answer._read_terms(cose.open_signed(word, "os-acc", lambda _: key).claims)

    assert "bad_signature" in reasons_of_flips(parts[3], read)


def test_whatever_bit_of_a_refusal_is_turned_over_it_is_refused() -> None:
    assert "bad_signature" in reasons_of_flips(refusing(), judged, bits=[0])
    parts = codec.decode(refusing())
    assert "bad_signature" in reasons_of_flips(parts[3], lambda word: judged(codec.encode([*parts[:3], word])))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(payload: bytes) -> None:
    assert refused(judged, payload)


@given(st.binary(max_size=300))
def test_anything_that_is_sealed_to_a_device_is_refused(content: bytes) -> None:
    sealed = hpke.seal(REQUEST.kem, join_answer._info(REQUEST.body), content)
    assert refused(judged, codec.encode([sealed, b""]))
    tag = response_tag(TOKEN[1], WITH_TOKEN.body, sealed)
    assert refused(judged, codec.encode([sealed, tag]), WITH_TOKEN) == "not_sealed_to_us"


@given(
    any_claims(
        [c.SUB, c.AUD, c.NONCE, c.IAT, c.EPOCH, c.CT, c.INDEX, c.PASSWORD, c.PORT, c.AUTHORITY, c.TLS_PORT, c.STATE]
    )
)
def test_any_claims_under_a_good_signature_are_refused(claims: dict[int, Any]) -> None:
    parts = parts_of(accepting())
    refused_or_read(judged, resealed([*parts[:3], cose.sign(FLEET.site.key, join_answer.ACCEPT_TYP, claims)]))
    word = cose.sign(FLEET.site.key, join_answer.REFUSE_TYP, claims)
    refused_or_read(judged, codec.encode([b"", FLEET.chain, FLEET.site_certificate, word]))


@pytest.mark.parametrize(
    "parts",
    [
        1,
        [],
        [b""],
        [b"", b"", b""],
        [b"", [], b""],
        ["", b""],
        [b"", 1, b"", b""],
        [b"", [1], b"x", b""],
        [b"", [], b"x", b""],
        [b"", [], b"", 1],
        [b"x", [], b"", b""],
    ],
)
def test_an_answer_of_other_parts_is_refused(parts: Any) -> None:
    assert refused(judged, codec.encode(parts)) in {"malformed", "not_sealed_to_us"}


@pytest.mark.parametrize(
    "parts", [1, [], [[], b"", b""], [b"", b"", b"", b""], [[1], b"", b"", b""], [[], "", b"", b""]]
)
def test_an_acceptance_of_other_parts_is_refused(parts: Any) -> None:
    sealed = hpke.seal(REQUEST.kem, join_answer._info(REQUEST.body), codec.encode(parts))
    assert refused(judged, codec.encode([sealed, b""])) == "malformed"
