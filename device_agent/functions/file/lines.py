"""file.line and file.blockreplace: one line, or what stands between two marks."""

from __future__ import annotations

import re
from collections.abc import Callable

from device_agent.commands import do
from device_agent.ended import FunctionFailed
from device_agent.file_changes import one_change_at_a_time
from device_agent.functions.file._changes import changed_file, expression, lines_of
from device_agent.functions.file._paths import real, stat, text_of
from device_agent.host import Host
from device_agent.shell_paths import argument, expanded

MODES = ("insert", "ensure", "delete", "replace")


@one_change_at_a_time("path")
async def line(
    host: Host,
    path: str,
    content: str | None = None,
    match: str | None = None,
    mode: str | None = None,
    location: str | None = None,
    before: str | None = None,
    after: str | None = None,
    show_changes: bool = True,
    backup: bool = False,
    quiet: bool = False,
    indent: bool = True,
) -> str | bool:
    """Insert, ensure, replace or delete one line, and return the difference (``False`` when there is none).

    ``mode`` is one of those words. ``match`` finds the line to replace or delete, by default the one with ``content``;
    ``before`` and ``after`` find the lines between which it belongs, ``location`` is ``start`` or ``end``.

    CLI Example:

        outstation run '*' file.line /etc/nsswitch.conf 'networks: files dns' after='hosts:.*' mode=ensure
        outstation run '*' file.line /etc/modules match=pcspkr mode=delete
    """
    path = await real(host, await expanded(host, path))
    found = await stat(host, path)
    if found is None or found.kind != "file":
        if quiet:
            return False
        raise FunctionFailed(f'File "{path}" does not exists or is not a file.')
    mode = mode.lower() if mode else mode
    if mode is None:
        raise FunctionFailed("Mode was not defined. How to process the file?")
    if mode not in MODES:
        raise FunctionFailed(f'Unknown mode: "{mode}"; allowed: {", ".join(MODES)}')
    if mode != "delete" and content is None:
        raise FunctionFailed('Content can only be empty if mode is "delete"')
    text = await text_of(host, path)
    lines = lines_of(text)
    if lines and _end(lines[-1]):
        lines.append("")
    if not (mode in {"delete", "replace"} and not text):
        edit = _Edit(lines, content or "", indent=indent)
        await edit.make(mode, match, location, before, after)
        lines = edit.lines
    new = "".join(_with_ends(lines))
    if backup and new != text:
        stamp = (await do(host, "date", "+%Y-%m-%d-%H-%M-%S")).out.strip()
        await do(host, "cp", "-p", argument(path), argument(f"{path}.{stamp}"))
    changes = await changed_file(host, path, text, new, backup=False)
    return changes if show_changes and changes else bool(changes)


@one_change_at_a_time("path")
async def blockreplace(
    host: Host,
    path: str,
    marker_start: str = "#-- start managed zone --",
    marker_end: str = "#-- end managed zone --",
    content: str = "",
    append_if_not_found: bool = False,
    prepend_if_not_found: bool = False,
    backup: str | bool = ".bak",
    dry_run: bool = False,
    show_changes: bool = True,
    append_newline: bool | None = False,
    insert_before_match: str | None = None,
    insert_after_match: str | None = None,
) -> str | bool:
    """Replace what stands between two marks in a file, and return the difference (or whether there is one).

    Where the marks are not there yet they are put at the end, at the start, or beside the first line that matches.

    CLI Example:

        outstation run '*' file.blockreplace /etc/hosts content='192.0.2.9 nvr' append_if_not_found=True
    """
    if sum(map(bool, (append_if_not_found, prepend_if_not_found, insert_before_match, insert_after_match))) > 1:
        raise FunctionFailed(
            "Only one of append_if_not_found, prepend_if_not_found, insert_before_match, and insert_after_match is "
            "permitted"
        )
    path = await expanded(host, path)
    if await stat(host, path) is None:
        raise FunctionFailed(f"File not found: {path}")
    text = await text_of(host, path)
    old = lines_of(text)
    end = "\r\n" if old and old[0].endswith("\r\n") else "\n"
    if append_newline is None and not content.endswith("\n"):
        append_newline = True
    body = re.split(r"\r\n|\n", content)

    def block(closing: str) -> list[str]:
        closing = closing.rstrip("\r\n") + end
        if append_newline:
            return [*(f"{each}{end}" for each in body), closing]
        return [*(f"{each}{end}" for each in body[:-1]), body[-1] + closing]

    new, replaced = _replaced(old, marker_start, marker_end, block)
    if not replaced:
        fresh = [marker_start + end, *block(marker_end)]
        place = insert_before_match or insert_after_match
        if prepend_if_not_found:
            new = [*fresh, *new]
        elif append_if_not_found:
            if new and not new[-1].endswith(end):
                new[-1] += end
            new += fresh
        else:
            at = await _place(old, place, behind=bool(insert_after_match))
            new[at:at] = fresh
    return await changed_file(host, path, text, "".join(new), backup, dry_run=dry_run, show_changes=show_changes)


def _replaced(old: list[str], start: str, end: str, block: Callable[[str], list[str]]) -> tuple[list[str], bool]:
    """The lines with what is between the marks replaced, and whether the marks were there."""
    new: list[str] = []
    inside = replaced = False
    for each in old:
        if start in each:
            inside = True
        elif inside:
            if end not in each:
                continue
            inside, replaced = False, True
            new += block(each[each.index(end) :])
            continue
        new.append(each)
    if inside:
        raise FunctionFailed("Unterminated marked block. End of file reached before marker_end.")
    return new, replaced


async def _place(old: list[str], regex: str | None, *, behind: bool) -> int:
    hits = await expression(regex, 0).search(old) if regex else []
    if True not in hits:
        raise FunctionFailed("Cannot edit marked block. Markers were not found in file.")
    at = hits.index(True)
    return at + 1 if behind else at


class _Edit:
    """A change of one line among others, as Salt decides where it belongs."""

    def __init__(self, lines: list[str], content: str, *, indent: bool) -> None:
        self.lines = lines
        self._content = content
        self._indent = indent

    async def make(
        self, mode: str, match: str | None, location: str | None, before: str | None, after: str | None
    ) -> None:
        """Change the lines. Raises ``FunctionFailed`` when it is not clear where."""
        if not match and before is None and after is None:
            match = self._content
        ahead, behind = await self._found(before), await self._found(after)
        hits = await self._found(match) or []
        if mode == "delete" and hits:
            self.lines = [each for each in self.lines if each != hits[0]]
        elif mode == "replace" and hits:
            at = self.lines.index(hits[0])
            self.lines[at] = self._like(hits[0])
        elif mode == "insert":
            self._insert(location, ahead, behind)
        elif mode == "ensure":
            self._ensure(ahead, behind)

    def _insert(self, location: str | None, before: list[str] | None, after: list[str] | None) -> None:
        if location is None and before is None and after is None:
            raise FunctionFailed('On insert either "location" or "before/after" conditions are required.')
        if location == "end":
            # A text that ends with a newline has an empty line behind it here; the new one goes before that.
            at = len(self.lines) - 1 if len(self.lines) > 1 and not self.lines[-1] else len(self.lines)
            self.lines.insert(at, self._like(self.lines[at - 1]) if self.lines else self._content)
        elif location == "start":
            end = _end(self.lines[0]) if self.lines else "\n"
            self.lines.insert(0, self._content.rstrip() + (end or "\n"))
        elif before and after:
            _once(before, "before")
            _once(after, "after")
            at = self.lines.index(before[0])
            self.lines.insert(at, self._like(self.lines[at]))
        elif before or after:
            self._beside(before, after)
        elif location is None:
            raise FunctionFailed("Neither before or after was found in file")

    def _ensure(self, before: list[str] | None, after: list[str] | None) -> None:
        if before and after:
            _once(after, "after")
            _once(before, "before")
            low, high = self.lines.index(after[0]), self.lines.index(before[0])
            if any(each.lstrip() == self._content for each in self.lines):
                return
            if low + 1 == high:
                self.lines.insert(high, self._like(self.lines[low]))
            elif low + 2 == high:
                self.lines[low + 1] = self._like(self.lines[low])
            else:
                raise FunctionFailed('Found more than one line between boundaries "before" and "after".')
        elif before or after:
            self._beside(before, after, ensure=True)
        else:
            raise FunctionFailed(
                "Wrong conditions? Unable to ensure line without knowing where to put it before and/or after."
            )

    def _beside(self, before: list[str] | None, after: list[str] | None, *, ensure: bool = False) -> None:
        """One line before or behind the only one that was found, unless it stands there already."""
        if after:
            _once(after, "after")
            at = self.lines.index(after[0])
            if at + 1 >= len(self.lines) or not self._is(self.lines[at + 1]):
                self.lines.insert(at + 1, self._like(self.lines[at]))
        elif before:
            _once(before, "before")
            at = self.lines.index(before[0])
            if at == 0 or not self._is(self.lines[at - 1]):
                self.lines.insert(at, self._like(self.lines[at - 1 if ensure else at]))

    async def _found(self, regex: str | None) -> list[str] | None:
        """The lines that a regular expression finds, or that have it in them as it is written."""
        if not self.lines or not regex:
            return None
        hits = await expression(regex, int(re.DOTALL)).search(self.lines)
        return [each for each, hit in zip(self.lines, hits, strict=True) if hit or regex in each]

    def _is(self, other: str) -> bool:
        return other.rstrip("\r\n") == self._content.rstrip("\r\n")

    def _like(self, other: str) -> str:
        """The new line, indented as another."""
        if not self._indent:
            return self._content
        return other[: len(other) - len(other.lstrip("\t "))] + self._content.lstrip()


def _once(found: list[str], name: str) -> None:
    if len(found) != 1:
        raise FunctionFailed(f'Found more than expected occurrences in "{name}" expression')


def _end(text: str) -> str:
    return "\r\n" if text.endswith("\r\n") else text[-1:] if text.endswith(("\n", "\r")) else ""


def _with_ends(lines: list[str]) -> list[str]:
    """Every line but the last has the end that its neighbour has."""
    lines = list(lines)
    for at, each in enumerate(lines[:-1]):
        if not _end(each):
            neighbour = at - 1 if at > 1 else 1
            lines[at] = each.rstrip() + (_end(lines[neighbour]) or "\n")
    return lines[:-1] if lines and not lines[-1] else lines
