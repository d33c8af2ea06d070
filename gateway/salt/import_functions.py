"""Whether what a Salt configuration calls is here: as it is, with a grant, or not at all. Pure, and without a station.

A call is made by the user ``reactor`` or ``schedule``, who has the role of an operator unless a policy says otherwise,
under the grants of the site, which are ``looks`` unless somebody granted more.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, Literal

from device_agent.trust import reach
from device_agent.trust.policy import DEFAULT_GRANTS
from device_agent.trust.reach import Arguments
from gateway.salt.import_findings import Verdict

Kind = Literal["device", "station", "runner", "wheel"]
"""Where a function runs: on devices by a job, on the station itself, or as a call of the station."""

RUNS: Final[Verdict] = "runs as is"
GRANT: Final[Verdict] = "needs a grant"
CHANGE: Final[Verdict] = "needs a change"
WORST: Final = (RUNS, GRANT, CHANGE)

CALLS: Final[Mapping[str, Mapping[str, str]]] = {
    "runner": {
        "operator": "cache.grains cache.mine delay.runner doc.runner doc.wheel event.send http.query jobs.active"
        " jobs.exit_success jobs.last_run jobs.list_job jobs.list_jobs jobs.list_jobs_filter jobs.lookup_jid"
        " jobs.print_job manage.alived manage.allowed manage.down manage.joined manage.list_not_state"
        " manage.list_state manage.not_alived manage.not_allowed manage.not_joined manage.not_present manage.present"
        " manage.status manage.up manage.versions queue.delete queue.insert queue.insert_runner queue.list_items"
        " queue.list_length queue.list_queues queue.pop queue.process_queue queue.process_runner reactor.is_leader"
        " reactor.list salt.execute saltutil.sync_all saltutil.sync_engines saltutil.sync_grains saltutil.sync_modules"
        " saltutil.sync_runners state.orch state.orch_show_sls state.orchestrate state.orchestrate_show_sls state.sls"
        " sys.argspec sys.doc sys.list_functions test.arg test.sleep",
        "admin": "cache.pillar reactor.add reactor.delete reactor.set_leader",
        "refused": "state.event",
    },
    "wheel": {
        "operator": "key.finger key.finger_master key.key_str key.list key.list_all key.name_match minions.connected",
        "approver": "key.accept key.accept_dict key.delete key.delete_dict key.reject key.reject_dict",
        "admin": "config.values",
        "refused": "config.apply config.update_config key.gen key.gen_accept key.gen_keys",
    },
}
"""Kind of a call -> the role that may make it -> functions."""

ROLES: Final[Mapping[str, Mapping[str, str]]] = {
    kind: {name: role for role, names in roles.items() for name in names.split()} for kind, roles in CALLS.items()
}
INDIRECT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("state.orch", "state.orchestrate", "state.sls"),
        "the steps of its file were not looked at: outstation runner state.orchestrate_show_sls shows them",
    ),
    **dict.fromkeys(
        ("delay.runner", "queue.insert_runner", "queue.process_runner", "salt.execute"),
        "what it calls in its turn was not looked at, and is judged when it is called",
    ),
}
"""Runners that call something else."""

STATES: Final = "devices here have no state system: call functions instead (docs/functions.md)"


@dataclass(frozen=True)
class Judged:
    """Whether a call can be made, and why not."""

    verdict: Verdict
    words: str = ""


@dataclass
class OwnNames:
    """Code of the site's own, by kind, which settings and calls may mean."""

    modules: Container[str] = field(default_factory=set)
    runners: Container[str] = field(default_factory=set)
    engines: Container[str] = field(default_factory=set)


def judged(kind: Kind, fun: str, user: str, own: OwnNames, given: Arguments | None = None) -> Judged:
    """Whether ``user`` may make a call here; ``given`` are its arguments, None where they are not known."""
    module = fun.partition(".")[0]
    if kind in ("runner", "wheel"):
        if kind == "runner" and module in own.runners:
            return Judged(GRANT, f"{fun} is of the site's own runner {module}: sign it first (docs/runners.md)")
        return _called(kind, fun, user)
    if fun not in reach.FUNCTIONS:
        if module in own.modules:
            return Judged(GRANT, f"{fun} is of the site's own module {module}: sign it, and grant it (docs/modules.md)")
        return Judged(CHANGE, f"there is no function {fun}{_instead(fun)}")
    furthest = reach.reach_of(fun, given) or "shell"
    # Without its arguments a call is taken for what the function is with most of them.
    found = furthest if given is not None else reach.FUNCTIONS[fun]
    more = "" if found == furthest else f"; with some arguments it is of the class {furthest}"
    if found in DEFAULT_GRANTS:
        return Judged(RUNS, f"{fun} runs as it is{more}, and then needs a grant" if more else "")
    if kind == "station":
        return Judged(GRANT, f"{fun} is of the class {found}: name it in station.grants (docs/devices.md){more}")
    if found == "shell":
        words = f"{fun} is as good as a root shell: a rule of the policy has to name it for {user}, and the site needs"
        return Judged(GRANT, f"{words} --grant '{module}.*' (docs/operators.md, docs/sites.md)")
    return Judged(GRANT, f"{fun} is of the class {found}: the site needs --grant {found} (docs/sites.md){more}")


def _called(kind: str, fun: str, user: str) -> Judged:
    role = ROLES[kind].get(fun)
    match role:
        case "operator":
            return Judged(RUNS, f"{fun}: {INDIRECT[fun]}" if kind == "runner" and fun in INDIRECT else "")
        case None:
            near = get_close_matches(fun, ROLES[kind], n=2)
            words = f"; there is {' or '.join(near)}" if near else " (docs/runners.md)"
            return Judged(CHANGE, f"there is no {kind} {fun}{words}")
        case "refused":
            return Judged(CHANGE, f"{kind}.{fun} is refused here: outstation {kind} {fun} says why")
        case _:
            return Judged(GRANT, f"{kind}.{fun} needs the role {role}: give it to {user} in the policy")


def _instead(fun: str) -> str:
    if fun.startswith("state."):
        return f": {STATES}"
    near = get_close_matches(fun, reach.FUNCTIONS, n=2)
    return f"; there is {' or '.join(near)}" if near else " (docs/functions.md)"


def worst(verdicts: list[Verdict]) -> Verdict:
    """The one that asks for most."""
    return max(verdicts, key=WORST.index, default=RUNS)
