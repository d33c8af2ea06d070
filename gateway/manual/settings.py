"""The pages of files, section 5: each from the table that reads the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from device_agent.config import AgentSettings
from device_agent.settings import describe
from gateway.config import StationSettings
from gateway.devices.policy_file import PolicyTable
from gateway.fleet.join_file import JoinWish
from gateway.manual.documents import told
from gateway.manual.roff import Page

READING = (
    "YAML. Pieces in a folder beside it with the same name and `.d` instead of `.yaml`, in the order of their names, "
    "are laid over it: sections merge, lists are replaced. What is not a setting is refused, with the file and the "
    "line. A key with a dot in it stands for a key in a section."
)


def pages(docs: Path) -> Iterator[Page]:
    """Of the stations, and of what they read beside their settings."""
    for role in ("gateway", "master"):
        file = f"/etc/outstation/{role}.yaml"
        yield _see(_page(f"outstation-{role}.yaml", f"settings of a {role}", file, StationSettings))
    policy = _page("outstation-policy.yaml", "who may do what at a station", "/etc/outstation/policy.yaml", PolicyTable)
    told(policy, docs / "operators.md", {"The policy file": "The file", "Held jobs": "Held jobs"})
    yield _see(policy)
    join = _page("outstation-join.yaml", "what a gateway is told to join with", "outstation-join.yaml", JoinWish)
    told(join, docs / "first-hour.md", {"The file to join with": "Where it is taken from"})
    yield _see(join)
    rules = Page("outstation-reactor", 5, "rules by which a station reacts to events, and their files")
    told(rules, docs / "reactor.md")
    yield _see(rules)


def agent_page() -> Page:
    """Of the agent."""
    file = "/etc/outstation/agent.yaml"
    return _see(_page("outstation-agent.yaml", "settings of the agent of a device", file, AgentSettings))


def _page(name: str, about: str, file: str, table: type[Struct]) -> Page:
    page = Page(name, 5, about)
    page.heading("Synopsis")
    page.paragraph(f"**{file}**")
    page.heading("Description")
    page.paragraph((table.__doc__ or "").partition("\n")[0])
    page.paragraph(READING)
    page.heading("Settings")
    for setting in describe(table):
        words = [setting.description, f"Takes {setting.takes}."]
        words += [] if setting.default in {"none", "required"} else [f"Default: `{setting.default}`."]
        words += ["Required."] if setting.default == "required" else []
        page.entry(setting.key, ". ".join(word.rstrip(".") for word in words if word) + ".")
    return page


def _see(page: Page) -> Page:
    page.heading("See also")
    page.paragraph("**outstation(1)**, **outstation(7)**")
    return page
