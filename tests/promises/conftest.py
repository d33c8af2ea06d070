"""A whole system for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.system import System, whole_system


@pytest.fixture
def system() -> Iterator[System]:
    with whole_system() as started:
        yield started
