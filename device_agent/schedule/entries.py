"""One entry of a schedule, from what was written to what is meant. Names are Salt's. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, Literal

from cronsim import CronSim, CronSimError
from msgspec import Struct

from device_agent.errors import ConfigInvalid
from device_agent.protocol.messages import FUNCTION_PATTERN, encode_value
from device_agent.schedule.moments import WORDS, Moment, moment
from device_agent.schedule.spans import Span
from device_agent.schedule.zones import SALT_FORMAT, read

ENTRIES: Final = 256
"""Most entries of one schedule."""

NAME_CHARACTERS: Final = 128
TIMES: Final = 64
"""Most times in one ``when``."""

SECONDS_MAX: Final = 10 * 366 * 86_400.0

UNITS: Final[dict[str, float]] = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86_400.0}

NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""crontab(5)."""

GLOBAL: Final = frozenset({"enabled", "splay", "skip_during_range"})
"""What stands among the entries and is about all of them."""

Where = Literal["agent", "station"]
_name = re.compile(FUNCTION_PATTERN)


class ScheduleInvalid(ConfigInvalid):
    """An entry of a schedule that cannot be used."""


class Entry(Struct, frozen=True, kw_only=True):
    """What an entry means. Times without a zone of their own are those of ``zone``."""

    name: str
    function: str
    zone: tzinfo
    arg: list[Any] = []
    kwarg: dict[str, Any] = {}
    seconds: float = 0.0
    when: tuple[Moment, ...] = ()
    cron: str = ""
    once: float | None = None
    splay: tuple[int, int] | None = None
    range: Span | None = None
    skip_during_range: Span | None = None
    run_after_skip_range: bool = False
    after: float | None = None
    until: float | None = None
    run_on_start: bool = False
    maxrunning: int = 1
    jid_include: bool = True
    return_job: bool = True
    enabled: bool = True
    run_missed: bool = False
    metadata: dict[str, Any] = {}
    target: str = ""
    target_type: str = "glob"
    expires_seconds: float | None = None
    """So long the job of a station's entry waits for a device that is away."""

    @property
    def rhythm(self) -> str:
        """What its times come from, in one text: another one makes it another entry."""
        once = "" if self.once is None else repr(self.once)
        return f"{self.seconds:g}|{'|'.join(map(repr, self.when))}|{self.cron}|{once}|{self.zone}"


def entry(name: str, written: object, zone: tzinfo, where: Where = "agent", place: str = "schedule") -> Entry:
    """What an entry means. Raises ``ScheduleInvalid`` with the entry, its field, what was found and what is allowed."""
    reading = _Reading(name, place, zone, where)
    if not 1 <= len(name) <= NAME_CHARACTERS or not name.isprintable():
        raise ScheduleInvalid(
            "the name of an entry cannot be this",
            where=place,
            found=repr(name[:140]),
            allowed=f"1 to {NAME_CHARACTERS} characters, none of control",
        )
    if not isinstance(written, Mapping):
        raise reading.wrong("", written, "a mapping with function and times")
    given = {str(key): value for key, value in written.items() if value is not None and not str(key).startswith("_")}
    fields: dict[str, Any] = {}
    for key, value in given.items():
        take = _FIELDS.get(key)
        if take is None or (key in _STATION and where != "station"):
            allowed = [each for each in _FIELDS if where == "station" or each not in _STATION]
            raise reading.wrong(key, value, "a field of these: " + ", ".join(allowed), "there is no such field")
        take(reading, key, value, fields)
        try:
            encode_value(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            # A run is on disk before it is made: what no disk takes would end the process each time it is due.
            raise reading.wrong(key, value, "texts, lists, mappings, numbers of up to 64 bits", str(error)) from None
    return _whole(reading, fields, given)


def entries(written: Mapping[Any, Any], zone: tzinfo, where: Where = "agent") -> dict[str, Entry]:
    """All entries of a schedule as it is written in settings. Raises ``ScheduleInvalid``."""
    named = {str(name): value for name, value in written.items() if name not in GLOBAL}
    if len(named) > ENTRIES:
        raise ScheduleInvalid(
            "too many entries", where="schedule", found=f"{len(named)} entries", allowed=f"at most {ENTRIES}"
        )
    common = overall(written)
    return {name: entry(name, with_common(value, common), zone, where) for name, value in named.items()}


def overall(written: Mapping[Any, Any]) -> dict[str, Any]:
    """What is written for all entries at once. Raises ``ScheduleInvalid``."""
    found = {key: written[key] for key in GLOBAL if written.get(key) is not None}
    reading, fields = _Reading("", "schedule", UTC, "agent"), dict[str, Any]()
    for key, value in found.items():
        _FIELDS[key](reading, key, value, fields)
    return found


def with_common(written: object, common: Mapping[str, Any]) -> object:
    """An entry with what is written for all of them, where it says nothing else itself."""
    if not isinstance(written, Mapping):
        return written
    return {key: value for key, value in common.items() if key != "enabled"} | dict(written)


class _Reading:
    """Whose field is read, for the errors."""

    def __init__(self, name: str, place: str, zone: tzinfo, where: Where) -> None:
        self.name = name
        self.place = place
        self.zone = zone
        self.where = where

    def wrong(self, key: str, value: object, allowed: str, what: str = "") -> ScheduleInvalid:
        steps = ".".join(step for step in (self.place, self.name, key) if step)
        return ScheduleInvalid(what or "a schedule cannot have this", where=steps, found=_shown(value), allowed=allowed)


Take = Callable[[_Reading, str, Any, dict[str, Any]], None]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}…"


def _function(reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    bare = value.removeprefix("runner.").removeprefix("wheel.") if isinstance(value, str) else ""
    if not _name.match(bare) or (bare != value and reading.where != "station"):
        runners = ", or runner. or wheel. and one of this station's" if reading.where == "station" else ""
        raise reading.wrong(key, value, f"the name of a function, such as test.ping{runners}")
    fields["function"] = value


def _arguments(reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    if not isinstance(value, list):
        raise reading.wrong(key, value, "a list of arguments, such as [uptime]")
    fields["arg"] = value


def _named_arguments(reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise reading.wrong(key, value, "a mapping of names to values")
    fields["kwarg"] = dict(value)


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _interval(reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    number = _number(value)
    if number is None or number < 0 or number * UNITS[key] > SECONDS_MAX:
        raise reading.wrong(key, value, f"a number of {key}, 1 second to 10 years together")
    fields["seconds"] = fields.get("seconds", 0.0) + number * UNITS[key]


def _when(reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    texts = value if isinstance(value, list) else [value]
    if not 1 <= len(texts) <= TIMES:
        raise reading.wrong(key, value, f"1 to {TIMES} times")
    fields["when"] = tuple(_moment(reading, key, text) for text in texts)


def _moment(reading: _Reading, key: str, text: Any) -> Moment:
    try:
        return moment(text)
    except (ValueError, OverflowError) as error:
        raise reading.wrong(key, text, WORDS, f"no time can be read here: {error}") from None


def _cron(reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    allowed = "minute, hour, day of month, month and day of week, as in crontab(5), such as '30 4 * * mon-fri'"
    if not isinstance(value, str) or len(value) > 256:
        raise reading.wrong(key, value, allowed)
    line = NICKNAMES.get(value.strip().lower(), value.strip())
    if len(line.split()) != 5:
        raise reading.wrong(key, value, allowed, "it has not five fields")
    try:
        CronSim(line, datetime(2026, 1, 1, tzinfo=UTC))
    except (CronSimError, ValueError) as error:
        raise reading.wrong(key, value, allowed, f"this is no line of cron: {error}") from None
    fields["cron"] = line


def _once(_reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    fields[key] = value


def _splay(reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    allowed = "a number of seconds, or start and end with 0 <= start <= end"
    if isinstance(value, Mapping):
        start, end = _number(value.get("start", 0)), _number(value.get("end"))
        odd = set(value) - {"start", "end"}
    else:
        end, odd = _number(value), set()
        start = 1.0 if end else 0.0
    if odd or start is None or end is None or not 0 <= start <= end <= SECONDS_MAX:
        raise reading.wrong(key, value, allowed)
    fields["splay"] = (int(start), int(end))


def _span(reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    known = {"start", "end", "invert"} if key == "range" else {"start", "end"}
    if not isinstance(value, Mapping) or not {"start", "end"} <= set(value) <= known:
        raise reading.wrong(key, value, f"a mapping with {', '.join(sorted(known))}")
    start, end = (_moment(reading, f"{key}.{side}", value[side]) for side in ("start", "end"))
    invert = _truth(reading, f"{key}.invert", value.get("invert", False))
    if (start.day is None) != (end.day is None):
        raise reading.wrong(key, value, "start and end both with a date, or both without")
    if start.day is not None and start.on(start.day, reading.zone) > end.on(end.day or start.day, reading.zone):
        raise reading.wrong(key, value, "an end that is not before its start")
    fields[key] = Span(start, end, invert)


def _bound(reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    found = _moment(reading, key, value)
    if found.day is None:
        raise reading.wrong(key, value, "a time with a date, such as 2026-11-23T17:30:00")
    fields[key] = found.on(found.day, reading.zone)


def _truth(reading: _Reading, key: str, value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise reading.wrong(key, value, "true or false")
    return value


def _switch(reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    # Salt's third word for it: a return that is heard and not kept as a job. Here none of them is.
    fields[key] = True if key == "return_job" and value == "nocache" else _truth(reading, key, value)


def _count(reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    number = _number(value)
    if number is None or number != int(number) or not 1 <= number <= 64:
        raise reading.wrong(key, value, "a whole number from 1 to 64")
    fields[key] = int(number)


def _life(reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    number = _number(value)
    if number is None or not 1 <= number <= 30 * 86_400:
        raise reading.wrong(key, value, "a number of seconds, from 1 to 30 days")
    fields[key] = number


def _mapping(reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    if not isinstance(value, Mapping):
        raise reading.wrong(key, value, "a mapping")
    fields[key] = dict(value)


def _word(reading: _Reading, key: str, value: Any, fields: dict[str, Any]) -> None:
    if isinstance(value, list) and key == "target" and all(isinstance(each, str) for each in value):
        fields["target"], fields["target_type"] = ",".join(value), "list"
        return
    if not isinstance(value, str) or not 1 <= len(value) <= 4096:
        quoted = "" if isinstance(value, str) else "; a name that YAML reads as something else stands in quotes"
        raise reading.wrong(key, value, f"a text of 1 to 4096 characters{quoted}")
    fields[key] = value


def _said(reading: _Reading, key: str, value: Any, _fields: dict[str, Any]) -> None:
    if not isinstance(value, str):
        raise reading.wrong(key, value, "a text")


_STATION: Final = frozenset({"target", "target_type", "expires_seconds"})

_FIELDS: Final[dict[str, Take]] = {
    "function": _function,
    "args": _arguments,
    "job_args": _arguments,
    "kwargs": _named_arguments,
    "job_kwargs": _named_arguments,
    **dict.fromkeys(UNITS, _interval),
    "when": _when,
    "cron": _cron,
    "once": _once,
    "once_fmt": _once,
    "splay": _splay,
    "range": _span,
    "skip_during_range": _span,
    "after": _bound,
    "until": _bound,
    "maxrunning": _count,
    "metadata": _mapping,
    "name": _said,
    "target": _word,
    "target_type": _word,
    "expires_seconds": _life,
    **dict.fromkeys(
        ("run_on_start", "run_after_skip_range", "jid_include", "return_job", "enabled", "run_missed"), _switch
    ),
}
FIELDS: Final = frozenset(_FIELDS)
"""What an entry can have."""


def _whole(reading: _Reading, fields: dict[str, Any], given: Mapping[str, Any]) -> Entry:
    """The entry of fields that are right each by itself. Raises ``ScheduleInvalid``."""
    if "function" not in fields:
        raise reading.wrong("function", None, "the name of a function, such as test.ping", "function is missing")
    kinds: list[str] = [kind for kind in ("when", "cron", "once") if kind in fields]
    if any(unit in given for unit in UNITS):
        kinds.append("seconds, minutes, hours, days")
        if fields["seconds"] < 1:
            raise reading.wrong("seconds", fields["seconds"], "an interval of at least one second")
    if len(kinds) > 1:
        raise reading.wrong(
            "", " and ".join(kinds), "one of when, cron, once, or seconds to days", "it has two rhythms"
        )
    if not kinds and not fields.get("run_on_start"):
        raise reading.wrong(
            "", ", ".join(given), "one of when, cron, once, seconds, minutes, hours, days", "it has no time to run at"
        )
    if "target_type" in fields and "target" not in fields:
        raise reading.wrong("target_type", fields["target_type"], "a target beside it")
    fmt = fields.pop("once_fmt", SALT_FORMAT)
    if "once" in fields:
        fields["once"] = _once_at(reading, fields["once"], fmt)
    fields.setdefault("run_on_start", "seconds" in fields)
    return Entry(name=reading.name, zone=reading.zone, **fields)


def _once_at(reading: _Reading, value: Any, fmt: Any) -> float:
    if not isinstance(fmt, str):
        raise reading.wrong("once_fmt", fmt, "a format as strptime(3) has it, such as %Y-%m-%d %H:%M")
    try:
        if isinstance(value, datetime):
            return (value if value.tzinfo else value.replace(tzinfo=reading.zone)).timestamp()
        return read(value, fmt, reading.zone)
    except (ValueError, TypeError, OverflowError):
        raise reading.wrong("once", value, f"a time as once_fmt says, {fmt}") from None
