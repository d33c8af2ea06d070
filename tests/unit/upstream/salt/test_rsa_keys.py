"""upstream/salt/rsa_keys.py and upstream/salt/pins.py."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from device_agent.errors import ConfigInvalid
from tests.peers.refusals import reason
from tests.peers.salt_double import HASHES, SaltDouble, public_pem, rsa_key
from upstream.salt.pins import Pins
from upstream.salt.rsa_keys import (
    GatewayKey,
    MasterKey,
    as_salt_shows,
    file_fingerprint,
    fingerprint,
    has_fingerprint,
    load_or_make,
    whole_fingerprint,
)

KNOWN = """-----BEGIN PUBLIC KEY-----
MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAL0=
-----END PUBLIC KEY-----
"""

REAL = """-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAy/HBLNyjc9MEp1AEQg4w
nkGdIq3eoUpn4G0qadFE1v/ymxQaNO2gWL7nfBTpqOTGZ6QWueDfKiHXiAR+BbQl
BZNNMyCwejWMFFj+PiQGiktB0ZuZtATcwlv8yX77JykXrDeuQ82lSSSJLoCJX7ne
M9jldlY5mTdflBhk5dz0kgTHMHnYmZCP7ZZuem9IghcrQm956XySAjq3d4+71jfh
qiB+D0QiuZn+dzhhkB7FbDBIZzOGoHX1+tm1Rb2BK8c1mOTPGMI07eQ86mXPx5J/
q7V0ibGshQo55qRZu7vup/ThdAhhUOHTGIlRdwvAmcih1ZofQvltusLeofWOt4OT
KwIDAQAB
-----END PUBLIC KEY-----
"""
"""A key of 2048 bits, with the last line break of its file."""

PRINTED_LINES = "72:f0:14:a5:eb:6b:0c:a0:77:5e:64:b5:74:16:f5:2e:23:5a:96:cd:bc:2f:6a:87:00:62:81:11:5a:89:e3:f1"
PRINTED_WHOLE = "fc:94:db:2a:98:40:da:3a:0b:da:b6:22:90:61:64:41:59:7b:ab:dd:bd:a4:cb:79:a9:a7:c2:dc:17:84:d4:77"
PRINTED_FILE = "1e:06:10:90:95:23:77:d9:49:db:af:59:35:34:a3:0d:b9:59:94:05:aa:b5:52:ef:bd:bc:38:71:4c:9a:c0:ea"
"""What stock Salt printed of this key. ``salt-key -f`` and ``-F master`` of 3006.29 and 3007.16 print the first,
with or without the last line break. ``salt-key -f`` of 3008.4 prints the second without it and the third with it, and
``-F master`` the third."""


def test_a_pair_is_made_once_and_for_us_alone(tmp_path: Path) -> None:
    path = tmp_path / "salt" / "gateway.pem"
    made = load_or_make(path, 2048)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_or_make(path, 2048).pem == made.pem
    assert load_or_make(path, 2048).token == made.token


@pytest.mark.parametrize("body", [b"", b"garbage", b"\xff" * 50])
def test_a_damaged_pair_is_not_replaced(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "gateway.pem"
    path.write_bytes(body)
    with pytest.raises(ConfigInvalid):
        load_or_make(path, 2048)
    assert path.read_bytes() == body


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("PKCS1v15-SHA224", ""),
        ("PKCS1v15-SHA1", ""),
        ("PKCS1v15-SHA256", "unknown_algorithm"),
        ("", "unknown_algorithm"),
    ],
)
def test_signatures_by_name(name: str, why: str) -> None:
    double = SaltDouble()
    master = MasterKey(double.pem)
    if why:
        assert reason(master.verify, name, b"", b"body") == why
        return
    signature = double.sign(b"body", name)
    master.verify(name, signature, b"body")
    assert reason(master.verify, name, signature, b"bodies") == "bad_signature"
    assert reason(master.verify, name, b"", b"body") == "bad_signature"
    assert reason(MasterKey(public_pem(rsa_key("other"))).verify, name, signature, b"body") == "bad_signature"


@pytest.mark.parametrize("name", ["OAEP-SHA224", "OAEP-SHA1"])
def test_encryption_by_name(name: str) -> None:
    pair = rsa_key("gateway")
    key, digest = GatewayKey(pair), HASHES[name.rpartition("-")[2]]()
    oaep = padding.OAEP(mgf=padding.MGF1(digest), algorithm=digest, label=None)
    sealed = pair.public_key().encrypt(b"body", oaep)
    assert key.decrypt(name, sealed) == b"body"
    assert reason(key.decrypt, {"OAEP-SHA1": "OAEP-SHA224"}.get(name, "OAEP-SHA1"), sealed) == "not_for_us"
    assert reason(key.decrypt, name, b"short") == "not_for_us"


def test_what_is_no_key_of_a_master() -> None:
    small = public_pem(rsa.generate_private_key(65537, 1024))
    curve = ec.generate_private_key(ec.SECP256R1()).public_key()
    other = curve.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
    for pem in ("", "garbage", KNOWN, small, other, "ü", "x" * 10_000):
        assert reason(MasterKey, pem) == "malformed"


def test_fingerprints_are_those_that_salt_shows() -> None:
    # sed '1d;$d' | sha256sum, and sha256sum of the text without its last line end; as found with salt-key --finger.
    assert (
        fingerprint(KNOWN)
        == "dc:a5:15:c0:d2:0b:26:bf:8b:fb:c2:b1:b0:56:d1:6d:8b:79:e5:f1:0a:5a:a2:fc:08:81:d6:dd:6b:2b:07:27"
    )
    assert (
        whole_fingerprint(KNOWN)
        == "9e:2e:1d:8e:6b:c1:6e:c3:63:77:0b:f3:71:4b:ab:0f:02:2a:4d:80:61:ec:c1:a9:00:b8:7a:c8:d0:d7:71:b6"
    )
    for form in (fingerprint(KNOWN), whole_fingerprint(KNOWN), fingerprint(KNOWN).replace(":", "").upper()):
        assert has_fingerprint(KNOWN.replace("\n", "\r\n"), form)
    assert not has_fingerprint(KNOWN, "")
    assert not has_fingerprint(KNOWN, fingerprint(KNOWN)[:-1])


@pytest.mark.parametrize("text", [REAL, REAL.strip(), REAL.replace("\n", "\r\n")], ids=["file", "stripped", "CRLF"])
def test_fingerprints_are_those_that_stock_salt_printed(text: str) -> None:
    assert (fingerprint(text), whole_fingerprint(text), file_fingerprint(text)) == (
        PRINTED_LINES,
        PRINTED_WHOLE,
        PRINTED_FILE,
    )
    assert all(has_fingerprint(text, finger) for finger in (PRINTED_LINES, PRINTED_WHOLE, PRINTED_FILE))
    assert as_salt_shows(text) == f"{PRINTED_FILE} (as Salt 3008 prints it; 3006 and 3007 print {PRINTED_LINES})"


def test_pins_are_kept_by_address(tmp_path: Path) -> None:
    pins = Pins(tmp_path / "masters", 4506)
    one, other = MasterKey(SaltDouble().pem), MasterKey(public_pem(rsa_key("other")))
    assert pins.known("a:4506") is None
    pins.keep("a:4506", one)
    pins.keep("[::1]:4506", other)
    known = [pins.known(address) for address in ("a:4506", "[::1]:4506", "a:4507")]
    assert [key and key.pem for key in known] == [one.pem, other.pem, None]


@pytest.mark.parametrize(
    ("kept", "asked"), [("a", "a:4506"), ("a:4506", "a"), ("A", "a"), ("[::1]", "[0:0::1]:4506"), ("a:7", "A:7")]
)
def test_an_address_that_is_written_otherwise_is_no_first_contact(tmp_path: Path, kept: str, asked: str) -> None:
    pins, one = Pins(tmp_path, 4506), MasterKey(SaltDouble().pem)
    pins.keep(kept, one)
    known = pins.known(asked)
    assert known is not None
    assert known.pem == one.pem


@pytest.mark.parametrize(
    ("file", "asked"),
    [("a.pub", "a"), ("a.pub", "a:4506"), ("a%3A4506.pub", "a"), ("A.pub", "A"), ("%5B::1%5D.pub", "[::1]:4506")],
)
def test_a_key_in_a_file_that_is_named_as_the_settings_had_it_is_read(tmp_path: Path, file: str, asked: str) -> None:
    one = MasterKey(SaltDouble().pem)
    (tmp_path / file.replace("::", "%3A%3A")).write_text(one.pem)
    known = Pins(tmp_path, 4506).known(asked)
    assert known is not None
    assert known.pem == one.pem
    assert Pins(tmp_path, 4506).known("a:4507") is None


def test_a_key_that_is_set_aside_is_not_believed(tmp_path: Path) -> None:
    pins = Pins(tmp_path, 4506)
    one, other = MasterKey(SaltDouble().pem), MasterKey(public_pem(rsa_key("other")))
    pins.keep("../a", one)
    aside = pins.set_aside("../a", other.pem)
    known = pins.known("../a")
    assert known is not None
    assert known.pem == one.pem
    assert aside.read_text().strip() == other.pem
    assert {path.parent for path in (aside, pins.place("../a"))} == {tmp_path}


def test_a_pin_that_cannot_be_read_is_no_first_contact(tmp_path: Path) -> None:
    pins = Pins(tmp_path, 4506)
    for body in (b"", b"\xff", b"garbage"):
        pins.place("a").write_bytes(body)
        with pytest.raises(ConfigInvalid):
            pins.known("a")
