"""The pages of what systemd runs, section 8: each from its unit, and from the help of the command in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.core import TyperGroup
from typer.main import get_command

from gateway.cli.command import help_text_of, typed_entries
from gateway.cli.program import app
from gateway.manual.roff import Page

RUNS = ("gateway", "master", "agent")
SIGNALS = (
    ("SIGTERM, SIGINT", "stop in order: what is under way is finished, for a bounded time; a second one cuts it short"),
    ("SIGHUP", "read the settings anew; what of them waits for the next start is named in the log"),
)
KEPT = (
    "Restart",
    "RestartPreventExitStatus",
    "WatchdogSec",
    "TimeoutStopSec",
    "User",
    "StateDirectory",
    "MemoryMax",
    "MemorySwapMax",
)


def pages(units: Path) -> Iterator[Page]:
    """A page for each service in a folder of units, but that of the agent."""
    for unit in sorted(units.glob("outstation*.service")):
        if unit.stem != "outstation-agent":
            yield _page(unit)


def agent_page(units: Path) -> Page:
    """Of the agent."""
    return _page(units / "outstation-agent.service")


def _page(unit: Path) -> Page:
    text = unit.read_text(encoding="utf-8")
    settings = dict(re.findall(r"^(\w+)=(.+)$", text, re.MULTILINE))
    about = settings["Description"].partition(": ")[2] or settings["Description"]
    page = Page(unit.stem, 8, about)
    page.heading("Synopsis")
    page.paragraph(f"**{unit.name}**")
    page.literal([re.sub(r"^[-+!@:]+", "", settings.get("ExecStart", ""))])
    page.heading("Description")
    page.paragraph(" ".join(line.lstrip("# ") for line in _head(text)))
    role = unit.stem.removeprefix("outstation-")
    if role in RUNS:
        root = get_command(app)
        assert isinstance(root, TyperGroup)
        group = root.commands[role]
        assert isinstance(group, TyperGroup)
        run = group.commands["run"]
        help_text = help_text_of(run)
        page.paragraph(f"{help_text.purpose} {help_text.details}")
        for heading, entries in typed_entries(typer.Context(run, info_name="run")):
            if entries:
                page.heading(heading)
                page.entries(entries)
        page.heading("Signals")
        page.entries(SIGNALS if role != "agent" else SIGNALS[:1])
        page.heading("Exit status")
        page.entries([(str(status), what) for status, what in help_text.exits.items()])
    page.heading("The unit")
    page.paragraph(f"`systemctl cat {unit.stem}` shows the whole of it. Among what it says:")
    page.literal([f"{name}={settings[name]}" for name in KEPT if name in settings] or [f"Type={settings.get('Type')}"])
    page.heading("See also")
    page.paragraph("**outstation(1)**, **outstation(7)**, **systemctl(1)**, **journalctl(1)**")
    return page


def _head(text: str) -> list[str]:
    """The comment that a unit begins with."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line)
    return lines
