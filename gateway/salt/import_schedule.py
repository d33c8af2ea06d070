"""Entries of a schedule: each runs here as it is, needs a grant, or needs a change and is left out of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from device_agent.settings_file import Section
from device_agent.trust.reach import FUNCTIONS, Arguments
from gateway.salt.import_findings import Said, Wish, step
from gateway.salt.import_functions import CHANGE, ROLES, Judged, Kind, judged
from gateway.salt.import_put import entry_of, put, tell
from gateway.salt.import_read import Box

USER: Final = "schedule"
RETURNERS: Final = ("returner", "return_config", "return_kwargs")
ON_ITSELF: Final = "the gateway runs it on itself, as NAME-station"


def take_schedule(box: Box, wish: Wish, said: Said) -> None:
    """One verdict for each entry."""
    if not isinstance(said.value, Mapping):
        tell(wish, said, "not carried", "it is no mapping of entries (docs/schedules.md)")
        return
    for name, fields in said.value.items():
        entry = entry_of(said, str(name))
        if str(name).startswith("__"):
            tell(wish, entry, "no meaning", "the minion made it for itself")
        elif isinstance(fields, Mapping):
            _entry(box, wish, said, entry, str(name), fields)
        else:
            # Such as enabled, which is about all of them.
            put(wish, entry, f"schedule/{step(str(name))}", fields)


def _entry(box: Box, wish: Wish, said: Said, entry: Said, name: str, fields: Mapping[str, Any]) -> None:
    found = _judged(box, said.role, fields)
    if found.verdict == CHANGE:
        where = _line(said, name) or entry.where
        tell(wish, Said(said.role, entry.key, None, where), CHANGE, f"{found.words}; it is left out")
    elif said.role == "proxy":
        words = (
            "it ran on each proxy: add target: with its devices, and it goes on from the gateway (docs/schedules.md)"
        )
        tell(wish, entry, "not carried", "; ".join(filter(None, (words, found.words))))
    else:
        without = [key for key in RETURNERS if key in fields]
        kept = {key: value for key, value in fields.items() if key not in RETURNERS}
        left = f"without {', '.join(without)}: its returns are in the job (docs/jobs.md)" if without else ""
        words = "; ".join(filter(None, (ON_ITSELF if said.role == "minion" else "", found.words, left)))
        put(wish, entry, f"schedule/{step(name)}", kept, found.verdict, words)


def _judged(box: Box, role: str, fields: Mapping[str, Any]) -> Judged:
    fun = fields.get("function")
    if not isinstance(fun, str) or not fun:
        return Judged(CHANGE, "it names no function")
    first, _, rest = fun.partition(".")
    if first in ("runner", "wheel") and "." in rest:
        return judged("runner" if first == "runner" else "wheel", rest, USER, box.own)
    is_runner = fun in ROLES["runner"] or first in box.own.runners
    if is_runner and fun not in FUNCTIONS and first not in box.own.modules:
        # As the station reads it: a name that only a runner has is one.
        return judged("runner", fun, USER, box.own)
    kind: Kind = "device" if role == "proxy" or fields.get("target") else "station"
    return judged(kind, fun, USER, box.own, _given(fields))


def _given(fields: Mapping[str, Any]) -> Arguments:
    arg, kwarg = fields.get("job_args", fields.get("args")), fields.get("job_kwargs", fields.get("kwargs"))
    return (arg if isinstance(arg, list) else [], kwarg if isinstance(kwarg, Mapping) else {})


def _line(said: Said, name: str) -> str:
    """Where the function of an entry stands."""
    entry = said.tree.entries.get(name) if isinstance(said.tree, Section) else None
    place = entry.places.get("function") if isinstance(entry, Section) else None
    return str(place) if place is not None else ""
