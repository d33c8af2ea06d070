"""What systemd says of the units: how much of the machine each can reach, and that nothing in them is a mistake."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.tree import ROOT

ANALYZE = shutil.which("systemd-analyze")
UNITS = sorted(path for kind in ("service", "timer") for path in (ROOT / "systemd").glob(f"*.{kind}"))
MOST_EXPOSURE = 2.0
"""Of 10. The agent manages its device as root, and has a profile of its own (docs/agent.md)."""

CLOSED = ("gateway", "master", "broker", "join-usb")

pytestmark = pytest.mark.skipif(ANALYZE is None, reason="systemd is not installed: apt install systemd")


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    assert ANALYZE is not None
    return subprocess.run([ANALYZE, *words], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("role", CLOSED)
def test_a_unit_reaches_little_of_its_machine(role: str) -> None:
    unit = ROOT / "systemd" / f"outstation-{role}.service"
    said = analyze("security", "--offline=true", "--no-pager", str(unit)).stdout
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert found is not None, said
    assert float(found[1]) <= MOST_EXPOSURE, said


def test_systemd_finds_no_mistake_in_any_unit(tmp_path: Path) -> None:
    copies = []
    for unit in UNITS:
        # The programs are there once the package is; what is looked at here is everything else.
        text = re.sub(r"^(Exec\w+=)\S+", r"\1/bin/true", unit.read_text(encoding="utf-8"), flags=re.MULTILINE)
        copies.append(tmp_path / unit.name)
        copies[-1].write_text(text, encoding="utf-8")
    done = analyze("verify", "--man=no", "--recursive-errors=one", *map(str, copies))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
