"""gateway/checks/disk.py."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.checks.disk import check
from tests.unit.gateway.checks.conftest import Told


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize(
    ("free", "severity"),
    [(100, "ok"), (15, "ok"), (14, "warning"), (3, "warning"), (2, "error"), (0, "error")],
)
async def test_the_less_is_free_the_louder_it_is(
    free: int, severity: str, facts: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = []

    def usage(folder: str) -> Usage:
        looked_at.append(folder)
        return Usage(100 * 2**30, (100 - free) * 2**30, free * 2**30)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    facts.folder = str(tmp_path)
    (finding,) = await check(facts)
    assert finding.severity == severity
    assert bool(finding.fix) == (severity != "ok")
    assert f"{free}.0 GiB free of 100.0 GiB at {tmp_path}" in finding.finding
    assert looked_at == [str(tmp_path)]


async def test_the_disk_of_this_machine_can_be_asked(facts: Told, tmp_path: Path) -> None:
    facts.folder = str(tmp_path)
    (finding,) = await check(facts)
    assert "GiB free of" in finding.finding
