"""Booted machines take root, a Debian mirror and minutes: these tests run where they are asked for."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.peers.machines import TestBed

ASKED = "OUTSTATION_APPLIANCE"
HERE = Path(__file__).parent
SECONDS = 1200


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without the variable they are skipped; a root may have to be made before the first, so none is hurried."""
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        item.add_marker(pytest.mark.timeout(SECONDS))
        if not os.environ.get(ASKED):
            item.add_marker(pytest.mark.skip(reason=f'boots machines: try "make appliance", or {ASKED}=1'))


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[TestBed]:
    """A bed without a machine yet."""
    async with TestBed(tmp_path / "bed") as bed:
        yield bed
