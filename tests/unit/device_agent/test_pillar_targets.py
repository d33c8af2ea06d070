"""Targets by pillar: read as those by grain are, and meaning nobody whose pillar is not known."""

from __future__ import annotations

from typing import Any

import pytest

from device_agent.protocol.messages import TargetType
from device_agent.protocol.target_terms import Known
from device_agent.protocol.targeting import compile_target

GRAINS = {"os": "Debian", "onvif": {"port": 1}}
PILLAR: dict[Any, Any] = {"onvif": {"user": "camera", "port": 8080, "roles": ["a", "b"]}, "site": "lisbon"}


@pytest.mark.parametrize(
    ("tgt", "kind", "meant"),
    [
        ("site:lis*", "pillar", True),
        ("site:porto", "pillar", False),
        ("os:Debian", "pillar", False),
        ("onvif:port:80*", "pillar", True),
        ("onvif:roles:b", "pillar", True),
        ("site:lis*", "pillar_exact", False),
        ("site:lisbon", "pillar_exact", True),
        ("onvif:port:8080", "pillar_exact", True),
        ("onvif:user:(camera|door)$", "pillar_pcre", True),
        ("onvif:user:door", "pillar_pcre", False),
        ("I@site:lisbon and G@os:Debian", "compound", True),
        ("I@site:porto or J@onvif:port:\\d+", "compound", True),
        ("not I@site:porto", "compound", True),
        ("I|@onvif|port|8080", "compound", True),
    ],
)
def test_it_is_read_as_a_grain_is_and_needs_a_pillar(tgt: str, kind: TargetType, meant: bool) -> None:
    target = compile_target(tgt, kind)
    assert target.needs_pillar
    assert target.matches("cam-7", Known(GRAINS, PILLAR)) is meant
    # Of grains alone nobody is meant: not even by what it is not.
    assert not target.matches("cam-7", GRAINS)
    if meant:
        shown = str(target.why("cam-7", Known(GRAINS, PILLAR)))
        assert "8080" not in shown.replace(tgt, "")


def test_what_does_not_ask_for_pillar_needs_none() -> None:
    target = compile_target("G@os:Debian and not cam-1", "compound")
    assert not target.needs_pillar
    assert target.matches("cam-7", GRAINS)


def test_what_is_known_beside_the_grains_is_no_grain() -> None:
    known = Known(GRAINS, PILLAR)
    assert known == GRAINS
    assert "lisbon" not in repr(known)
