"""Whether a step is to run, by what its requisites came to. Pure; the rules and the words are Salt's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gateway.orchestrate.words import Step

Verdict = Literal["met", "fail", "onfail", "onchanges"]

NOT_RUN: Mapping[Verdict, str] = {
    "onfail": "State was not run because onfail req did not change",
    "onchanges": "State was not run because none of the onchanges reqs changed",
}

Result = Mapping[str, Any]


def judged(step: Step, steps: Sequence[Step], results: Mapping[int, Result]) -> tuple[Verdict, str]:
    """Whether a step runs, and if not, why. All that it requires has a result."""
    kinds: dict[str, list[int]] = {}
    for requisite in step.requisites:
        kinds.setdefault(requisite.kind, []).append(requisite.step)
    words: set[str] = set()
    for kind, numbers in kinds.items():
        words |= _of_kind(kind, [results[number] for number in numbers])
    if "fail" in words:
        failed = sorted(
            {
                f"{steps[number].sls}.{steps[number].id}"
                for numbers in kinds.values()
                for number in numbers
                if results[number]["result"] is False
            }
        )
        return "fail", f"One or more requisite failed: {', '.join(failed)}"
    if "onfail" in words and "changed" not in words:
        return "onfail", NOT_RUN["onfail"]
    if "unchanged" in words and "changed" not in words:
        return "onchanges", NOT_RUN["onchanges"]
    if "onfail" in words:
        return "onfail", NOT_RUN["onfail"]
    return "met", ""


def _of_kind(kind: str, results: Sequence[Result]) -> set[str]:
    """What the requisites of one kind say together."""
    base = kind.removesuffix("_any").removesuffix("_all")
    words = {_word(base, result) for result in results} - {""}
    if kind.endswith("_any") or kind == "onfail":
        # One that is met is enough. A failure is what an ``onfail`` waits for.
        if "met" in words:
            words -= {"fail", "onfail"}
        if "changed" in words:
            words -= {"unchanged", "fail"}
    if kind.endswith("_all") and "onfail" in words:
        words.discard("met")
    return words


def _word(base: str, result: Result) -> str:
    ended = result["result"]
    if base == "onfail":
        if ended is True:
            return "onfail"
    elif base == "onchanges":
        return "unchanged" if ended is False or not result["changes"] else "changed"
    elif ended is False:
        return "fail"
    # One that was itself not run says nothing for others.
    return "met" if result.get("__state_ran__", True) else ""
