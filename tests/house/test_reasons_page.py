"""Every reason that `outstation check` can print, for a refusal or in the ledger, is explained in a page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import get_args

from gateway.checks.beacons import WORDS as BEACONS
from gateway.cli.spool import STATUS
from gateway.devices.enrolled import EnrollmentState
from gateway.metric_words import WORDS as METRICS
from gateway.refusal_causes import OWN
from gateway.salt.not_taken import NOT_TAKEN
from gateway.store.reckoning import REASON as DAMAGE
from tests.house.tree import FLOORS, ROOT, python_files

NOT_PRINTED = ("gateway/bench/",)
ROW = re.compile(r"^\| `([a-z_0-9]+)` \| \S", re.MULTILINE)
OWN_SECTION = re.compile(r"^## Faults and limits of this station\n(.*?)^## ", re.MULTILINE | re.DOTALL)

ELSEWHERE = {state for state in get_args(EnrollmentState) if state != "accepted"} | set(BEACONS) | {"other"}
"""Reasons that are values of a type or of a table: standings of a device, those of beacons, and ``Metrics``' rest."""

NO_REASON = {"returns", "socket"}
"""What methods of the same name are given in that place."""


def words(node: ast.expr | None, inside: ast.AST) -> set[str]:
    """The texts that an expression can be: constants, alternatives, and names that are given such in the function."""
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp(body=body, orelse=orelse):
            return words(body, inside) | words(orelse, inside)
        case ast.Name(id=name):
            return {
                word
                for each in ast.walk(inside)
                if isinstance(each, ast.Assign) and not isinstance(each.value, ast.Name)
                if any(isinstance(target, ast.Name) and target.id == name for target in each.targets)
                for word in words(each.value, inside)
            }
        case _:
            return set()


def reasons_in(tree: ast.AST, *, of_agent: bool) -> Iterator[str]:
    """What one file can refuse with. An agent counts by the reason alone, a station by the link and the reason."""
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    for inside in [*functions, tree]:
        for node in ast.walk(inside):
            if isinstance(node, ast.Return) and getattr(inside, "name", "") == "refusal_reason":
                yield from words(node.value, inside)
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name == "Refused" and node.args:
                yield from words(node.args[0], inside)
            elif name == "refused" and len(node.args) > 1:
                yield from words(node.args[0 if of_agent else 1], inside)
            elif name in ("Answer", "Rendered"):
                yield from (
                    word for each in node.keywords if each.arg == "refused" for word in words(each.value, inside)
                )


@cache
def all_reasons() -> frozenset[str]:
    """What any file can refuse with."""
    found = set(ELSEWHERE)
    for path in python_files(*FLOORS):
        text = path.read_text(encoding="utf-8")
        where = str(path.relative_to(ROOT))
        if "efus" in text and not where.startswith(NOT_PRINTED):
            found |= set(reasons_in(ast.parse(text), of_agent=where.startswith("device_agent")))
    return frozenset(found - NO_REASON - {""})


def test_the_enumeration_finds_reasons_of_every_form() -> None:
    found = all_reasons()
    # An alternative, a name that is assigned before, a keyword, a type, and a plain one.
    assert {"too_many_questions", "wrong_token", "too_slow", "quarantined", "store_failed", "malformed"} <= found


def test_every_reason_of_a_refusal_has_one_row_and_no_row_is_of_nothing() -> None:
    rows = ROW.findall((ROOT / "docs" / "reasons.md").read_text(encoding="utf-8"))
    assert len(rows) == len(set(rows))
    assert set(rows) - all_reasons() == set(), "rows of reasons that no code gives"
    assert all_reasons() - set(rows) == set(), "reasons without a row in docs/reasons.md"


def test_the_stations_own_reasons_are_in_their_section() -> None:
    section = OWN_SECTION.search((ROOT / "docs" / "reasons.md").read_text(encoding="utf-8"))
    assert section is not None
    assert set(ROW.findall(section[1])) == OWN


def ledger_reasons() -> set[str]:
    """For what the ledger can count an item as dropped."""
    found = {NOT_TAKEN, DAMAGE}
    for path in [*python_files("gateway/spool"), ROOT / "gateway" / "bus.py"]:
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r"INSERT INTO drops[^;]*?SELECT [^,]*?, '([a-z_]+)'", text))
        for inside in ast.walk(ast.parse(text)):
            if isinstance(inside, ast.AsyncFunctionDef) and "_unkept.update(" in ast.unparse(inside):
                found |= words(ast.Name(id="reason"), inside)
    return found


def test_every_reason_of_the_ledger_is_explained_where_it_is_shown() -> None:
    reasons = ledger_reasons()
    assert {"budget", "coalesced", "disk_full", "store_failed", "not_taken", "damage"} <= reasons
    page = (ROOT / "docs" / "spool.md").read_text(encoding="utf-8")
    for reason in reasons:
        assert re.search(rf"^\| `{reason}` \| \S", page, re.MULTILINE), f"{reason} has no row in docs/spool.md"
        assert reason in METRICS["spool_dropped_total"]
        assert reason in STATUS.explained["Columns"]["dropped"]
