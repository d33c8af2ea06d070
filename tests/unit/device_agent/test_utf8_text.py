"""Text that a person wrote: its encoding, the line that is wrong, and the command that mends it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from device_agent.errors import ConfigInvalid, OutstationError, UsageInvalid
from device_agent.utf8_text import NotUtf8, utf8_text

TEXT = "name,address\nGerät,10.0.0.7\n„Tür“,10.0.0.8\n"
SIMPLE = TEXT.replace("„Tür“", "Tür")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_byte_order_mark_of_utf_8_is_no_part_of_the_text(encoding: str) -> None:
    assert utf8_text(TEXT.encode(encoding)) == TEXT


@pytest.mark.parametrize("body", [b"", b"\0", b"a\0b", b"\n"])
def test_short_texts_are_what_they_are(body: bytes) -> None:
    assert utf8_text(body) == body.decode()


@pytest.mark.parametrize(
    ("encoding", "text", "line", "found"),
    [
        ("iso-8859-1", SIMPLE, 2, "the byte 0xe4"),
        ("windows-1252", TEXT, 2, "the byte 0xe4"),
        ("windows-1252", "a\nb\nc: 5 €\n", 3, "the byte 0x80"),
        ("utf-16", TEXT, 1, "text in UTF-16"),
        ("utf-16-le", SIMPLE, 1, "text in UTF-16 without a byte order mark"),
        ("utf-16-be", SIMPLE, 1, "text in UTF-16 without a byte order mark"),
        ("utf-32", TEXT, 1, "text in UTF-32"),
    ],
)
def test_another_encoding_is_named_by_line_and_its_fix_works(
    tmp_path: Path, encoding: str, text: str, line: int, found: str
) -> None:
    file = tmp_path / "my cameras.csv"
    file.write_bytes(text.encode(encoding))
    with pytest.raises(NotUtf8) as wrong:
        utf8_text(file.read_bytes())
    assert (wrong.value.line, wrong.value.found) == (line, found)
    assert str(wrong.value) == f"line {line} is not UTF-8: {found}"
    subprocess.run(["/bin/sh", "-c", wrong.value.fix(file)], check=True, timeout=60)
    assert utf8_text((tmp_path / "my cameras.utf8.csv").read_bytes()) == text


@pytest.mark.parametrize("kind", [UsageInvalid, ConfigInvalid])
@pytest.mark.parametrize(("is_secret", "found"), [(False, "the byte 0xe4"), (True, "line 2 is not UTF-8")])
def test_the_error_of_a_file_has_the_line_and_the_fix(kind: type[OutstationError], is_secret: bool, found: str) -> None:
    with pytest.raises(NotUtf8) as wrong:
        utf8_text(b"a\nK\xe4se\n")
    error = wrong.value.of_file(kind, Path("/srv/my list.csv"), "the list", is_secret=is_secret)
    assert type(error) is kind
    assert (error.what, error.where, error.found) == ("the list is not UTF-8", "/srv/my list.csv:2", found)
    assert error.allowed == "text in UTF-8"
    assert error.hint == wrong.value.fix(Path("/srv/my list.csv"))


def test_a_line_behind_a_byte_order_mark_is_counted_from_the_beginning() -> None:
    with pytest.raises(NotUtf8, match="line 3 is not UTF-8: the byte 0xff"):
        utf8_text(b"\xef\xbb\xbfa\nb\n\xff")
