"""docs/configuration.md tells every setting, as the tables have it."""

from __future__ import annotations

import pytest
from msgspec import Struct

from device_agent.config import AgentSettings
from device_agent.settings import describe
from gateway.config import StationSettings
from tests.house.tree import ROOT


def rows(table: type[Struct]) -> list[str]:
    """The page's rows for a table."""
    return [
        f"| `{setting.key}` | {setting.takes} | `{setting.default}` | {setting.description} |"
        for setting in describe(table)
    ]


@pytest.mark.parametrize("table", [StationSettings, AgentSettings])
def test_the_page_has_every_setting_with_its_type_default_and_meaning(table: type[Struct]) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    missing = [row for row in rows(table) if row not in page]
    assert not missing, "these rows are not in docs/configuration.md:\n" + "\n".join(missing)
