"""The calls that stand in the text of a reactor file. Pure.

A template shows its calls with an event alone, and with one event not all of them. So they are read from the text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from gateway.reactor.sls import KINDS
from gateway.render_sls import is_python

_TYPES: Final = "|".join(KINDS)
_NAME: Final = r"[A-Za-z_]\w*(?:\.\w+)*"
_DOTTED: Final = r"[A-Za-z_]\w*(?:\.\w+)+"
_BEFORE: Final = r"(?:^|(?<=[\s{},'\"]))"
_AFTER: Final = r"['\"]?\s*:(?=[\s\[{]|$)"

_jinja_comment: Final = re.compile(r"\{#.*?#\}", re.DOTALL)
_yaml_comment: Final = re.compile(r"(?:^|\s)#.*")
_statement: Final = re.compile(r"^\s*\{%.*%\}\s*$")
_key: Final = re.compile(rf"{_BEFORE}({_TYPES})\.({_NAME}){_AFTER}")
_computed_key: Final = re.compile(rf"{_BEFORE}({_TYPES})\.[^\s:]*\{{[{{%].*[%}}]\}}[^\s:]*?{_AFTER}")
_short: Final = re.compile(rf"^(?:\{{\{{|[^\s#{{-])[^:]*:\s+['\"]?({_TYPES})\.({_DOTTED})['\"]?\s*$")
_flow_list: Final = re.compile(rf"{_BEFORE}({_TYPES})['\"]?\s*:\s*\[\s*['\"]?({_DOTTED})['\"]?\s*[,\]]")
_block_list: Final = re.compile(rf"^\s*['\"]?({_TYPES})['\"]?\s*:\s*$")
_item: Final = re.compile(r"^(\s*)-\s+(.*?)\s*$")
_function: Final = re.compile(rf"['\"]?({_DOTTED})['\"]?")
_computed_item: Final = re.compile(r"['\"]?[\w.]*\{\{[^}]*\}\}[\w.]*['\"]?")
_constant: Final = re.compile(rf"({_TYPES})\.({_NAME})")


class WrittenCall(NamedTuple):
    """A call in a text: the number and text of its line, its type, and its function; no function if it is computed."""

    line: int
    text: str
    type: str
    fun: str

    @property
    def said(self) -> str:
        """The type and the function, as a reaction has them."""
        return f"{self.type}.{self.fun}"


def written_calls(text: str) -> Iterator[WrittenCall]:
    """Yield each call of a file once for each place where it stands. Python that cannot be parsed has none."""
    lines = text.split("\n")
    found = _of_python(text) if is_python(text[:100].encode()) else _of_template(text)
    for number, first, fun in found:
        yield WrittenCall(number, lines[number - 1].strip(), first, fun)


def _of_python(text: str) -> Iterator[tuple[int, str, str]]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if (call := _constant.fullmatch(node.value)) is not None:
                yield node.lineno, call[1], call[2]
        elif isinstance(node, ast.Dict):
            yield from _of_dict(node)


def _of_dict(node: ast.Dict) -> Iterator[tuple[int, str, str]]:
    """The functions of ``{"local": ["test.ping", …]}``."""
    for key, value in zip(node.keys, node.values, strict=True):
        match key, value:
            case ast.Constant(value=str() as first), ast.List(elts=[ast.Constant(value=str() as fun) as item, *_]):
                if first in KINDS and _function.fullmatch(fun):
                    yield item.lineno, first, fun
            case _:
                continue


def _of_template(text: str) -> Iterator[tuple[int, str, str]]:
    without = _jinja_comment.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    block = _Block()
    for number, whole in enumerate(without.split("\n"), start=1):
        line = _yaml_comment.sub("", whole)
        if not line.strip() or _statement.match(line):
            continue
        if block.type and (fun := block.function(line)) is not None:
            yield number, block.type, fun
            continue
        named = [(each[1], each[2]) for each in _key.finditer(line)]
        begin = line.lstrip(" -'\"")
        # Elsewhere in a line a key with one dot may be any name.
        yield from ((number, first, fun) for first, fun in named if "." in fun or begin.startswith(f"{first}.{fun}"))
        yield from ((number, each[1], each[2]) for each in _flow_list.finditer(line))
        if (short := _short.match(line)) is not None:
            yield number, short[1], short[2]
        if not named and (computed := _computed_key.search(line)) is not None:
            yield number, computed[1], ""
        if (opened := _block_list.match(line)) is not None:
            block = _Block(opened[1])


class _Block:
    """The list below a type: its function is an item of that list, and not of a list further in."""

    def __init__(self, first: str = "") -> None:
        self.type = first
        self._indent: int | None = None

    def function(self, line: str) -> str | None:
        """The function in a line; empty for one that is computed, None for none. A line of no list ends the block."""
        item = _item.match(line)
        if item is None:
            # Something below an item stands further in than the items do.
            if self._indent is None or len(line) - len(line.lstrip()) <= self._indent:
                self.type = ""
            return None
        if self._indent is None:
            self._indent = len(item[1])
        if len(item[1]) < self._indent:
            self.type = ""
        if len(item[1]) != self._indent:
            return None
        if (found := _function.fullmatch(item[2])) is not None:
            return found[1]
        return "" if _computed_item.fullmatch(item[2]) else None
