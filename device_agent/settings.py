"""Settings from YAML into a typed table: a file, and the pieces beside it in ``STEM.d/`` in the order of their names.

A table is a frozen ``msgspec.Struct`` whose fields are sections (structs themselves), lists and single values, with
``Annotated[…, Meta(description=…, ge=…)]``. Later pieces win: mappings merge at every level, lists are replaced. A
section with nothing written below it is the section with its defaults; ``null`` takes an optional section away.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from device_agent.errors import ConfigInvalid
from device_agent.settings_file import Items, Place, Scalar, Section, Tree, read_file, read_text, shown
from device_agent.settings_words import Setting, describe, example_words, schema, table_type, type_words, unwrapped
from device_agent.start_errors import start_error

__all__ = ["Setting", "describe", "load", "load_text", "places", "says", "written"]

T = TypeVar("T", bound=msgspec.Struct)

_whole = re.compile(r"[-+]?(0|[1-9][0-9]{0,30})")
_number = re.compile(r"[-+]?((0|[1-9][0-9]{0,30})(\.[0-9]{0,60})?|\.[0-9]{1,60})([eE][-+]?[0-9]{1,3})?")
_secret = re.compile("password|secret|token", re.IGNORECASE)
_TRUE = frozenset({"true", "yes", "on"})


def load(table: type[T], path: Path, implied: Mapping[str, str] = {}) -> T:
    """The settings in a file and its pieces; ``implied`` texts count where neither says anything.

    Raises ``ConfigInvalid`` with file:line, what was found and what is allowed.
    """
    tree = written(path)
    for key, text in implied.items():
        if not _said(tree, key):
            tree.entries[key], tree.places[key] = Scalar(tree.place, "str", text, plain=False), tree.place
    return _loaded(table, tree)


def load_text(table: type[T], text: str, path: Path) -> T:
    """The settings in a text that was read from a file; pieces beside the file do not count. Raises as ``load``."""
    return _loaded(table, _unfolded(read_text(text, path)))


def says(path: Path, key: str) -> bool:
    """Whether a file or one of its pieces says something of this key. Raises ``ConfigInvalid``."""
    return _said(written(path), key)


def _said(tree: Section, key: str) -> bool:
    found = tree.entries.get(key)
    return found is not None and not (isinstance(found, Scalar) and found.kind == "null")


def _loaded(table: type[T], tree: Section) -> T:
    checked = _Checking(table).section(table_type(table), tree, "")
    try:
        return msgspec.convert(checked, table)
    except msgspec.ValidationError as error:
        # Every type was checked above with its line; what is left is what a section says of its fields together.
        raise ConfigInvalid(_without_path(str(error)), where=str(_place_of(tree, str(error)))) from None


def _without_path(message: str) -> str:
    """The message of msgspec without the path behind it, where the message names the path itself."""
    what, _, path = message.rpartition(" - at `$.")
    return what if what and path.rstrip("`") in what else message


def places(path: Path, section: str) -> dict[str, Place]:
    """Where each key of a section stands, for what is found wrong with it later."""
    found = written(path).entries.get(section)
    return found.places if isinstance(found, Section) else {}


def written(path: Path) -> Section:
    """The settings as they stand in a file and its pieces, not held against any table. Raises ``ConfigInvalid``."""
    tree = _unfolded(read_file(path))
    for piece in _pieces(path.with_name(f"{path.stem}.d")):
        tree = _overlaid(tree, _unfolded(read_file(piece)))
    return tree


def _unfolded(tree: Section) -> Section:
    """With a key such as ``smtp.from`` at the top, as Salt has them, as ``from`` in the section ``smtp``."""
    if not any("." in key for key in tree.entries):
        return tree
    whole = Section(tree.place, {}, {})
    for key, value in tree.entries.items():
        place = tree.places[key]
        *outer, inner = key.split(".")
        piece = Section(place, {inner: value}, {inner: place})
        for word in reversed(outer):
            piece = Section(place, {word: piece}, {word: place})
        _refuse_twice(whole, piece)
        whole = _overlaid(whole, piece)
    return whole


def _refuse_twice(whole: Section, piece: Section, path: str = "") -> None:
    """Raises ``ConfigInvalid`` when a section and a key with a dot both say it."""
    for word in whole.entries.keys() & piece.entries.keys():
        known, more = whole.entries[word], piece.entries[word]
        if not (isinstance(known, Section) and isinstance(more, Section)):
            raise ConfigInvalid(
                f"{path}{word} is there twice",
                where=str(piece.places[word]),
                found=f"first at {whole.places[word]}",
                allowed="each setting once, with a dot or in its section",
            )
        _refuse_twice(known, more, f"{path}{word}.")


def _pieces(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if file.suffix == ".yaml" and not file.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        what = f"the folder of settings cannot be read: {error.strerror}"
        raise start_error(error, what, where=str(folder), hint=f"ls -ld {folder}") from None


def _overlaid(under: Section, over: Section) -> Section:
    merged = Section(under.place, dict(under.entries), dict(under.places))
    for key, value in over.entries.items():
        below = merged.entries.get(key)
        if isinstance(below, Section) and isinstance(value, Section):
            merged.entries[key] = _overlaid(below, value)
        elif not (isinstance(below, Section) and isinstance(value, Scalar) and value.empty):
            merged.entries[key] = value
            merged.places[key] = over.places[key]
    return merged


def _place_of(tree: Section, message: str) -> Place:
    """Where the path stands that msgspec put behind its message, as far as it can be followed."""
    place: Place = tree.place
    node: Tree = tree
    for step, number in re.findall(r"\.([^.\[`]+)|\[(\d+)\]", message.rpartition("`$")[2]):
        if isinstance(node, Items) and number:
            node = node.items[int(number)]
            place = node.place
        elif isinstance(node, Section) and step in node.entries:
            place, node = node.places[step], node.entries[step]
        else:
            break
    return place


@dataclass(frozen=True, slots=True)
class _Checking:
    """Holds a tree against a table and gives plain values, which only msgspec has still to put into structs."""

    table: type[msgspec.Struct]

    def section(self, kind: inspect.StructType, tree: Section, path: str) -> dict[str, Any]:
        fields = {field.encode_name: field for field in kind.fields}
        for key in tree.entries:
            if key not in fields:
                raise self._unknown(key, list(fields), tree.places[key], path)
        for name, field in fields.items():
            if field.required and name not in tree.entries:
                raise ConfigInvalid(
                    f"{path}{name} is missing",
                    where=str(tree.place),
                    found=f"only {', '.join(tree.entries)}" if tree.entries else "nothing",
                    allowed=_allowed(field.type),
                    hint=f"add a line such as {example_words(field)}",
                )
        return {key: self._value(fields[key].type, value, f"{path}{key}") for key, value in tree.entries.items()}

    def _unknown(self, key: str, known: list[str], place: Place, path: str) -> ConfigInvalid:
        hint = None
        if near := get_close_matches(key, known, n=1):
            hint = f"did you mean {near[0]!r}?"
        elif elsewhere := [row.key for row in describe(self.table) if row.key.rpartition(".")[2] == key]:
            hint = f"did you mean {elsewhere[0]}?"
        return ConfigInvalid(
            "there is no such setting",
            where=str(place),
            found=f"{path}{key}"[:200],
            allowed=", ".join(known),
            hint=hint,
        )

    def _value(self, kind: inspect.Type, tree: Tree, path: str, outer: inspect.Type | None = None) -> Any:
        """The plain value; ``outer`` is the union that ``kind`` was chosen from, for the error to speak of."""
        match unwrapped(kind), tree:
            case inspect.UnionType() as union, _:
                return None if _is_null(union, tree) else self._value(_chosen(union, tree), tree, path, outer or kind)
            case inspect.StructType() as struct, Section():
                return self.section(struct, tree, f"{path}.")
            case inspect.StructType() as struct, Scalar() if tree.empty:
                return self.section(struct, Section(tree.place), f"{path}.")
            case inspect.ListType() as items, Items():
                self._length(kind, len(tree.items), items, tree, path)
                return [self._value(items.item_type, each, f"{path}[{at}]") for at, each in enumerate(tree.items)]
            case inspect.DictType() as mapping, Section():
                self._length(kind, len(tree.entries), mapping, tree, path)
                return {
                    self._value(mapping.key_type, Scalar(tree.places[key], "str", key), f"{path}, a key"): self._value(
                        mapping.value_type, value, f"{path}.{key}"
                    )
                    for key, value in tree.entries.items()
                }
            case inspect.AnyType(), _:
                return _guessed(tree)
            case inner, Scalar():
                value = _scalar(inner, tree)
                if value is not _NOT_ONE:
                    return value
            case _:
                pass
        raise _wrong(kind, tree, path, outer or kind)

    @staticmethod
    def _length(
        kind: inspect.Type, length: int, bounds: inspect.ListType | inspect.DictType, tree: Tree, path: str
    ) -> None:
        if length < (bounds.min_length or 0) or (bounds.max_length is not None and length > bounds.max_length):
            raise _wrong(kind, tree, path, kind)


_NOT_ONE = object()


def _scalar(kind: inspect.Type, tree: Scalar) -> Any:
    """The value of a word for this type, or ``_NOT_ONE``."""
    match kind:
        case inspect.LiteralType(values):
            return next((value for value in values if str(value) == tree.text), _NOT_ONE)
        case inspect.StrType() as text if tree.kind == "str":
            fits = (
                (text.min_length or 0) <= len(tree.text) <= (math.inf if text.max_length is None else text.max_length)
            )
            return tree.text if fits and (not text.pattern or re.search(text.pattern, tree.text)) else _NOT_ONE
        case inspect.IntType() as bounds if tree.kind == "int" and _whole.fullmatch(tree.text):
            return _in_range(int(tree.text), bounds)
        case inspect.FloatType() as bounds if _is_number(tree):
            return _in_range(float(tree.text), bounds)
        case inspect.BoolType() if tree.kind == "bool":
            return tree.text.lower() in _TRUE
        case _:
            return _NOT_ONE


def _is_number(tree: Scalar) -> bool:
    # YAML 1.1 takes 1e3 for a text, since it has no point in it.
    known = tree.kind in {"int", "float"} or (tree.kind == "str" and tree.plain)
    return known and _number.fullmatch(tree.text) is not None


def _in_range(value: float, bounds: inspect.IntType | inspect.FloatType) -> Any:
    fits = (
        math.isfinite(value)
        and (bounds.ge is None or value >= bounds.ge)
        and (bounds.gt is None or value > bounds.gt)
        and (bounds.le is None or value <= bounds.le)
        and (bounds.lt is None or value < bounds.lt)
        and (bounds.multiple_of is None or value % bounds.multiple_of == 0)
    )
    return value if fits else _NOT_ONE


def _guessed(tree: Tree) -> Any:
    """A value of a field that takes anything: what YAML takes it for, unless that would be a surprise."""
    if isinstance(tree, Section):
        return {key: _guessed(value) for key, value in tree.entries.items()}
    if isinstance(tree, Items):
        return [_guessed(value) for value in tree.items]
    if tree.kind == "null":
        return None
    info = {"int": int, "float": float, "bool": bool}.get(tree.kind)
    value = _NOT_ONE if info is None else _scalar(inspect.type_info(info), tree)
    return tree.text if value is _NOT_ONE else value


def _is_null(union: inspect.UnionType, tree: Tree) -> bool:
    if not isinstance(tree, Scalar) or tree.kind != "null" or not union.includes_none:
        return False
    return not (tree.empty and any(isinstance(unwrapped(each), inspect.StructType) for each in union.types))


def _chosen(union: inspect.UnionType, tree: Tree) -> inspect.Type:
    """The member of a union that the value seems to be meant for; errors then speak of that one."""
    members = [each for each in union.types if not isinstance(unwrapped(each), inspect.NoneType)]
    wanted: dict[type[Tree], tuple[type[inspect.Type], ...]] = {
        Section: (inspect.StructType, inspect.DictType),
        Items: (inspect.ListType,),
    }
    for each in members:
        inner = unwrapped(each)
        if isinstance(tree, Scalar):
            if _scalar(inner, tree) is not _NOT_ONE or (tree.empty and isinstance(inner, inspect.StructType)):
                return each
        elif isinstance(inner, wanted[type(tree)]):
            return each
    return members[0]


def _allowed(kind: inspect.Type) -> str:
    description = schema(kind).get("description")
    return f"{type_words(kind)} ({description})" if description else type_words(kind)


def _wrong(kind: inspect.Type, tree: Tree, path: str, outer: inspect.Type) -> ConfigInvalid:
    name, _, place = path.rpartition(".")[2].partition("[")
    # What was written for a secret must not end in a log.
    secret = isinstance(tree, Scalar) and not tree.empty and _secret.search(name)
    hidden = Scalar(tree.place, tree.kind, "…", plain=True) if secret and isinstance(tree, Scalar) else tree
    return ConfigInvalid(
        f"{path} cannot be this",
        where=str(tree.place),
        found=shown(hidden),
        allowed=_allowed(outer),
        hint=_hint(unwrapped(kind), hidden, "" if place else f"{name}: "),
    )


def _hint(inner: inspect.Type, tree: Tree, key: str) -> str | None:
    """The step that mends what most often was meant; ``key`` stands before the value, and is empty in a list."""
    if not isinstance(tree, Scalar):
        return None
    text = tree.text[:80]
    match inner:
        case _ if tree.empty:
            return f"write a value behind {key.strip() or '-'}, or remove the line for the default"
        case inspect.StrType() if tree.kind != "str":
            return f'quote it: {key}"{text}"'
        case inspect.ListType():
            return f"a list is written {key}[{text}]"
        case inspect.StructType():
            return f"the keys of a section stand below {key.strip() or 'it'}, indented"
        case inspect.LiteralType(values):
            near = get_close_matches(tree.text, map(str, values), n=1)
            return f"did you mean {near[0]!r}?" if near else None
        case inspect.IntType() | inspect.FloatType() if tree.kind == "int" and not _whole.fullmatch(tree.text):
            return "write it as a decimal number: YAML reads a leading 0 as octal and colons as base 60"
        case inspect.IntType() if _number.fullmatch(tree.text) and not _whole.fullmatch(tree.text):
            return "write it with all its digits, and without a point, an exponent or quotes"
        case inspect.IntType() | inspect.FloatType() if tree.kind == "str" and _number.fullmatch(tree.text):
            return f"write the number without quotes: {key}{text}"
        case _:
            return None
