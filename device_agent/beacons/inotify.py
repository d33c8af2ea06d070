"""``inotify``: files that change."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Final

from device_agent.beacons import inotify_calls
from device_agent.beacons.aside import Aside
from device_agent.beacons.given import Given
from device_agent.beacons.inotify_calls import IGNORED, ISDIR, MASKS, OVERFLOW, Change
from device_agent.beacons.inotify_watches import NEW, Wanted, Watch, Watches
from device_agent.beacons.port import Around, Found, Looking

LOOK_SECONDS: Final = 1.0
WATCHES: Final = 4096
"""Folders and files that one beacon watches at most."""

DEPTH: Final = 100
"""Folders in one another that are watched below a path: who may write there could nest them without end."""

READS: Final = 16
"""Reads at one look; the kernel keeps the rest for the next."""

DEFAULT: Final = ("create", "delete", "modify")
WORDS: Final = frozenset(MASKS) - {"isdir", "q_overflow"}
OPTIONS: Final = ("auto_add", "exclude", "mask", "recurse")


class Inotify(Looking):
    """``files``: by path the ``mask``, ``recurse``, ``auto_add`` and ``exclude``; ``coalesce`` folds within a look."""

    interval: ClassVar[float] = LOOK_SECONDS
    momentary: ClassVar[bool] = True

    def __init__(self, given: Given) -> None:
        # pyinotify's way to say which class of it makes the events has no meaning here.
        given.only("files", "coalesce")
        if "files" not in given.values:
            raise given.wrong("must include files.", None, "- files: {/etc/passwd: {mask: [modify]}}")
        files = given.values["files"]
        if not isinstance(files, dict):
            raise given.wrong("invalid, files must be a dict.", files, "files: {/etc/passwd: {mask: [modify]}}")
        self._wanted = {str(path): _wanted(given, str(path), each) for path, each in files.items()}
        self._coalesce = given.typed("coalesce", given.values.get("coalesce", False), bool, "a boolean")
        self._aside = Aside()
        self._descriptor = -1
        self._watches = Watches(-1)
        self._gone: set[str] = set()
        self._beyond = ""
        self._wrong: list[str] = []
        """Of this look: paths that cannot be watched."""

    async def look(self, _around: Around) -> list[Found]:
        """What has changed since the look before; a path that is not there yet is watched when it is."""
        return await self._aside.call(self._look)

    async def close(self) -> None:
        """Let go of the kernel's watches. What changes until the next look is not told then."""
        self._aside.last(self._let_go)

    # --- in its thread ---------------------------------------------------------------------------------------------

    def _let_go(self) -> None:
        self._watches = Watches(-1)
        self._gone.clear()
        self._beyond = ""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _look(self) -> list[Found]:
        if self._descriptor < 0:
            self._descriptor = inotify_calls.begin()
            self._watches = Watches(self._descriptor)
        self._wrong.clear()
        found = [told for change in self._read() for told in self._told(change)]
        self._let_go_of_moved()
        for path, wanted in self._wanted.items():
            if wanted not in self._watches and os.path.lexists(path):
                self._add(path, wanted)
                if path in self._gone and wanted.mask & MASKS["create"]:
                    # It was replaced, as editors do: the watch was on what is no more.
                    found.append(_found(path, path, Change(0, MASKS["create"], "")))
                self._gone.discard(path)
        if self._beyond:
            error = f"there are more than {WATCHES} files and folders to watch, and not all below {self._beyond} are"
            found.append(Found({"error": error}, about="beyond", same=error))
        found += [Found({"error": error}, about=error, same=error) for error in self._wrong]
        return list({(each.tag, each.about): each for each in found}.values()) if self._coalesce else found

    def _let_go_of_moved(self) -> None:
        """Let go of what is no longer at its path: the watch has gone with the file or folder."""
        self._watches.let_go_of_parted()
        if moved := {watch.path for watch in self._watches.tops() if watch.is_moved}:
            self._watches.leave(lambda watch: watch.wanted.path in moved)
            self._gone |= moved

    def _read(self) -> Iterator[Change]:
        for _ in range(READS):
            read = inotify_calls.changes(self._descriptor)
            if not read:
                return
            yield from read

    def _told(self, change: Change) -> list[Found]:
        if change.mask & OVERFLOW:
            error = "changes came faster than they could be told: some of them were missed"
            return [Found({"error": error}, about="missed", same=error)]
        told: dict[tuple[str, str], Found] = {}
        for watch in self._watches.at(change.watch):
            # Two entries may watch one folder under the same path: what it tells is told once.
            told |= {(each.tag, each.about): each for each in self._told_of(watch, change)}
        if change.mask & IGNORED:
            self._gone |= {each.path for each in self._watches.forget(change.watch) if each.path == each.wanted.path}
        return list(told.values())

    def _told_of(self, watch: Watch, change: Change) -> list[Found]:
        """What a change is for one path and one entry of the configuration."""
        path = f"{watch.path.rstrip('/')}/{change.name}" if change.name else watch.path
        wanted, known = watch.wanted, False
        if change.mask & ISDIR and change.mask & MASKS["moved_from"]:
            self._watches.part(change.cookie, wanted, path)
        elif change.mask & ISDIR and change.mask & MASKS["moved_to"]:
            known = self._watches.rejoin(change.cookie, wanted, path)
        if wanted.excludes(path):
            return []
        told = [_found(watch.path, path, change)] if change.mask & wanted.mask else []
        if wanted.auto_add and not known and change.mask & ISDIR and change.mask & NEW:
            # What was made in it before it was watched is told from its list.
            for inner in self._add(path, wanted):
                here = Change(0, MASKS["create"], "")
                told += [_found(str(Path(inner).parent), inner, here)] if here.mask & wanted.mask else []
        return told

    def _add(self, path: str, wanted: Wanted, depth: int = 0) -> list[str]:
        """Watch a path and, if that is wanted, the folders in it; what is in a folder."""
        if len(self._watches) >= WATCHES:
            self._beyond = wanted.path
            return []
        try:
            self._watches.begin(path, wanted)
            inside = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in os.scandir(path)]
        except (FileNotFoundError, NotADirectoryError):
            return []  # It is a file, or has gone again.
        except OSError as error:
            # One path that cannot be watched does not silence the others.
            self._wrong.append(f"{_shown(path)} cannot be watched: {error.strerror}")
            return []
        here = []
        for each, is_folder in inside:
            if wanted.excludes(each):
                continue
            here.append(each)
            if not (wanted.recurse and is_folder):
                continue
            if depth < DEPTH:
                here += self._add(each, wanted, depth + 1)
            elif (deep := f"{_shown(wanted.path)} has folders deeper than {DEPTH}: not watched") not in self._wrong:
                self._wrong.append(deep)
        return here


def _found(folder: str, path: str, change: Change) -> Found:
    shown = _shown(path)
    return Found({"path": shown, "change": change.words}, tag=_shown(folder), about=f"{shown} {change.words}")


def _shown(path: str) -> str:
    return path.encode(errors="surrogateescape").decode(errors="replace")


def _wanted(given: Given, path: str, options: Any) -> Wanted:
    if not path.startswith("/") or "\0" in path:
        raise given.wrong("option files must have paths from the root on.", path)
    options = {} if options is None else options
    if not isinstance(options, dict):
        raise given.wrong("must be a list of dictionaries.", options, f"{path}: {{mask: [modify]}}")
    if wrong := sorted(map(str, set(options) - set(OPTIONS))):
        raise given.wrong("must contain mask, recurse or auto_add items.", wrong[0], ", ".join(OPTIONS))
    for switch in ("auto_add", "recurse"):
        if not isinstance(options.get(switch, False), bool):
            raise given.wrong(f"{switch} must be boolean.", options[switch])
    mask = options.get("mask", list(DEFAULT))
    if not isinstance(mask, list) or not mask:
        raise given.wrong("mask must be list.", mask, f"mask: [{', '.join(DEFAULT)}]")
    for word in mask:
        if word not in WORDS:
            raise given.wrong(f"invalid mask option {word}.", word, ", ".join(sorted(WORDS)))
    bits = 0
    for word in mask:
        bits |= MASKS[word]
    excluded = options.get("exclude", [])
    if not isinstance(excluded, list):
        raise given.wrong("exclude must be list.", excluded, f"exclude: [{path}/cache]")
    return Wanted(
        path=path,
        mask=bits,
        recurse=options.get("recurse", False),
        auto_add=options.get("auto_add", False),
        excluded=tuple(_excluding(given, each) for each in excluded),
    )


def _excluding(given: Given, excluded: Any) -> Callable[[str], bool]:
    """A path and what is below it, a glob, or an expression anywhere in the path."""
    if isinstance(excluded, dict) and len(excluded) == 1:
        [(pattern, how)] = excluded.items()
        if isinstance(how, dict) and how.get("regex"):
            return given.regex("exclude", f"(?s:.*?)(?:{pattern})")
        excluded = pattern
    if not isinstance(excluded, str):
        raise given.wrong("exclude must be paths.", excluded)
    if "*" in excluded:
        return lambda path: fnmatchcase(path, excluded)
    return lambda path: path.startswith(excluded)
