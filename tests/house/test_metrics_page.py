"""docs/metrics.md lists every metric, and none that there is not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from gateway.metric_words import WORDS
from tests.house.tree import CODE, ROOT, listing, python_files, syntax

PAGE = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
LISTED = set(re.findall(r"`outstation_([a-z_]+)`", PAGE))
FUNCTIONS = {"gauges", "labelled", "rollbacks", "own_numbers", "site_numbers"}
LINKS = ("mqtt", "ssh", "uplink")
"""Of a counter whose name has the name of a link in it."""


def counters(path: Path) -> Iterator[str]:
    """Names that are given to ``Metrics.add``."""
    for node in ast.walk(syntax(path)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add"
            and node.args
            and ast.unparse(node.func.value).endswith("metrics")
        ):
            yield from _names(node.args[0])


def _names(argument: ast.expr) -> Iterator[str]:
    match argument:
        case ast.Constant(value=str(name)):
            yield name
        case ast.IfExp(body=body, orelse=other):
            yield from (*_names(body), *_names(other))
        case ast.JoinedStr(values=[ast.FormattedValue(), ast.Constant(value=str(rest))]):
            yield f"*{rest}"
        case _:
            raise AssertionError(f"a counter whose name no one can read: {ast.unparse(argument)}")


def told(path: Path) -> Iterator[str]:
    """Names in the functions that say how a room stands."""
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.FunctionDef) and node.name in FUNCTIONS:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Tuple) and inner.elts and isinstance(inner.elts[0], ast.Constant):
                    yield str(inner.elts[0].value)
                elif isinstance(inner, ast.Dict):
                    yield from (str(key.value) for key in inner.keys if isinstance(key, ast.Constant))


def test_every_counter_is_listed() -> None:
    missing = []
    for path in python_files(*CODE):
        for name in counters(path):
            if name.startswith("*"):
                if not [link for link in LINKS if f"{link}{name[1:]}_total" in LISTED]:
                    missing.append(name)
            elif f"{name}_total" not in LISTED:
                missing.append(name)
    assert not missing, listing(missing)


def test_every_other_number_is_listed() -> None:
    plain = {"class", "site", "engine", "returner", "reason", "what"}
    missing = [name for path in python_files("gateway") for name in told(path) if name not in LISTED | plain]
    assert not missing, listing(missing)


def test_the_page_says_what_the_help_of_each_metric_says() -> None:
    said: dict[str, str] = {}
    for line in PAGE.splitlines():
        if line.startswith("| `outstation_"):
            names, _, words = (cell.strip() for cell in line.strip("|").split("|"))
            plain = re.sub(r" \(\[.*?\]\(.*?\)\)", "", words).replace("`", "")
            said |= dict.fromkeys(re.findall(r"`outstation_([a-z_]+)`", names), plain)
    assert said == dict(WORDS)


def test_what_is_listed_is_said_somewhere_in_the_code() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in python_files(*CODE) if path.stem != "metric_words")
    made = ("site_spool_", "ssh_", "mqtt_", "uplink_")
    nowhere = []
    for name in sorted(LISTED):
        bare = name.removesuffix("_total")
        forms = {name, bare, *(bare.removeprefix(start) for start in made if bare.startswith(start))}
        if not any(f'"{form}"' in source or f'_{form}"' in source or f"}}_{form}" in source for form in forms):
            nowhere.append(name)
    assert not nowhere, listing(nowhere)
