"""The short form of ``make chaos``: everything is broken once, and nothing is lost that is not counted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.network import available
from tests.chaos.plan import sorts
from tests.chaos.run import Terms, run

SEED = int(os.environ.get("OUTSTATION_CHAOS_SEED", "20261122"))
DEVICES = 60
pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(420),
    pytest.mark.skipif(os.geteuid() != 0 or not available(), reason="it takes root and network namespaces"),
]


def test_every_fault_once_loses_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    terms = Terms(SEED, 0, DEVICES, 0, swarms=3, keep=tmp_path / "kept")
    result = run(terms, lines.append)
    assert result.good, "\n".join([f"seed {SEED}", *map(str, result.findings), *lines])
    assert sum(result.applied.values()) == len(sorts(3))
