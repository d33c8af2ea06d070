"""Salt's filters of data that are left: queries, tables, XML, and calls of a method.

Source: ``salt/utils/data.py`` and ``salt/utils/jinja.py`` of Salt 3008.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from xml.dom import minidom
from xml.etree.ElementTree import Element, SubElement, tostring

import jmespath
from jinja2 import pass_context
from jinja2.exceptions import TemplateRuntimeError
from jinja2.runtime import Context

from gateway.render_filters import to_num
from gateway.render_shown import plain


def json_query(value: Any, query: str) -> Any:
    """What a query in JMESPath (https://jmespath.org) finds."""
    return jmespath.search(query, plain(value))


@pass_context
def method_call(context: Context, value: Any, name: str, *arg: Any, **kwarg: Any) -> Any:
    """Call a method by its name, as the sandbox lets a template call it; nothing where there is no such method."""
    if not hasattr(value, name):
        return None
    environment = context.environment
    return context.call(environment.getattr(value, name), *arg, **kwarg)


def encoded(value: Any) -> Any:
    """The same with each text as bytes, at any depth."""
    match value:
        case str():
            return value.encode()
        case Mapping():
            return {encoded(key): encoded(inner) for key, inner in value.items()}
        case list() | tuple():
            return [encoded(each) for each in value]
        case _:
            return value


def mysql_to_dict(lines: Iterable[str], key: str) -> dict[Any, dict[str, Any]]:
    """The rows of a table as ``mysql`` prints it, by the value of one column."""
    found: dict[Any, dict[str, Any]] = {}
    names: list[str] = []
    for line in lines:
        if not line or line.startswith("+"):
            continue
        cells = [cell.strip() for cell in line.split("|")]
        if len(names) > 1:
            row = {name: to_num(cell) for name, cell in zip(names[1:-1], cells[1:-1], strict=False)}
            found[row[key]] = row
        else:
            names = cells
    return found


def xml(value: Any) -> str:
    """A mapping as XML: texts become the text of elements, mappings their attributes and children."""
    root = _grown(_pairs(plain(value)), None)
    if root is None:
        raise TemplateRuntimeError("Value is not a dict or list. Cannot render as XML")
    return minidom.parseString(tostring(root)).toprettyxml(indent=" ")  # noqa: S318 - what was just written here


def _pairs(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        return value if value and isinstance(value[0], str) else []
    raise TemplateRuntimeError("Value is not a dict or list. Cannot render as XML")


def _grown(pairs: Iterable[Any], above: Element | None) -> Element | None:
    made: Element | None = None
    for tag, said in pairs:
        if isinstance(said, list):
            for each in said:
                _grown([(tag, each)], above)
            continue
        made = Element(tag) if above is None else SubElement(above, tag)
        if isinstance(said, (str, int, bool, float)):
            made.text = str(said)
            continue
        if isinstance(said, dict):
            made.attrib = {name: str(inner) for name, inner in said.items() if not isinstance(inner, (dict, list))}
        for name, inner in _pairs(said):
            if isinstance(inner, (dict, list)):
                _grown([(name, inner)], made)
    return made


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "json_decode_dict": encoded,
    "json_decode_list": encoded,
    "json_encode_dict": encoded,
    "json_encode_list": encoded,
    "json_query": json_query,
    "method_call": method_call,
    "mysql_to_dict": mysql_to_dict,
    "xml": xml,
}
