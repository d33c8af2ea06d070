"""The schedule of the device that a function runs on, and Salt's answers about changes of it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from device_agent.ended import FunctionFailed
from device_agent.own import Own
from device_agent.schedule.entries import ScheduleInvalid
from device_agent.schedule.port import Schedule

UNITS: Final = ("seconds", "minutes", "hours", "days")
BUILT: Final = (
    "range",
    "when",
    "once",
    "once_fmt",
    "cron",
    "returner",
    "after",
    "return_config",
    "return_kwargs",
    "until",
    "run_on_start",
    "skip_during_range",
    "run_after_skip_range",
    "run_missed",
)
"""What goes from the arguments into an entry as it is."""

ABOUT: Final = frozenset({"persist", "test", "offline", "job_args", "job_kwargs", "function", "metadata"})


def schedule_of(own: Own) -> Schedule:
    """The schedule of this device. Raises ``FunctionFailed`` where it has none."""
    if own.schedule is None:
        raise FunctionFailed(
            "there is no agent on this device that could keep a schedule; that of its station reaches it, "
            "with this device as the target of an entry",
            value={"comment": "There is no agent on this device.", "result": False, "changes": {}},
        )
    return own.schedule


def result(comment: str | list[str], *, ok: bool = True, **more: Any) -> dict[str, Any]:
    """Salt's answer about a change. Raises ``FunctionFailed`` with it for one that was not made."""
    value = {"comment": comment, "result": ok, **more}
    if not ok:
        raise FunctionFailed(comment if isinstance(comment, str) else "; ".join(comment), value=value)
    return value


async def kept(change: Awaitable[Any], failed: str, **more: Any) -> None:
    """Make a change, and have it on disk. Raises ``FunctionFailed`` with what stands in the way."""
    try:
        await change
    except ScheduleInvalid as error:
        result(f"{failed} {_facts(error)}", ok=False, **more)
    except OSError as error:
        result(f"{failed} It cannot be kept: {error.strerror or error}", ok=False, **more)


def _facts(error: ScheduleInvalid) -> str:
    return f"{error.where}: {error.what}; found {error.found}; allowed: {error.allowed}"


def built(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """An entry as Salt builds it of arguments. Raises ``FunctionFailed``."""
    unknown = [key for key in given if key not in {*UNITS, *BUILT, *ABOUT} | set(_PLAIN)]
    if unknown:
        result(f"An entry takes no {', '.join(unknown)[:200]}.", ok=False)
    if not given.get("function"):
        result("function is required.", ok=False)
    if not isinstance(given.get("job_args", []), list):
        result("job_args is not a list. please correct and try again.", ok=False)
    if not isinstance(given.get("job_kwargs", {}), dict):
        result("job_kwargs is not a dict. please correct and try again.", ok=False)
    item: dict[str, Any] = {"function": given["function"]}
    item |= {key: given[key] for key in (*UNITS, "return_job", "metadata") if key in given}
    item |= {inner: given[key] for key, inner in (("job_args", "args"), ("job_kwargs", "kwargs")) if key in given}
    item |= {key: given.get(key, default) for key, default in _PLAIN.items()}
    item["name"] = given.get("name", name)
    if "splay" not in given:
        del item["splay"]
    return item | {key: given[key] for key in BUILT if key in given}


_PLAIN: Final[dict[str, Any]] = {"maxrunning": 1, "name": "", "enabled": True, "jid_include": True, "splay": None}


def conflict(given: dict[str, Any]) -> str:
    """Salt's word on times that do not go together; empty when they do."""
    if any(unit in given for unit in UNITS) and ("when" in given or "cron" in given):
        return 'Unable to use "seconds", "minutes", "hours", or "days" with "when" or "cron" options.'
    if "when" in given and "cron" in given:
        return 'Unable to use "when" and "cron" options together.  Ignoring.'
    return ""


def not_offline(given: dict[str, Any]) -> None:
    """Refuse what Salt does with a minion that does not run: here it is always the agent that is asked."""
    if given.get("offline"):
        result("offline has no meaning here: the agent runs.", ok=False)
