"""The scripts of the packages, run on a folder: cut short and run again they lose nothing, and a purge ends."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.house.tree import ROOT

DEBCONF = """
db_get() { RET=$(cat "$DB/${1#*/}" 2>/dev/null) || RET=; }
db_reset() { rm -f "$DB/${1#*/}"; }
db_stop() { :; }
"""


@dataclass
class Rooted:
    """A folder that the scripts take for the root of the machine, with answers to debconf's questions."""

    root: Path

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a script; PATH begins with the folder ``tools``."""
        text = (ROOT / "debian" / name).read_text(encoding="utf-8")
        for folder in ("/etc/", "/usr/share/", "/usr/bin/", "/var/", "/run/"):
            text = text.replace(f" {folder}", f" {self.root}{folder}")
            for mark in ('"', "=", "<"):
                text = text.replace(f"{mark}{folder}", f"{mark}{self.root}{folder}")
        return subprocess.run(
            ["sh", "-c", text, name, *arguments],
            env={"PATH": f"{self.root}/tools:/usr/bin:/bin", "DB": str(self.root / "debconf")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def tool(self, name: str, text: str) -> None:
        """Let a command of this name do this."""
        path = self.root / "tools" / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def answer(self, **answers: str) -> None:
        """Tell debconf."""
        for name, text in answers.items():
            (self.root / "debconf" / name).write_text(text, encoding="utf-8")

    @property
    def settings(self) -> Path:
        """Where the settings lie."""
        return self.root / "etc/outstation"


@pytest.fixture
def rooted(tmp_path: Path) -> Rooted:
    for folder in ("etc/outstation", "usr/share/debconf", "usr/share/outstation", "tools", "debconf", "usr/bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "usr/share/debconf/confmodule").write_text(DEBCONF, encoding="utf-8")
    for role in ("gateway", "master"):
        (tmp_path / f"usr/share/outstation/{role}.yaml").write_text(f"# {role}\n", encoding="utf-8")
    return Rooted(tmp_path)


def test_a_token_that_was_handed_over_survives_a_second_run(rooted: Rooted) -> None:
    rooted.answer(site="lisbon", token="it's-a-token")
    assert "not joined yet" in rooted.run("outstation.postinst", "configure").stderr
    answers = rooted.settings / "outstation-join.yaml"
    first = answers.read_text(encoding="utf-8")
    assert first == "site: 'lisbon'\ntoken: 'it''s-a-token'\n"
    assert answers.stat().st_mode & 0o777 == 0o600
    assert not (rooted.root / "debconf/token").exists()
    # dpkg --configure -a, when the power went before the first run was over.
    assert rooted.run("outstation.postinst", "configure").returncode == 0
    assert answers.read_text(encoding="utf-8") == first
    # What is answered anew counts.
    rooted.answer(token="another")
    rooted.run("outstation.postinst", "configure")
    assert "token: 'another'" in answers.read_text(encoding="utf-8")


def test_a_token_is_forgotten_only_when_its_file_is_on_disk(rooted: Rooted) -> None:
    rooted.answer(site="lisbon", token="a-token")
    for role in ("gateway", "master"):
        (rooted.settings / f"{role}.yaml").write_text("# an administrator's\n", encoding="utf-8")
    rooted.tool("sync", "exit 1")
    assert rooted.run("outstation.postinst", "configure").returncode != 0
    assert (rooted.root / "debconf/token").read_text(encoding="utf-8") == "a-token"
    assert not (rooted.settings / "outstation-join.yaml").exists()


def test_settings_that_a_power_cut_left_empty_are_made_again_and_those_of_somebody_stay(rooted: Rooted) -> None:
    (rooted.settings / "gateway.yaml").touch()
    (rooted.settings / "master.yaml").write_text("name: porto\n", encoding="utf-8")
    assert rooted.run("outstation.postinst", "configure").returncode == 0
    assert (rooted.settings / "gateway.yaml").read_text(encoding="utf-8") == "# gateway\n"
    assert (rooted.settings / "gateway.yaml").stat().st_mode & 0o777 == 0o644
    assert (rooted.settings / "master.yaml").read_text(encoding="utf-8") == "name: porto\n"
    assert sorted(path.name for path in rooted.settings.iterdir()) == ["gateway.yaml", "master.yaml"]


@pytest.mark.parametrize("package", ["outstation", "outstation-agent"])
def test_a_purge_ends_where_a_folder_cannot_be_removed(package: str, rooted: Rooted) -> None:
    # What rm says of a folder that is a disk of its own.
    rooted.tool("rm", 'case "$*" in */var/lib/*) echo "Device or resource busy" >&2; exit 1;; esac; exec /bin/rm "$@"')
    done = rooted.run(f"{package}.postrm", "purge")
    assert done.returncode == 0, done.stderr
    assert f"{package}: some of its folders are still there" in done.stderr
    assert not rooted.settings.exists()
