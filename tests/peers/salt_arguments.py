"""Stock Salt's own reading of arguments, at the command line and at the minion.

Run by Salt's Python this file is one process that is asked over a pipe: each line is a list of arguments, and is
answered with what Salt sends for them, or calls a function with. Imported it is what asks.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class SaltArguments:
    """Asks; used as a context."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=120)

    def ask(self, typed: list[str], no_parse: list[str] | None = None) -> Any:
        """What Salt makes of arguments: the list that it publishes, or what it raised, as text."""
        return self._answer([typed, no_parse])

    def called(self, sent: list[Any]) -> Any:
        """What a minion calls a function with that takes anything: the arguments by position, and those by name."""
        return self._answer([sent])

    def _answer(self, question: list[Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return _unplain(json.loads(self._process.stdout.readline()))


def _plain(value: Any) -> Any:
    """The value with its type, where JSON has no such type."""
    if isinstance(value, dict):
        return {"dict": [[_plain(key), _plain(entry)] for key, entry in value.items()]}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value if value is None or isinstance(value, (str, int, float)) else {"other": type(value).__name__}


def _unplain(value: Any) -> Any:
    if isinstance(value, list):
        return [_unplain(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if "other" in value:
        return Other(value["other"])
    return {_unplain(key): _unplain(entry) for key, entry in value["dict"]}


class Other(str):
    """The name of a type that JSON does not have."""

    __slots__ = ()


def _anything(*args: Any, **kwargs: Any) -> None:
    """A function that takes any arguments."""


def _serve() -> None:
    from importlib import import_module

    logging.disable(logging.CRITICAL)
    parse = import_module("salt.utils.args").parse_input
    load = import_module("salt.minion").load_args_and_kwargs
    for line in sys.stdin:
        given, *no_parse = json.loads(line)
        try:
            answered = _plain(parse(given, no_parse=no_parse[0]) if no_parse else list(load(_anything, given)))
        except Exception as error:  # noqa: BLE001 - whatever Salt raises is its answer
            answered = f"{type(error).__name__}: {error}"
        print(json.dumps(answered), flush=True)


if __name__ == "__main__":
    _serve()
