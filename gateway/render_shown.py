"""What a template prints of a value: mappings so that YAML reads them again; and values without what wraps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


class Shown(dict[Any, Any]):
    """A mapping that prints as YAML reads it."""

    def __repr__(self) -> str:
        """As YAML in one line."""
        return "{" + ", ".join(f"{name!r}: {_written(value)}" for name, value in self.items()) + "}"

    __str__ = __repr__


def shown(value: Any) -> Any:
    """A value as it is printed: mappings, also those within, print as YAML reads them."""
    if isinstance(value, Mapping):
        return Shown({name: shown(inner) for name, inner in value.items()})
    if type(value) in (list, tuple, set):
        return type(value)(shown(inner) for inner in value)
    return value


def plain(value: Any) -> Any:
    """A value whose mappings are dictionaries and whose sequences are lists."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


def _written(value: Any) -> str:
    if isinstance(value, str) and any(letter in value for letter in "\n\r\t"):
        # Between single quotes an escape would be two letters.
        text: str = yaml.safe_dump(value, default_style='"', width=2**31 - 1, allow_unicode=True)
        return text.strip()
    return repr(value)
