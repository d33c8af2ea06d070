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
"""``long``: every test with every release. ``short``, or no such variable: what a commit waits for."""

CI = "CI"
"""``true`` where continuous integration runs the tests."""


def releases_asked() -> tuple[str, ...]:
    """The releases that the tests are to be run with."""
    return RELEASES if os.environ.get(ASKED) == "long" else (NEWEST,)


def is_required() -> bool:
    """Whether a test that needs stock Salt fails where Salt cannot be installed. Else it is skipped."""
    return ASKED in os.environ or os.environ.get(CI, "").lower() in {"1", "true"}


def stock_salt(release: str = NEWEST) -> Path:
    """The folder with the programs of a release and its Python. Installs it when it is not there.

    Where Salt cannot be installed the test fails if Salt ``is_required``; else it is skipped.
    """
    command = [str(PROGRAM), sys.executable, str(FOLDER), release]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * MINUTES, check=False)
        why = done.stderr.strip()[-600:] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    if why:
        hint = f"; {ASKED} or {CI} is set, so the comparison with Salt must run" if is_required() else ""
        (pytest.fail if is_required() else pytest.skip)(f"stock Salt {release} cannot be installed here: {why}{hint}")
    return FOLDER / release / "bin"


def stock_python() -> Path:
    """The Python of the newest release, with Salt in it; as ``stock_salt`` where that cannot be installed."""
    return stock_salt() / "python"
