"""The import contracts hold, and would notice if they did not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import FLOORS, ROOT

LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"


def contracts(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", LINT], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_floor_imports_only_what_its_contract_allows() -> None:
    result = contracts(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("device_agent/clock.py", "import upstream", "A floor imports only floors below it"),
        ("upstream/ports.py", "import gateway", "A floor imports only floors below it"),
        ("device_agent/clock.py", "import zmq", "A camera carries nothing heavy"),
        ("device_agent/protocol/tags.py", "import time", "The words, the failover and the expected set"),
        ("upstream/failover.py", "import socket", "The words, the failover and the expected set"),
    ],
)
def test_an_import_against_a_contract_is_found(file: str, line: str, contract: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for floor in FLOORS:
        shutil.copytree(ROOT / floor, tmp_path / floor, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / file).open("a", encoding="utf-8") as source:
        source.write(f"\n{line}\n")
    result = contracts(tmp_path)
    assert result.returncode == 1
    assert any(contract in row and "BROKEN" in row for row in result.stdout.splitlines()), result.stdout + result.stderr
