"""What Salt has in its events, as rows: of which station, the tag, and what stands under each key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}")


def stamped(value: Any) -> bool:
    """Whether it is a time of day in UTC as Salt writes it, without an offset."""
    return isinstance(value, str) and STAMP.fullmatch(value) is not None


def whole(value: Any) -> bool:
    """Whether it is a number and no yes or no."""
    return isinstance(value, int) and not isinstance(value, bool)


def text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def names(value: Any) -> bool:
    return isinstance(value, list) and all(map(text, value))


def one_of(*allowed: Any) -> Callable[[Any], bool]:
    return lambda value: value in allowed


def anything(_: Any) -> bool:
    return True


def start(under: str) -> Mapping[str, Callable[[Any], bool]]:
    """What a start has in it, under a tag that begins so."""
    return {
        "id": text,
        "cmd": one_of("_minion_event"),
        "pretag": one_of(None),
        "data": lambda value: text(value) and value.startswith("Minion ") and " started at " in value,
        "tag": lambda value: text(value) and value.startswith(under),
        "ts": whole,
    }


PUBLISHED: Mapping[str, Callable[[Any], bool]] = {
    "jid": text,
    "tgt": one_of("*"),
    "tgt_type": one_of("glob"),
    "user": text,
    "fun": one_of("test.echo"),
    "arg": one_of(["hello"]),
}
CALLED: Mapping[str, Callable[[Any], bool]] = {
    "fun": one_of("runner.event.send"),
    "jid": text,
    "user": text,
    "fun_args": one_of(["site/flat", {"door": "north"}]),
}
WHEEL: Mapping[str, Callable[[Any], bool]] = {
    "fun": one_of("wheel.minions.connected"),
    "jid": text,
    "user": text,
    "fun_args": one_of([]),
    "tag": lambda value: text(value) and re.fullmatch(r"salt/wheel/\d{20}", value) is not None,
}
ROWS: list[tuple[str, str, Mapping[str, Callable[[Any], bool]]]] = [
    ("lisbon", r"salt/minion/[^/]+/start", start("salt/minion/")),
    ("lisbon", r"minion_start", start("minion_start")),
    ("central", r"minion_start", start("minion_start")),
    ("central", r"syndic/lisbon/salt/minion/[^/]+/start", start("salt/minion/")),
    ("central", r"syndic/lisbon/minion_start", start("minion_start")),
    (
        "lisbon",
        r"salt/auth",
        {
            "id": text,
            "act": one_of("pend", "accept", "reject", "denied", "revoke"),
            "pub": text,
            "result": one_of(True, False),
        },
    ),
    (
        "central",
        r"salt/auth",
        {"id": text, "act": one_of("pend", "accept", "revoke"), "pub": text, "result": one_of(True, False)},
    ),
    ("central", r"salt/key", {"id": text, "act": one_of("accept", "delete"), "result": one_of(True, False)}),
    ("lisbon", r"salt/key", {"id": one_of("gone"), "act": one_of("delete"), "result": one_of(True)}),
    ("lisbon", r"\d{20}", {"minions": names}),
    ("central", r"\d{20}", {"minions": names}),
    # The master that took the job sends its returns on, and nobody else does.
    ("central", r"salt/job/\d{20}/publish", {**PUBLISHED, "ret": one_of("sqlite3,rawfile_json")}),
    ("lisbon", r"salt/job/\d{20}/publish", {**PUBLISHED, "ret": one_of("")}),
    (
        "lisbon",
        r"salt/job/\d{20}/new",
        {
            "jid": text,
            "tgt": one_of("*"),
            "tgt_type": one_of("glob"),
            "user": text,
            "fun": one_of("test.echo"),
            "arg": one_of(["hello"]),
            "minions": names,
            "missing": one_of([]),
        },
    ),
    (
        "lisbon",
        r"salt/job/\d{20}/ret/[^/]+",
        {
            "cmd": one_of("_return"),
            "id": text,
            "jid": text,
            "fun": one_of("test.echo"),
            "fun_args": one_of(["hello"]),
            "return": one_of("hello"),
            "retcode": one_of(0),
            "success": one_of(True),
            "user": text,
            "ts": whole,
        },
    ),
    ("lisbon", r"salt/presence/change", {"new": names, "lost": names}),
    ("lisbon", r"salt/presence/present", {"present": names}),
    ("central", r"salt/presence/present", {"present": names}),
    ("lisbon", r"salt/run/\d{20}/new", CALLED),
    ("lisbon", r"salt/run/\d{20}/ret", {**CALLED, "return": one_of(True), "success": one_of(True)}),
    ("lisbon", r"salt/wheel/\d{20}/new", WHEEL),
    ("lisbon", r"salt/wheel/\d{20}/ret", {**WHEEL, "return": names, "success": one_of(True)}),
    # From a station's runner it is flat, also above.
    ("lisbon", r"site/flat", {"door": one_of("north")}),
    ("central", r"site/flat", {"door": one_of("north")}),
]
"""Of which station, the tag, and what Salt has under each key beside ``_stamp``, which every event has."""
