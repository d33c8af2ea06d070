"""The Debian packages agree with the code: versions and hashes of what they bundle, units, maintainer scripts."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from device_agent import RELEASED, __version__, restart_after_upgrade
from tests.house.tree import ROOT, listing

DEBIAN = ROOT / "debian"
LOCKS = ROOT / "packaging" / "wheels"
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
MAINTAINER_SCRIPTS = sorted(
    path for path in DEBIAN.iterdir() if path.suffix in {".config", ".preinst", ".postinst", ".prerm", ".postrm"}
)
NETWORK = re.compile(
    r"(?<![\w/.-])(apt|apt-get|aptitude|curl|ftp|git|nc|netcat|pip3?|rsync|scp|ssh|wget)\s|https?://|-m pip"
)


def normal(distribution: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def lock(name: str) -> dict[str, str]:
    """Distribution -> version of one file of locked wheels, each of which has a hash."""
    text = (LOCKS / f"{name}.txt").read_text(encoding="utf-8")
    pins = {match[1]: match[2] for match in PIN.finditer(text)}
    assert len(pins) == text.count("==") > 0, f"{name}.txt has a line that is no name==version with hashes"
    return pins


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines) if version}


def wanted(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[<>=!~\[; ]", line, maxsplit=1)[0]) for line in requirements}


@pytest.mark.parametrize("name", ["agent", "station", "compiled", "build"])
def test_what_is_bundled_has_the_versions_that_are_tested(name: str) -> None:
    pinned = constraints()
    assert lock(name).items() <= pinned.items(), "try: make wheels"


def test_everything_required_is_bundled() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert wanted(project["dependencies"]) <= lock("agent").keys(), "try: make wheels"
    assert lock("agent").items() <= lock("station").items()
    assert wanted([*EXTRAS["station"], *EXTRAS["nats"]]) <= lock("station").keys(), "try: make wheels"
    assert wanted(EXTRAS["systemd"]) == lock("compiled").keys()


def test_a_device_carries_nothing_that_only_a_station_or_a_test_needs() -> None:
    assert not lock("agent").keys() & wanted([*EXTRAS["station"], *EXTRAS["nats"], *EXTRAS["embedded"]])
    assert not lock("station").keys() & wanted([*EXTRAS["test"], *EXTRAS["embedded"], *EXTRAS["fuzz"]])


def test_every_unit_is_in_a_package() -> None:
    rules = (DEBIAN / "rules").read_text(encoding="utf-8")
    named = re.findall(r"^(?:ENABLED|INSTALLED|GUARD|AGENT) := (.*)", rules, re.MULTILINE)
    packaged = [unit for line in named for unit in line.split()]
    there = {path.name for path in (ROOT / "systemd").iterdir() if path.suffix not in {".sysusers", ".tmpfiles"}}
    assert set(packaged) == there, "a unit of systemd/ belongs into one of the lists of debian/rules"
    assert len(packaged) == len(there)


@pytest.mark.parametrize(
    ("state", "version", "restarts"),
    [("activating", "0.0.1", True), ("active", "0.0.1", False), ("activating", "", False)],
)
def test_an_upgrade_does_not_wait_with_an_agent_that_waits(
    state: str, version: str, restarts: bool, tmp_path: Path
) -> None:
    text = (DEBIAN / "outstation-agent.postinst").read_text(encoding="utf-8")
    before, found, _ = text.partition("#DEBHELPER#")
    assert found
    # Up to what debhelper writes there: the start that would join the wait.
    block = "if [" + before.rpartition("\nif [")[2].replace("/run/systemd/system", str(tmp_path))
    played = tmp_path / "systemctl"
    played.write_text(f'#!/bin/sh\n[ "$1" = show ] && echo {state}\necho "$@" >>{tmp_path}/asked\n', encoding="utf-8")
    played.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["sh", "-euc", block, "postinst", "configure", version], env=environment, timeout=60, check=True)
    asked = (tmp_path / "asked").read_text(encoding="utf-8").splitlines() if (tmp_path / "asked").exists() else []
    changes = [line for line in asked if not line.startswith("show ")]
    assert changes == (["daemon-reload", "--no-block restart outstation-agent.service"] if restarts else [])


def test_an_agent_starts_anew_after_the_package_manager_and_not_in_the_middle_of_it() -> None:
    text = (DEBIAN / "outstation-agent.postinst").read_text(encoding="utf-8")
    _, _, after = text.partition("#DEBHELPER#")
    program, module = re.findall(r"(/usr/lib/\S+/python3) -I -m (\S+)", after)[0]
    assert program == "/usr/lib/outstation-agent/bin/python3"
    assert find_spec(module) is not None
    assert restart_after_upgrade.__name__ == module
    assert f"try-restart {restart_after_upgrade.UNIT} || true" in after


def test_the_newest_entry_of_the_debian_changelog_is_this_release() -> None:
    script = [sys.executable, str(ROOT / "packaging" / "debian_changelog.py")]
    plain = subprocess.run(script, capture_output=True, text=True, timeout=120, check=True).stdout
    assert plain.startswith(f"outstation ({__version__}) bookworm; urgency=medium\n\n  * ")
    assert max(len(line) for line in plain.splitlines() if not line.startswith(" -- ")) <= 80
    other = subprocess.run([*script, "0.0.1~1"], capture_output=True, text=True, timeout=120, check=True).stdout
    assert other == plain.replace(f"({__version__})", "(0.0.1~1)", 1)
    dates = re.findall(r"^ -- .*>  (.*)$", plain, re.MULTILINE)
    parsed = subprocess.run(["date", "-d", dates[0], "+%s"], capture_output=True, text=True, timeout=120, check=True)
    assert int(parsed.stdout) == RELEASED


@pytest.mark.parametrize("script", MAINTAINER_SCRIPTS, ids=lambda path: path.name)
def test_nothing_is_fetched_when_a_package_is_installed(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    findings = [line for line in text.splitlines() if NETWORK.search(line) and not line.lstrip().startswith("#")]
    assert not findings, listing(findings)
    assert script.suffix == ".config" or "\n#DEBHELPER#\n" in text
    assert "\nset -e\n" in text


def test_a_command_that_fetches_would_be_found() -> None:
    for line in ("apt-get install x", "curl -O y", "python3 -m pip install z", "wget https://example.org"):
        assert NETWORK.search(line)


def test_no_settings_are_conffiles() -> None:
    installed = [path.read_text(encoding="utf-8") for path in sorted(DEBIAN.glob("*.install"))]
    assert installed
    assert not re.search(r"(^|\s)/?etc\b", "\n".join(installed)), "dpkg asks about a changed file of /etc in an upgrade"
    assert not list(DEBIAN.glob("*.conffiles"))


def test_everything_bundled_has_its_licence_in_the_copyright_file() -> None:
    text = (DEBIAN / "copyright").read_text(encoding="utf-8")
    stanzas = re.findall(
        r"^Files: wheels/([a-z0-9-]+)-\*\nCopyright: .+?^License: (.+?)$", text, re.MULTILINE | re.DOTALL
    )
    assert {name for name, _ in stanzas} == lock("station").keys() | lock("compiled").keys()
    explained = set(re.findall(r"^License: (\S+)\n ", text, re.MULTILINE))
    assert {licence for _, licences in stanzas for licence in licences.split(" or ")} <= explained
