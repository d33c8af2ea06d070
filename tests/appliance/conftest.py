"""Booted machines take root, a Debian mirror and minutes: these tests run where they are asked for."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.peers.bootable import missing
from tests.peers.machines import TestBed

ASKED = "OUTSTATION_APPLIANCE"
SHORT = "short"
"""What the variable says to ask for the short form, and the mark of the tests in it."""

HERE = Path(__file__).parent
SECONDS = 3600


def why_not(asked: str, short: bool) -> str:
    """Why a test does not run; nothing when it does. Who asks for all of them is told by the tests what is missing."""
    if not asked:
        return f'boots machines: try "make appliance", or {ASKED}=1'
    if asked != SHORT:
        return ""
    if not short:
        return 'belongs to the long form: try "make appliance"'
    return missing() and f"boots machines, which takes {missing()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A root may have to be made before the first, so none is hurried."""
    asked = os.environ.get(ASKED, "")
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        item.add_marker(pytest.mark.timeout(SECONDS))
        if reason := why_not(asked, item.get_closest_marker(SHORT) is not None):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[TestBed]:
    """A bed without a machine yet."""
    async with TestBed(tmp_path / "bed") as bed:
        yield bed
