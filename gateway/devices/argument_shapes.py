"""Shapes that a policy rule gives the arguments of a function: a glob for each argument."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from device_agent.trust.argument_glob import compile_argument_glob, limiting_folder


@dataclass(frozen=True)
class Shape:
    """Arguments that a function may be given: one glob for each positional one; named ones that must, or may, be."""

    positional: tuple[str, ...] = ()
    named: tuple[tuple[str, str], ...] = ()
    optional: tuple[tuple[str, str], ...] = ()

    def fits(self, arg: Sequence[Any], kwarg: Mapping[str, Any]) -> bool:
        """Whether these are exactly such arguments."""
        globs = {**dict(self.optional), **dict(self.named)}
        return (
            len(arg) == len(self.positional)
            and all(_fits(glob, value) for glob, value in zip(self.positional, arg, strict=True))
            and kwarg.keys() <= globs.keys()
            and all(name in kwarg for name, _ in self.named)
            and all(_fits(globs[name], value) for name, value in kwarg.items())
        )

    def folders(self, arg: Sequence[Any], kwarg: Mapping[str, Any]) -> list[str]:
        """The folders that its globs limit these arguments, which fit, to."""
        globs = {**dict(self.optional), **dict(self.named)}
        given = [*zip(self.positional, arg, strict=True), *((globs[name], value) for name, value in kwarg.items())]
        return [folder for glob, _ in given if (folder := limiting_folder(glob))]


def argument_text(value: Any) -> str:
    """A value as globs see it: text as it is, anything else as compact JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=repr)
    except (TypeError, ValueError, RecursionError):
        # A key that is no text, or too deep: it is refused for that, and the refusal is said with its arguments.
        return f"<{type(value).__name__} that JSON cannot carry>"


def shapes_text(shapes: Sequence[Shape]) -> str:
    """The shapes as an error names them."""
    return " or ".join(
        " ".join(
            [
                *shape.positional,
                *(f"{name}={glob}" for name, glob in shape.named),
                *(f"[{name}={glob}]" for name, glob in shape.optional),
            ]
        )
        or "no arguments"
        for shape in shapes
    )


def _fits(glob: str, value: Any) -> bool:
    """Whether an argument's value fits a glob of a shape, as text and after every layer has normalised it."""
    return compile_argument_glob(glob)(argument_text(value))
