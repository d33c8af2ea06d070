"""What a help says and in which order: purpose, usage, options, commands, examples, exit statuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

HELP_COLUMNS = 100

Entries = Sequence[tuple[str, str]]
"""Names, each with what it means."""


@dataclass(frozen=True)
class HelpText:
    """What the help of a command says beside its options: purpose, columns or outcomes, examples, exit statuses."""

    purpose: str
    details: str = ""
    order: Sequence[str] = ()
    """The commands of a group in the order of its help; empty for the order in which they were added."""
    explained: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    examples: Sequence[tuple[str, str]] = ()
    exits: Mapping[int, str] = field(default_factory=dict)


def laid_out(text: HelpText, usage: str, typed: Sequence[tuple[str, Entries]], commands: Entries) -> str:
    """The help. ``typed`` is what can stand on the command line, under its headings."""
    blocks = [text.purpose, usage]
    if text.details:
        blocks.append("\n".join(wrap(text.details, HELP_COLUMNS)))
    blocks.extend(_section(heading, entries) for heading, entries in typed)
    blocks.append(_section("Commands", commands))
    blocks.extend(_section(heading, list(entries.items())) for heading, entries in text.explained.items())
    if text.examples:
        blocks.append("\n".join(["Examples:", *(f"  {line}\n      {what}" for line, what in text.examples)]))
    blocks.append(_section("Exit statuses", [(str(status), what) for status, what in text.exits.items()]))
    return "\n\n".join(block for block in blocks if block)


def _section(heading: str, entries: Entries) -> str:
    if not entries:
        return ""
    indent = min(max(len(name) for name, _ in entries), 28) + 4
    lines = [f"{heading}:"]
    for name, words in entries:
        first, *others = wrap(words, HELP_COLUMNS - indent) or [""]
        if len(name) + 3 > indent:
            lines.append(f"  {name}")
            lines.append(" " * indent + first)
        else:
            lines.append(f"  {name.ljust(indent - 2)}{first}".rstrip())
        lines.extend(" " * indent + line for line in others)
    return "\n".join(lines)
