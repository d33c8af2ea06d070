"""Writes packaging/wheels/*.txt: what the Debian packages bundle, with the hash of every file for every architecture.

Usage: /usr/bin/python3 packaging/lock_wheels.py PIP      (PIP: the pip of any environment of Python 3.11)

The versions are those of constraints.txt; the names are what pyproject.toml asks for, and what that asks for in turn.
It looks into the package index. A build takes the files by these hashes; an installation takes nothing from anywhere.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TO = ROOT / "packaging" / "wheels"
MACHINES = ("x86_64", "aarch64")
# Debian 12 has the C library 2.36.
TAGS = ("manylinux_2_34", "manylinux_2_31", "manylinux_2_28", "manylinux_2_26", "manylinux_2_17", "manylinux2014")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WANTED = PROJECT["project"]["dependencies"]
EXTRAS = PROJECT["project"]["optional-dependencies"]

Pins = dict[str, set[str]]
"""Line ``name==version`` -> hashes of its files."""


def normal(distribution: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def resolve(pip: str, requirements: list[str], *options: str) -> Pins:
    """What pip would install for these requirements, and the files it would take."""
    report = subprocess.run(
        [
            *(pip, "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"),
            *("--disable-pip-version-check", "--constraint", str(ROOT / "constraints.txt"), *options, *requirements),
        ],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    pins: Pins = {}
    for taken in json.loads(report)["install"]:
        line = f"{normal(taken['metadata']['name'])}=={taken['metadata']['version']}"
        pins.setdefault(line, set()).add(taken["download_info"]["archive_info"]["hashes"]["sha256"])
    return pins


def wheels(pip: str, requirements: list[str]) -> Pins:
    """The wheels for each architecture."""
    pins: Pins = {}
    for machine in MACHINES:
        platforms = [option for tag in TAGS for option in ("--platform", f"{tag}_{machine}")]
        asked = ("--only-binary", ":all:", "--target", "/nonexistent", "--python-version", "3.11", *platforms)
        for line, hashes in resolve(pip, requirements, *asked).items():
            pins.setdefault(line, set()).update(hashes)
    return pins


def write(name: str, what: str, pins: Pins) -> None:
    """One file of pip's, sorted."""
    lines = [f"# {what}", "# Made by packaging/lock_wheels.py from pyproject.toml and constraints.txt."]
    for line in sorted(pins):
        hashes = [f"    --hash=sha256:{value}" for value in sorted(pins[line])]
        lines.append(" \\\n".join([line, *hashes]))
    (TO / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(pip: str) -> None:
    """Write the four files."""
    TO.mkdir(exist_ok=True)
    write("agent", "The wheels of the package outstation-agent.", wheels(pip, WANTED))
    write(
        "station", "The wheels of the package outstation.", wheels(pip, [*WANTED, *EXTRAS["station"], *EXTRAS["nats"]])
    )
    sources = resolve(pip, EXTRAS["systemd"], "--no-binary", ":all:", "--no-deps")
    write("compiled", "The source of what has no wheel: both packages bundle it, compiled.", sources)
    write("build", "What builds the project's own wheel.", wheels(pip, ["setuptools"]))


if __name__ == "__main__":
    main(sys.argv[1])
