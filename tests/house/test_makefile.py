"""`make` alone tells everything that `make` can do, and no target hides a script."""

from __future__ import annotations

import os
import re
import subprocess

from tests.house.tree import ROOT, name

TEXT = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGET = re.compile(r"^([a-z-]+):(?!=).*?(## (\S.*))?\n((?:\t.*\n)*)", re.MULTILINE)
LONGEST_RECIPE = 3


def test_make_alone_lists_every_target() -> None:
    result = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    listed = [line.split(maxsplit=2) for line in result.stdout.splitlines()]
    targets = [match[1] for match in TARGET.finditer(TEXT)]
    assert targets
    assert [target for _, target, _ in listed] == targets


def test_every_target_says_what_it_does_and_is_short() -> None:
    for match in TARGET.finditer(TEXT):
        assert match[3], f"{match[1]} has no ## comment"
        assert match[4].count("\n") <= LONGEST_RECIPE, f"{match[1]} belongs in a script"


def test_every_script_can_be_run_and_stops_at_its_first_error() -> None:
    scripts = [
        path for path in (*(ROOT / "packaging").iterdir(), ROOT / ".ci" / "run") if path.is_file() and not path.suffix
    ]
    assert scripts
    for script in scripts:
        assert os.access(script, os.X_OK), name(script)
        assert "set -euo pipefail" in script.read_text(encoding="utf-8"), name(script)
