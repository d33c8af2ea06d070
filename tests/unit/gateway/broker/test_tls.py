"""gateway/broker/tls.py: the authority of the TLS door; a real mosquitto uses it in integration."""

from __future__ import annotations

import hashlib
import stat
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from device_agent.errors import ConfigInvalid
from gateway.broker.tls import RENEW_DAYS, SERVER_DAYS, TlsAuthority
from tests.peers.clock import HandClock

DAY = 86_400.0


@pytest.fixture
def authority(tmp_path: Path) -> TlsAuthority:
    made = TlsAuthority(tmp_path / "authority.pem", "lisbon", HandClock())
    made.load()
    return made


def test_it_is_made_once_and_is_nobody_elses_to_read(authority: TlsAuthority, tmp_path: Path) -> None:
    path = tmp_path / "authority.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = TlsAuthority(path, "lisbon", HandClock())
    again.load()
    assert (again.pem, again.digest) == (authority.pem, authority.digest)
    assert [file.name for file in tmp_path.iterdir()] == ["authority.pem"]


def test_devices_know_it_by_the_digest_of_its_certificate_which_never_ends(authority: TlsAuthority) -> None:
    certificate = x509.load_pem_x509_certificate(authority.pem.encode())
    assert authority.digest == hashlib.sha256(certificate.public_bytes(Encoding.DER)).digest()
    assert certificate.not_valid_before_utc == datetime(1970, 1, 1, tzinfo=UTC)
    assert certificate.not_valid_after_utc.year == 9999
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_the_brokers_certificate_is_of_this_authority_and_comes_with_it(authority: TlsAuthority) -> None:
    chain, key_text = authority.server("broker.example")
    server, issuer = x509.load_pem_x509_certificates(chain.encode())
    assert issuer == x509.load_pem_x509_certificate(authority.pem.encode())
    server.verify_directly_issued_by(issuer)
    key = load_pem_private_key(key_text.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.public_key() == server.public_key()
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    # A device without a clock believes that it is 1970.
    assert server.not_valid_before_utc == datetime(1970, 1, 1, tzinfo=UTC)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"broker.example", "localhost"} <= set(names.get_values_for_type(x509.DNSName))


def test_it_names_the_address_it_listens_on_unless_that_is_every_address(authority: TlsAuthority) -> None:
    def addresses(host: str) -> list[object]:
        server, _ = x509.load_pem_x509_certificates(authority.server(host)[0].encode())
        names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return list(names.get_values_for_type(x509.IPAddress))

    assert ip_address("192.0.2.7") in addresses("192.0.2.7")
    assert addresses("0.0.0.0") == addresses("::") == [ip_address("127.0.0.1"), ip_address("::1")]


def test_the_brokers_certificate_is_due_at_first_and_then_in_good_time(tmp_path: Path) -> None:
    clock = HandClock()
    authority = TlsAuthority(tmp_path / "authority.pem", "lisbon", clock)
    authority.load()
    assert authority.server_is_due()
    authority.server("127.0.0.1")
    clock.move((SERVER_DAYS - RENEW_DAYS - 1) * DAY)
    assert not authority.server_is_due()
    clock.move(2 * DAY)
    assert authority.server_is_due()


@pytest.mark.parametrize("wall", [-1e12, 0.0, 1e18, float("inf")])
def test_a_clock_that_is_far_off_makes_a_certificate_all_the_same(tmp_path: Path, wall: float) -> None:
    authority = TlsAuthority(tmp_path / "authority.pem", "lisbon", HandClock(wall=wall))
    authority.load()
    authority.server("127.0.0.1")


@pytest.mark.parametrize(
    "content", [b"", b"nothing", b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"]
)
def test_a_file_that_is_none_of_ours_is_told_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "authority.pem"
    path.write_bytes(content)
    with pytest.raises(ConfigInvalid) as error:
        TlsAuthority(path, "lisbon").load()
    assert error.value.where == str(path)
    assert path.read_bytes() == content


def test_a_certificate_of_another_key_is_none_of_ours(tmp_path: Path) -> None:
    first, second = tmp_path / "first.pem", tmp_path / "second.pem"
    for path in (first, second):
        TlsAuthority(path, "lisbon").load()
    cut = first.read_text().index("-----BEGIN CERTIFICATE")
    mixed = first.read_text()[:cut] + second.read_text()[second.read_text().index("-----BEGIN CERTIFICATE") :]
    first.write_text(mixed)
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        TlsAuthority(first, "lisbon").load()
