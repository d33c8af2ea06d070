"""What a function may change, and which kinds of arguments functions take; the entries are in ``function_places``.

An effect is a word: ``write:PATH``, or the name of what changed (``unit``, ``clock``). A place is the patterns of the
effects that a function may have with any arguments of its class. A function of class ``looks`` also shows no secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from tests.peers.function_case import ROOT

NOTHING: Final = ()
BEACONS: Final = ("beacons",)
SCHEDULE: Final = ("schedule",)
EVENTS: Final = ("event",)
MINE: Final = ("mine",)
STATION: Final = ("pushed",)
JOBS: Final = ("jobs",)
CODE: Final = ("code",)
GRAINS: Final = (f"write:{ROOT}/grains",)
CACHE: Final = (f"write:{ROOT}/cache", f"write:{ROOT}/cache/files", f"write:{ROOT}/cache/files/*")
UNITS: Final = ("unit", "write:/etc/systemd/system/*/known.service", "write:/etc/systemd/system/*.wants")
UNITS_AND_MASKS: Final = (*UNITS, "write:/etc/systemd/system/known.service", "write:/etc/systemd/system/evil@x.service")
POWER: Final = ("power",)
CLOCK: Final = ("clock",)
NAME: Final = ("name", "write:/etc/hostname", "write:/etc/hosts", "write:/etc/machine-info")
MACHINE_INFO: Final = ("write:/etc/machine-info",)
ADJTIME: Final = ("write:/etc/adjtime",)
ZONE: Final = ("write:/etc/localtime", "write:/etc/localtime.outstation", "write:/etc/timezone", "write:/etc/TZ")
HOLDS: Final = ("holds", "write:/var/lib/dpkg/*", "write:/var/lib/apt/*", "write:/var/cache/apt/*.bin")
LISTS: Final = ("lists", "write:/var/lib/apt/*", "write:/var/cache/apt/*")
SIGNALS: Final = ("signal",)
PEERS: Final = ("connection",)

NOT_GIVEN: Final = object()

VALUES: Final[Mapping[str, Any]] = {
    "access": "f",
    "address": "salt://fw.bin",
    "beacon": [{"percent": 50}],
    "clock": "UTC",
    "date": "2026-11-23",
    "entry": "known",
    "environment": "base",
    "flag": False,
    "function": "test.ping",
    "functions": ["test.ping"],
    "glob": "test.*",
    "group": "root",
    "hash": "md5:00",
    "hash_name": "md5",
    "hostname": "cam-8",
    "interface": "lo",
    "ip": "127.0.0.1",
    "jid": "20261122140501123456",
    "later": 5,
    "machine": "127.0.0.1",
    "mapping": {"a": "b"},
    "moment": 0.01,
    "network": "127.0.0.0/8",
    "number": 1,
    "on": True,
    "offset": "+0000",
    "list": "roles",
    "new_beacon": "memusage",
    "old_beacon": "swapusage",
    "held": "ed",
    "package": "tzdata",
    "packages": ["tzdata"],
    "parameter": "kernel.ostype",
    "path": "/etc/hostname",
    "picture": "/snapshot.jpg",
    "folder": "/",
    "port": 9,
    "process": 2_000_000_000,
    "no_process": "outstation-none",
    "no_signal": 0,
    "runlevel": "3",
    "service": "known",
    "tag": "site/x",
    "target": "*",
    "text": "x",
    "texts": ["x"],
    "time": "15:41",
    "moment_of_entry": "2026-12-24T04:30:00",
    "tree": "/",
    "user": "root",
    "zone": "Etc/UTC",
}
"""A harmless value of each kind of argument."""

ALWAYS: Final = frozenset({"later", "moment", "functions", "held", "package", "no_signal", "on", "port"})
"""Kinds that are given also where an argument is optional: without them a call waits, or ends the machine."""


class Entry(NamedTuple):
    """One function: what it may change, and the kind of each argument, by name (``*`` and ``**`` in front)."""

    place: tuple[str, ...]
    kinds: dict[str, str]

    def outside(self, effects: list[str], folder: str) -> list[str]:
        """The effects that are not in the place."""
        patterns = [pattern.replace(ROOT, folder) for pattern in self.place]
        return [effect for effect in effects if not any(fnmatchcase(effect, pattern) for pattern in patterns)]


def entries(table: Mapping[str, tuple[tuple[str, ...], str]]) -> dict[str, Entry]:
    """The entries as they are written in a table: the arguments are ``name=kind``, with spaces between."""
    return {
        fun: Entry(place, dict(word.split("=", 1) for word in arguments.split()))
        for fun, (place, arguments) in table.items()
    }
