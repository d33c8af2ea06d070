"""Which facts of a message become fields of the journal."""

from __future__ import annotations

import logging

import pytest

from device_agent.log_stream import JournalFields, fields_of, journal_reads_stderr


def record(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("gateway", logging.INFO, __file__, 1, message, arguments, None)


@pytest.mark.parametrize(
    ("message", "arguments", "fields"),
    [
        ("started", (), {}),
        ("job accepted jid=%s device=%s", ("20261121", "cam-1"), {"JID": "20261121", "DEVICE": "cam-1"}),
        ("%d devices of site=%s wait %.1f s", (3, "lisbon", 0.5), {"SITE": "lisbon"}),
        ("100 %% of jid=%-20s", ("7",), {"JID": "7"}),
        ("refused reason=%s", ("bad jid=1 device=cam-2",), {"REASON": "bad jid=1 device=cam-2"}),
        ("said %s", ("jid=1",), {}),
        ("another=%s", ("thing",), {}),
        ("too few jid=%s", (), {}),
    ],
)
def test_fields_come_from_the_format_and_never_from_a_value(
    message: str, arguments: tuple[object, ...], fields: dict[str, str]
) -> None:
    assert fields_of(record(message, *arguments)) == fields


def test_a_record_carries_them_to_the_journal() -> None:
    made = record("job accepted jid=%s", "20261121")
    assert JournalFields().filter(made)
    assert made.__dict__["JID"] == "20261121"


def test_only_the_stream_that_systemd_names_is_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "1:2")
    assert not journal_reads_stderr()
    monkeypatch.delenv("JOURNAL_STREAM")
    assert not journal_reads_stderr()
