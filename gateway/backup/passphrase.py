"""The passphrase of a file that is sealed with one: typed on the terminal, or the one line of a file."""

from __future__ import annotations

import getpass
import stat
import sys
import unicodedata
from pathlib import Path
from typing import Final

from device_agent.errors import UsageInvalid
from device_agent.utf8_text import NotUtf8, utf8_text

SHORTEST: Final = 12
FILE_BYTES: Final = 4096
_FILE_OPTION = "--passphrase-file"


def new_passphrase(file: Path | None, what: str = "backup") -> bytes:
    """A passphrase for a new backup, typed twice. Raises ``UsageInvalid`` for one that is too easy to guess."""
    text = _in_file(file) if file is not None else _typed(f"passphrase of the {what}: ")
    if len(text) < SHORTEST:
        raise UsageInvalid(
            f"this passphrase is too short: whoever has the {what} can try as many as he likes",
            error_id="backup.short_passphrase",
            found=f"{len(text)} characters",
            allowed=f"{SHORTEST} or more; six words drawn by lot are good ones",
        )
    if file is None and _typed("the same again: ") != text:
        raise UsageInvalid(
            "the two passphrases are not the same", error_id="backup.two_passphrases", hint="start again"
        )
    return _as_bytes(text)


def known_passphrase(file: Path | None, what: str = "backup") -> bytes:
    """The passphrase of a backup that is there. Raises ``UsageInvalid``."""
    return _as_bytes(_in_file(file) if file is not None else _typed(f"passphrase of the {what}: "))


def _as_bytes(text: str) -> bytes:
    """The same bytes for the same letters, whichever keyboard composed them (NFC, as RFC 8265 has it)."""
    return unicodedata.normalize("NFC", text).encode("utf-8", "surrogateescape")


def _typed(prompt: str) -> str:
    if not sys.stdin.isatty():
        raise UsageInvalid(
            "nobody can be asked for the passphrase here",
            error_id="backup.no_terminal",
            allowed=f"a terminal, or {_FILE_OPTION} FILE",
        )
    try:
        return getpass.getpass(prompt)
    except EOFError:
        raise UsageInvalid("no passphrase was typed", error_id="backup.no_passphrase") from None


def _in_file(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            mode = stat.S_IMODE(file.stat().st_mode)
            text = utf8_text(opened.read(FILE_BYTES)).rstrip("\r\n")
    except OSError as error:
        raise UsageInvalid(
            "the passphrase cannot be read", where=_FILE_OPTION, found=f"{file}: {error}", allowed="a text file"
        ) from None
    except NotUtf8 as error:
        # No byte of it is shown.
        raise UsageInvalid(
            "the passphrase cannot be read",
            where=_FILE_OPTION,
            found=f"{file}: line {error.line} is not UTF-8",
            allowed="text in UTF-8",
            hint=error.fix(file),
        ) from None
    if mode & stat.S_IROTH:
        raise UsageInvalid(
            "everybody on this machine may read the passphrase",
            where=_FILE_OPTION,
            found=f"{file}, mode {mode:04o}",
            allowed="a file that only you may read",
            hint=f"chmod 600 {file}",
        )
    if not text or not text.isprintable():
        raise UsageInvalid("the file holds no passphrase", where=_FILE_OPTION, found=str(file), allowed="one line")
    return text
