"""What became of each thing that was found of Salt on a box: one verdict for each, with its file and line. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from device_agent.settings_file import Tree
from gateway.secret_names import NAME_MAPS, hints, is_setting

Verdict = Literal[
    "carried", "translated", "no meaning", "runs as is", "needs a grant", "needs a change", "not carried", "wrong"
]
"""``wrong`` is a file, or an entry of one, that cannot be read: nothing in it has a verdict of its own."""

VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
WIDTH: Final = 14
"""Characters that a verdict takes in a report."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One key, entry or device, and what became of it. ``what`` and ``words`` hold no value of it."""

    verdict: Verdict
    what: str
    """As it is called in Salt: a key of its settings, or ``proxy NAME``."""

    where: str
    """``FILE:LINE``."""

    words: str = ""
    """Why, or how, or what to do."""

    to: str = ""
    """The setting or the file here that has it now."""

    entry_alone: bool = False
    """Whether a ``wrong`` one is a single entry, so that the rest of its file was taken."""


@dataclass(frozen=True, slots=True)
class Said:
    """One key at the top of a file of settings of Salt."""

    role: str
    """``master``, ``proxy`` or ``minion``."""

    key: str
    value: Any = field(repr=False)
    where: str
    lines: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Where its own keys stand, if it is a mapping."""

    tree: Tree | None = field(default=None, repr=False)
    """The value as it is written, each part with its line."""


def step(name: str) -> str:
    """A name as a step of a path, which slashes part (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def _steps(path: str) -> list[str]:
    return [word.replace("~1", "/").replace("~0", "~") for word in path.split("/")]


@dataclass
class Wish:
    """What the settings of the gateway become, and whence each of them comes."""

    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    origins: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def put(self, path: str, value: Any, where: str) -> bool:
        """Have a setting, named with dots, say this; false where another file of Salt's said it already."""
        if path in self.origins:
            return False
        self.origins[path] = where
        *outer, inner = _steps(path)
        section = self.settings
        for word in outer:
            section = section.setdefault(word, {})
        section[inner] = value
        return True

    def drop(self, path: str) -> None:
        """Take a setting back, and sections that are empty without it."""
        del self.origins[path]
        words = _steps(path)
        for depth in range(len(words), 0, -1):
            section: Any = self.settings
            for word in words[: depth - 1]:
                section = section[word]
            if depth == len(words) or not section[words[depth - 1]]:
                del section[words[depth - 1]]


def counted(findings: Sequence[Finding]) -> dict[str, int]:
    """How many there are of each verdict."""
    return {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in VERDICTS}


def holds_secret(value: Any, key: str = "") -> bool:
    """Whether a value, or a key of it at any level, is called as secrets are. Tags, paths and names are not."""
    if key and is_setting(key) and hints(key) and isinstance(value, str) and value:
        return True
    if isinstance(value, Mapping):
        named = key in NAME_MAPS
        return any(holds_secret(inner, "" if named else str(name)) for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return any(holds_secret(inner, key) for inner in value)
    return isinstance(value, str) and "://" in value and "@" in value.split("://", 1)[1].split("/", 1)[0]
