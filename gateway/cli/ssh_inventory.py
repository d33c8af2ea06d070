"""Reads an inventory of SSH devices, CSV or YAML, into what the API takes: each device with its line, or its fault.

Secrets are in files that the inventory names, beside it, or in the inventory itself; a fault never repeats one.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, Final

import yaml

from device_agent.errors import UsageInvalid
from device_agent.utf8_text import NotUtf8, utf8_text
from gateway.cli.csv_separator import check_separator
from gateway.cli.ssh_views import FaultView
from gateway.cli.ssh_words import SECRET_BYTES, text_of
from gateway.devices.ssh_wish import NAME_WORDS

FILE_BYTES: Final = 64 * 1024 * 1024
COLUMNS: Final = (
    "name",
    "address",
    "port",
    "user",
    "login",
    "password",
    "password_file",
    "key_file",
    "passphrase_file",
    "certificate_file",
    "fingerprint",
    "jump",
    "poll_seconds",
)
FILES: Final = {
    "password_file": "password",
    "key_file": "private_key",
    "passphrase_file": "passphrase",
    "certificate_file": "certificate",
}
LOGINS: Final = ("password", "key", "agent", "certificate")
SHOWN_CHARACTERS: Final = 80
NESTED: Final = 8
"""Levels of a YAML file. libyaml's own reader goes down any number of them, and over the end of the stack."""

UNCLOSED: Final = "a quotation mark opens in this row, and none closes it before the end of the file"

SECRET: Final = frozenset({"password"})
"""Columns of which no fault shows the value."""

Cells = dict[str, str]


@dataclass
class Listed:
    """One device of an inventory. Its wish is empty when there is a fault."""

    line: int
    name: str
    wish: dict[str, Any] = field(default_factory=dict, repr=False)
    fault: FaultView | None = None


def read(path: Path) -> list[Listed]:
    """Every device of an inventory, in its order. Raises ``UsageInvalid`` for a file that is none."""
    try:
        with path.open("rb") as file:
            body = file.read(FILE_BYTES + 1)
        if len(body) > FILE_BYTES:
            raise UsageInvalid("the file is too long", where=str(path), allowed=f"{FILE_BYTES:,} bytes")
        text = utf8_text(body)
    except OSError as error:
        raise UsageInvalid("the file cannot be read", where=str(path), found=error.strerror) from None
    except NotUtf8 as error:
        raise error.of_file(UsageInvalid, path) from None
    match path.suffix.lower():
        case ".csv":
            rows = _of_csv(path, text)
        case ".yaml" | ".yml":
            rows = _of_yaml(path, text)
        case other:
            raise UsageInvalid(
                "an inventory is CSV or YAML", where=str(path), found=other or "no suffix", allowed=".csv, .yaml, .yml"
            )
    found: list[Listed] = []
    lines: dict[str, int] = {}
    texts: dict[Path, str] = {}
    for line, cells in rows:
        listed = _listed(line, cells, path.parent, texts)
        name = listed.name
        if not name and listed.fault is None:
            listed = Listed(line, "", fault=_fault("", "name", "the device has no name", "", NAME_WORDS))
        elif name and name in lines:
            listed = Listed(line, name, fault=_fault(name, "name", f"this name is on line {lines[name]} as well", name))
        lines.setdefault(name, line)
        found.append(listed)
    if not found:
        raise UsageInvalid("no device is in this file", where=str(path), allowed=", ".join(COLUMNS))
    return found


def _of_csv(path: Path, text: str) -> Iterator[tuple[int, Cells | FaultView]]:
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    columns: list[str] = []
    line = 1
    try:
        for row in reader:
            # A cell in quotes may have several lines: a row is named by its first one.
            number, line = line, reader.line_num + 1
            # A password is what it is; blanks around everything else do not count.
            cells = [
                cell if columns[place : place + 1] == ["password"] else cell.strip() for place, cell in enumerate(row)
            ]
            if not any(cells) or cells[0].startswith("#"):
                continue
            if not columns:
                columns = [cell.lower() for cell in cells]
                if "name" not in columns:
                    check_separator(path, number, ",".join(row), _is_header)
                _check_columns(path, number, columns)
            elif len(cells) > len(columns):
                words = f"{len(cells)} cells"
                yield number, _fault(cells[0], "line", "more cells than columns", words, f"{len(columns)}")
            else:
                yield number, dict(zip(columns, cells, strict=False))
    except csv.Error as error:
        raise UsageInvalid(
            "this is no CSV",
            where=f"{path}:{line}",
            found=UNCLOSED if str(error) == "unexpected end of data" else str(error),
            allowed='a cell with a comma, a quotation mark or a line break stands in quotes: "a ""b"", c"',
        ) from None


def _is_header(cells: list[str]) -> bool:
    return "name" in (cell.lower() for cell in cells)


def _check_columns(path: Path, line: int, columns: list[str]) -> None:
    unknown = [name for name in columns if name not in COLUMNS]
    doubled = [name for name in columns if columns.count(name) > 1]
    # Without this one it may be a line of devices already, with a password in it, of which nothing is shown.
    found = ", ".join(unknown or doubled) if "name" in columns else "no column with the name name"
    if unknown or doubled or "name" not in columns:
        raise UsageInvalid(
            "the first line names the columns",
            where=f"{path}:{line}",
            found=found[:SHOWN_CHARACTERS],
            allowed=f"{', '.join(COLUMNS)}, with commas between; each once, and name among them",
        )


def _of_yaml(path: Path, text: str) -> Iterator[tuple[int, Cells | FaultView]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_depth(path, yaml.parse(text, Loader=loader))
        root = yaml.compose(text, Loader=loader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise UsageInvalid("this is no YAML", where=where, found=str(getattr(error, "problem", error))) from None
    match root:
        case None:
            return
        case yaml.SequenceNode():
            for node in root.value:
                yield node.start_mark.line + 1, _of_mapping(node, {})
        case yaml.MappingNode():
            for key, node in root.value:
                if isinstance(key, yaml.ScalarNode):
                    yield key.start_mark.line + 1, _of_mapping(node, {"name": key.value})
                else:
                    fault = _fault("", "name", "this is no name", "a list or a mapping", NAME_WORDS)
                    yield key.start_mark.line + 1, fault
        case _:
            raise UsageInvalid(
                "this is no list of devices",
                where=f"{path}:{root.start_mark.line + 1}",
                found="a single value",
                allowed="a list of mappings, or a mapping of names to mappings",
            )


def _check_depth(path: Path, events: Iterable[yaml.Event]) -> None:
    depth = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > NESTED:
            raise UsageInvalid(
                "this is nested too deep",
                where=str(path) if event.start_mark is None else f"{path}:{event.start_mark.line + 1}",
                found=f"more than {NESTED} levels",
                allowed="a list of mappings, or a mapping of names to mappings",
            )


def _of_mapping(node: yaml.Node, cells: Cells) -> Cells | FaultView:
    name = cells.get("name", "")
    if not isinstance(node, yaml.MappingNode):
        return _fault(name, "device", "this is no mapping", "another value", "a mapping of fields")
    for key, value in node.value:
        column = key.value if isinstance(key, yaml.ScalarNode) else "a list or a mapping"
        if column not in COLUMNS or column in cells:
            what = "this is said twice" if column in cells else "there is no such field"
            return _fault(cells.get("name", ""), column, what, column, ", ".join(COLUMNS))
        if column == "fingerprint" and isinstance(value, yaml.SequenceNode):
            cells[column] = " ".join(str(each.value) for each in value.value)
        elif not isinstance(value, yaml.ScalarNode):
            return _fault(cells.get("name", ""), column, "this is no single value", "a list or a mapping", "text")
        else:
            text = value.value if column == "password" else value.value.strip()
            cells[column] = "" if value.tag == "tag:yaml.org,2002:null" else text
    return cells


def _listed(line: int, cells: Cells | FaultView, folder: Path, texts: dict[Path, str]) -> Listed:
    if isinstance(cells, FaultView):
        return Listed(line, cells.name, fault=cells)
    name = cells.get("name", "")
    try:
        return Listed(line, name, _wish(cells, folder, texts))
    except _Faulty as faulty:
        return Listed(line, name, fault=_fault(name, *faulty.facts))


class _Faulty(Exception):
    def __init__(self, column: str, what: str, found: str, allowed: str = "") -> None:
        super().__init__(what)
        self.facts = (column, what, found, allowed)


def _wish(cells: Cells, folder: Path, texts: dict[Path, str]) -> dict[str, Any]:
    wish: dict[str, Any] = {"name": cells.get("name", "")}
    for column, text in cells.items():
        if not text:
            continue
        match column:
            case "address":
                wish["host"] = text[1:-1] if text.startswith("[") and text.endswith("]") else text
            case "port":
                if not (text.isascii() and text.isdigit() and len(text) <= 5):
                    raise _Faulty("port", "there is no such port", text, "1 to 65535")
                wish["port"] = int(text)
            case "poll_seconds":
                try:
                    wish["poll_seconds"] = float(text)
                except ValueError:
                    raise _Faulty(column, "this is no number", text, "seconds") from None
                if not math.isfinite(wish["poll_seconds"]):
                    raise _Faulty(column, "this is no number", text, "seconds")
            case "login":
                if text not in LOGINS:
                    raise _Faulty(column, "there is no such login", text, ", ".join(LOGINS))
                wish["login"] = text
            case "fingerprint":
                wish["fingerprints"] = text.replace(";", " ").split()
            case "password" | "user" | "jump":
                wish[column] = text
            case "name":
                continue
            case _:
                secret = FILES[column]
                if secret in wish:
                    raise _Faulty(column, "this is said twice", column, "password or password_file")
                wish[secret] = _secret(folder, column, text, texts)
    return wish


def _secret(folder: Path, column: str, text: str, texts: dict[Path, str]) -> str:
    """A secret from a file beside the inventory; a key that many devices share is read once."""
    path = folder / text
    if path not in texts:
        try:
            texts[path] = text_of(path)
        except UsageInvalid as error:
            allowed = f"a file of at most {SECRET_BYTES} bytes that you may read"
            raise _Faulty(column, error.what, f"{text}: {error.found or ''}".rstrip(": "), allowed) from None
    body = texts[path]
    return body if column in ("key_file", "certificate_file") else body.rstrip("\r\n")


def _fault(name: str, column: str, what: str, found: str, allowed: str = "") -> FaultView:
    shown = "" if column in SECRET else found[:SHOWN_CHARACTERS]
    return FaultView(0, name[:SHOWN_CHARACTERS], column, what, shown, allowed)
