"""Salt's filters and tests for templates, as far as they depend on what they are given and on nothing else.

A filter that draws lots, asks the network, reads files or looks at the clock is not here: what a template gives must
be the same for the same input. docs/pillar.md lists those that are.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import itertools
import json
import re
import shlex
import sys
import uuid
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Final

import yaml
from yaml.emitter import Emitter
from yaml.representer import SafeRepresenter

from device_agent.traverse import ABSENT, traversed
from gateway.render_shown import plain

NAMES: Final = uuid.UUID("91633ebf-1c86-5e33-935a-28061f4b480e")
"""Salt's own name space, so that a name gives the same number in both."""
DATE: Final = "%Y-%m-%d"
UNITS: Final = "kmgtpezy"


def octets(value: Any) -> bytes:
    """A text as bytes; bytes as they are."""
    return bytes(value) if isinstance(value, (bytes, bytearray)) else str(value).encode()


def to_bool(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() in {"yes", "1", "true"}
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return value > 0
    return not isinstance(value, Hashable) and len(value) > 0


def to_num(value: Any) -> Any:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def is_hex(value: Any) -> bool:
    try:
        int(value, 16)
    except (TypeError, ValueError):
        return False
    return True


def human_to_bytes(size: Any, default_unit: str = "B", handle_metric: bool = False) -> int:
    found = re.match(r"([0-9.]*)\s*(.*)$", str(size).strip())
    assert found is not None
    unit = found[2].lower() or default_unit.lower()
    if not re.fullmatch(rf"b|[{UNITS}](i?b)?", unit):
        return 0
    number = to_num(found[1])
    if isinstance(number, str):
        return 0
    metric = handle_metric and re.fullmatch(rf"[{UNITS}]b", unit)
    power = UNITS.index(unit[0]) + 1 if unit != "b" else 0
    return int(number * (1000 if metric else 1024) ** power)


def to_snake_case(text: str) -> str:
    words = text[:1].lower()
    for at, letter in enumerate(text[1:], 1):
        after = at + 1 < len(text) and text[at + 1].islower()
        words += "_" if letter.isupper() and (text[at - 1].islower() or after) else ""
        words += letter.lower()
    return words


def to_camelcase(text: str, uppercamel: bool = False) -> str:
    first, *rest = text.split("_")
    return (first.capitalize() if uppercamel else first) + "".join(word.capitalize() for word in rest)


def strftime(value: Any, form: str = DATE) -> str:
    return _date(value).strftime(form)


def _date(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    number = to_num(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None
    if isinstance(number, (int, float)):
        return datetime.fromtimestamp(number, UTC)
    text = str(value)
    for read in (datetime.fromisoformat, lambda given: datetime.strptime(given, "%Y/%m/%d")):  # noqa: DTZ007 - a date without a zone has none here either
        try:
            return read(text)
        except ValueError:
            continue
    raise ValueError(f"{text[:40]!r} is no time: a number of seconds, 2026-11-22, 2026-11-22T14:05:01 or 2026/11/22")


def base64_decode(value: Any) -> Any:
    found = base64.b64decode(octets(value))
    try:
        return found.decode()
    except UnicodeDecodeError:
        return found


def _found(found: re.Match[str] | None) -> tuple[Any, ...] | None:
    return None if found is None else found.groups() or (found.group(),)


def _flags(ignorecase: bool, multiline: bool) -> int:
    return (re.IGNORECASE if ignorecase else 0) | (re.MULTILINE if multiline else 0)


def regex_search(text: str, pattern: str, ignorecase: bool = False, multiline: bool = False) -> Any:
    return _found(re.search(pattern, text, _flags(ignorecase, multiline)))


def regex_match(text: str, pattern: str, ignorecase: bool = False, multiline: bool = False) -> Any:
    return _found(re.match(pattern, text, _flags(ignorecase, multiline)))


def regex_replace(text: str, pattern: str, new: str, ignorecase: bool = False, multiline: bool = False) -> str:
    return re.sub(pattern, new, text, flags=_flags(ignorecase, multiline))


def unique(values: Iterable[Any]) -> Any:
    if isinstance(values, Hashable):
        return set(values)
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def union(one: Any, other: Any) -> Any:
    return set(one) | set(other) if _both(one, other) else unique([*one, *other])


def intersect(one: Any, other: Any) -> Any:
    return set(one) & set(other) if _both(one, other) else unique([each for each in one if each in other])


def difference(one: Any, other: Any) -> Any:
    return set(one) - set(other) if _both(one, other) else unique([each for each in one if each not in other])


def symmetric_difference(one: Any, other: Any) -> Any:
    if _both(one, other):
        return set(one) ^ set(other)
    return unique([each for each in [*one, *other] if (each in one) != (each in other)])


def _both(one: Any, other: Any) -> bool:
    return isinstance(one, Hashable) and isinstance(other, Hashable)


def avg(values: Any) -> float:
    return float(sum(values) / len(values)) if not isinstance(values, Hashable) else float(str(values))


def exactly_n(values: Iterable[Any], amount: int = 1) -> bool:
    return sum(1 for each in values if each) == amount


def compare_dicts(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> dict[Any, Any]:
    return {
        name: {"old": old.get(name, ""), "new": new.get(name, "")}
        for name in sorted({*old, *new}, key=str)
        if name not in old or name not in new or old[name] != new[name]
    }


def compare_lists(old: list[Any], new: list[Any]) -> dict[str, list[Any]]:
    found = {"new": [each for each in new if each not in old], "old": [each for each in old if each not in new]}
    return {name: items for name, items in found.items() if items}


def traverse(data: Any, key: Any, default: Any = None, delimiter: str = ":") -> Any:
    found = traversed(plain(data), str(key), delimiter)
    return default if found is ABSENT else found


def flatten(values: Iterable[Any], levels: int | None = None, preserve_nulls: bool = False) -> list[Any]:
    found: list[Any] = []
    for each in values:
        if not preserve_nulls and (each is None or each in ("None", "null")):
            continue
        if isinstance(each, Iterable) and not isinstance(each, (str, bytes)) and levels != 0:
            found += flatten(each, None if levels is None else levels - 1, preserve_nulls)
        else:
            found.append(each)
    return found


def to_entries(data: Any) -> list[dict[str, Any]]:
    pairs = data.items() if isinstance(data, Mapping) else enumerate(data)
    return [{"key": key, "value": value} for key, value in pairs]


def from_entries(entries: Iterable[Mapping[str, Any]]) -> dict[Any, Any]:
    folded = [{str(name).lower(): value for name, value in entry.items()} for entry in entries]
    named = ((entry.get("key") or entry.get("name"), entry.get("value")) for entry in folded)
    return {key: value for key, value in named if key}


def sorted_ignorecase(values: Iterable[str]) -> list[str]:
    return sorted(values, key=str.lower)


def check_whitelist_blacklist(value: str, whitelist: Any = None, blacklist: Any = None) -> bool:
    black, white = ([each] if isinstance(each, str) else list(each or []) for each in (blacklist, whitelist))
    if any(_fits(value, each) for each in black):
        return False
    return not white or any(_fits(value, each) for each in white)


def _fits(value: str, pattern: str) -> bool:
    if fnmatchcase(value, pattern):
        return True
    try:
        return re.match(rf"\A{pattern}\Z", value) is not None
    except re.error:
        return False


def _place(data: Any, keys: str, delimiter: str) -> tuple[Any, str]:
    *path, last = keys.split(delimiter)
    for key in path:
        if not isinstance(data.get(key), dict):
            data[key] = {}
        data = data[key]
    return data, last


def set_value(data: Any, keys: str, value: Any, delimiter: str = ":", ordered_dict: bool = False) -> Any:  # noqa: ARG001 - Salt's argument; mappings are always ordered
    place, last = _place(data, keys, delimiter)
    place[last] = value
    return data


def _changed(method: str, empty: Callable[[], Any]) -> Callable[..., Any]:
    def changed(data: Any, keys: str, value: Any, delimiter: str = ":", ordered_dict: bool = False) -> Any:  # noqa: ARG001 - Salt's argument; mappings are always ordered
        place, last = _place(data, keys, delimiter)
        if place.get(last) is None:
            place[last] = empty()
        try:
            getattr(place[last], method)(value)
        except (AttributeError, TypeError, ValueError):
            raise ValueError(f"{last} holds a {type(place[last]).__name__}, which cannot {method}") from None
        return data

    return changed


def to_json(value: Any, sort_keys: bool = True, indent: int | None = None) -> str:
    return json.dumps(plain(value), sort_keys=sort_keys, indent=indent, ensure_ascii=False)


def tojson(value: Any, indent: int | None = None, **options: Any) -> str:
    text = json.dumps(plain(value), indent=indent, ensure_ascii=False, **options)
    for letter in "<>&'":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def to_yaml(value: Any, flow_style: bool = True) -> str:
    text: str = yaml.safe_dump(plain(value), default_flow_style=flow_style, allow_unicode=True)
    return text.strip().removesuffix("\n...")


def to_python(value: Any) -> str:
    return repr(plain(value))


def sls_params(value: Mapping[str, Any], flow_style: bool = False) -> str:
    return to_yaml([{name: inner} for name, inner in value.items()], flow_style)


def _quoted(double: bool) -> Callable[[Any], str]:
    def quoted(value: Any) -> str:
        out = io.StringIO()
        emitter: Any = Emitter(out, width=sys.maxsize)
        (emitter.write_double_quoted if double else emitter.write_single_quoted)(str(value))
        return out.getvalue()

    return quoted


def yaml_encode(value: Any) -> str:
    node = SafeRepresenter().represent_data(value)
    if not isinstance(node, yaml.ScalarNode):
        raise TypeError(f"yaml_encode takes one value, this is a {type(value).__name__}")
    text: str = node.value
    return _quoted(True)(text) if node.tag.endswith(":str") else text


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "append_dict_key_value": _changed("append", list),
    "avg": avg,
    "base64_decode": base64_decode,
    "base64_encode": lambda value: base64.b64encode(octets(value)).decode(),
    "check_whitelist_blacklist": check_whitelist_blacklist,
    "combinations": itertools.combinations,
    "combinations_with_replacement": itertools.combinations_with_replacement,
    "compare_dicts": compare_dicts,
    "compare_lists": compare_lists,
    "compress": itertools.compress,
    "contains_whitespace": lambda value: any(map(str.isspace, value)),
    "date_format": strftime,
    "dict_to_sls_yaml_params": sls_params,
    "difference": difference,
    "exactly_n_true": exactly_n,
    "exactly_one_true": exactly_n,
    "extend_dict_key_value": _changed("extend", list),
    "flatten": flatten,
    "from_entries": from_entries,
    "hmac": lambda text, secret, challenge: (
        base64.b64encode(hmac.digest(octets(secret), octets(text), "sha256")) == octets(challenge)
    ),
    "hmac_compute": lambda text, secret: hmac.digest(octets(secret), octets(text), "sha256").hex(),
    "human_to_bytes": human_to_bytes,
    "intersect": intersect,
    "is_hex": is_hex,
    "is_iter": lambda value: isinstance(value, Iterable) and not isinstance(value, (str, bytes)),
    "is_list": lambda value: isinstance(value, list),
    "json": to_json,
    "max": max,
    "md5": lambda value: hashlib.md5(octets(value), usedforsecurity=False).hexdigest(),
    "min": min,
    "path_join": lambda *parts: "/".join(str(part).rstrip("/") for part in parts),
    "permutations": itertools.permutations,
    "product": itertools.product,
    "python": to_python,
    "quote": shlex.quote,
    "regex_escape": re.escape,
    "regex_match": regex_match,
    "regex_replace": regex_replace,
    "regex_search": regex_search,
    "sequence": lambda value: value if isinstance(value, (list, tuple, set, Mapping)) else [value],
    "set_dict_key_value": set_value,
    "sha1": lambda value: hashlib.sha1(octets(value), usedforsecurity=False).hexdigest(),
    "sha256": lambda value: hashlib.sha256(octets(value)).hexdigest(),
    "sha512": lambda value: hashlib.sha512(octets(value)).hexdigest(),
    "skip": lambda _: "",
    "sorted_ignorecase": sorted_ignorecase,
    "str_to_num": to_num,
    "strftime": strftime,
    "substring_in_list": lambda text, values: any(text in each for each in values),
    "symmetric_difference": symmetric_difference,
    "to_bool": to_bool,
    "to_bytes": octets,
    "to_camelcase": to_camelcase,
    "to_entries": to_entries,
    "to_num": to_num,
    "to_snake_case": to_snake_case,
    "tojson": tojson,
    "traverse": traverse,
    "union": union,
    "unique": unique,
    "update_dict_key_value": _changed("update", dict),
    "uuid": lambda value: str(uuid.uuid5(NAMES, str(value))),
    "yaml": to_yaml,
    "yaml_dquote": _quoted(True),
    "yaml_encode": yaml_encode,
    "yaml_squote": _quoted(False),
    "zip": zip,
    "zip_longest": itertools.zip_longest,
}
TESTS: Final[dict[str, Callable[..., bool]]] = {
    "equalto": lambda value, other: bool(value == other),
    "list": lambda value: isinstance(value, list),
    "match": lambda text, pattern, ignorecase=False, multiline=False: (
        re.match(pattern, text, _flags(ignorecase, multiline)) is not None
    ),
}
WITHOUT: Final = ("random",)
"""Filters of Jinja's own that are taken away, since they draw lots."""
