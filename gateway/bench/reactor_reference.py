"""Stock Salt's side of ``bench reactor``, run by Salt's own Python: fires on its master's bus, and listens there.

A line of JSON asks, and one answers. Only Salt and Python's own library are imported, and beside them what is done to
both sides.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from importlib import import_module, util
from pathlib import Path
from typing import Any


def measuring() -> Any:
    """The module beside this one, without the package around it."""
    spec = util.spec_from_file_location("reactor_measure", Path(__file__).with_name("reactor_measure.py"))
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class MasterLine:
    """The event bus of a Salt master: one connection that fires, and one that listens."""

    def __init__(self, config: str) -> None:
        # Only Salt's own environment has it.
        opts = import_module("salt.config").master_config(config)
        event = import_module("salt.utils.event")
        self._in = event.get_master_event(opts, opts["sock_dir"], listen=False)
        self._out = event.get_master_event(opts, opts["sock_dir"], listen=True)
        for tag in ("bench/done", "salt/job"):
            self._out.subscribe(tag)

    def close(self) -> None:
        """Leave the bus."""
        self._in.destroy()
        self._out.destroy()

    def fire(self, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """One after another, as Salt does."""
        for tag, data in events:
            self._in.fire_event(data, tag)

    def next(self, seconds: float) -> tuple[str, dict[str, Any]] | None:
        """Whatever comes."""
        event = self._out.get_event(wait=max(0.001, seconds), full=True)
        return None if event is None else (event["tag"], event["data"])


def main(config: str) -> None:
    """Answer until nobody asks."""
    measure = measuring()
    with closing(MasterLine(config)) as line:
        for asked in map(json.loads, sys.stdin):
            do = {"ready": measure.ready, "alone": measure.alone, "burst": measure.burst}[asked.pop("do")]
            sys.stdout.write(json.dumps(do(line, **asked)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
