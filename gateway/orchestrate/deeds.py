"""What a step does: a job, a call of the station itself, a wait for events, or only words. Pure.

The functions are those of Salt's ``salt`` states for orchestration, and a few of its ``test`` states. What a device is
sent is what Salt sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast, get_args

from msgspec import Struct, field

from device_agent.protocol import limits
from gateway.jobs.nodegroups import TypedKind
from gateway.jobs.target_text import NotText, target_text
from gateway.orchestrate.words import Step

EVENT_SECONDS: Final = 300.0
EVENT_SECONDS_MAX: Final = 7 * 86_400.0
IDS: Final = 10_000

UNUSED: Final = {"ret_config", "ret_kwargs", "ssh", "roster", "node", "fire_event", "reload_modules"}
"""Known to Salt and without meaning here: a warning says so."""


class JobDeed(Struct, frozen=True, kw_only=True, tag=True):
    """A job. ``states``: what it returns is looked through for states that failed. ``allow`` may fail."""

    tgt: str
    tgt_type: TypedKind
    fun: str
    arg: list[Any]
    kwarg: dict[str, Any]
    ret: list[str] = field(default_factory=list)
    run_limit: float | None = None
    states: bool = False
    allow_fail: int = 0
    fail_minions: list[str] = field(default_factory=list)
    expect_minions: bool = False
    test: bool = False
    warnings: list[str] = field(default_factory=list)


class CallDeed(Struct, frozen=True, kw_only=True, tag=True):
    """A runner or a wheel."""

    kind: Literal["runner", "wheel"]
    fun: str
    arg: list[Any]
    kwarg: dict[str, Any]


class WaitDeed(Struct, frozen=True, kw_only=True, tag=True):
    """A wait until each of ``ids`` was seen under ``key`` in an event whose tag matches."""

    pattern: str
    ids: list[Any]
    key: str
    seconds: float


class WordsDeed(Struct, frozen=True, kw_only=True, tag=True):
    """Nothing is done."""

    result: bool | None
    comment: str
    changes: dict[str, Any] = field(default_factory=dict)


Deed = JobDeed | CallDeed | WaitDeed | WordsDeed


class BadStep(Exception):
    """A step that cannot be taken; the text says why."""


def deed(step: Step, *, test: bool) -> Deed:
    """What a step does. Raises ``BadStep``."""
    made = _DEEDS.get(step.said)
    if made is None:
        raise BadStep(f"State '{step.said}' was not found in SLS '{step.sls}'; there are {', '.join(_DEEDS)}")
    return made(step, test)


def _required(step: Step, name: str) -> Any:
    if step.args.get(name) is None:
        raise BadStep(f"Missing parameter {name} for state {step.said}")
    return step.args[name]


def _target(step: Step) -> tuple[str, TypedKind]:
    tgt = _required(step, "tgt")
    kind = step.args.get("tgt_type", step.args.get("expr_form", "list" if isinstance(tgt, list) else "glob"))
    if kind not in get_args(TypedKind):
        raise BadStep(f"{str(kind)[:40]!r} is no tgt_type; there are {', '.join(get_args(TypedKind))}")
    try:
        return target_text(tgt), cast("TypedKind", kind)
    except NotText as wrong:
        raise BadStep(f"{step.said}: {wrong}") from None


def _returners(step: Step) -> list[str]:
    said = step.args.get("ret")
    listed = said.split(",") if isinstance(said, str) else said or []
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise BadStep(f"ret is the name of a returner, or a list of them, and here {str(said)[:80]!r}")
    return [each.strip() for each in listed if each.strip()]


def _run_limit(step: Step) -> float | None:
    """``timeout`` is how long Salt waits; a job here ends by itself, and may run longer than it does by default."""
    seconds = step.args.get("timeout")
    if seconds is None:
        return None
    try:
        wanted = float(seconds)
    except (TypeError, ValueError):
        raise BadStep(f"timeout is a number of seconds, and here {str(seconds)[:40]!r}") from None
    return min(wanted, limits.RUN_LIMIT_MAX_SECONDS) if wanted > limits.RUN_LIMIT_SECONDS else None


def _minions(step: Step, warnings: list[str]) -> list[str]:
    said = step.args.get("fail_minions")
    match said:
        case None:
            return []
        case str():
            return [name.strip() for name in said.split(",")]
        case list() if all(isinstance(name, str) for name in said):
            return list(said)
        case _:
            warnings.append("'fail_minions' needs to be a list or a comma separated string. Ignored.")
            return []


def _unused(step: Step, known: set[str]) -> list[str]:
    found = []
    for name in step.args:
        if name in UNUSED:
            found.append(f"'{name}' has no meaning here. Ignored.")
        elif name not in known and not name.startswith("__"):
            found.append(f"'{name}' is an invalid keyword argument for '{step.said}'. Ignored.")
    return found


_JOB_WORDS: Final = {"tgt", "tgt_type", "expr_form", "timeout", "ret", "fail_minions", "expect_minions"}


def _function(step: Step, test: bool) -> Deed:
    if "fail_function" in step.args:
        raise BadStep("fail_function is not there in an orchestration")
    warnings = _unused(step, {*_JOB_WORDS, "arg", "kwarg"})
    tgt, tgt_type = _target(step)
    arg, kwarg = step.args.get("arg"), step.args.get("kwarg")
    if isinstance(arg, str):
        warnings.append("Please specify 'arg' as a list of arguments.")
        arg = arg.split()
    if arg is not None and not isinstance(arg, list):
        raise BadStep(f"arg is a list of arguments, and here {str(arg)[:80]!r}")
    if kwarg is not None and not isinstance(kwarg, dict):
        raise BadStep(f"kwarg is a mapping, and here {str(kwarg)[:80]!r}")
    if test:
        return WordsDeed(result=None, comment=f"Function {step.name} would be executed on target {tgt}")
    return JobDeed(
        tgt=tgt,
        tgt_type=tgt_type,
        fun=step.name,
        arg=arg or [],
        kwarg={str(name): value for name, value in (kwarg or {}).items()},
        ret=_returners(step),
        run_limit=_run_limit(step),
        fail_minions=_minions(step, warnings),
        expect_minions=True,
        warnings=warnings,
    )


_STATE_WORDS: Final = {
    *_JOB_WORDS,
    "highstate",
    "sls",
    "top",
    "saltenv",
    "test",
    "pillar",
    "pillarenv",
    "allow_fail",
    "exclude",
    "concurrent",
    "queue",
}


def _state(step: Step, test: bool) -> Deed:
    args = step.args
    known = {"kwarg"} if _pillar_within(args.get("kwarg")) and not args.get("pillar") else set()
    warnings = _unused(step, _STATE_WORDS | known)
    try:
        allow_fail = int(args.get("allow_fail", 0))
    except (TypeError, ValueError):
        return WordsDeed(result=False, comment="Passed invalid value for 'allow_fail', must be an int")
    tgt, tgt_type = _target(step)
    arg: list[Any] = []
    if args.get("highstate"):
        fun = "state.highstate"
    elif args.get("top"):
        fun, arg = "state.top", [args["top"]]
    elif sls := args.get("sls"):
        fun, arg = "state.sls", [",".join(map(str, sls)) if isinstance(sls, list) else sls]
    else:
        return WordsDeed(result=False, comment="No highstate or sls specified, no execution made")
    concurrent = args.get("concurrent", False)
    if not isinstance(concurrent, bool):
        return WordsDeed(result=False, comment="Must pass in boolean for value of 'concurrent'")
    tested = args.get("test")
    kwarg: dict[str, Any] = {}
    if tested is not None or test:
        kwarg["test"] = tested if tested is not None else test
    if pillar := args.get("pillar") or _pillar_within(args.get("kwarg")):
        kwarg["pillar"] = pillar
    kwarg |= {name: args[name] for name in ("pillarenv", "saltenv", "exclude") if args.get(name) is not None}
    kwarg |= {"queue": args.get("queue", False), "concurrent": concurrent}
    return JobDeed(
        tgt=tgt,
        tgt_type=tgt_type,
        fun=fun,
        arg=arg,
        kwarg=kwarg,
        ret=_returners(step),
        run_limit=_run_limit(step),
        states=True,
        allow_fail=allow_fail,
        fail_minions=_minions(step, warnings),
        expect_minions=args.get("expect_minions", True) is not False,
        test=bool(kwarg.get("test")),
        warnings=warnings,
    )


def _pillar_within(kwarg: Any) -> Any:
    """The pillar of a step as Salt's pages write it, alone under ``kwarg``, where Salt itself passes it over."""
    return kwarg["pillar"] if isinstance(kwarg, Mapping) and set(kwarg) == {"pillar"} else None


def _call(kind: Literal["runner", "wheel"]) -> Callable[[Step, bool], Deed]:
    def made(step: Step, test: bool) -> Deed:
        if test:
            said = f"{kind.capitalize()} function '{step.name}' would be executed."
            return WordsDeed(result=None, comment=said)
        kwarg = dict(step.args)
        arg, named = kwarg.pop("arg", None), kwarg.pop("kwarg", None)
        if arg is not None and not isinstance(arg, list):
            raise BadStep(f"arg is a list of arguments, and here {str(arg)[:80]!r}")
        if named is not None and not isinstance(named, Mapping):
            raise BadStep(f"kwarg is a mapping, and here {str(named)[:80]!r}")
        return CallDeed(kind=kind, fun=step.name, arg=arg or [], kwarg={**kwarg, **(named or {})})

    return made


def _wait(step: Step, test: bool) -> Deed:
    if test:
        return WordsDeed(result=None, comment=f"Orchestration would wait for event '{step.name}'")
    ids = _required(step, "id_list")
    if not isinstance(ids, list) or len(ids) > IDS:
        raise BadStep(f"id_list is a list of at most {IDS:,}, and here {str(ids)[:80]!r}")
    seconds = step.args.get("timeout", EVENT_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= EVENT_SECONDS_MAX:
        raise BadStep(f"timeout is at most {EVENT_SECONDS_MAX:.0f} s, and here {str(seconds)[:40]!r}")
    return WaitDeed(pattern=step.name, ids=ids, key=str(step.args.get("event_id", "id")), seconds=float(seconds))


def _words(result: bool, comment: str, changes: bool) -> Callable[[Step, bool], Deed]:
    told = {"testing": {"old": "Unchanged", "new": "Something pretended to change"}} if changes else {}

    def made(step: Step, test: bool) -> Deed:
        said = step.args.get("comment")
        if test and changes:
            would = "If we weren't testing, this would be a success with changes"
            return WordsDeed(result=None, comment=would, changes=told)
        return WordsDeed(result=result, comment=str(said) if said else comment, changes=told)

    return made


_DEEDS: Final[Mapping[str, Callable[[Step, bool], Deed]]] = {
    "salt.function": _function,
    "salt.state": _state,
    "salt.runner": _call("runner"),
    "salt.wheel": _call("wheel"),
    "salt.wait_for_event": _wait,
    "test.nop": _words(True, "Success!", False),
    "test.succeed_without_changes": _words(True, "Success!", False),
    "test.succeed_with_changes": _words(True, "Success!", True),
    "test.fail_without_changes": _words(False, "Failure!", False),
    "test.fail_with_changes": _words(False, "Failure!", True),
}
"""Every function that an orchestration's file may name."""
