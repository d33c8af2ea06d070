"""A whole system for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.salt_release import stock_python
from tests.peers.system import System, whole_system


@pytest.fixture
def system() -> Iterator[System]:
    with whole_system() as started:
        yield started


@pytest.fixture(scope="module")
def salt() -> Path:
    """The Python of an environment with stock Salt in it."""
    return stock_python()
