"""upstream/curve.py: keys, their file, and the judgement of the ZAP answerer."""

from __future__ import annotations

import stat
from collections import Counter
from pathlib import Path

import pytest
import zmq
import zmq.asyncio
from hypothesis import example, given
from hypothesis import strategies as st
from zmq.utils import z85

from device_agent.errors import ConfigInvalid
from device_agent.protocol import limits
from tests.peers.clock import HandClock
from upstream.curve import ZAP_DOMAIN, CurveKeys, ZapAnswerer, fingerprint, is_key, load_or_make
from upstream.ports import KeyState

KNOWN, UNKNOWN = b"k" * 32, b"u" * 32
FINGERPRINT_OF_ZEROS = "tp5x-r6hy-rvnu-vuel"
"""The first ten bytes of SHA-256 over ``os1 curve``, a zero byte and 32 zero bytes, in base32."""


def test_keys_are_made_once_and_are_the_same_at_every_start(tmp_path: Path) -> None:
    path = tmp_path / "curve.key"
    made = load_or_make(path)
    assert load_or_make(path) == made
    assert zmq.curve_public(made.secret.encode()).decode() == made.public


def test_the_key_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "curve.key"
    load_or_make(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_station_has_keys_of_its_own(tmp_path: Path) -> None:
    assert load_or_make(tmp_path / "one") != load_or_make(tmp_path / "two")


def mixed(first: CurveKeys, second: CurveKeys) -> str:
    return f"public {first.public}\nsecret {second.secret}\n"


def damaged(tmp_path: Path) -> dict[str, bytes]:
    keys, other = load_or_make(tmp_path / "one"), load_or_make(tmp_path / "two")
    return {
        "empty": b"",
        "cut": f"public {keys.public}\nsecret {keys.secret[:20]}".encode(),
        "only the public one": f"public {keys.public}\n".encode(),
        "of two stations": mixed(keys, other).encode(),
        "not text": bytes(range(256)),
        "too large a number": f"public {keys.public}\nsecret {'#' * 40}\n".encode(),
        "no Z85": f"public {keys.public}\nsecret {'~' * 40}\n".encode(),
        "another file": b'{"public": "a"}\n',
    }


@pytest.mark.parametrize(
    "kind",
    [
        "empty",
        "cut",
        "only the public one",
        "of two stations",
        "not text",
        "too large a number",
        "no Z85",
        "another file",
    ],
)
def test_a_damaged_key_file_stops_the_start_and_stays_as_it_is(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "curve.key"
    content = damaged(tmp_path)[kind]
    path.write_bytes(content)
    with pytest.raises(ConfigInvalid, match="key file is damaged") as error:
        load_or_make(path)
    assert error.value.where == str(path)
    assert error.value.hint
    assert path.read_bytes() == content


@given(st.text(max_size=45))
@example("#" * 40)
@example("é" * 40)
def test_any_text_is_a_key_or_is_not(text: str) -> None:
    if is_key(text):
        assert len(z85.decode(text.encode())) == 32


@given(st.binary(min_size=32, max_size=32))
def test_every_32_bytes_are_a_key(key: bytes) -> None:
    assert is_key(z85.encode(key).decode())


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_a_fingerprint_tells_two_keys_apart(first: bytes, second: bytes) -> None:
    one, two = (fingerprint(z85.encode(key).decode()) for key in (first, second))
    assert (one == two) == (first == second)


def test_a_fingerprint_is_four_groups_of_four_letters() -> None:
    """It must stay what it is: people have written it down."""
    assert fingerprint(z85.encode(bytes(32)).decode()) == FINGERPRINT_OF_ZEROS


class Doors:
    """Both ports of the answerer, in memory."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def known(self, key: str) -> bool:
        return key == z85.encode(KNOWN).decode()

    def revoked(self, key: str) -> bool:
        return False

    async def judge(
        self, site: str, key: str, address: str, request: bytes = b"", certificate: bytes = b""
    ) -> KeyState:
        raise AssertionError("a handshake claims no site")

    def refused(self, link: str, reason: str, peer: str, detail: str = "") -> None:
        self.counts[link, reason, peer] += 1


def request(key: bytes = UNKNOWN, **changed: bytes) -> list[bytes]:
    """ZAP 1.0: version, request id, domain, address, routing id, mechanism, credentials."""
    parts = {
        "version": b"1.0",
        "id": b"1",
        "domain": ZAP_DOMAIN.encode(),
        "address": b"192.0.2.7",
        "routing": b"",
        "mechanism": b"CURVE",
        "key": key,
        **changed,
    }
    return list(parts.values())


@pytest.fixture
def doors() -> Doors:
    return Doors()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def answerer(doors: Doors, clock: HandClock) -> ZapAnswerer:
    return ZapAnswerer(zmq.asyncio.Context.instance(), doors, doors, clock)


def test_a_key_is_let_in_and_named(answerer: ZapAnswerer, doors: Doors) -> None:
    assert answerer._judge(request()) == (b"200", b"OK", z85.encode(UNKNOWN))
    assert not doors.counts


@pytest.mark.parametrize(
    "wrong",
    [
        request(version=b"2.0"),
        request(domain=b"elsewhere"),
        request(domain=b""),
        request()[:6],
        [*request(), b"one more"],
        request(mechanism=b"PLAIN"),
        request(mechanism=b"NULL", key=b""),
        request(key=b"short"),
        request(key=b"k" * 33),
        request(address=b"\xff\xfe", mechanism=b"GSSAPI"),
    ],
)
def test_what_is_no_question_about_a_key_is_refused(wrong: list[bytes], answerer: ZapAnswerer) -> None:
    status, _, user = answerer._judge(wrong)
    assert (status, user) == (b"400", b"")


@given(st.lists(st.binary(max_size=40), min_size=2, max_size=9))
def test_any_request_gets_an_answer(frames: list[bytes]) -> None:
    doors = Doors()
    answerer = ZapAnswerer(zmq.asyncio.Context.instance(), doors, doors, HandClock())
    status, text, _ = answerer._judge(frames)
    assert status in {b"200", b"300", b"400"}
    assert text


def test_unknown_keys_come_in_at_a_bounded_rate(answerer: ZapAnswerer, doors: Doors, clock: HandClock) -> None:
    def let_in(tries: int) -> int:
        return sum(answerer._judge(request())[0] == b"200" for _ in range(tries))

    assert let_in(100) == limits.PENDING_KEYS_PER_SECOND
    assert doors.counts["uplink", "too_many_unknown_keys", "192.0.2.7"] == 100 - limits.PENDING_KEYS_PER_SECOND
    clock.move(0.5)
    assert let_in(100) == limits.PENDING_KEYS_PER_SECOND // 2
    clock.move(3600)
    assert let_in(100) == limits.PENDING_KEYS_PER_SECOND


def test_one_turned_away_by_the_rate_may_come_again(answerer: ZapAnswerer) -> None:
    answers = {answerer._judge(request())[0] for _ in range(100)}
    # 300 is a temporary failure (https://rfc.zeromq.org/spec/27/).
    assert answers == {b"200", b"300"}


def test_accepted_keys_are_not_held_up_by_unknown_ones(answerer: ZapAnswerer) -> None:
    for _ in range(100):
        answerer._judge(request())
    assert {answerer._judge(request(KNOWN))[0] for _ in range(100)} == {b"200"}
