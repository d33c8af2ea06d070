"""QR codes of join tokens: on the terminal for a camera that reads with its own sensor, and as files for labels."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import segno

from device_agent.errors import UsageInvalid

BORDER = 4
"""Modules of quiet around the code (ISO/IEC 18004)."""

PIXELS = 8
INK = "\x1b[38;5;16;48;5;231m"
"""Black on white, whatever the colours of the terminal are."""

PLAIN = "\x1b[0m"
HALVES = {(0, 0): " ", (1, 0): "▀", (0, 1): "▄", (1, 1): "█"}

Kind = Literal["png", "svg"]


def terminal_lines(text: str) -> list[str]:
    """The code in lines for a terminal, two rows of modules in each."""
    rows = [[int(bool(module)) for module in row] for row in _code(text).matrix_iter(border=BORDER)]
    if len(rows) % 2:
        rows.append([0] * len(rows[0]))
    return [
        INK + "".join(HALVES[halves] for halves in zip(upper, lower, strict=True)) + PLAIN
        for upper, lower in zip(rows[::2], rows[1::2], strict=True)
    ]


def width(text: str) -> int:
    """How many columns the code takes."""
    return int(_code(text).symbol_size(border=BORDER)[0])


def refuse_taken(path: Path, kind: Kind, count: int) -> None:
    """Raise ``UsageInvalid`` when a file is there already: before tokens are made that nobody could read then."""
    for place in _names(path, count):
        if place.exists() or not place.parent.is_dir():
            raise _not_written(kind, f"{place}: {'it is there already' if place.exists() else 'no such folder'}")


def write_files(path: Path, kind: Kind, texts: Sequence[str]) -> list[Path]:
    """Write a file for each code, only for its owner: ``label.png``, or ``label-1.png`` and so on.

    Raises ``UsageInvalid``; a file that is there already is left as it is.
    """
    written = []
    for place, text in zip(_names(path, len(texts)), texts, strict=True):
        picture = io.BytesIO()
        _code(text).save(picture, kind=kind, scale=PIXELS, border=BORDER)
        try:
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(picture.getvalue())
        except OSError as error:
            raise _not_written(kind, f"{place}: {(error.strerror or str(error)).lower()}") from None
        written.append(place)
    return written


def _not_written(kind: Kind, found: str) -> UsageInvalid:
    return UsageInvalid(
        "the picture cannot be written",
        where=f"--{kind}",
        found=found,
        allowed="a name that no file has yet, in a folder that you may write",
    )


def _names(path: Path, count: int) -> Iterator[Path]:
    if count == 1:
        return iter([path])
    return (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in range(1, count + 1))


def _code(text: str) -> segno.QRCode:
    return segno.make(text, error="m", micro=False)
