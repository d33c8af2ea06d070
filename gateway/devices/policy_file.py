"""The policy file: YAML as strict as the settings, read at the start and at SIGHUP. A broken one never opens a door."""

from __future__ import annotations

import hashlib
import logging
import os
import pwd
import stat
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, field

from device_agent.errors import ConfigInvalid
from device_agent.settings import load
from device_agent.trust.reach import Reach
from gateway.devices.argument_shapes import Shape
from gateway.devices.policy import DAYS, Policy, Role, Rule, Span, without_file

log = logging.getLogger(__name__)

_DAY = f"({'|'.join(DAYS)})"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]"
HOURS_PATTERN = rf"^(daily|{_DAY}(-{_DAY})?(,{_DAY}(-{_DAY})?)*) {_TIME}-({_TIME}|24:00)$(?!\n)"
WORD_PATTERN = r"^\S+$(?!\n)"

Glob = Annotated[str, Meta(min_length=1, max_length=256)]
WordGlob = Annotated[str, Meta(pattern=WORD_PATTERN, max_length=256)]
FunctionGlob = Annotated[str, Meta(pattern=r"^[a-z0-9_.*?!\[\]-]+$(?!\n)", max_length=130, examples=["test.*"])]
Hours = Annotated[
    str, Meta(pattern=HOURS_PATTERN, description="days and hours in UTC", examples=["mon-fri 08:00-18:00"])
]
Roles = Role | Annotated[list[Role], Meta(min_length=1, max_length=4)]
MANY = 256


class ShapeTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments that a function may be given."""

    positional: Annotated[list[Glob], Meta(max_length=MANY)] = []
    named: dict[str, Glob] = {}
    optional: dict[str, Glob] = {}


class JobRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every rule can say."""

    allow: Annotated[list[Reach], Meta(max_length=4, description="classes of functions", examples=[["looks"]])] = []
    functions: Annotated[list[FunctionGlob], Meta(max_length=MANY)] = []
    arguments: dict[FunctionGlob, list[ShapeTable]] = {}
    targets: Annotated[list[WordGlob], Meta(min_length=1, max_length=64)] = field(default_factory=lambda: ["*"])
    sites: Annotated[list[WordGlob], Meta(min_length=1, max_length=MANY)] = field(default_factory=lambda: ["*"])
    hours: Annotated[list[Hours], Meta(max_length=MANY)] = []
    users: Annotated[list[WordGlob], Meta(max_length=MANY)] = []
    tokens: Annotated[list[WordGlob], Meta(max_length=MANY)] = []
    hold: bool = False

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a rule that grants nothing."""
        if not (self.allow or self.functions):
            raise ValueError("functions is missing: a rule has allow: [looks], functions: [test.*], or both")


class CentreRule(JobRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule for jobs from above, which may be sealed to devices alone."""

    sealed: bool = False


class OperatorRule(JobRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule for operators here, who also have groups."""

    groups: Annotated[list[WordGlob], Meta(max_length=MANY)] = []


class RulesTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules by role; only operators have any."""

    operator: Annotated[list[OperatorRule], Meta(max_length=MANY)] | None = None


class PolicyTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    users: dict[str, Roles] = {}
    groups: dict[str, Roles] = {}
    tokens: dict[str, Roles] = {}
    others: Roles | None = None
    arguments: Annotated[Roles, Meta(description="roles that see the arguments of jobs; default: all")] | None = None
    rules: RulesTable = RulesTable()
    centre: Annotated[list[CentreRule], Meta(max_length=MANY)] | None = None


def load_policy(path: Path) -> Policy:
    """The policy in a file and its pieces. Raises ``ConfigInvalid`` with file and line."""
    table = load(PolicyTable, path)
    _check_mode(path)
    return Policy(
        users={name: _roles(roles) for name, roles in table.users.items()},
        groups={name: _roles(roles) for name, roles in table.groups.items()},
        tokens={name: _roles(roles) for name, roles in table.tokens.items()},
        others=frozenset() if table.others is None else _roles(table.others),
        operator=None if table.rules.operator is None else tuple(_rule(rule) for rule in table.rules.operator),
        centre=None if table.centre is None else tuple(_rule(rule) for rule in table.centre),
        arguments=None if table.arguments is None else _roles(table.arguments),
        source=str(path),
    )


class PolicyHolder:
    """The policy that counts now. ``mark`` names it in the audit: its file, and a hash of what stood in it."""

    def __init__(self, path: str | None) -> None:
        self._own_user = own_user()
        # Raises ``ConfigInvalid``: without a sound policy no door opens.
        self.policy, self.mark = self._read(path)

    def reload(self, path: str | None) -> str | None:
        """Read the file again; a broken one changes nothing. Returns what is wrong with it, None when nothing is."""
        try:
            self.policy, self.mark = self._read(path)
        except ConfigInvalid as error:
            log.error("the policy was not reloaded, the one before counts on: %s", error)
            return str(error)
        log.info("policy loaded %s", self.mark)
        return None

    def _read(self, path: str | None) -> tuple[Policy, str]:
        if path is None:
            return without_file(self._own_user), "no policy file"
        policy = load_policy(Path(path))
        return policy, f"{path} sha256:{_digest(Path(path))[:16]}"


def own_user() -> str:
    """The user that this process runs as."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def parse_hours(text: str) -> Span:
    """Hours such as ``mon-fri 08:00-18:00``, ``sat,sun 10:00-12:00`` or ``daily 22:00-06:00``; they fit the pattern."""
    days_text, _, hours = text.partition(" ")
    days: set[int] = set()
    for part in days_text.split(","):
        if part == "daily":
            days.update(range(7))
            continue
        first, _, last = part.partition("-")
        start, end = DAYS.index(first), DAYS.index(last or first)
        days.update((start + step) % 7 for step in range((end - start) % 7 + 1))
    begin, _, finish = hours.partition("-")
    return Span(frozenset(days), _minutes(begin), _minutes(finish))


def _minutes(text: str) -> int:
    hour, _, minute = text.partition(":")
    return int(hour) * 60 + int(minute)


def _roles(roles: Role | list[Role]) -> frozenset[Role]:
    return frozenset(roles) if isinstance(roles, list) else frozenset({roles})


def _rule(table: CentreRule | OperatorRule) -> Rule:
    return Rule(
        functions=(*table.allow, *table.functions),
        arguments=tuple(
            (
                function,
                tuple(
                    Shape(tuple(shape.positional), tuple(shape.named.items()), tuple(shape.optional.items()))
                    for shape in shapes
                ),
            )
            for function, shapes in table.arguments.items()
        ),
        targets=tuple(table.targets),
        sites=tuple(table.sites),
        hours=tuple((text, parse_hours(text)) for text in table.hours),
        users=tuple(table.users),
        tokens=tuple(table.tokens),
        groups=tuple(table.groups) if isinstance(table, OperatorRule) else (),
        hold=table.hold,
        sealed=table.sealed if isinstance(table, CentreRule) else False,
    )


def _digest(path: Path) -> str:
    pieces = sorted(path.with_name(f"{path.stem}.d").glob("*.yaml"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in (path, *pieces))).hexdigest()


def _check_mode(path: Path) -> None:
    """Whoever may write the policy is an admin: that must not be everybody. Raises ``ConfigInvalid``."""
    mode = path.stat().st_mode
    if mode & stat.S_IWOTH:
        raise ConfigInvalid(
            "everybody may write the policy file",
            where=str(path),
            found=f"mode {stat.S_IMODE(mode):04o}",
            allowed="a file that only its owner or group may write",
            hint=f"chmod o-w {path}",
        )
