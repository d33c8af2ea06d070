"""gateway/backup/passphrase.py: one line of a file, or what is typed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from device_agent.errors import UsageInvalid
from gateway.backup.passphrase import known_passphrase, new_passphrase

GOOD = "correct horse battery staple"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What will be typed, in order."""
    lines: list[str] = []
    rest: Iterator[str] = iter(lines)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", lambda _: next(rest))
    return lines


def file_with(folder: Path, body: bytes, mode: int = 0o600) -> Path:
    path = folder / "passphrase"
    path.write_bytes(body)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_line_of_a_file_is_the_passphrase_without_its_end(tmp_path: Path, end: bytes) -> None:
    path = file_with(tmp_path, GOOD.encode() + end)
    assert new_passphrase(path) == known_passphrase(path) == GOOD.encode()


def test_the_same_letters_are_the_same_passphrase_however_they_are_composed(tmp_path: Path) -> None:
    composed, apart = "Cr\u00e8me br\u00fbl\u00e9e pour deux", "Cre\u0300me bru\u0302le\u0301e pour deux"
    assert composed != apart
    one = known_passphrase(file_with(tmp_path, composed.encode()))
    assert one == known_passphrase(file_with(tmp_path, apart.encode()))


@pytest.mark.parametrize(
    ("body", "mode", "words"),
    [
        (b"", 0o600, "holds no passphrase"),
        (b"\n", 0o600, "holds no passphrase"),
        (b"one line\nand another", 0o600, "holds no passphrase"),
        (b"\xff\xfe", 0o600, "cannot be read"),
        (GOOD.encode(), 0o644, "everybody on this machine"),
    ],
)
def test_a_file_that_is_no_secret_line_is_refused(tmp_path: Path, body: bytes, mode: int, words: str) -> None:
    with pytest.raises(UsageInvalid, match=words):
        known_passphrase(file_with(tmp_path, body, mode))


def test_a_new_one_is_long_and_typed_twice_the_same(typed: list[str], tmp_path: Path) -> None:
    typed += ["short"]
    with pytest.raises(UsageInvalid, match="too short"):
        new_passphrase(None)
    with pytest.raises(UsageInvalid, match="too short"):
        new_passphrase(file_with(tmp_path, b"elevenchars"))
    typed += [GOOD, GOOD[:-1]]
    with pytest.raises(UsageInvalid, match="not the same"):
        new_passphrase(None)
    typed += [GOOD, GOOD]
    assert new_passphrase(None) == GOOD.encode()


def test_a_known_one_is_typed_once_and_may_be_anything(typed: list[str]) -> None:
    typed += ["short"]
    assert known_passphrase(None) == b"short"


def test_where_nobody_can_be_asked_it_says_how_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    with pytest.raises(UsageInvalid) as error:
        known_passphrase(None)
    assert "--passphrase-file" in str(error.value)
