"""The section ``upstream``: Salt's option names, and errors that name the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import ConfigInvalid
from gateway.config import StationSettings
from gateway.station_settings import settings_for
from tests.peers.database import PUBLIC_KEY

MASTERS = ["salt.example.net", "192.0.2.1:4606", "[2001:db8::1]"]


def read(folder: Path, upstream: dict[str, Any], role: Any = "gateway", **more: Any) -> StationSettings:
    path = folder / "gateway.yaml"
    path.write_text(json.dumps({"name": "faro", "upstream": upstream, **more}), encoding="utf-8")
    return settings_for(role, path)


def test_the_options_have_their_names_in_salt(tmp_path: Path) -> None:
    settings = read(tmp_path, {"type": "salt", "masters": MASTERS, "master_type": "failover", "auth_tries": 3})
    rules = settings.upstream.rules(settings.name)
    assert (rules.id, rules.master_type, rules.auth_tries, rules.publish_port) == ("faro", "failover", 3, 0)
    named = read(tmp_path, {"type": "salt", "masters": MASTERS, "id": "site.faro", "publish_port": 4605})
    assert (named.upstream.rules("faro").id, named.upstream.rules("faro").publish_port) == ("site.faro", 4605)


@pytest.mark.parametrize(
    ("upstream", "more", "says"),
    [
        ({"type": "salt"}, {}, "masters: is empty"),
        ({"type": "salt", "masters": ["a", "a"]}, {}, r"masters\[1\]: a is there twice"),
        ({"type": "salt", "masters": ["a:0"]}, {}, r"masters\[0\]: a:0: no host"),
        ({"type": "salt", "masters": ["a:b"]}, {}, r"masters\[0\]: a:b: no host"),
        ({"type": "salt", "masters": ["2001:db8::1"]}, {}, "no host"),
        ({"type": "salt", "masters": ["a b"]}, {}, "masters"),
        ({"type": "salt", "masters": ["a"], "id": "a/b"}, {}, "id"),
        ({"type": "salt", "masters": ["a"], "master_finger": "sesame"}, {}, "master_finger"),
        ({"masters": ["a"]}, {}, "type: salt"),
        (
            {"type": "salt", "masters": ["a"]},
            {"masters": [{"address": "tcp://192.0.2.1:4510", "key": PUBLIC_KEY}]},
            "either ours or Salt's",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_field(
    upstream: dict[str, Any], more: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigInvalid, match=says):
        read(tmp_path, upstream, **more)


def test_a_master_has_no_masters_above_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="no masters above"):
        read(tmp_path, {"type": "salt", "masters": ["a"]}, "master")
