"""device_agent/trust/token.py: what people carry from screen to screen, and what they are told when it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
import segno
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.trust import base45
from device_agent.trust.token import JoinToken, SiteToken

TOKEN = JoinToken(
    bytes(range(16)), b"12345678", bytes(range(100, 116)), "lisbon", "gateway.lisbon.example:8884", tls=True
)
SITE_TOKEN = SiteToken(bytes(range(16)), bytes(range(32)), ("tcp://203.0.113.7:4510", "tcp://[2001:db8::7]:4510"))
READERS: list[Callable[[str], object]] = [JoinToken.from_text, SiteToken.from_text]


def device_token(*parts: bytes, version: int = 1, flags: int = 0) -> str:
    return base45.encode(bytes([version, flags]) + b"".join(parts))


def reason(read: Callable[[str], object], text: str) -> str:
    with pytest.raises(Refused) as refused:
        read(text)
    assert refused.value.detail, "a person is told what to do about it"
    return refused.value.reason


# RFC 9285, sections 4.3 and 4.4
@pytest.mark.parametrize(
    ("body", "text"),
    [(b"AB", "BB8"), (b"Hello!!", "%69 VD92EX0"), (b"base-45", "UJCLQE7W581"), (b"ietf!", "QED8WEX0"), (b"", "")],
)
def test_base45_is_that_of_the_standard(body: bytes, text: str) -> None:
    assert base45.encode(body) == text
    assert base45.decode(text) == body


@pytest.mark.parametrize("text", ["A", "ABCD", "GGW", ":::", "::", "a", "é", "AB\n", "00Ä"])
def test_base45_that_no_bytes_have_is_no_base45(text: str) -> None:
    with pytest.raises(ValueError, match=r"bytes|character"):
        base45.decode(text)


@given(st.binary(max_size=300))
def test_base45_is_read_as_it_is_written(body: bytes) -> None:
    assert base45.decode(base45.encode(body)) == body


@given(st.text(alphabet=base45.ALPHABET, max_size=12))
def test_bytes_have_one_base45(text: str) -> None:
    try:
        body = base45.decode(text)
    except ValueError:
        return
    assert base45.encode(body) == text


def test_a_token_is_read_as_it_was_shown() -> None:
    assert JoinToken.from_text(TOKEN.text()) == TOKEN
    assert SiteToken.from_text(SITE_TOKEN.text()) == SITE_TOKEN


@given(
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=8, max_size=8),
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", fullmatch=True),
    st.integers(1, 65_535),
    st.booleans(),
)
def test_every_token_survives_a_careless_copy(root: bytes, token_id: bytes, site: str, port: int, tls: bool) -> None:
    token = JoinToken(root, token_id, root[::-1], site, f"192.0.2.1:{port}", tls)
    text = token.text()
    assert text == text.strip(), "a space at an end would be lost"
    middle = len(text) // 2
    for copied in (text, f"  {text}\n", text.lower(), f"{text[:middle]}\r\n{text[middle:]}"):
        assert JoinToken.from_text(copied) == token


def test_the_secret_is_in_no_log() -> None:
    assert repr(TOKEN.secret) not in repr(TOKEN)


def test_a_token_fits_a_small_qr_code() -> None:
    token = JoinToken(TOKEN.root, TOKEN.id, TOKEN.secret, "lisbon", "192.0.2.7:8884")
    code = segno.make(token.text(), error="m", boost_error=False)
    assert code.mode == "alphanumeric"
    assert int(code.version) <= 5


@pytest.mark.parametrize("text", ["", "  ", "\n"])
@pytest.mark.parametrize("read", READERS)
def test_no_token_is_said_so(read: Callable[[str], object], text: str) -> None:
    assert reason(read, text) == "token_empty"


def test_the_other_kind_of_token_is_said_so() -> None:
    assert reason(JoinToken.from_text, SITE_TOKEN.text()) == "token_other_kind"
    assert reason(SiteToken.from_text, TOKEN.text()) == "token_other_kind"


@pytest.mark.parametrize("read", READERS)
def test_a_token_of_a_newer_release_is_said_so(read: Callable[[str], object]) -> None:
    assert reason(read, device_token(b"\x00" * 80, version=3)) == "token_newer"
    assert reason(read, device_token(b"\x00" * 80, version=1 if read == JoinToken.from_text else 2, flags=2)) == (
        "token_newer"
    )


@pytest.mark.parametrize("read", READERS)
def test_text_that_is_no_token_is_said_so(read: Callable[[str], object]) -> None:
    for text in ("hello", "password", "é" * 20, "0" * 2000, device_token(b"\x00" * 80, version=0), "::::::"):
        assert reason(read, text) in {"token_malformed", "token_newer"}


@pytest.mark.parametrize(
    ("read", "text"), [(JoinToken.from_text, TOKEN.text()), (SiteToken.from_text, SITE_TOKEN.text())]
)
def test_a_token_that_was_cut_short_is_refused(read: Callable[[str], object], text: str) -> None:
    whole = read(text)
    reasons = set()
    for length in range(len(text)):
        try:
            assert read(text[:length]) != whole
        except Refused as refused:
            reasons.add(refused.reason)
    assert reasons == {"token_empty", "token_cut_short", "token_malformed"}


HEAD = TOKEN.root + TOKEN.id + TOKEN.secret


@pytest.mark.parametrize(
    "rest",
    [
        b"\x00host:1",
        b"\x03a/bhost:1",
        b"\x02\xff\xfehost:1",
        b"\x06lisbonhost",
        b"\x06lisbonhost:",
        b"\x06lisbonhost:0",
        b"\x06lisbonhost:65536",
        b"\x06lisbonhost:1\n",
        b"\x06lisbontcp://host:1",
        b"\x06lisbonho st:1",
        b"\x06lisbon::1:1",
        b"\x06lisbon-host:1",
        b"\x06lisbon\xffhost:1",
    ],
)
def test_a_site_or_an_address_that_cannot_be_is_refused(rest: bytes) -> None:
    assert reason(JoinToken.from_text, device_token(HEAD, rest)) == "token_malformed"


@pytest.mark.parametrize(
    "rest", [b"host:1", b"tcp://host", b"tcp://host:1,", b"tcp://a:1,udp://b:2", b",".join([b"tcp://host:1"] * 9)]
)
def test_an_address_of_a_master_that_cannot_be_is_refused(rest: bytes) -> None:
    text = device_token(TOKEN.root, SITE_TOKEN.curve, rest, version=2)
    assert reason(SiteToken.from_text, text) == "token_malformed"


def test_nobody_shows_a_token_that_nobody_would_read() -> None:
    wrong: list[JoinToken | SiteToken] = [
        JoinToken(b"short", TOKEN.id, TOKEN.secret, "lisbon", "host:1"),
        JoinToken(TOKEN.root, TOKEN.id, TOKEN.secret, "x" * 300, "host:1"),
        JoinToken(TOKEN.root, TOKEN.id, TOKEN.secret, "lisbon", "host"),
        SiteToken(TOKEN.root, b"", ("tcp://host:1",)),
        SiteToken(TOKEN.root, SITE_TOKEN.curve, ()),
        SiteToken(TOKEN.root, SITE_TOKEN.curve, ("tcp://a:1,tcp://b:1",)),
    ]
    for token in wrong:
        with pytest.raises(Refused):
            token.text()


def refused_or_read(read: Callable[[str], object], text: str) -> object:
    with suppress(Refused):
        return read(text)
    return None


@given(st.text(max_size=200) | st.text(alphabet=base45.ALPHABET, max_size=200))
def test_any_text_is_a_token_or_refused(text: str) -> None:
    for read in READERS:
        refused_or_read(read, text)


@pytest.mark.parametrize(
    ("read", "text"), [(JoinToken.from_text, TOKEN.text()), (SiteToken.from_text, SITE_TOKEN.text())]
)
def test_one_wrong_character_is_never_read_as_the_same_token(read: Callable[[str], object], text: str) -> None:
    whole = read(text)
    for place, right in enumerate(text):
        for wrong in base45.ALPHABET + "\x00é":
            if wrong != right:
                assert refused_or_read(read, text[:place] + wrong + text[place + 1 :]) != whole
