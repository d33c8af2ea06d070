"""A regular expression at work, in a process of its own that can be killed: ``re`` lets nothing else run meanwhile.

Run by its path with Python alone (``expressions.py``): one question as JSON on standard input, one answer on standard
output. It ends by itself when it has used the seconds or the memory that it is given.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import warnings
from collections.abc import Callable
from typing import Any

NICENESS = 5
"""Whoever started it goes first: there other jobs wait."""


class TooLong(Exception):
    """A text would become longer than it may."""


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """What an expression finds in texts, or one text with what it finds replaced."""
    flags, binary = int(asked["flags"]), bool(asked["binary"])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled: re.Pattern[Any] = re.compile(_read(asked["pattern"], binary=binary), flags)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        return {"invalid": str(error)}
    texts = (_read(text, binary=binary) for text in asked["texts"])
    if asked["deed"] != "replace":
        find = compiled.match if asked["deed"] == "match" else compiled.search
        return {"found": "".join("1" if find(text) else "0" for text in texts)}
    try:
        changed, hits = replaced(
            compiled, _read(asked["new"], binary=binary), next(texts), asked["count"], asked["most"]
        )
    except (re.error, IndexError) as error:
        return {"invalid_new": str(error)}
    except TooLong:
        return {"too_long": True}
    return {"text": changed.decode("latin-1"), "hits": hits}


def replaced(compiled: re.Pattern[bytes], new: bytes, text: bytes, count: int, most: int) -> tuple[bytes, int]:
    """What ``subn`` says. Raises ``TooLong`` before the text is longer than that."""
    compiled.sub(new, b"")  # What is wrong with it is said also where nothing is found.
    if len(text) > most:
        raise TooLong
    return compiled.subn(_counted(new, len(text), most), text, count)


def _counted(new: bytes, size: int, most: int) -> Callable[[re.Match[bytes]], bytes]:
    def one(found: re.Match[bytes]) -> bytes:
        nonlocal size
        put = found.expand(new)
        size += len(put) - (found.end() - found.start())
        if size > most:
            raise TooLong
        return put

    return one


def _read(text: str, *, binary: bool) -> Any:
    return text.encode("latin-1") if binary else text


def main(seconds: int, memory: int) -> None:
    """Answer one question within these bounds."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    said = json.dumps(answer(json.load(sys.stdin.buffer)))
    sys.stdout.write(said)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
