"""Keys with dots at the top of the settings, as Salt has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import Struct

from device_agent.errors import ConfigInvalid
from device_agent.settings import load


class Mail(Struct, frozen=True):
    """A section."""

    host: str = ""
    port: int = 25


class Dotted(Struct, frozen=True, forbid_unknown_fields=True):
    """A table with it."""

    name: str
    mail: Mail = Mail()


def test_a_key_with_dots_at_the_top_is_one_of_a_section(tmp_path: Path) -> None:
    place = tmp_path / "gateway.yaml"
    place.write_text("name: lisbon\nmail.host: here\nmail:\n  port: 7\n")
    assert load(Dotted, place).mail == Mail("here", 7)
    place.write_text("name: lisbon\nmail.port: 2\nmail:\n  port: 3\n")
    with pytest.raises(ConfigInvalid) as caught:
        load(Dotted, place)
    assert "mail.port is there twice" in str(caught.value)
    assert f"{place}:4" in str(caught.value)
