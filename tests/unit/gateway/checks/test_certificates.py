"""gateway/checks/certificates.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.checks.certificates import DAY_SECONDS, at_rest, check
from gateway.config import ApiSettings
from tests.peers.certificate import BEGINS, ENDS, self_made
from tests.peers.clock import STARTED_WALL
from tests.unit.gateway.checks.conftest import Told, a_box

END = ENDS.timestamp()


def api(folder: Path) -> ApiSettings:
    certificate, key = self_made(folder)
    return ApiSettings(listen="0.0.0.0:4512", certificate=str(certificate), key=str(key))


@pytest.mark.parametrize(
    ("wall", "severity", "said", "fix"),
    [
        (STARTED_WALL, "ok", "that of the API ends in 267", ""),
        (END - 21 * DAY_SECONDS, "ok", "ends in 21 days", ""),
        (END - 21 * DAY_SECONDS + 60, "warning", "the certificate of the API ends in 21 days", "put a new one to "),
        (END, "error", "the certificate of the API ended at 2100-01-01T00:00:00Z", "put a new one to "),
        (BEGINS.timestamp() - 1, "error", "counts from 2020-01-01T00:00:00Z on, and not yet", "timedatectl"),
    ],
)
async def test_the_end_of_the_certificate_of_the_api_is_told_before_it_comes(
    wall: float, severity: str, said: str, fix: str, tmp_path: Path, facts: Told
) -> None:
    facts.of_box = a_box(tmp_path, api=api(tmp_path), wall=wall)
    (finding,) = await check(facts)
    assert finding.severity == severity
    assert said in finding.finding
    assert finding.fix.startswith(fix)
    assert bool(finding.fix) == bool(finding.meaning) == (severity != "ok")


@pytest.mark.parametrize(("content", "why"), [(None, "No such file"), (b"no certificate", "no certificate in PEM")])
def test_one_that_cannot_be_read_is_told(content: bytes | None, why: str, tmp_path: Path) -> None:
    settings = api(tmp_path)
    path = Path(settings.certificate or "")
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    (finding,) = at_rest(a_box(tmp_path, api=settings))
    assert finding.severity == "error"
    assert why in finding.finding
    assert finding.fix.startswith(f"ls -l {path}")


@pytest.mark.parametrize("settings", [None, ApiSettings(listen="127.0.0.1:4512")])
def test_without_one_there_is_no_finding(settings: ApiSettings | None, tmp_path: Path) -> None:
    assert at_rest(a_box(tmp_path, api=settings)) == []
