"""``make test`` where no machine can be booted: what tests on such machines is skipped, and says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.house.tree import ROOT


def test_where_no_machine_boots_each_test_says_why_it_is_skipped(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/appliance"],
        env={**os.environ, "PATH": str(tmp_path), "OUTSTATION_APPLIANCE": "short"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reasons = [line.partition(": ")[2] for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert any(reason.startswith("boots machines, which takes") and "systemd-nspawn" in reason for reason in reasons)
    assert all("make appliance" in reason or "systemd-nspawn" in reason for reason in reasons)
    closing = done.stdout.splitlines()[-1]
    assert "skipped" in closing
    assert "passed" not in closing
