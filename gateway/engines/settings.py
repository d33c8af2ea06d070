"""What a station can be told of its engines. Names and shapes are Salt's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

ENGINES_MAX: Final = 64
MODULE_OPTION: Final = "engine_module"
"""As in Salt: an engine with another name than its module, so that there can be two of it."""

Engines = list[Any] | dict[str, Any]
"""As in Salt: a list of names, and of ``{name: options}`` with one key each; or one mapping of them."""

_name = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_module = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class EngineLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each engine may use."""

    memory_megabytes: Annotated[
        int, Meta(ge=64, le=65_536, description="most memory that a process of an engine may have")
    ] = 512
    processes: Annotated[
        int, Meta(ge=1, le=10_000, description="most processes of an engine; one that has more is ended")
    ] = 16
    open_files: Annotated[int, Meta(ge=32, le=65_536, description="most files that a process of it has open")] = 256
    restart_seconds: Annotated[
        float, Meta(ge=1, le=3600, description="longest wait before an engine that ended is started again")
    ] = 60.0


class Engine(Struct, frozen=True):
    """One entry of ``engines:``."""

    name: str
    module: str
    options: dict[str, Any] = {}


def engines_in(said: Engines) -> list[Engine]:
    """The engines of the settings, in their order. Raises ``ValueError`` with the place of what is wrong."""
    found: dict[str, Engine] = {}
    for place, name, options in _entries(said):
        if not isinstance(name, str) or not _name.fullmatch(name):
            raise ValueError(f"{place}: {str(name)[:80]!r} is no name of an engine: letters, digits, _, . and -")
        given = {} if options is None else options
        if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
            raise ValueError(f"{place}: the options of {name} are a mapping of names, as in - {name}: {{a: 1}}")
        module = given.get(MODULE_OPTION, name)
        if not isinstance(module, str) or not _module.fullmatch(module):
            raise ValueError(f"{place}: {str(module)[:80]!r} is no name of a module: set {MODULE_OPTION}: beside it")
        if name in found:
            raise ValueError(f"{place}: {name} is there twice; give one another name, and {MODULE_OPTION}: {module}")
        if len(found) >= ENGINES_MAX:
            raise ValueError(f"{place}: at most {ENGINES_MAX} engines")
        found[name] = Engine(name, module, {key: value for key, value in given.items() if key != MODULE_OPTION})
    return list(found.values())


def _entries(said: Engines) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(said, dict):
        for name, options in said.items():
            yield f"engines.{name}", name, options
        return
    for number, entry in enumerate(said):
        place = f"engines[{number}]"
        if isinstance(entry, dict):
            if len(entry) != 1:
                raise ValueError(f"{place}: an entry has one key, the name of the engine; this one has {len(entry)}")
            ((name, options),) = entry.items()
            yield place, name, options
        else:
            yield place, entry, None
