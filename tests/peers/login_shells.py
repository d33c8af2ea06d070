"""Login shells of accounts: those of this machine, and small imitations of the quoting of fish and csh.

An imitation reads a line as its shell would and becomes the command in it, so that a test of foreign quoting runs where
these shells are not installed: ``python login_shells.py fish -c LINE``.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

SHELLS = ("sh", "bash", "dash", "fish", "tcsh", "bsd-csh", "zsh", "busybox")
IMITATED = ("fish", "csh")


def login_shell(name: str) -> list[str]:
    """The words before the line that this shell is to run. Skips the test where the shell is missing."""
    if name.startswith("imitated-"):
        return [sys.executable, str(Path(__file__)), name.removeprefix("imitated-"), "-c"]
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    return [program, "sh", "-c"] if name == "busybox" else [program, "-c"]


def words_of(line: str, shell: str) -> list[str]:
    """The words of a line that has no quotes but single ones, as fish or csh reads it. Raises ``ValueError``."""
    words: list[str] = []
    word, quoted, begun, place = "", False, False, 0
    while place < len(line):
        each, following = line[place], line[place + 1 : place + 2]
        place += 1
        if each == "!" and shell == "csh":
            raise ValueError(f"{line[place - 1 : place + 9]}: Event not found.")
        if each == "\n" and shell == "csh" and quoted:
            raise ValueError("Unmatched '.")
        if each == "'":
            quoted, begun = not quoted, True
        elif each == "\\" and (not quoted or (shell == "fish" and following in ("\\", "'"))):
            word += following
            place += 1
        elif each.isspace() and not quoted:
            words += [word] if word or begun else []
            word, begun = "", False
        else:
            word += each
    if quoted:
        raise ValueError("Unmatched '.")
    return [*words, word] if word or begun else words


def main(shell: str, line: str) -> None:
    """Become the command of a line, which is ``exec WORDS``."""
    try:
        word, program, *rest = words_of(line, shell)
        if word != "exec":
            raise ValueError(f"{word}: Command not found.")
    except ValueError as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from None
    os.execv(program, [program, *rest])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3])
