"""Where a daemon logs: to the journal with fields of its own, where systemd reads its stderr; else to stderr.

A message says its facts as ``jid=%s``; those that are in ``FIELDS`` become fields of the journal, so that
``journalctl JID=…`` finds a job. They are taken from the format and its arguments and not from the finished text:
nothing that comes from a network can pass for a field.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping
from typing import Final

FIELDS: Final[Mapping[str, str]] = {
    "jid": "JID",
    "device": "DEVICE",
    "name": "DEVICE",
    "did": "DID",
    "site": "SITE",
    "master": "MASTER",
    "peer": "PEER",
    "link": "LINK",
    "part": "PART",
    "engine": "ENGINE",
    "rule": "RULE",
    "tag": "TAG",
    "fun": "FUN",
    "reason": "REASON",
    "error": "ERROR",
}
"""The facts that one looks for, and their names in the journal."""

FIELD_CHARACTERS: Final = 1024

_conversion = re.compile(r"(?:\b([a-z_]+)=)?%(?:%|[-#0 +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlL]?[diouxXeEfFgGcrsa])")


def fields_of(record: logging.LogRecord) -> dict[str, str]:
    """The facts of a message, by their names in the journal."""
    if not isinstance(record.args, tuple) or not isinstance(record.msg, str):
        return {}
    found: dict[str, str] = {}
    named = (match[1] or "" for match in _conversion.finditer(record.msg) if not match[0].endswith("%%"))
    for name, value in zip(named, record.args, strict=False):
        if field := FIELDS.get(name):
            found[field] = str(value)[:FIELD_CHARACTERS]
    return found


class JournalFields(logging.Filter):
    """Puts the facts of a message onto its record, where the journal's handler looks for fields."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every message passes."""
        for field, value in fields_of(record).items():
            setattr(record, field, value)
        return True


def journal_reads_stderr() -> bool:
    """Whether stderr ends in the journal (systemd.exec(5), ``JOURNAL_STREAM``)."""
    stream = os.environ.get("JOURNAL_STREAM", "")
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return stream == f"{status.st_dev}:{status.st_ino}"


def log_to(level: str, form: str, constant: Mapping[str, str]) -> None:
    """Log from this level on. ``form`` is for stderr; ``constant`` are fields of every message in the journal."""
    handler = _journal(constant) if journal_reads_stderr() else None
    if handler is None:
        logging.basicConfig(stream=sys.stderr, level=level.upper(), format=form)
    else:
        logging.basicConfig(handlers=[handler], level=level.upper(), format="%(message)s")


def _journal(constant: Mapping[str, str]) -> logging.Handler | None:
    try:
        # The extra "systemd": a development machine needs no compiler for it.
        from systemd.journal import JournalHandler  # noqa: PLC0415 - optional dependency
    except ImportError:
        return None
    # Without a word for it the journal would call the daemon by the path of its first file.
    name = f"outstation-{constant.get('ROLE', 'agent')}"
    handler: logging.Handler = JournalHandler(SYSLOG_IDENTIFIER=name, **constant)
    handler.addFilter(JournalFields())
    return handler
