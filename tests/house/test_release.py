"""What is installed: one version everywhere, an entry that exists, and requirements that match the imports."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from datetime import datetime
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from device_agent import RELEASED, __version__
from tests.house.tree import CODE, ROOT, listing, name, python_files, syntax

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# File -> packages that it uses where they are installed and does without where they are not.
OPTIONAL = {
    "device_agent/swarm.py": {"uvloop"},
    "tests/fuzz/fuzzer.py": {"atheris"},
    "device_agent/log_stream.py": {"systemd"},
}


def normal(distribution: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def required(*extras: str) -> set[str]:
    """Names of what the distribution and these extras of it ask for."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    return {normal(re.split(r"[<>=!~\[; ]", line, maxsplit=1)[0]) for line in lines}


def imported(path: Path) -> set[str]:
    """Top-level names of the packages of others that a file imports."""
    names = set()
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names - set(CODE) - sys.stdlib_module_names


@pytest.mark.parametrize(
    ("floor", "extras"),
    [
        ("device_agent", []),
        ("upstream", ["station"]),
        ("gateway", ["station", "embedded", "nats"]),
        ("tests", ["station", "embedded", "test"]),
    ],
)
def test_everything_imported_is_required_where_it_is_used(floor: str, extras: list[str]) -> None:
    distributions = packages_distributions()
    allowed = required(*extras)
    findings = [
        f"{name(path)}: {package}"
        for path in python_files(floor)
        for package in sorted(imported(path) - OPTIONAL.get(name(path), set()))
        if not allowed & {normal(distribution) for distribution in distributions.get(package, [])}
    ]
    assert not findings, listing(findings)


def test_everything_required_has_a_pinned_version() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {normal(line.partition("==")[0]) for line in lines if "==" in line}
    assert required(*PROJECT["optional-dependencies"]) <= pinned


def test_the_version_is_the_newest_in_the_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (?!Unreleased$)(\S+)", text, re.MULTILINE)
    assert newest is not None
    assert newest[1].strip("[]") == __version__


def test_the_day_of_the_release_is_that_of_the_newest_in_the_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \S+ \((\d{4}-\d{2}-\d{2})\)", text, re.MULTILINE)
    assert newest is not None
    assert datetime.fromisoformat(f"{newest[1]}T00:00:00+00:00").timestamp() == RELEASED


def test_the_console_script_exists() -> None:
    module, _, function = PROJECT["scripts"]["outstation"].partition(":")
    assert callable(getattr(import_module(module), function))
