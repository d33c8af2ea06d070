"""``python -m gateway.manual FOLDER``, in the tree of the source: all manual pages and completions, for each package.

FOLDER/outstation/man1 …        what belongs to the package of the stations
FOLDER/outstation/completions/  bash/outstation, zsh/_outstation, fish/outstation.fish
FOLDER/outstation-agent/man1 …  what belongs to that of the agent
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from gateway.cli.completion_scripts import SHELLS, script
from gateway.manual import commands, daemons, settings
from gateway.manual.documents import told
from gateway.manual.roff import Page

FILES = {"bash": "outstation", "zsh": "_outstation", "fish": "outstation.fish"}


def concepts(docs: Path) -> Page:
    """The page of what all the others suppose, section 7."""
    page = Page("outstation", 7, "the words of Outstation: stations, targets, outcomes")
    told(page, docs / "architecture.md", {"Words": "Words"})
    told(page, docs / "command-line.md", {"Which station": "Which station", "Targets": "Targets"})
    told(page, docs / "command-line.md", {"Arguments": "Arguments", "Outcomes": "Outcomes"})
    told(page, docs / "architecture.md", {"What is promised, and how it is kept": "What is promised"})
    page.heading("See also")
    page.paragraph("**outstation(1)**, **outstation-run(1)**, and the pages in /usr/share/doc/outstation")
    return page


def station_pages(source: Path) -> list[Page]:
    """What belongs to the package of the stations."""
    docs = source / "docs"
    return [*commands.pages(), *settings.pages(docs), concepts(docs), *daemons.pages(source / "systemd")]


def agent_pages(source: Path) -> list[Page]:
    """What belongs to the package of the agent."""
    return [commands.agent_page(), settings.agent_page(), daemons.agent_page(source / "systemd")]


def main(folder: Path, source: Path) -> None:
    """Write them all. Raises ``OSError``."""
    date = released(source)
    _write(folder / "outstation", station_pages(source), date)
    _write(folder / "outstation-agent", agent_pages(source), date)
    for shell in SHELLS:
        file = folder / "outstation" / "completions" / shell / FILES[shell]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(script(shell), encoding="utf-8")


def released(source: Path) -> str:
    """The date of the newest release, which is that of every page."""
    changes = (source / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## \S+ \((\d{4}-\d\d-\d\d)\)", changes, re.MULTILINE)
    assert found is not None, "the changelog dates its releases"
    return found[1]


def _write(folder: Path, pages: Iterable[Page], date: str) -> None:
    for page in pages:
        page.date = date
        file = folder / f"man{page.section}" / f"{page.name}.{page.section}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page.text(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path())
