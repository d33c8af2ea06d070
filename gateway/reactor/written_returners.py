"""The returners that stand in the text of a reactor file, as names behind ``ret:`` beside the target of a job. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gateway.reactor.sls import KINDS
from gateway.reactor.written_calls import written_calls

_ret: Final = re.compile(r"\s*-?\s*['\"]?ret['\"]?\s*:\s+['\"\[]*([\w.-][\w., '\"-]*?)['\"\]]*\s*(?:#.*)?")


def written_returners(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the number of each line with ``ret:`` in a job, the line, and the names in it."""
    lines = text.split("\n")
    for call in written_calls(text):
        if KINDS[call.type] != "local":
            continue
        outer, inner = _indent(lines[call.line - 1]), None
        for number, line in enumerate(lines[call.line :], start=call.line + 1):
            if not line.strip() or line.lstrip().startswith(("#", "{%")):
                continue
            depth = _indent(line)
            if depth < outer or (depth == outer and not line.lstrip().startswith("- ")):
                break
            inner = depth if inner is None else inner
            found = _ret.fullmatch(line)
            if depth == inner and found is not None:
                names = [name.strip(" '\"") for name in found[1].split(",")]
                yield number, line, [name for name in names if name]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
