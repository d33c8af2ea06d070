"""Which files a job names: its arguments that begin with ``salt://``, wherever they stand. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.protocol.file_questions import SCHEME
from device_agent.protocol.messages import Job
from device_agent.protocol.several import Call, calls

POSITIONS: Final = {
    "cp.cache_file": 1,
    "cp.get_file_str": 1,
    "cp.hash_file": 1,
    "cp.is_cached": 1,
    "cp.get_dir": 2,
    "cp.get_file": 2,
    "cp.get_url": 2,
}
"""Where the environment stands among the arguments that have no name."""


def urls_of(job: Job) -> Iterator[str]:
    """The addresses, with the environment that is given beside them where they have none."""
    for fun, arg, kwarg in _calls(job):
        place = POSITIONS.get(fun, len(arg))
        saltenv = kwarg.get("saltenv", arg[place] if place < len(arg) else None)
        for text in _texts([arg, kwarg]):
            if text.startswith(SCHEME):
                yield text if "?" in text or not isinstance(saltenv, str) else f"{text}?saltenv={saltenv}"


def _calls(job: Job) -> list[Call]:
    try:
        return calls(job.fun, job.arg, job.kwarg)
    except Refused:
        # Its devices refuse it; and of a sealed one nothing is known here.
        return []


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for inner in value:
                yield from _texts(inner)
        case dict():
            for inner in value.values():
                yield from _texts(inner)
        case _:
            return
