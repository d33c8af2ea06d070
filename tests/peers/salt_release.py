"""Stock Salt by release: where its programs are, and how they are got when they are not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "packaging" / "make-salt-masters"
FOLDER = ROOT / ".cache" / "salt-masters"

RELEASES = ("3006", "3007", "3008")
NEWEST = RELEASES[-1]
MINUTES = 10
"""For one of them; it is two where the network is as usual."""

ASKED = "OUTSTATION_SALT"
"""``long``: every test with every release. ``short``: what a commit waits for. Either way Salt must be had: without the
variable the short form is skipped where it cannot."""


def releases_asked() -> tuple[str, ...]:
    """The releases that the tests are to be run with."""
    return RELEASES if os.environ.get(ASKED) == "long" else (NEWEST,)


def stock_salt(release: str = NEWEST) -> Path:
    """The folder with the programs of a release and its Python. Installs it when it is not there.

    Skips the test where Salt cannot be had, or fails it where that was asked for.
    """
    command = [str(PROGRAM), sys.executable, str(FOLDER), release]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * MINUTES, check=False)
        why = done.stderr.strip()[-600:] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    if why:
        (pytest.fail if ASKED in os.environ else pytest.skip)(f"stock Salt cannot be installed here: {why}")
    return FOLDER / release / "bin"
