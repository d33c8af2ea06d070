"""What a setting takes, in words for people: the same in error messages, in the reference and in the example file."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import NODEFAULT, Struct, inspect, to_builtins

_LOOK_AHEAD = r"(?!\n)"


class Setting(NamedTuple):
    """One row of the reference: the dotted key, what it takes, its default, what it is for."""

    key: str
    takes: str
    default: str
    description: str


def table_type(table: type[Struct]) -> inspect.StructType:
    """A table as a type to walk through."""
    found = inspect.type_info(table)
    if not isinstance(found, inspect.StructType):
        raise TypeError(f"a table of settings is a Struct, not {table}")
    return found


def unwrapped(kind: inspect.Type) -> inspect.Type:
    """A type without its metadata."""
    return unwrapped(kind.type) if isinstance(kind, inspect.Metadata) else kind


def schema(kind: inspect.Type) -> dict[str, Any]:
    """What was written beside a type: description and examples, the outer before the inner."""
    if not isinstance(kind, inspect.Metadata):
        return {}
    return {**schema(kind.type), **(kind.extra_json_schema or {})}


def type_words(kind: inspect.Type) -> str:
    """What a setting of this type takes."""
    match unwrapped(kind):
        case inspect.StrType() as text:
            return _bounded("text", text.min_length, text.max_length, "characters") + (
                f" matching {text.pattern.removesuffix(_LOOK_AHEAD)}" if text.pattern else ""
            )
        case inspect.IntType() as number:
            return "a whole number" + _range_words(number)
        case inspect.FloatType() as number:
            return "a number" + _range_words(number)
        case inspect.BoolType():
            return "true or false"
        case inspect.NoneType():
            return "nothing"
        case inspect.LiteralType(values):
            return "one of " + ", ".join(map(str, values))
        case inspect.ListType() as items:
            return _bounded(f"a list, each {type_words(items.item_type)}", items.min_length, items.max_length, "items")
        case inspect.DictType() as mapping:
            return f"a mapping, each value {type_words(mapping.value_type)}"
        case inspect.StructType() as section:
            return "a section with " + ", ".join(each.encode_name for each in section.fields)
        case inspect.UnionType(types):
            return " or ".join(type_words(each) for each in types)
        case inspect.AnyType():
            return "anything"
        case other:
            raise TypeError(f"a table of settings cannot hold {other}")


def default_words(field: inspect.Field) -> str:
    """A field's default as one would write it in the file, or ``required``."""
    if field.required:
        return "required"
    value = field.default_factory() if field.default is NODEFAULT else field.default
    plain = to_builtins(value)
    if plain is None:
        return "none"
    if isinstance(plain, bool):
        return "true" if plain else "false"
    return f"{plain:g}" if isinstance(plain, float) else str(plain)


def example_words(field: inspect.Field) -> str:
    """A line that would be legal for this field."""
    examples = schema(field.type).get("examples")
    return f"{field.encode_name}: {examples[0] if examples else '…'}"


def describe(table: type[Struct]) -> list[Setting]:
    """Every setting of a table in its order; ``masters[].key`` is a field of each item of a list."""
    return _rows(table_type(table), "")


def _rows(section: inspect.StructType, prefix: str) -> list[Setting]:
    rows: list[Setting] = []
    for field in section.fields:
        key = prefix + field.encode_name
        inner, suffix = _section_within(field.type)
        description = schema(field.type).get("description") or (_first_sentence(inner) if inner else "")
        takes = type_words(field.type) if inner is None else "a list of sections" if suffix else "a section"
        default = default_words(field)
        if inner is None or suffix or default in {"required", "none"}:
            rows.append(Setting(key, takes, default, description))
        if inner is not None:
            rows += _rows(inner, f"{key}{suffix}.")
    return rows


def _first_sentence(section: inspect.StructType) -> str:
    return (section.cls.__doc__ or "").strip().partition("\n")[0]


def _section_within(kind: inspect.Type) -> tuple[inspect.StructType | None, str]:
    """The section that a type is, may be, or is a list of (then with ``[]``)."""
    match unwrapped(kind):
        case inspect.StructType() as section:
            return section, ""
        case inspect.ListType(item_type=item):
            return _section_within(item)[0], "[]"
        case inspect.UnionType(types):
            return next((found for each in types if (found := _section_within(each))[0]), (None, ""))
        case _:
            return None, ""


def _bounded(words: str, least: int | None, most: int | None, unit: str) -> str:
    if least and most:
        return f"{words}, {least} to {most} {unit}"
    if least:
        return f"{words}, at least {least} {unit}"
    return f"{words}, at most {most} {unit}" if most else words


def _range_words(number: inspect.IntType | inspect.FloatType) -> str:
    if number.ge is not None and number.le is not None:
        return f" from {_full(number.ge)} to {_full(number.le)}"
    words = [
        f" {comparison} {_full(bound)}"
        for comparison, bound in (
            ("at least", number.ge),
            ("over", number.gt),
            ("at most", number.le),
            ("under", number.lt),
            ("in steps of", number.multiple_of),
        )
        if bound is not None
    ]
    return ",".join(words)


def _full(bound: float) -> str:
    """With every digit, as it can be typed: YAML takes ``1e+10`` for a text."""
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"
