"""What is taken out of a text, and what stays in it."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from device_agent.trust.token import JoinToken
from gateway.support.redaction import MARK, Redaction
from tests.peers.canaries import Canary, found_in

WORD = "Ein Geheimnis, p&ß/ä?"


def test_a_known_secret_goes_in_every_form() -> None:
    canary = Canary("one")
    redaction = Redaction([canary.octets, canary.text])
    text = "\n".join(f"before {form.decode('utf-8', 'replace')} after" for form in sorted(canary.forms()))
    left = redaction.text(text)
    assert not found_in([canary], left.encode())
    assert left.count("before ") == left.count(" after") == text.count("before ")


@pytest.mark.parametrize(
    "form",
    [WORD, quote(WORD), quote(WORD, safe=""), json.dumps(WORD), json.dumps(WORD, ensure_ascii=False), repr(WORD)],
)
def test_a_known_sentence_goes_however_it_is_quoted(form: str) -> None:
    assert WORD not in (left := Redaction([WORD]).text(f"said {form} there"))
    assert MARK in left
    assert "Geheimnis" not in left


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("-----BEGIN PRIVATE KEY-----\nMC4CAQ\nAwBQ\n-----END PRIVATE KEY-----\n", "MC4CAQ"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn", "b3Blbn"),
        ("cannot reach https://alice:h0rse@files.example/x", "h0rse"),
        ("cannot reach https://h0rse@files.example/x", "h0rse"),
        ("login with password=h0rse failed", "h0rse"),
        ('{"smtp_password": "h0rse battery"}', "battery"),
        ("passphrase: 'h0rse battery'", "battery"),
        ("pillar={'a': 'h0rse'}", "h0rse"),
        ("Authorization: Bearer h0rse.battery", "battery"),
        ("token os1_h0rsebatterystaple was refused", "h0rsebattery"),
        ("seed = 5fa3", "5fa3"),
        (f"digest {'5f' * 16}", "5f5f"),
        ("key AAAAC3NzaC1lZDI1NTE5AAAAIB7x9 of cam-1", "AAAAC3"),
    ],
)
def test_what_looks_like_a_secret_goes(text: str, gone: str) -> None:
    left = Redaction().text(text)
    assert gone not in left
    assert MARK in left


def test_a_join_token_goes() -> None:
    token = JoinToken(
        root=b"\1" * 16, id=b"\2" * 8, secret=b"secret of sixtee", site="lisbon", address="gw.example:1885"
    )
    left = Redaction().text(f"somebody typed {token.text()} into the log")
    assert left.replace(" ", "") == f"somebodytyped{MARK}intothelog"


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-23T18:03:21+0000 lisbon outstation[412]: refused link=mqtt reason=bad_frame peer='cam-0017' detail=''",
        "error   broker            mosquitto does not answer on 127.0.0.1:1884",
        'outstation_spool_dropped_total{class="events",reason="budget"} 17',
        "-rw-r----- root:outstation          412 2026-11-23T18:03:21Z /etc/outstation/gateway.yaml",
        "/usr/lib/outstation/lib/python3.11/site-packages/gateway/devices/enrollment_journal.py",
        "Filesystem     Type   Size  Used Avail Use% Mounted on",
        "/dev/vda1      ext4    40G   12G   26G  32% /",
        "job 20261123180321123456 closed: 200 ok, 3 unreachable",
        "GET /devices/cam-0017/pillar 403",
        "fingerprint aaaa-bbbb-cccc-dddd",
    ],
)
def test_what_tells_how_a_station_does_stays(text: str) -> None:
    redaction = Redaction(["short", "h0rse battery"])
    assert redaction.text(text) == text
    assert redaction.taken == 0


def test_a_value_is_redacted_below_its_names() -> None:
    redaction = Redaction(["h0rse battery"])
    value = {"password": "x", "nested": [{"why": "it said h0rse battery"}], "count": 3, "h0rse battery": None}
    assert redaction.value(value) == {
        "password": MARK,
        "nested": [{"why": f"it said {MARK}"}],
        "count": 3,
        MARK: None,
    }


def test_a_line_without_end_costs_little() -> None:
    left = Redaction(["h0rse battery"]).text("a" * 3_000_000 + "\nnext")
    assert left.endswith("next")
    assert len(left) < 5000
