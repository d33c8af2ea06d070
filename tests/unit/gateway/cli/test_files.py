"""gateway/cli/files.py."""

from __future__ import annotations

from typing import Any

from tests.peers.api_double import ApiDouble
from tests.unit.gateway.cli.conftest import Shell


def a_fetch(path: str, error: str = "") -> dict[str, Any]:
    """As the API shows it."""
    return {"path": path, "saltenv": "base", "size": 2_000_000, "here": 1_000_000, "error": error}


def test_what_waits_for_its_turn_and_what_failed_is_shown(api: ApiDouble, shell: Shell) -> None:
    begun = {"sha256": "a" * 64, "size": 2_000_000, "whole": False, "path": "begun", "saltenv": "base"}
    cache = {"used_bytes": 2_000_000, "most_bytes": 10**9, "files": 1, "contents": [begun]}
    api.refusals["/files/cache"] = (200, {**cache, "fetches": [a_fetch("begun"), a_fetch("later")]})
    finished = shell.here("files", "cache")
    assert finished.status == 0
    rows = {line.split()[0]: line for line in finished.out.splitlines()}
    assert ("waits" in rows["begun"], "waits" in rows["later"]) == (False, True)
    api.refusals["/files/cache"] = (200, {**cache, "fetches": [a_fetch("lost", "cache_full: no room")]})
    finished = shell.here("files", "cache")
    assert finished.status == 1
    assert "not fetched: lost: cache_full: no room" in finished.error
