"""What is typed after a function's name, and lengths of time, as values.

Arguments read as in Salt (``salt.utils.args``, ``yamlify_arg``): YAML, where only a list or a dict in its brackets is
one, and text that YAML would lose or turn into something JSON cannot carry stays the text it is.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from typing import Any

from device_agent.command_line.durations import duration, written
from device_agent.errors import UsageInvalid

__all__ = ["carried", "duration", "read", "split_arguments", "value", "with_stdin", "written"]

NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(?!=)(.*)\Z", re.DOTALL)


STDIN_CHARACTERS = 1_048_576


def with_stdin(typed: Sequence[str] | None, *, from_stdin: bool) -> list[str]:
    """Arguments that were typed, and behind them a line of standard input each where ``--args-stdin`` is given.

    So a secret does not stand in the list of processes. Raises ``UsageInvalid``.
    """
    given = list(typed or [])
    if not from_stdin:
        return given
    text = sys.stdin.read(STDIN_CHARACTERS + 1)
    if len(text) > STDIN_CHARACTERS:
        raise UsageInvalid(f"standard input has more than {STDIN_CHARACTERS} characters of arguments")
    return given + text.splitlines()


def split_arguments(typed: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """The positional and the named arguments of a function. Raises ``UsageInvalid``."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for text in typed:
        match = NAMED.match(text)
        if match is None:
            positional.append(value(text))
        elif match[1] in named:
            raise UsageInvalid(f"the argument {match[1]} is given twice")
        else:
            named[match[1]] = value(match[2])
    return positional, named


def split_each(functions: Sequence[str], typed: Sequence[str]) -> list[list[Any]]:
    """The arguments of several functions, with a comma by itself between those of one and the next, as in Salt.

    Nothing typed is no argument for any. Raises ``UsageInvalid``.
    """
    from device_agent.protocol.several import joined

    each: list[list[str]] = [[]]
    for text in typed:
        if text == ",":
            each.append([])
        else:
            each[-1].append(text)
    if not typed:
        each = [[] for _ in functions]
    if len(each) != len(functions):
        raise UsageInvalid(
            f"{len(functions)} functions have arguments for {len(each)}; put a comma by itself between them, also where"
            " one has none, as in: test.ping,cmd.run , uptime"
        )
    return [joined(*split_arguments(words)) for words in each]


def value(text: str) -> Any:
    """One argument as a value. Raises ``UsageInvalid`` for a dict whose keys are not text."""
    import yaml

    # A `#` after a space would silently end the value, and `1_000` and `12:30` would become numbers nobody typed.
    if not text.strip() or text in ("|", "!") or re.fullmatch(r"[-+]?[0-9_:.]*[_:][0-9_:.]*", text):
        return text
    if text == "None":
        return None
    try:
        parsed = read(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    if (isinstance(parsed, float) and repr(parsed) != text) or (isinstance(parsed, int) and text.startswith("+")):
        # A version such as 1.10, and an offset such as +0530; where a number is wanted the device makes one of it.
        return text
    if "#" in text and (parsed is None or isinstance(parsed, str)):
        return text
    if (isinstance(parsed, dict) and not text.lstrip().startswith("{")) or (
        isinstance(parsed, list) and not text.lstrip().startswith("[")
    ):
        return text
    try:
        return parsed if carried(parsed) else text
    except RecursionError:
        raise UsageInvalid("an argument contains itself", found=text) from None


def read(text: str) -> Any:
    """YAML as Salt reads it: ``0644`` is 644, the digits of a mode, where YAML has 420. Raises as YAML does."""
    import yaml

    class Loader(yaml.SafeLoader):
        def integer(self, node: yaml.ScalarNode) -> int | str:
            digits = self.construct_scalar(node)
            if re.fullmatch(r"0[0-9]+", digits):
                return int(digits)
            # A time of day, a name of digits, an offset such as -0600: nobody typed a number.
            return digits if re.search("[:_]|^[-+]0[0-9]", digits) else self.construct_yaml_int(node)

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.integer)
    loader = Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def carried(parsed: object) -> bool:
    """Whether a message can carry it: no dates, sets, bytes, infinities, and no integer past 64 bits, such as a jid."""
    if isinstance(parsed, float):
        return math.isfinite(parsed)
    if isinstance(parsed, int):
        return -(2**63) <= parsed < 2**64
    if isinstance(parsed, list):
        return all(map(carried, parsed))
    if isinstance(parsed, dict):
        for key in parsed:
            if not isinstance(key, str):
                raise UsageInvalid(f"a key in an argument must be text: write '{key}' in quotes, found {key!r}")
        return all(map(carried, parsed.values()))
    return parsed is None or isinstance(parsed, str)
