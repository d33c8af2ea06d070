"""gateway/cli/check.py."""

from __future__ import annotations

import json

import pytest

from tests.peers.api_double import ApiDouble, Fields
from tests.unit.gateway.cli.conftest import Shell

FINE: Fields = {"check": "store", "severity": "ok", "finding": "it writes", "meaning": "not shown", "fix": "not shown"}
BROKEN: Fields = {
    "check": "uplink",
    "severity": "error",
    "finding": "no master answers",
    "meaning": "returns stay in the spool",
    "fix": "look at the masters in gateway.yaml",
}


def test_findings_are_in_words_with_what_they_mean_and_how_to_mend_them(api: ApiDouble, shell: Shell) -> None:
    api.findings = [FINE, BROKEN]
    api.station = {
        "role": "gateway",
        "name": "lisbon",
        "version": "0.1.0",
        "uplink": {"state": "connected", "master": "tcp://192.0.2.1:4505"},
    }
    finished = shell.run("check")
    assert finished.status == 1
    assert finished.error == "gateway lisbon, outstation 0.1.0, uplink connected to tcp://192.0.2.1:4505\n"
    assert finished.out.splitlines() == [
        "ok        store             it writes",
        "error     uplink            no master answers",
        "                            means: returns stay in the spool",
        "                            fix:   look at the masters in gateway.yaml",
    ]


@pytest.mark.parametrize(("severity", "status"), [("ok", 0), ("info", 0), ("warning", 0), ("error", 1)])
def test_only_an_error_is_a_failure(api: ApiDouble, shell: Shell, severity: str, status: int) -> None:
    api.findings = [FINE, {**BROKEN, "severity": severity}]
    assert shell.here("check").status == status
    finished = shell.here("check", "--json")
    assert finished.status == status
    assert [json.loads(line)["severity"] for line in finished.out.splitlines()] == ["ok", severity]
    assert finished.error == ""
