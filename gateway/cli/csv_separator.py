"""CSV files with another separator than a comma, as spreadsheets save them in many countries: named, with the fix."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

from device_agent.errors import UsageInvalid

SEPARATORS: Final = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SEP_LINE: Final = re.compile(r'\s*"?sep=(.?)"?\s*', re.IGNORECASE)
_CONVERT: Final = "import csv,sys; csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, delimiter={!r}))"


def check_separator(path: Path, number: int, line: str, known: Callable[[list[str]], bool]) -> None:
    """Raise ``UsageInvalid`` for a line of a CSV file that is separated by something else than commas.

    Args:
        path: The file, for the message.
        number: The line, counted from 1.
        line: Its text.
        known: Whether the cells of a line are what this file should have. No cell is shown: it may be a secret.
    """
    told = _SEP_LINE.fullmatch(line)
    if told is not None:
        source = shlex.quote(str(path))
        target = shlex.quote(str(path.with_name(f"{path.stem}.comma{path.suffix}")))
        convert = f" | {_command(told[1])}" if told[1] in SEPARATORS else ""
        raise UsageInvalid(
            "this line tells a spreadsheet which separator the file has",
            where=f"{path}:{number}",
            found=line.strip(),
            allowed="commas, and no such line",
            hint=f"sed {number}d {source}{convert} >{target}",
        )
    for separator, words in SEPARATORS.items():
        if separator in line and known([cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]):
            target = shlex.quote(str(path.with_name(f"{path.stem}.comma{path.suffix}")))
            raise UsageInvalid(
                f"the cells are separated by {words}",
                where=f"{path}:{number}",
                found=words,
                allowed="commas",
                hint=f"{_command(separator)} <{shlex.quote(str(path))} >{target}",
            )


def _command(separator: str) -> str:
    return f"python3 -c {shlex.quote(_CONVERT.format(separator))}"
