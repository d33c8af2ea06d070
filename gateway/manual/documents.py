"""Pages of the documentation, or sections of them, as parts of a manual page: nothing is said in two places.

What the documentation uses of Markdown is read and nothing else: headings, paragraphs, lists, tables, literal lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gateway.manual.roff import Page

FENCE = "```"
ITEM = re.compile(r"(?:[-*]|\d+\.) (.*)")
HEADING = re.compile(r"(#+) (.*)")
RULE = re.compile(r"\|[-|: ]+\|")
CELL = re.compile(r"(?<!\\)\|")


def told(page: Page, file: Path, sections: Mapping[str, str] | None = None) -> None:
    """Add a document, or those of its sections that are named, each under its heading here.

    Raises ``KeyError`` for a section that the document does not have.
    """
    parts = dict(_parts(file.read_text(encoding="utf-8").splitlines()))
    wanted = sections if sections is not None else {title: title for title in parts if parts[title]}
    for title, heading in wanted.items():
        page.heading(heading)
        _body(page, parts[title])


def _parts(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The sections by their headings; what stands before the first is the description."""
    title, body, literal = "Description", list[str](), False
    for line in lines:
        literal ^= line.startswith(FENCE)
        found = None if literal else HEADING.fullmatch(line)
        if found is not None and len(found[1]) <= 2:
            if len(found[1]) == 2:
                yield title, body
                title, body = found[2], []
            continue
        body.append(line)
    yield title, body


def _body(page: Page, lines: Sequence[str]) -> None:
    for kind, block in _blocks(lines):
        match kind:
            case "heading":
                page.subheading(block[0])
            case "literal":
                page.literal(block)
            case "item":
                page.item(" ".join(block))
            case "table":
                _table(page, block)
            case _:
                page.paragraph(" ".join(block))


def _blocks(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    kind, block, fenced = "", list[str](), False
    for line in [*lines, ""]:
        if line.startswith(FENCE):
            if kind:
                yield kind, block
            fenced = not fenced
            kind, block = ("literal", []) if fenced else ("", [])
            continue
        if fenced:
            block.append(line)
            continue
        fresh = _kind_of(line, kind)
        if kind and fresh != kind + "+":
            # An empty line ends whatever it follows but literal lines, which it may stand among.
            yield kind, [each.strip() if kind != "literal" else each for each in block]
            kind, block = "", []
        if fresh.rstrip("+"):
            kind = fresh.rstrip("+")
            found = ITEM.fullmatch(line.strip()) if kind == "item" and not fresh.endswith("+") else None
            text = found[1] if found is not None else line[4:] if kind == "literal" else line
            block.append(text.lstrip("# ") if kind == "heading" else text)
    if kind:
        yield kind, block


def _kind_of(line: str, before: str) -> str:
    """What a line begins, or with a plus what it goes on with; empty for a line without anything on it."""
    if not line.strip():
        return ""
    if line.startswith("#"):
        return "heading"
    if line.startswith("|"):
        return "table+" if before == "table" else "table"
    if ITEM.fullmatch(line):
        return "item"
    if line.startswith("    ") and before not in ("item", "text"):
        return "literal+" if before == "literal" else "literal"
    return f"{before}+" if before in ("item", "text") else "text"


def _table(page: Page, rows: Sequence[str]) -> None:
    """Each row as an entry: its first cell, and the others after it."""
    body = [row for row in rows if not RULE.fullmatch(row)][1:]
    for row in body:
        first, *others = [cell.strip().replace("\\|", "|") for cell in CELL.split(row.strip().strip("|"))]
        page.entry(first.replace("`", "").replace("**", ""), "; ".join(cell for cell in others if cell))
