"""gateway/checks/versions.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agent import __version__
from gateway.checks import versions
from gateway.checks.versions import at_rest, check
from tests.unit.gateway.checks.conftest import Told, a_box


@pytest.fixture
def told(facts: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setattr(versions, "_installed", lambda: __version__)
    facts.of_box = a_box(tmp_path)
    return facts


async def test_one_release_everywhere_is_fine(told: Told) -> None:
    told.sites = [{"site": "porto", "version": __version__}, {"site": "never-seen", "version": ""}]
    (finding,) = await check(told)
    assert (finding.severity, finding.finding) == ("ok", f"release {__version__}")


async def test_an_upgrade_without_a_restart_is_told(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_installed", lambda: "99.1")
    (finding,) = await check(told)
    assert (finding.severity, finding.finding) == ("warning", f"release {__version__} runs, and 99.1 is installed")
    assert "not finished" in finding.meaning
    assert finding.fix == "systemctl restart outstation-gateway"


async def test_sites_with_other_releases_are_named(told: Told) -> None:
    told.sites = [{"site": f"site-{number}", "version": "99.0"} for number in range(7)]
    told.sites.append({"site": "porto", "version": "0.0.1"})
    newer, older = await check(told)
    assert (newer.severity, older.severity) == ("warning", "info")
    assert newer.finding.endswith("site-3 99.0, site-4 99.0 and 2 more")
    assert older.finding.endswith(": porto 0.0.1")
    assert "upgrade this station first" in newer.fix
    assert "on the gateways" in older.fix
    assert newer.meaning
    assert older.meaning


def test_without_a_station_it_is_the_release_that_would_start(tmp_path: Path) -> None:
    (finding,) = at_rest(a_box(tmp_path))
    assert (finding.severity, finding.finding) == ("ok", f"release {__version__}")
