"""gateway/jobs/nodegroups.py: what is signed in the place of a nodegroup, a cluster or a delimiter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import ConfigInvalid, UsageInvalid
from device_agent.protocol.targeting import compile_target
from gateway.jobs.nodegroups import WORDS, Nodegroups
from gateway.station_settings import settings_for

GROUPS = Nodegroups(
    {
        "dock": "cam-1* or L@cam-7,cam-9",
        "old": ["N@dock", "and", "not", "G@os:Alpine"],
        "names": ["cam-1", "cam-2"],
        "line": "cam-1 cam-2",
        "number": "cam-[12]",
        "dotted": "P|@a|b",
    }
)


@pytest.mark.parametrize(
    ("asked", "signed"),
    [
        (("cam-*", "glob"), ("cam-*", "glob")),
        (("G@os:x  and cam-1", "compound"), ("G@os:x  and cam-1", "compound")),
        (("dock", "nodegroup"), ("cam-1* or L@cam-7,cam-9", "compound")),
        (("old", "nodegroup"), ("( cam-1* or L@cam-7,cam-9 ) and not G@os:Alpine", "compound")),
        (("names", "nodegroup"), ("L@cam-1,cam-2", "compound")),
        (("line", "nodegroup"), ("L@cam-1,cam-2", "compound")),
        (("number", "nodegroup"), ("E@cam-[12]", "compound")),
        (("dotted", "nodegroup"), ("P|@a|b", "compound")),
        (("not N@dock and x", "compound"), ("not ( cam-1* or L@cam-7,cam-9 ) and x", "compound")),
        (("N@names or x", "compound"), ("L@cam-1,cam-2 or x", "compound")),
        (("cam[1-3]", "range"), ("cam[1-3]", "range")),
        (("%names", "range"), ("L@cam-1,cam-2", "compound")),
        (
            ("cam[1-3],%names,-%dock,&x", "range"),
            ("( ( ( R@cam[1-3] or L@cam-1,cam-2 ) and not ( cam-1* or L@cam-7,cam-9 ) ) and R@x", "compound"),
        ),
        (("R@%names,-cam-1 or x", "compound"), ("( L@cam-1,cam-2 and not R@cam-1 ) or x", "compound")),
        (("a|b", "grain", "|"), ("G|@a|b", "compound")),
        (("a|b$", "grain_pcre", "|"), ("P|@a|b$", "compound")),
    ],
)
def test_what_is_signed_needs_no_settings_of_any_station(asked: Any, signed: tuple[str, str]) -> None:
    found = GROUPS.signed(*asked)
    if asked[0].startswith("cam[1-3],"):
        # How many parentheses there are is not the point; what it means is.
        meant = [name for name in ("cam1", "cam-1", "cam-12", "cam-2", "x") if compile_target(*found).matches(name, {})]
        assert (found[1], meant) == ("compound", [])
        return
    assert found == signed
    compile_target(*found)


def test_ranges_are_joined_from_left_to_right() -> None:
    target = compile_target(*GROUPS.signed("cam-[1-3],%names,-cam-2,&cam-[2-9]", "range"))
    assert [name for name in ("cam-1", "cam-2", "cam-3", "cam-4") if target.matches(name, {})] == ["cam-3"]


@pytest.mark.parametrize(
    ("asked", "what", "found"),
    [
        (("dok", "nodegroup"), "no such nodegroup", "dok"),
        (("cam-1 or N@dok", "compound"), "no such nodegroup", "dok"),
        (("%dok", "range"), "no such nodegroup", "dok"),
        (("cam,,%dock", "range"), "nothing beside a comma", "cam"),
        (("x", "everything"), "no such kind", "everything"),
        (("a|b", "glob", "|"), "one character", "glob"),
        (("a b|c", "grain", "|"), "no spaces", "a b"),
        (("a||b", "grain", "||"), "one character", "||"),
    ],
)
def test_what_cannot_be_signed_says_why(asked: Any, what: str, found: str) -> None:
    with pytest.raises(UsageInvalid, match=what) as caught:
        GROUPS.signed(*asked)
    assert found in str(caught.value.found)
    assert caught.value.allowed


def test_groups_that_grow_without_end_are_stopped() -> None:
    doubled = {f"g{number}": f"N@g{number - 1} or N@g{number - 1}" for number in range(1, 60)}
    with pytest.raises(UsageInvalid, match="too much") as caught:
        Nodegroups({"g0": "cam-1", **doubled}).signed("g59", "nodegroup")
    assert str(WORDS) in str(caught.value.allowed)


def test_a_reload_counts_for_what_is_signed_from_then_on() -> None:
    groups = Nodegroups({"dock": "cam-1"})
    assert groups.signed("dock", "nodegroup") == ("L@cam-1", "compound")
    groups.use({"dock": "cam-2"})
    assert groups.signed("dock", "nodegroup") == ("L@cam-2", "compound")


@pytest.mark.parametrize(
    ("line", "what", "found"),
    [
        ("dock: 'cam-1 or'", "nodegroups.dock: a term is missing", "the end"),
        ("dock: 'G@os or cam-1'", "has no value", "os"),
        ("dock: N@dock", "holds itself", "dock -> dock"),
        ("dock: 'cam-1* and N@nobody'", "no such nodegroup", "nobody"),
        ("dock: ['G@os:Red Hat']", "not one word", "Red Hat"),
        ("dock: []", "is empty", "nothing"),
        ("dock: 'cam-* cam-2'", "operator is missing", "cam-2"),
        ("dock: 'cam-[12] cam-3'", "without an operator", "cam-3"),
        ("dock: 'E@(a+)+\\1(b*)*'", "does not compile|take for ever", "a+"),
        ("dock: 'I@role'", "has no value", "role"),
    ],
)
def test_a_wrong_group_stops_the_start_with_its_line(line: str, what: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text("name: lisbon\n")
    (tmp_path / "gateway.d").mkdir()
    piece = tmp_path / "gateway.d" / "groups.yaml"
    piece.write_text(f"nodegroups:\n  good: 'cam-1 and x'\n  {line}\n")
    with pytest.raises(ConfigInvalid, match=what) as caught:
        settings_for("gateway", path)
    assert str(caught.value.where).startswith(f"{piece}:3 ")
    assert "nodegroups.dock" in caught.value.what
    assert found in str(caught.value.found)


@pytest.mark.parametrize("line", ["'a b': x", "'a,b': x", "dock: 7", "dock: {a: b}", "dock: ''"])
def test_a_group_of_another_shape_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "master.yaml"
    path.write_text(f"name: central\nnodegroups:\n  {line}\n")
    with pytest.raises(ConfigInvalid, match="nodegroups") as caught:
        settings_for("master", path)
    assert ":3" in str(caught.value.where)
