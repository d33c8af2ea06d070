"""The short form of ``make chaos``: everything is broken once or so in a minute, and nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.network import available
from tests.chaos.run import Terms, run

SEED = int(os.environ.get("OUTSTATION_CHAOS_SEED", "20261122"))
SECONDS = 50.0
DEVICES = 60
FAULTS = 9
pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(420),
    pytest.mark.skipif(os.geteuid() != 0 or not available(), reason="it takes root and network namespaces"),
]


def test_a_minute_of_faults_loses_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    terms = Terms(SEED, SECONDS, DEVICES, FAULTS, swarms=3, keep=tmp_path / "kept")
    result = run(terms, lines.append)
    assert result.good, "\n".join([f"seed {SEED}", *map(str, result.findings), *lines])
    assert sum(result.applied.values()) == FAULTS
