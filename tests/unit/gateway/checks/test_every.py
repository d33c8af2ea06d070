"""gateway/checks/every.py: all checks at once, and the page that tells of them."""

from __future__ import annotations

import ast
import asyncio
import re
from importlib import import_module
from pathlib import Path

import pytest

from device_agent.errors import ConfigInvalid
from gateway.checks import every
from gateway.checks.box import Box
from gateway.checks.every import AT_REST, CHECKS, look, look_at_rest, worst_first
from gateway.checks.finding import Facts, Finding
from tests.house.tree import ROOT
from tests.unit.gateway.checks.conftest import Told, a_box

FOLDER = ROOT / "gateway" / "checks"
NO_CHECKS = {
    "__init__",
    "box",
    "every",
    "finding",
    "open_secrets",
    "own_processes",
    "repairs",
    "check_events",
    "settings",
    "station",
}
"""What is in the folder and looks at no running station."""

ROW = re.compile(r"^\| `([a-z-]+)` \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def severities() -> dict[str, set[str]]:
    """By the name of a check: what it can say, as its source has it."""
    found: dict[str, set[str]] = {}
    for path in (*FOLDER.glob("*.py"), ROOT / "gateway/api/station.py", ROOT / "gateway/waiting_room.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "Finding":
                continue
            said = {word.arg: word.value for word in call.keywords}
            if isinstance(said["check"], ast.Constant):
                words = {node.value for node in ast.walk(said["severity"]) if isinstance(node, ast.Constant)}
                found.setdefault(str(said["check"].value), set()).update(
                    str(word) for word in words if word in ("ok", "info", "warning", "error")
                )
    return found


def test_every_check_is_made() -> None:
    there = {path.stem for path in FOLDER.glob("*.py")} - NO_CHECKS
    assert {check.__module__.rpartition(".")[2] for check in CHECKS} == there
    resting = {path.stem for path in FOLDER.glob("*.py") if "def at_rest(" in path.read_text(encoding="utf-8")}
    assert {check.__module__.rpartition(".")[2] for check in AT_REST} == resting


def test_the_page_has_a_row_for_every_check_with_what_it_can_say() -> None:
    page = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    rows = {name: (looks, worst, rest) for name, looks, worst, rest in ROW.findall(page)}
    assert {name: set(re.findall(r"[a-z]+", worst)) for name, (_, worst, _) in rows.items()} == severities()
    resting = {check.__module__.rpartition(".")[2].replace("_", "-") for check in AT_REST} | {"settings"}
    assert {name for name, (_, _, rest) in rows.items() if rest == "yes"} == resting


def test_every_module_of_a_check_says_what_it_asks() -> None:
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem not in NO_CHECKS:
            assert "?" in (import_module(f"gateway.checks.{path.stem}").__doc__ or ""), path.stem


def test_the_worst_comes_first_and_the_rest_stays_in_order() -> None:
    said = [("a", "ok"), ("b", "error"), ("c", "info"), ("d", "error"), ("e", "warning")]
    findings = [Finding(check=name, severity=severity, finding="") for name, severity in said]  # type: ignore[arg-type]  # the words are those of the type
    assert [finding.check for finding in worst_first(findings)] == ["b", "d", "e", "c", "a"]


async def test_a_check_that_fails_is_a_finding_and_the_others_are_made(facts: Told) -> None:
    async def broken(_: Facts) -> list[Finding]:
        raise ZeroDivisionError("by zero")

    async def fine(_: Facts) -> list[Finding]:
        return [Finding(check="fine", severity="ok", finding="it is")]

    first, second = await look(facts, [broken, fine])
    assert (first.severity, first.about, second.check) == ("error", "broken", "fine")
    assert first.finding == "this check could not be made: by zero"
    assert "journalctl" in first.fix


async def test_a_check_that_hangs_keeps_nobody_waiting(facts: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hanging(_: Facts) -> list[Finding]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(every, "CHECK_SECONDS", 0.05)
    (finding,) = await look(facts, [hanging])
    assert finding.severity == "error"
    assert "it took longer than" in finding.finding


def test_a_damaged_file_of_a_station_at_rest_is_a_finding(tmp_path: Path) -> None:
    def damaged(_: Box) -> list[Finding]:
        raise ConfigInvalid("a file is damaged", where="trust.keys", found="something else", hint="restore it")

    def unreadable(_: Box) -> list[Finding]:
        raise PermissionError(13, "Permission denied", "/root")

    first, second = look_at_rest(a_box(tmp_path), [damaged, unreadable])
    assert (first.severity, first.finding, first.fix) == (
        "error",
        "trust.keys: a file is damaged, found: something else",
        "restore it",
    )
    assert (second.severity, "Permission denied" in second.finding) == ("error", True)


def test_an_empty_machine_can_be_looked_at(tmp_path: Path) -> None:
    found = look_at_rest(a_box(tmp_path))
    assert found[0].check == "station"
    assert {"disk", "clock", "permissions", "trust", "versions"} <= {finding.check for finding in found}
    assert not any("could not be made" in finding.finding for finding in found)
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"
