"""The text of a file that a person wrote: UTF-8, with or without a byte order mark, or a fault that names its line.

Spreadsheets and editors of Windows also save UTF-16 and the code page of a country. Which of these it was decides the
command that converts the file.
"""

from __future__ import annotations

import codecs
import shlex
from pathlib import Path
from typing import Final, TypeVar

from device_agent.errors import OutstationError

Kind = TypeVar("Kind", bound=OutstationError)

_MARKS: Final = (codecs.BOM_UTF32_LE, "UTF-32"), (codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16")
"""Byte order marks; the one of UTF-32 begins with that of UTF-16."""

_SAMPLE_BYTES: Final = 64
_WINDOWS_ONLY: Final = frozenset(range(0x80, 0xA0))
"""Bytes that are letters and quotes in Windows-1252, and control characters in ISO 8859-1."""


class NotUtf8(ValueError):
    """A text is not UTF-8.

    Args:
        line: The first line that is not, counted from 1.
        found: What is there, in words. It has one byte of the file at most.
        encoding: What the text is taken for, as iconv names it.
    """

    def __init__(self, line: int, found: str, encoding: str) -> None:
        super().__init__(f"line {line} is not UTF-8: {found}")
        self.line = line
        self.found = found
        self.encoding = encoding

    def of_file(self, kind: type[Kind], file: Path, what: str = "the file", *, is_secret: bool = False) -> Kind:
        """The error of this kind about a file, with the line and the command that converts it.

        Args:
            kind: The class of the error.
            file: Where the text stands.
            what: What the message calls the file.
            is_secret: Show no byte of the file.
        """
        return kind(
            f"{what} is not UTF-8",
            where=f"{file}:{self.line}",
            found=f"line {self.line} is not UTF-8" if is_secret else self.found,
            allowed="text in UTF-8",
            hint=self.fix(file),
        )

    def fix(self, file: Path) -> str:
        """The command that writes the file anew as UTF-8, beside it and with the same suffix."""
        target = file.with_name(f"{file.stem}.utf8{file.suffix}")
        return f"iconv -f {self.encoding} -t UTF-8 {shlex.quote(str(file))} >{shlex.quote(str(target))}"


def utf8_text(body: bytes) -> str:
    """A text without its byte order mark. Raises ``NotUtf8``."""
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            raise NotUtf8(1, f"text in {encoding}", encoding)
    sample = body[:_SAMPLE_BYTES]
    for encoding, zeros in (("UTF-16LE", sample[1::2]), ("UTF-16BE", sample[::2])):
        if len(zeros) > 1 and zeros.count(0) * 2 > len(zeros):
            raise NotUtf8(1, "text in UTF-16 without a byte order mark", encoding)
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The mark is cut off before the rest is decoded.
        start = error.start + len(body) - len(error.object)
        encoding = "WINDOWS-1252" if not _WINDOWS_ONLY.isdisjoint(body) else "ISO-8859-1"
        line = body.count(b"\n", 0, start) + 1
        raise NotUtf8(line, f"the byte 0x{body[start]:02x}", encoding) from None
