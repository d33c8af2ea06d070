"""``outstation reactor check``: what it prints, and its exit status."""

from __future__ import annotations

import pytest

from tests.peers.api_double import ApiDouble
from tests.unit.gateway.cli.conftest import Shell


@pytest.mark.parametrize(("level", "status"), [("note", 0), ("warning", 0), ("error", 1)])
def test_each_level_is_printed_with_its_line_and_only_an_error_changes_the_status(
    level: str, status: int, api: ApiDouble, shell: Shell
) -> None:
    trouble = {"file": "/a.sls", "line": 5, "what": "00427 is read as a number", "level": level}
    rule = {"tag": "site/*", "paths": ["/a.sls"], "files": ["/a.sls"], "troubles": [trouble], "tried": "site/a"}
    api.answers = {"/reactor/check": {"rules": [rule]}}
    finished = shell.here("reactor", "check")
    assert (finished.status, finished.out) == (status, f"/a.sls:5: {level}: 00427 is read as a number\n")
