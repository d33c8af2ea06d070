"""Stock Salt's own matchers, in one process of Salt's Python that is asked over a pipe.

Run by that Python this file is the process: each line is a list of questions, and is answered with a list of answers.
Imported it is what asks.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ENGINES = ("glob", "list", "pcre", "grain", "grain_pcre", "ipcidr", "compound", "nodegroup")


class SaltMatchers:
    """Asks; used as a context. An answer is true, false, or the text of what Salt raised."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [str(python), str(Path(__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=120)

    def ask(
        self, kind: str, tgt: str, devices: dict[str, dict[str, Any]], nodegroups: dict[str, Any] | None = None
    ) -> dict[str, bool | str]:
        """Which of the devices Salt means by this target."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {"kind": kind, "tgt": tgt, "devices": devices, "nodegroups": nodegroups or {}}
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answered: dict[str, bool | str] = json.loads(self._process.stdout.readline())
        return answered


def _serve() -> None:
    from importlib import import_module

    logging.disable(logging.CRITICAL)
    modules = {name: import_module(f"salt.matchers.{name}_match") for name in ENGINES}
    loaded = {f"{name}_match.match": module.match for name, module in modules.items()}
    for module in modules.values():
        module.__dict__["__context__"] = {"matchers": loaded}
    for line in sys.stdin:
        question = json.loads(line)
        answered: dict[str, bool | str] = {}
        for device, grains in question["devices"].items():
            opts = {"id": device, "grains": grains, "nodegroups": question["nodegroups"]}
            try:
                match = loaded[f"{question['kind']}_match.match"]
                answered[device] = bool(match(question["tgt"], opts=opts, minion_id=device))
            except Exception as error:  # noqa: BLE001 - whatever Salt raises is its answer
                answered[device] = f"{type(error).__name__}: {error}"
        print(json.dumps(answered), flush=True)


if __name__ == "__main__":
    _serve()
