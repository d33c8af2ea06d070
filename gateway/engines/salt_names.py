"""The modules that an engine written for Salt imports, as far as engines need them: made by us, under Salt's names.

``salt.utils.event``: ``get_event``, ``get_master_event``, ``SaltEvent``, ``tagify``. ``salt.utils.json``: ``dumps``,
``loads``, ``dump``, ``load``. Another one is not there, and its import says so.
"""

from __future__ import annotations

import functools
import json
import sys
from types import ModuleType
from typing import Any

from gateway.engines import event_bus


def install() -> None:
    """Let ``import salt.utils.event`` find ours in this process."""
    events = _module("salt.utils.event")
    for name in ("get_event", "get_master_event", "tagify"):
        setattr(events, name, getattr(event_bus, name))
    vars(events)["SaltEvent"] = event_bus.EventBus
    texts = _module("salt.utils.json")
    vars(texts).update(
        dumps=functools.partial(_written, json.dumps),
        dump=functools.partial(_written, json.dump),
        loads=json.loads,
        load=json.load,
    )
    salt, below = _module("salt", is_package=True), _module("salt.utils", is_package=True)
    vars(below).update(event=events, json=texts)
    vars(salt)["utils"] = below


def _written(write: Any, value: Any, *given: Any, **options: Any) -> Any:
    """As Salt's: characters are not escaped unless that is asked for."""
    return write(value, *given, **{"ensure_ascii": False, **options})


def _module(name: str, *, is_package: bool = False) -> ModuleType:
    module = sys.modules[name] = ModuleType(name)
    if is_package:
        module.__path__ = []
    return module
