"""Which files a job names: its arguments that begin with ``salt://``, wherever they stand. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from device_agent.protocol.file_questions import SCHEME
from device_agent.protocol.messages import Job

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
    place = POSITIONS.get(job.fun, len(job.arg))
    saltenv = job.kwarg.get("saltenv", job.arg[place] if place < len(job.arg) else None)
    for text in _texts([job.arg, job.kwarg]):
        if text.startswith(SCHEME):
            yield text if "?" in text or not isinstance(saltenv, str) else f"{text}?saltenv={saltenv}"


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
