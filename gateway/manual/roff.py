"""A manual page as text for groff and mandoc (man(7)): sections, paragraphs, named entries and literal lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from device_agent import __version__

INLINE = re.compile(r"``?([^`]+)``?|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)]+)\)")
LONG = re.compile(r"\S{24}(?=\S{12})")


def plain(text: str) -> str:
    """Text as it is to be read, whatever it has that means something to a formatter."""
    pieces = [_escaped(piece) for piece in LONG.sub(r"\g<0>\0", text).split("\0")]
    # Where nothing else allows it, as in a long pattern, a line may be broken here.
    escaped = "\\:".join(pieces)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def _escaped(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("^", "\\(ha").replace("~", "\\(ti")
    return escaped.replace("`", "\\(ga").replace("'", "\\(aq")


def marked(text: str) -> str:
    """A line with the marks of the documentation: `literal` and **strong** in bold, a link as its words."""
    parts, at = [], 0
    for found in INLINE.finditer(text):
        parts.append(plain(text[at : found.start()]).removeprefix("\\&" if at else ""))
        literal, strong, words, _ = found.groups()
        parts.append(marked(words).removeprefix("\\&") if words else f"\\fB{plain(literal or strong)}\\fP")
        at = found.end()
    parts.append(plain(text[at:]).removeprefix("\\&" if at else ""))
    return "".join(parts)


@dataclass
class Page:
    """One page. ``about`` is the line that apropos(1) shows."""

    name: str
    section: int
    about: str
    lines: list[str] = field(default_factory=list)
    date: str = ""
    """Of the release."""

    def heading(self, title: str) -> None:
        """A section."""
        self.lines.append(f".SH {_quoted(title.upper())}")

    def subheading(self, title: str) -> None:
        """A section within one."""
        self.lines.append(f".SS {_quoted(title)}")

    def paragraph(self, text: str) -> None:
        """A paragraph of marked text."""
        if text.strip():
            self._begin_paragraph()
            self.lines.append(marked(" ".join(text.split())))

    def entry(self, name: str, text: str) -> None:
        """A name in bold, and what it means, indented."""
        self.lines += [".TP", f"\\fB{plain(name)}\\fP", marked(" ".join(text.split())) or "\\&"]

    def entries(self, entries: Sequence[tuple[str, str]]) -> None:
        """Several of them."""
        for name, text in entries:
            self.entry(name, text)

    def item(self, text: str) -> None:
        """One item of a list."""
        self.lines += [".IP \\(bu 2", marked(" ".join(text.split()))]

    def literal(self, lines: Sequence[str]) -> None:
        """Lines as they are."""
        self._begin_paragraph()
        self.lines += [".RS 4", ".nf", *(plain(line) or "\\&" for line in lines), ".fi", ".RE"]

    def text(self) -> str:
        """The whole page."""
        head = f'.TH {_quoted(self.name.upper())} {self.section} "{self.date}" "Outstation {__version__}" Outstation'
        # The line of apropos takes one dash that is none.
        about = plain(self.about.rstrip("."))
        return "\n".join([head, ".ad l", ".SH NAME", f"{plain(self.name)} \\- {about}", *self.lines]) + "\n"

    def _begin_paragraph(self) -> None:
        # A paragraph right below a heading would be one too many.
        if self.lines and not self.lines[-1].startswith((".SH", ".SS")):
            self.lines.append(".PP")


def _quoted(text: str) -> str:
    return '"' + plain(text).replace('"', "\\(dq") + '"'
