"""Prints debian/changelog: the releases of CHANGELOG.md as Debian writes them, so versions and dates have one source.

Usage: /usr/bin/python3 packaging/debian_changelog.py [VERSION]

With a version, the newest entry is called that: the same tree as an older or a newer package, to try upgrades.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"
MAINTAINER = "Outstation developers <outstation@example.org>"
RELEASE = re.compile(r"^## (\S+) \((\d{4}-\d{2}-\d{2})\)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^- (.*?)(?=^- |\Z)", re.MULTILINE | re.DOTALL)


def entry(version: str, day: str, text: str) -> Iterator[str]:
    """One release."""
    yield f"outstation ({version}) bookworm; urgency=medium\n"
    for item in ITEM.findall(text):
        words = " ".join(item.partition("\n\n")[0].split())
        yield textwrap.fill(words, 78, initial_indent="  * ", subsequent_indent="    ", break_on_hyphens=False)
    date = datetime.fromisoformat(day).replace(tzinfo=UTC)
    yield f"\n -- {MAINTAINER}  {format_datetime(date)}\n"


def main(*version: str) -> None:
    """Print all releases, newest first."""
    releases = RELEASE.findall(CHANGELOG.read_text(encoding="utf-8"))
    if not releases:
        sys.exit(f"{CHANGELOG.name} has no heading like: ## 1.0.0 (2026-12-31)")
    for number, (known, day, text) in enumerate(releases):
        sys.stdout.write("\n".join(entry(version[0] if version and not number else known, day, text)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
