"""gateway/engines/child.py: what cannot be started leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.engines.child import Child
from gateway.engines.running import Given


async def test_options_that_cannot_be_handed_over_start_no_process(tmp_path: Path) -> None:
    child = Child(lambda _: None, lambda _: None)
    given = Given(
        name="e",
        module="e",
        path="e.py",
        text=b"",
        builtin=False,
        options={"card": 10**30},
        opts={},
        api="",
        events="",
        folder="",
        log_level="info",
        memory_megabytes=64,
        open_files=32,
    )
    with pytest.raises(OverflowError):
        await child.live(given, 4, tmp_path, os.environ)
    assert child.pid is None
