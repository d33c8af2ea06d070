"""Who may do what: operators with roles, and the rules that a job is held to. Pure: the file is read elsewhere.

    viewer    sees everything, changes nothing
    operator  sees, and runs what the rules allow
    approver  sees, accepts and rejects keys, releases held jobs; runs nothing
    admin     everything

The first rule that fits a whole job decides on it: allow it, or hold it until an approver releases it. Where no rule
fits, the job is refused. What is as good as a root shell (``device_agent.trust.reach``) is for admins alone, unless a
rule grants it on purpose: a ``*`` never reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from device_agent.errors import PolicyRefused, Refused
from device_agent.protocol import several
from device_agent.protocol.globs import compile_glob
from device_agent.trust import reach
from gateway.devices.argument_shapes import Shape, argument_text, shapes_text

Role = Literal["viewer", "operator", "approver", "admin"]
Need = Literal["view", "run", "keys", "release", "admin"]
Door = Literal["socket", "api", "above"]

MAY: dict[Role, frozenset[Need]] = {
    "viewer": frozenset({"view"}),
    "operator": frozenset({"view", "run"}),
    "approver": frozenset({"view", "keys", "release"}),
    "admin": frozenset({"view", "run", "keys", "release", "admin"}),
}
NEED_WORDS: dict[Need, str] = {
    "view": "look at this station",
    "run": "run jobs",
    "keys": "decide on keys",
    "release": "release held jobs",
    "admin": "administer this station",
}
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_SECONDS = 86_400
FIRST_DAY = 3
"""The first day of 1970 was a Thursday."""

NAMED_OUTSIDE = 3


@dataclass(frozen=True)
class Operator:
    """Who asks, and by which door: the unix socket, the API's TLS port, or a master above. ``token`` is one's id."""

    name: str
    roles: frozenset[Role]
    door: Door = "socket"
    groups: frozenset[str] = frozenset()
    token: str = ""
    asked_by_token: bool = False
    """Of a job from above: whether its user came to that master with a token."""

    @property
    def by_token(self) -> bool:
        """Whether the name is that of a token. Users of a machine and of tokens do not share their names."""
        return self.door == "api" or self.asked_by_token

    def may(self, need: Need) -> bool:
        """Whether one of the roles includes this."""
        return any(need in MAY[role] for role in self.roles)

    def __str__(self) -> str:
        """The name as a job carries it: with the door, when that is not the socket."""
        return f"{self.name} via {self.door}" if self.door == "api" else self.name

    def role_words(self) -> str:
        """Every role with what it includes."""
        words = [
            f"{role}: {', '.join(need for need in NEED_WORDS if need in MAY[role])}" for role in sorted(self.roles)
        ]
        return "; ".join(words) or "no role"


@dataclass(frozen=True)
class Allow:
    """The job may go. ``within`` are the globs its devices are confined to, ``sites`` those of its sites; () is all.

    ``folders`` are those that paths among its arguments must not leave by a link.
    """

    within: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hold:
    """The job may go when an approver has released it."""

    within: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Deny:
    """The job may not go; ``allowed`` is what would be."""

    why: str
    allowed: str = ""


Verdict = Allow | Hold | Deny


@dataclass(frozen=True)
class Span:
    """Some hours of some days, in UTC. An end before the start is of the next day. Times are minutes of the day."""

    days: frozenset[int]
    start: int
    end: int

    def holds(self, now: float) -> bool:
        """Whether ``now``, in seconds since 1970, is within."""
        today = (int(now // DAY_SECONDS) + FIRST_DAY) % 7
        minute = int(now % DAY_SECONDS) // 60
        if self.start < self.end:
            return today in self.days and self.start <= minute < self.end
        return (today in self.days and minute >= self.start) or ((today - 1) % 7 in self.days and minute < self.end)


@dataclass(frozen=True)
class Rule:
    """One thing that is granted. No ``hours`` is always; no ``users``, ``groups`` and ``tokens`` is everybody.

    ``functions`` and the keys of ``arguments`` are globs, or classes such as ``looks``.
    ``sealed``: also jobs of which this station sees neither function nor arguments, only what their issuer says of it.
    """

    functions: tuple[str, ...]
    arguments: tuple[tuple[str, tuple[Shape, ...]], ...] = ()
    targets: tuple[str, ...] = ("*",)
    sites: tuple[str, ...] = ("*",)
    hours: tuple[tuple[str, Span], ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    hold: bool = False
    sealed: bool = False

    def refusal(self, asked: _Asked) -> tuple[int, Deny] | None:
        """Why a job does not fit, and how far it came; None when it fits."""
        operator = asked.operator
        if not self.is_for(operator):
            return 0, Deny(f"no rule is for {'the token user ' if operator.by_token else ''}{operator.name}")
        about = [listed for term, listed in self.arguments if reach.concerns(term, asked.fun, asked.given)]
        if not any(reach.granted(term, asked.fun, asked.given, spelled=bool(about)) for term in self.functions):
            return 1, Deny(_ungranted(self.functions, asked))
        if asked.hidden and not self.sealed:
            return 2, Deny(
                f"{asked.fun} is not granted in a job that only its devices can read",
                "one without --sealed, or a rule with sealed: true",
            )
        shapes = [shape for listed in about for shape in listed]
        if about and (asked.hidden or not any(shape.fits(asked.arg, asked.kwarg) for shape in shapes)):
            return 2, Deny(f"{asked.fun} is not granted with these arguments", shapes_text(shapes))
        outside = [device for device in asked.target if not matches_any(self.targets, device)]
        if outside:
            named = ", ".join(outside[:NAMED_OUTSIDE]) + (" …" if len(outside) > NAMED_OUTSIDE else "")
            return 3, Deny(
                f"{asked.fun} is not granted on {len(outside)} of its devices: {named}", f"on {_list(self.targets)}"
            )
        foreign = [site for site in asked.sites if not matches_any(self.sites, site)]
        if foreign:
            return 4, Deny(f"{asked.fun} is not granted at site {', '.join(foreign)}", f"at {_list(self.sites)}")
        if self.hours and not any(span.holds(asked.now) for _, span in self.hours):
            return 5, Deny(
                f"{asked.fun} is not granted at this hour", f"{'; '.join(text for text, _ in self.hours)} (UTC)"
            )
        return None

    def is_for(self, operator: Operator) -> bool:
        """Whether the rule is for this operator; one that names nobody is for everybody."""
        if not (self.users or self.groups or self.tokens):
            return True
        if operator.by_token:
            return matches_any(self.tokens, operator.name)
        groups = (matches_any(self.groups, group) for group in operator.groups)
        return matches_any(self.users, operator.name) or any(groups)

    def verdict(self, asked: _Asked) -> Allow | Hold:
        """What the rule says of a job that fits."""
        folders = () if asked.hidden else self._folders(asked)
        within = () if "*" in self.targets else self.targets
        sites = () if "*" in self.sites else self.sites
        return Hold(within, sites, folders) if self.hold else Allow(within, sites, folders)

    def _folders(self, asked: _Asked) -> tuple[str, ...]:
        shapes = [
            shape
            for term, listed in self.arguments
            if reach.concerns(term, asked.fun, asked.given)
            for shape in listed
            if shape.fits(asked.arg, asked.kwarg)
        ]
        return tuple(shapes[0].folders(asked.arg, asked.kwarg)) if shapes else ()


@dataclass(frozen=True)
class _Asked:
    operator: Operator
    fun: str
    arg: Sequence[Any]
    kwarg: Mapping[str, Any]
    target: Sequence[str]
    sites: Sequence[str]
    now: float
    hidden: bool

    @property
    def given(self) -> reach.Arguments | None:
        """The arguments; None while they are hidden."""
        return None if self.hidden else (self.arg, self.kwarg)


@dataclass(frozen=True)
class Policy:
    """Who has which role here, and the rules for operators and for the masters' operators (``centre``).

    Without rules for operators they run everything that is not as good as a shell; without a centre section everything
    that its signature allows is taken from above.
    """

    users: Mapping[str, frozenset[Role]]
    groups: Mapping[str, frozenset[Role]]
    others: frozenset[Role] = frozenset()
    operator: tuple[Rule, ...] | None = None
    centre: tuple[Rule, ...] | None = None
    source: str = ""
    tokens: Mapping[str, frozenset[Role]] = field(default_factory=dict)
    arguments: frozenset[Role] | None = None
    """The roles that see the arguments of other operators' jobs; None is every role that may look."""

    def shows_arguments(self, operator: Operator) -> bool:
        """Whether an operator sees the arguments of other operators' jobs."""
        return self.arguments is None or "admin" in operator.roles or bool(self.arguments & operator.roles)

    def token_roles(self, name: str) -> frozenset[Role]:
        """The roles of a token's user, where the token has none of its own."""
        return self.tokens.get(name) or self.others

    def roles(self, name: str, groups: frozenset[str]) -> frozenset[Role]:
        """The roles of a user of this machine: all that the name and the groups have."""
        found = self.users.get(name, frozenset[Role]()).union(
            *(self.groups[group] for group in groups if group in self.groups)
        )
        return found or self.others

    def judge(
        self,
        operator: Operator,
        fun: str,
        arg: Sequence[Any],
        kwarg: Mapping[str, Any],
        target: Sequence[str],
        sites: Sequence[str],
        now: float,
        *,
        hidden: bool = False,
    ) -> Verdict:
        """The verdict on one call. ``target`` are the ids of the devices it means, ``sites`` where these are.

        ``hidden``: what it does is sealed to its devices, and ``fun`` only what its issuer says.
        """
        asked = _Asked(operator, fun, arg, kwarg, target, sites, now, hidden)
        if operator.door == "above" and self.centre is None:
            return Allow()
        if operator.door != "above" and "admin" in operator.roles:
            return Allow()
        if operator.door != "above" and not operator.may("run"):
            return Deny(f"{operator.name} may not {NEED_WORDS['run']}", operator.role_words())
        if fun == several.SEVERAL:
            return Deny("several functions are not granted where they cannot be judged one by one", "one for each job")
        if operator.door == "above":
            return _first_that_fits(self.centre or (), asked)
        if self.operator is not None:
            return _first_that_fits(self.operator, asked)
        if reach.granted("shell", fun, asked.given):
            nearer = ", ".join(reach.words(each) for each in reach.CLASSES if each != "shell")
            return Deny(f"{fun} is for admins, unless a rule names it: {_shell_words(asked)}", nearer)
        return Allow()

    def way_to(self, operator: Operator, need: Need) -> str:
        """How somebody gets what is refused now: the next thing to do."""
        role = {"view": "viewer", "run": "operator", "keys": "approver", "release": "approver"}.get(need, "admin")
        if operator.token and self.source:
            return f"ask an admin to write tokens: {{{operator.name}: {role}}} into {self.source}"
        if operator.token:
            return f"ask an admin for a token with that role: outstation operators new {operator.name} --role {role}"
        if self.source:
            return f"ask an admin to give {operator.name} the role {role} in {self.source}"
        return f"run it with sudo, or set policy: in the settings to a file that gives {operator.name} the role {role}"


def without_file(own_user: str) -> Policy:
    """The policy where no file is set: root and the station's own user do everything, whoever else gets in looks."""
    admin: frozenset[Role] = frozenset({"admin"})
    return Policy(users={"root": admin, own_user: admin}, groups={}, others=frozenset({"viewer"}))


def not_allowed(policy: Policy, operator: Operator, need: Need, asked: str) -> PolicyRefused:
    """The error for whoever lacks a role: who, what was asked, what the roles include, and how to get it."""
    return PolicyRefused(
        f"{operator.name} may not {NEED_WORDS[need]}",
        error_id="policy.role",
        found=asked,
        allowed=operator.role_words(),
        hint=policy.way_to(operator, need),
    )


def call_text(fun: str, arg: Sequence[Any], kwarg: Mapping[str, Any]) -> str:
    """A function with its arguments, for people; of several each, with semicolons between."""
    if fun == several.SEVERAL:
        try:
            return "; ".join(call_text(*each) for each in several.calls(fun, arg, kwarg))
        except Refused:
            return "several functions"
    named = [f"{name}={argument_text(value)}" for name, value in kwarg.items()]
    return " ".join([fun, *map(argument_text, arg), *named])


def _first_that_fits(rules: Sequence[Rule], asked: _Asked) -> Verdict:
    """The first rule that fits decides; when none does, the reason is that of the one that came closest."""
    closest, reason = -1, Deny("no rule grants anything")
    for rule in rules:
        refusal = rule.refusal(asked)
        if refusal is None:
            return rule.verdict(asked)
        if refusal[0] > closest:
            closest, reason = refusal
    return reason if reason.allowed else Deny(reason.why, granted_words(rules, asked.operator))


def granted_words(rules: Sequence[Rule], operator: Operator) -> str:
    """What the rules grant to an operator, for people."""
    mine = [rule for rule in rules if rule.is_for(operator)]
    return _list([reach.words(each) for each in dict.fromkeys(glob for rule in mine for glob in rule.functions)])


def _ungranted(terms: Sequence[str], asked: _Asked) -> str:
    """Why none of a rule's functions is this one; said apart where only the reach of it stands in the way."""
    if not any(reach.concerns(term, asked.fun, None if term in reach.CLASSES else asked.given) for term in terms):
        return f"no rule grants {asked.fun}"
    if reach.granted("shell", asked.fun, asked.given):
        return f"no rule grants {asked.fun} on purpose, and {_shell_words(asked)}"
    return f"no rule grants {asked.fun}"


def _shell_words(asked: _Asked) -> str:
    further = reach.why_further(asked.fun, asked.given) if reach.FUNCTIONS.get(asked.fun) != "shell" else ""
    if asked.fun not in reach.FUNCTIONS:
        return "this release does not know it"
    return f"it is as good as a root shell{f' with {further}' if further else ''}"


def _matches(glob: str, text: str) -> bool:
    return _compiled(glob)(text)


def matches_any(globs: Sequence[str], text: str) -> bool:
    """Whether one of a policy's globs matches."""
    return any(_matches(glob, text) for glob in globs)


_globs: dict[str, Callable[[str], bool]] = {}


def _compiled(glob: str) -> Callable[[str], bool]:
    # Only globs of policy files come here, which are few.
    if glob not in _globs:
        _globs[glob] = compile_glob(glob)
    return _globs[glob]


def _list(words: Sequence[str]) -> str:
    return ", ".join(words) or "nothing"
