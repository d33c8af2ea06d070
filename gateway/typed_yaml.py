"""YAML of one argument: Salt's reading, except for numbers whose spelling would be lost."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final

import yaml

from gateway import render_yaml

_SPELLING: Final = re.compile(r"[:_]|^[-+]0[0-9]")
"""A time of day, a name of digits, or an offset such as -0600."""


class ArgumentLoader(render_yaml.Loader):
    """Salt's loader. It keeps the text of ``12:30``, ``1_000``, ``-0600``, and of an integer past 64 bits."""

    def construct_integer(self, node: yaml.ScalarNode) -> int | str:
        """An integer that a message can carry, or its text."""
        written: str = node.value
        if self._spelled(node):
            return written
        number: int = render_yaml.construct_integer(self, node)
        return number if -(2**63) <= number < 2**64 else written

    def construct_decimal(self, node: yaml.ScalarNode) -> float | str:
        """A number with a fraction, or its text."""
        written: str = node.value
        number: float = render_yaml.construct_float(self, node)
        return written if self._spelled(node) else number

    def _spelled(self, node: yaml.ScalarNode) -> bool:
        """Whether a text is a number by its spelling alone, and one that the number would not show."""
        implicit = self.resolve(yaml.ScalarNode, node.value, (True, False)) == node.tag
        return implicit and _SPELLING.search(node.value) is not None


ArgumentLoader.add_constructor("tag:yaml.org,2002:int", ArgumentLoader.construct_integer)
ArgumentLoader.add_constructor("tag:yaml.org,2002:float", ArgumentLoader.construct_decimal)


def read(text: str) -> Any:
    """The value in a text. Raises ``yaml.YAMLError``, ``ValueError``, and ``TooLarge`` of ``gateway.render_yaml``."""
    return render_yaml.read(text, reader=ArgumentLoader)


def fault(text: str, error: yaml.MarkedYAMLError) -> str:
    """What is wrong with a text, and where: the parser in Python places an end that is missing, libyaml does not."""
    try:
        yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as found:
        error = found
    except RecursionError:
        pass
    mark = error.problem_mark
    return str(error.problem) if mark is None else f"{error.problem} (line {mark.line + 1}, column {mark.column + 1})"


def read_typed_json(text: str) -> Any:
    """The value in JSON of several lines; a line break in a text is kept. Raises ``ValueError``, ``RecursionError``."""
    return json.loads(text, strict=False, object_pairs_hook=_mapping)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in one mapping")
    return found


def spelling_lost(written: str, number: float) -> bool:
    """Whether a number does not say all that its text says: ``+351``, ``1.10``, digits beyond the precision."""
    if written.startswith("+"):
        return True
    if isinstance(number, int) or "." not in written:
        return False
    fraction = written.partition(".")[2]
    zeros = fraction.isdigit() and fraction.endswith("0") and fraction != "0"
    return zeros or Decimal(written) != Decimal(repr(number))
