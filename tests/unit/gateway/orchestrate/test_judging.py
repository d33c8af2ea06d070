"""Whether a step runs, by what its requisites came to: Salt's rules, kind by kind."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.orchestrate.judging import judged
from gateway.orchestrate.words import Requisite, Step

OK: dict[str, Any] = {"result": True, "changes": {}}
CHANGED: dict[str, Any] = {"result": True, "changes": {"a": 1}}
FAILED: dict[str, Any] = {"result": False, "changes": {}}
TESTED: dict[str, Any] = {"result": None, "changes": {}}
NOT_RUN: dict[str, Any] = {"result": True, "changes": {}, "__state_ran__": False}
NOT_RUN_FAILED: dict[str, Any] = {"result": False, "changes": {}, "__state_ran__": False}


def step(number: int, *requisites: Requisite) -> Step:
    name = f"s{number}"
    return Step(
        number=number,
        id=name,
        name=name,
        state="test",
        fun="nop",
        sls="orch.a",
        place="",
        args={},
        requisites=list(requisites),
    )


def verdict(*said: tuple[str, dict[str, Any]]) -> str:
    steps = [step(number) for number in range(len(said))]
    last = step(len(said), *(Requisite(kind, number) for number, (kind, _) in enumerate(said)))
    return judged(last, [*steps, last], {number: result for number, (_, result) in enumerate(said)})[0]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ([], "met"),
        ([("require", OK)], "met"),
        ([("require", TESTED)], "met"),
        ([("require", NOT_RUN)], "met"),
        ([("require", FAILED)], "fail"),
        ([("require", OK), ("require", FAILED)], "fail"),
        ([("require_any", OK), ("require_any", FAILED)], "met"),
        ([("require_any", FAILED), ("require_any", FAILED)], "fail"),
        ([("require_any", NOT_RUN), ("require_any", FAILED)], "fail"),
        ([("onfail", FAILED)], "met"),
        ([("onfail", OK)], "onfail"),
        ([("onfail", OK), ("onfail", FAILED)], "met"),
        ([("onfail_any", OK), ("onfail_any", FAILED)], "met"),
        ([("onfail_all", OK), ("onfail_all", FAILED)], "onfail"),
        ([("onfail_all", FAILED), ("onfail_all", FAILED)], "met"),
        ([("onfail", NOT_RUN_FAILED)], "met"),
        ([("onchanges", CHANGED)], "met"),
        ([("onchanges", OK)], "onchanges"),
        ([("onchanges", FAILED)], "onchanges"),
        ([("onchanges", OK), ("onchanges", CHANGED)], "met"),
        ([("onchanges_any", OK), ("onchanges_any", CHANGED)], "met"),
        ([("onfail", FAILED), ("require", FAILED)], "fail"),
        ([("onfail", OK), ("require", OK)], "onfail"),
        ([("onchanges", OK), ("require", OK)], "onchanges"),
    ],
)
def test_each_kind_has_its_rule(said: list[tuple[str, dict[str, Any]]], wanted: str) -> None:
    assert verdict(*said) == wanted


def test_what_failed_is_named_with_its_file() -> None:
    first, last = step(0), step(1, Requisite("require", 0))
    told = judged(last, [first, last], {0: FAILED})
    assert told == ("fail", "One or more requisite failed: orch.a.s0")
