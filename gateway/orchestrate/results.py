"""What a step came to, as Salt tells it: ``result``, ``comment`` and ``changes``. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from device_agent.protocol.outcomes import MEANING, Outcome
from gateway.orchestrate.deeds import JobDeed
from gateway.orchestrate.words import Step

NAMED: Final = 100
"""Devices that a comment names; beyond that it says how many more there are."""

ANSWERED: Final = (Outcome.OK.value, Outcome.FAILED.value)
NO_RUN_RETCODE: Final = 1


class Answered(Struct, frozen=True, kw_only=True):
    """How a job ended on one device."""

    device: str
    site: str
    outcome: str
    retcode: int | None
    value: Any
    why: str

    @property
    def answered(self) -> bool:
        """Whether the device said something itself."""
        return self.outcome in ANSWERED

    def words(self) -> str:
        """Why it is no success."""
        return f"{self.device}: {self.outcome}: {self.why or MEANING[Outcome(self.outcome)]}"


class Bare(Struct, frozen=True, kw_only=True):
    """A result without what every step has."""

    result: bool | None
    comment: str
    changes: dict[str, Any] = {}
    ran: bool = True
    warnings: list[str] = []
    jid: str = ""


def told(step: Step, bare: Bare, *, start_time: str, duration: float) -> dict[str, Any]:
    """A step's result in Salt's shape. ``duration`` is in milliseconds."""
    found: dict[str, Any] = {
        "name": step.name,
        "changes": bare.changes,
        "result": bare.result,
        "comment": bare.comment,
        "__sls__": step.sls,
        "__run_num__": step.number,
        "__id__": step.id,
        "start_time": start_time,
        "duration": round(duration, 3),
    }
    if not bare.ran:
        found["__state_ran__"] = False
    if bare.warnings:
        found["warnings"] = bare.warnings
    if bare.jid:
        found["__jid__"] = bare.jid
    return found


def of_job(deed: JobDeed, jid: str, answers: Sequence[Answered]) -> Bare:
    """What the devices' outcomes make of a step."""
    by_name = _named(answers)
    return (_of_states if deed.states else _of_function)(deed, jid, by_name)


def _of_function(deed: JobDeed, jid: str, answers: Mapping[str, Answered]) -> Bare:
    if not answers:
        return Bare(result=False, comment="No minions responded", jid=jid, warnings=deed.warnings)
    changes = {name: each.value if each.answered else False for name, each in answers.items()}
    failed = [name for name, each in answers.items() if _failed(name, each, deed)]
    if failed:
        comment = f"Running function {deed.fun} failed on minions: {_list(failed)}"
    else:
        comment = "Function ran successfully."
    comment += f" Function {deed.fun} ran on {_list(list(changes))}." + _reasons(answers, failed)
    return Bare(result=not failed, comment=comment, changes={"ret": changes}, jid=jid, warnings=deed.warnings)


def _failed(name: str, each: Answered, deed: JobDeed) -> bool:
    if each.answered and each.retcode:
        return True
    good = each.answered and each.outcome == Outcome.OK.value and each.value is not False
    return not good and name not in deed.fail_minions


def _of_states(deed: JobDeed, jid: str, answers: Mapping[str, Answered]) -> Bare:
    if not answers and deed.expect_minions:
        return Bare(result=False, comment="No minions returned", jid=jid, warnings=deed.warnings)
    changes: dict[str, Any] = {}
    failed, same = [], []
    for name, each in answers.items():
        value: Any = each.value if each.answered else False
        if not (each.answered and check_result(value)):
            if name not in deed.fail_minions:
                failed.append(name)
            changes[name] = value
        elif any(isinstance(state, dict) and state.get("changes") for state in value.values()):
            changes[name] = value
        else:
            same.append(name)
    result: bool | None = len(failed) <= deed.allow_fail
    if result:
        comment = "States ran successfully."
        comment += f" Updating {_list(list(changes))}." if changes else ""
        comment += f" No changes made to {_list(same)}." if same else ""
    else:
        comment = f"Run failed on minions: {_list(failed)}{_reasons(answers, failed)}"
    if deed.test and changes and result:
        result = None
    told = {"out": "highstate", "ret": changes} if changes else {}
    return Bare(result=result, comment=comment, changes=told, jid=jid, warnings=deed.warnings)


def of_call(kind: str, fun: str, jid: str, *, ok: bool, value: Any, warnings: Sequence[str] = ()) -> Bare:
    """What a runner or a wheel returned."""
    ok = ok and not (isinstance(value, dict) and "Error" in value)
    words = "executed" if ok else "failed"
    comment = f"{kind.capitalize()} function '{fun}' {words}."
    if not ok and isinstance(value, str):
        comment += f"\n{value}"
    return Bare(result=ok, comment=comment, changes={"return": value}, jid=jid, warnings=list(warnings))


def check_result(value: Any) -> bool:
    """Whether nothing in a tree of states failed. What is no such tree, or an empty one, is no success."""
    if not isinstance(value, Mapping) or not value:
        return False
    for state in value.values():
        if not isinstance(state, Mapping):
            continue
        if "result" in state:
            if state["result"] is False:
                return False
        elif not check_result(state):
            return False
    return True


def _named(answers: Sequence[Answered]) -> dict[str, Answered]:
    """By name; of those that two sites have with the site in front."""
    count = Counter(each.device for each in answers)
    return {f"{each.site}/{each.device}" if count[each.device] > 1 else each.device: each for each in answers}


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _reasons(answers: Mapping[str, Answered], failed: Sequence[str]) -> str:
    """A line for each of the first that did not run it, or said why."""
    words = [answers[name].words() for name in failed[:NAMED] if not answers[name].answered or answers[name].why]
    return "".join(f"\n{each}" for each in words)
