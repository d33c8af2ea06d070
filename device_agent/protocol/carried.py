"""Plain values of anything that a message can carry, so that one odd value does not take all others along. Pure.

As Salt has it, an integer past 64 bits becomes a text, a set or a tuple a list, and a time its text.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.protocol import limits

LEAST: Final = -(2**63)
MOST: Final = 2**64 - 1
NO_TEXT: Final = "it has half a surrogate pair, which is no text"
KEY_CHARACTERS: Final = 80

Path = tuple[Any, ...]
Odd = Callable[[Path, Any, str], Any]
"""Takes the path of a value that no message can carry, the value, and why; returns what stands in its place."""


def refuse(path: Path, value: Any, why: str) -> Any:  # noqa: ARG001 - an ``Odd``
    """Raise ``Refused`` with the key of the value."""
    raise Refused("wrong_type", f"{place(path)}{why}")


def escape(path: Path, value: Any, why: str) -> Any:
    """Write the half surrogate pairs of a text as escapes; refuse any other value."""
    return _escaped(value) if isinstance(value, str) else refuse(path, value, why)


def carried(value: Any, odd: Odd = escape, *, depth: int = limits.VALUE_DEPTH, text_keys: bool = True) -> Any:
    """Return the value as a message can carry it.

    Args:
        value: Anything.
        odd: Decides about each value that has no such form: text with half a surrogate pair, or a foreign type.
        depth: How many levels of mappings and lists there may be.
        text_keys: Whether keys become texts, as JSON has them.

    Raises:
        Refused: With the key, for too many levels, for two keys of the same text, and what ``odd`` refuses.
    """
    return _carried(value, (), odd, depth, text_keys)


def place(path: Path) -> str:
    """Name a key for people, with colons between its levels: ``proxy:password: ``; empty for the value itself."""
    named = ":".join(_escaped(str(key)[:KEY_CHARACTERS]) for key in path)
    return f"{named}: " if named else ""


def _carried(value: Any, path: Path, odd: Odd, depth: int, text_keys: bool) -> Any:
    match value:
        case None | bool() | bytes():
            return value
        case float():
            return float(value)
        case int():
            return int(value) if LEAST <= value <= MOST else str(value)
        case str():
            return str.__str__(value) if _is_text(value) else odd(path, value, NO_TEXT)
        case datetime() | date() | time() | timedelta():
            return str(value)
        case dict() | list() | tuple() | set() | frozenset() if len(path) >= depth:
            raise Refused("too_deep", f"values nest at most {depth} deep")
        case dict():
            return _mapping(value, path, odd, depth, text_keys)
        case set() | frozenset():
            # In the order of their text, so that two devices agree.
            items: list[Any] = sorted(value, key=repr)
        case list() | tuple():
            items = list(value)
        case bytearray() | memoryview():
            return bytes(value)
        case _:
            return odd(path, value, f"{type(value).__name__} cannot be a value")
    return [_carried(each, (*path, number), odd, depth, text_keys) for number, each in enumerate(items)]


def _mapping(value: dict[Any, Any], path: Path, odd: Odd, depth: int, text_keys: bool) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, inner in value.items():
        told = _key(key, path, text_keys)
        if told in found:
            raise Refused("wrong_type", f"{place(path)}two keys are {str(told)[:KEY_CHARACTERS]!r} as text")
        found[told] = _carried(inner, (*path, told), odd, depth, text_keys)
    return found


def _key(key: Any, path: Path, text_keys: bool) -> Any:
    if isinstance(key, str):
        return _escaped(key)
    if key is None or isinstance(key, (bool, int, float, date, datetime)):
        wide = isinstance(key, (date, datetime)) or (isinstance(key, int) and not LEAST <= key <= MOST)
        return str(key) if text_keys or wide else key
    raise Refused("wrong_type", f"{place(path)}a key must be text, found {type(key).__name__}")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _escaped(value: str) -> str:
    return value if _is_text(value) else value.encode(errors="backslashreplace").decode()
