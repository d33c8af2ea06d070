"""Jinja as Salt's templates use it, in a sandbox: what they may reach is the tree that is given and nothing else.

A template may change what it has made itself (``{% do list.append(…) %}``), as all of Salt's do; what it is given is
made anew for each rendering. A name that nobody gave is an error. What is printed is counted while it is printed.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Generator, Mapping
from types import CodeType
from typing import Any, Final, cast

import yaml
from jinja2 import Environment, StrictUndefined, Template, TemplateNotFound, nodes
from jinja2.bccache import Bucket, BytecodeCache
from jinja2.environment import TemplateModule
from jinja2.exceptions import TemplateError, TemplateRuntimeError
from jinja2.ext import Extension
from jinja2.loaders import BaseLoader
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment

from device_agent.utf8_text import NotUtf8, utf8_text
from gateway import render_data_filters, render_filters, render_network, render_yaml
from gateway.render_shown import plain, shown

OUTPUT_CHARACTERS: Final = 4 * 1024 * 1024
CODES: Final = 4096
Files = Mapping[str, bytes]


class Codes(BytecodeCache):
    """Compiled templates by their content, so that each is compiled once."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], CodeType] = {}
        self.compiled = 0

    def load_bytecode(self, bucket: Bucket) -> None:
        found = self._kept.get((bucket.key, bucket.checksum))
        if found is not None:
            bucket.code = found

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.compiled += 1
        if len(self._kept) >= CODES:
            self._kept.clear()
        if bucket.code is not None:
            self._kept[bucket.key, bucket.checksum] = bucket.code


class TreeLoader(BaseLoader):
    """Templates of one environment of a tree, by their path from its top."""

    def __init__(self, files: Files, label: str) -> None:
        self._files = files
        self._label = label

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:  # noqa: ARG002 - the signature is Jinja's
        content = self._files.get(template)
        if content is None:
            raise TemplateNotFound(template)
        try:
            text = utf8_text(content)
        except NotUtf8 as error:
            raise TemplateRuntimeError(f"{template}: {error}") from None
        return text, f"{self._label}/{template}", lambda: True


class Sandbox(SandboxedEnvironment):
    """The environment of one rendering."""

    intercepted_binops = frozenset({"*", "**"})

    def join_path(self, template: str, parent: str) -> str:
        """A name that begins with a dot is found beside whoever names it, and never above the top."""
        if template.split("/", 1)[0] not in (".", ".."):
            return template
        joined = posixpath.normpath(posixpath.join(posixpath.dirname(parent), template))
        if joined.split("/", 1)[0] == "..":
            raise TemplateNotFound(template)
        return joined

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """A product whose size is known before it is made is not made when it is too large."""
        for one, other in ((left, right), (right, left)):
            many = isinstance(other, int) and isinstance(one, (str, bytes, list, tuple))
            if many and len(one) * other > OUTPUT_CHARACTERS:
                raise render_yaml.TooLarge(f"a product would have more than {OUTPUT_CHARACTERS} parts")
        power = operator == "**" and isinstance(left, int) and isinstance(right, int)
        if power and left.bit_length() * right > OUTPUT_CHARACTERS:
            raise render_yaml.TooLarge("a power would be too large a number")
        return super().call_binop(context, operator, left, right)


def load_yaml(value: Any) -> Any:
    try:
        return render_yaml.read(str(value))
    except yaml.YAMLError as error:
        raise TemplateRuntimeError(f"Encountered error loading yaml: {error}") from error


def load_json(value: Any) -> Any:
    try:
        return json.loads(str(value))
    except (ValueError, RecursionError):
        raise TemplateRuntimeError("Unable to load json: what was rendered is no JSON") from None


def load_text(value: Any) -> Any:
    return str(value) if isinstance(value, TemplateModule) else value


LOADS: Final = {"load_yaml": load_yaml, "load_json": load_json, "load_text": load_text}


class SerializerTags(Extension):
    """``load_yaml``, ``import_yaml`` and their kin for JSON and text; and ``profile``."""

    tags = {"profile", *LOADS, *(name.replace("load", "import") for name in LOADS)}  # noqa: RUF012 - Jinja asks for a set here

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        token = next(parser.stream)
        line, kind = token.lineno, token.value
        if kind == "profile":
            # Salt tells its log how long the block took; what it prints is the same.
            parser.stream.expect("name:as")
            label = nodes.ExprStmt(parser.parse_expression(), lineno=line)
            return [label, *parser.parse_statements(("name:endprofile",), drop_needle=True)]
        if kind.startswith("import_"):
            template = parser.parse_expression()
            parser.stream.expect("name:as")
            name = parser.parse_assign_target(name_only=True).name
            imported = nodes.Import(template, name, True, lineno=line)
            value: nodes.Expr = nodes.Name(name, "load", lineno=line)
            made = _filtered(value, kind.replace("import", "load"), line)
            return [imported, nodes.Assign(nodes.Name(name, "store"), made, lineno=line)]
        parser.stream.expect("name:as")
        target = parser.parse_assign_target()
        macro = f"_{parser.free_identifier().name}"
        body = parser.parse_statements(("name:endload",), drop_needle=True)
        called = nodes.Call(nodes.Name(macro, "load"), [], [], None, None, lineno=line)
        return [
            nodes.Macro(macro, [], [], body, lineno=line),
            nodes.Assign(target, _filtered(called, kind, line), lineno=line),
        ]


def _filtered(value: nodes.Expr, name: str, line: int) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=line)


def _raise(text: str) -> None:
    raise TemplateError(text)


def sandbox(files: Files, label: str, codes: Codes, context: Mapping[str, Any]) -> Sandbox:
    """An environment for a tree's templates, which all see the context, also those that are imported."""
    made = Sandbox(
        undefined=StrictUndefined,
        loader=TreeLoader(files, label),
        bytecode_cache=codes,
        extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols", SerializerTags],
        finalize=shown,
    )
    for name in render_filters.WITHOUT:
        del made.filters[name]
    for filters in (render_filters.FILTERS, render_network.FILTERS, render_data_filters.FILTERS):
        made.filters.update(filters)
    made.filters.update(LOADS)
    made.tests.update(render_filters.TESTS)
    del made.globals["lipsum"]
    made.globals.update({"odict": dict, "raise": _raise, **context})
    return made


def rendered(template: Template, source: str) -> str:
    """All that a template prints, with the end of line that its source ends with. Raises ``TooLarge``."""
    pieces, size = [], 0
    printing = cast("Generator[str, None, None]", template.generate())  # which Jinja gives an iterator's type
    try:
        for piece in printing:
            size += len(piece)
            if size > OUTPUT_CHARACTERS:
                raise render_yaml.TooLarge(f"it renders to more than {OUTPUT_CHARACTERS} characters")
            pieces.append(piece)
    except BaseException as error:
        # At the line of the template that has printed last, so that it is named.
        printing.throw(error)
        raise
    return "".join(pieces) + ("\n" if source.endswith("\n") else "")


__all__ = ["OUTPUT_CHARACTERS", "Codes", "Files", "Sandbox", "TreeLoader", "plain", "rendered", "sandbox"]
