"""Arguments of a command line have the value that stock Salt's own parser gives them, on thousands of generated texts.

The table of differences in docs/command-line.md is read as well, and each of its rows is tried on both.
"""

from __future__ import annotations

import math
import os
import random
import re
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from device_agent.errors import UsageInvalid
from device_agent.protocol.several import joined, split
from gateway.typed_arguments import split_arguments, taken_apart
from tests.house.tree import ROOT
from tests.peers.argument_texts import texts
from tests.peers.salt_arguments import Other, SaltArguments
from tests.peers.salt_release import MINUTES

pytestmark = [pytest.mark.system, pytest.mark.timeout(60 * (MINUTES + 5))]

GENERATED = 6_000
SIGNS = re.compile(r"\s*(---\s|&|>|\||\ufeff|!\s|!$)")
SPELLED = re.compile(r"[:_]|^[-+]0[0-9]|^\+")
"""Numbers whose text says more than the number: times, names of digits, offsets."""

UTF_8 = {**os.environ, "LC_ALL": "C.UTF-8"}
KINDS = {"line break", "sign", "spelling", "braces", "not carried", "endless"}
"""The differences that docs/command-line.md names."""


@pytest.fixture(scope="module")
def stock(salt: Path) -> Iterator[SaltArguments]:
    with SaltArguments(salt) as arguments:
        yield arguments


def ours(typed: list[str]) -> Any:
    """What this product sends for the same, or the class of its refusal."""
    try:
        return joined(*split_arguments(typed))
    except UsageInvalid:
        return UsageInvalid


def as_sent(value: Any) -> Any:
    """Salt's value as Salt's messages carry it: an integer past 64 bits is text."""
    if isinstance(value, list):
        return [as_sent(entry) for entry in value]
    if isinstance(value, dict):
        return {key: as_sent(entry) for key, entry in value.items()}
    return str(value) if isinstance(value, int) and value >= 2**64 else value


def same(mine: Any, theirs: Any) -> bool:
    """Equal, with the types; a number of a list or dict whose spelling would be lost may be text."""
    if isinstance(theirs, list):
        return isinstance(mine, list) and len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(theirs, dict):
        alike = isinstance(mine, dict) and mine.keys() == theirs.keys()
        return alike and all(same(mine[key], theirs[key]) for key in mine)
    if isinstance(theirs, (int, float)) and isinstance(mine, str) and not isinstance(theirs, bool):
        return SPELLED.search(mine) is not None
    return type(mine) is type(theirs) and repr(mine) == repr(theirs)


def told(text: str) -> tuple[str, str]:
    """The name of an argument, and the text of its value."""
    match = re.match(r"([^\d\W][\w.-]*)=(?!=)([^\n]*\n?)\Z", text)
    return ("", text) if match is None else (match[1], match[2])


def difference(text: str, theirs: Any) -> str | None:
    """Which documented difference the value of a text has from Salt's, if any."""
    if isinstance(theirs, str) and re.fullmatch(r"-?[0-9]{19,20}", theirs):
        theirs = int(theirs)  # Salt read a number, and made text of it for its messages.
    if re.search("[\n\x85\u2028\u2029]", text):
        return "line break"
    if SIGNS.match(text):
        return "sign"
    if isinstance(theirs, (int, float)) and not isinstance(theirs, bool) and not text.strip().startswith("!"):
        written = re.sub(r"\s+#.*", "", text.strip())
        sent = math.isfinite(theirs) and -(2**63) <= theirs < 2**64
        lost = not sent or SPELLED.search(written) or re.search(r"\.[0-9]+0$", written)
        return "spelling" if lost or Decimal(written) != Decimal(repr(theirs)) else None
    if "#" in text and isinstance(theirs, (list, dict)) and text[0] not in "[{":
        return "braces"
    return "not carried" if not carried(theirs) else None


def carried(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(carried, value))
    if isinstance(value, dict):
        return all(type(key) is str for key in value) and carried([*value.values()])
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, Other) and (not isinstance(value, int) or value >= -(2**63))


def test_thousands_of_texts_have_the_value_that_salt_gives_them(stock: SaltArguments) -> None:
    equal, wrong = 0, []
    seen = set()
    for text in texts(GENERATED):
        theirs, mine = stock.ask([text]), ours([text])
        if same(mine, as_sent(theirs)):
            equal += 1
            continue
        name, rest = told(text)
        value = theirs[0].get(name) if name and isinstance(theirs[0], dict) else theirs[0]
        kind = "endless" if isinstance(theirs, str) else difference(rest, value)
        left = [rest, rest.strip()] if kind == "spelling" else [rest]
        allowed = [[{name: each, "__kwarg__": True} if name else each] for each in left]
        refused = mine is UsageInvalid and kind in ("endless", "not carried")
        if kind is None or not (refused or mine in allowed):
            wrong.append((text, theirs, mine, kind))
        else:
            seen.add(kind)
    assert not wrong, f"{len(wrong)} of {GENERATED}:\n" + "\n".join(map(str, wrong[:20]))
    assert equal >= 2_000
    assert seen == KINDS, "each difference is tried"


def test_text_with_a_line_break_or_a_tab_is_never_touched(stock: SaltArguments) -> None:
    broken = [text for text in texts(GENERATED) if re.search("[\t\r\n\x85\u2028\u2029]", told(text)[1])]
    assert len(broken) > 500
    for text in broken:
        name, rest = told(text)
        assert ours([text]) == [{name: rest, "__kwarg__": True} if name else text]
        # Salt drops one at the end of a named value, and blanks the one of old mainframes.
        assert rest.endswith("\n") or re.search("[\x85\u2028\u2029]", rest) or stock.ask([text]) == ours([text])


def test_several_arguments_are_sent_as_salt_sends_them(stock: SaltArguments) -> None:
    chance = random.Random(4)
    plain = [text for text in texts(GENERATED) if same(ours([text]), as_sent(stock.ask([text])))]
    for _ in range(500):
        typed = chance.choices(plain, k=chance.randint(0, 5))
        if len(by_name := [name for text in typed if (name := told(text)[0])]) == len(set(by_name)):
            assert same(ours(typed), as_sent(stock.ask(typed)))


@pytest.mark.parametrize(
    "typed", [["x=3", "y=3", "4"], ["x=None", "y=[1"], ["x=a\nb", "y=yes"], ["a.b={a: 1}", "x=1\n"]]
)
def test_names_of_no_parse_keep_their_text(typed: list[str], stock: SaltArguments) -> None:
    mine = joined(*split_arguments(typed, {"x", "a.b"}))
    if typed[-1].endswith("\n"):
        assert mine == [{"a.b": "{a: 1}", "x": "1\n", "__kwarg__": True}]
        typed = [typed[0], "x=1"]
        mine[0]["x"] = "1"
    assert mine == stock.ask(typed, ["x", "a.b"])


def test_text_that_a_program_sends_has_a_name_where_a_minion_gives_it_one(stock: SaltArguments) -> None:
    named_there = 0
    for text in texts(GENERATED):
        sent = [text, 3, {"y": "z=1", "__kwarg__": True}]
        theirs, mine = stock.called(sent), list[Any](taken_apart(*split(sent)))
        if same(mine, as_sent(theirs)):
            named_there += len(theirs[1]) > 1
            continue
        name, rest = told(text)
        kind = "endless" if isinstance(theirs, str) else difference(rest, theirs[1][name])
        assert kind is not None, (text, theirs, mine)
        assert mine[0] == [3]
        assert mine[1][name] in (rest, rest.strip())
    assert named_there >= 500


def rows() -> list[tuple[str, Any, Any]]:
    """The rows of the table of differences: what is typed, Salt's value, and this product's."""
    page = (ROOT / "docs" / "command-line.md").read_text()
    table = page.partition("| typed | stock Salt | Outstation |")[2].partition("\n\n")[0]
    found = []
    for line in table.splitlines()[2:]:
        typed, theirs, mine = (cell.strip() for cell in line.split("|")[1:4])
        found.append((typed.strip("`"), *(yaml.safe_load(cell.strip("`")) for cell in (theirs, mine))))
    return found


def test_the_table_of_differences_says_what_both_do(stock: SaltArguments) -> None:
    assert len(rows()) >= 12
    for shell, theirs, mine in rows():
        done = subprocess.run(["bash", "-c", f"printf '%s\\0' {shell}"], capture_output=True, check=True, env=UTF_8)
        typed = done.stdout.decode().split("\0")[:-1]
        named = bool(told(typed[0])[0])

        def sent(value: Any, named: bool = named) -> Any:
            return [{**value, "__kwarg__": True} if named and isinstance(value, dict) else value]

        assert theirs != mine
        found = ours(typed)
        assert found is UsageInvalid if mine == "refused" else found == sent(mine), shell
        asked = stock.ask(typed)
        assert isinstance(asked, str) if theirs == "an error" else asked == sent(theirs), (shell, asked)
