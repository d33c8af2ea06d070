"""The watches of inotify(7) of one beacon, and the paths that each stands for.

The kernel has one watch for a file or folder, however many paths lead to it. A second call for the same one returns the
same number and would replace the mask, so here a watch has an owner for each path and each entry of the configuration.
A watch also follows a folder that is moved: its paths change with it, or the watch is let go.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from device_agent.beacons import inotify_calls
from device_agent.beacons.inotify_calls import MASKS

NEW: Final = MASKS["create"] | MASKS["moved_to"]
MOVED: Final = MASKS["moved_from"] | MASKS["moved_to"]
MASK_ADD: Final = 0x20000000
"""Add to the mask of a watch that is there, instead of replacing it."""

LOOKED_UP: Final = MASKS["onlydir"] | MASKS["dont_follow"]
"""Bits that say how a path is looked up, of one call alone."""


class Wanted(Struct, frozen=True):
    """What is wanted of one path of the configuration."""

    path: str
    mask: int
    recurse: bool
    auto_add: bool
    excluded: tuple[Callable[[str], bool], ...]

    @property
    def kernel_mask(self) -> int:
        """The mask of its watches: what is told, and what must be known also where it is not told."""
        mask = self.mask | (NEW if self.auto_add else 0)
        return mask | (MOVED if self.recurse or self.auto_add else 0)

    def excludes(self, path: str) -> bool:
        """Whether a path is excluded."""
        return any(test(path) for test in self.excluded)


class Watch(Struct, frozen=True):
    """One owner of a watch."""

    path: str
    wanted: Wanted
    file: tuple[int, int] | None
    """What the path named when the watch began."""

    is_folder: bool

    @property
    def key(self) -> tuple[str, str]:
        """The path, and the path of the configuration that it belongs to."""
        return self.path, self.wanted.path

    @property
    def is_moved(self) -> bool:
        """Whether its path names something else now or, of a folder, nothing.

        A file that is gone may be a log that was rotated and is still written: it stays watched until another is there.
        """
        try:
            now = os.stat(self.path)  # noqa: PTH116 - of a path that may be no text
        except (FileNotFoundError, NotADirectoryError):
            return self.is_folder
        except OSError:
            return False
        return (now.st_dev, now.st_ino) != self.file


class _Parted(Struct):
    """A folder that has left its place, with the watches below it."""

    path: str
    watches: list[tuple[int, Watch]]
    is_old: bool = False


class Watches:
    """All watches at one descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._owners: dict[int, dict[tuple[str, str], Watch]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._parted: dict[tuple[int, str], _Parted] = {}

    def __len__(self) -> int:
        """How many paths are watched."""
        return len(self._numbers)

    def __contains__(self, wanted: Wanted) -> bool:
        """Whether the path of this entry itself is watched."""
        return (wanted.path, wanted.path) in self._numbers

    def at(self, number: int) -> list[Watch]:
        """The owners of a watch."""
        return list(self._owners.get(number, {}).values())

    def tops(self) -> list[Watch]:
        """The watches of the paths that are configured themselves."""
        keys = [key for key in self._numbers if key[0] == key[1]]
        return [self._owners[self._numbers[key]][key] for key in keys]

    def begin(self, path: str, wanted: Wanted) -> None:
        """Watch a path. Raises ``OSError``."""
        mask = wanted.kernel_mask
        number = inotify_calls.watch(self._descriptor, path, mask | MASK_ADD)
        try:
            now = os.stat(path)  # noqa: PTH116 - of a path that may be no text
            file, is_folder = (now.st_dev, now.st_ino), stat.S_ISDIR(now.st_mode)
        except OSError:
            file, is_folder = None, False
        watch = Watch(path, wanted, file, is_folder)
        if self._numbers.get(watch.key, number) != number:
            self._leave(watch.key)
        self._owners.setdefault(number, {})[watch.key] = watch
        self._numbers[watch.key] = number
        self._agree(number, path, wanted)

    def leave(self, goes: Callable[[Watch], bool]) -> None:
        """Let go of the owners that ``goes`` names, and of each watch that has none any more."""
        for key in [watch.key for owners in self._owners.values() for watch in owners.values() if goes(watch)]:
            self._leave(key)

    def forget(self, number: int) -> list[Watch]:
        """Forget a watch that the kernel has let go; its owners."""
        owners = self._owners.pop(number, {})
        for key in owners:
            if self._numbers.get(key) == number:
                del self._numbers[key]
        return list(owners.values())

    def part(self, cookie: int, wanted: Wanted, path: str) -> None:
        """Take the watches of a folder that leaves its place from their paths; ``cookie`` is the kernel's for moves."""
        keys = [key for key in self._numbers if key[1] == wanted.path and f"{key[0]}/".startswith(f"{path}/")]
        if keys:
            numbers = [(self._numbers.pop(key), key) for key in keys]
            watches = [(number, self._owners[number].pop(key)) for number, key in numbers]
            self._parted[cookie, wanted.path] = _Parted(path, watches)

    def rejoin(self, cookie: int, wanted: Wanted, path: str) -> bool:
        """Give the watches of such a folder their new paths; False when it was not watched before."""
        parted = self._parted.pop((cookie, wanted.path), None)
        if parted is None:
            return False
        for number, before in parted.watches:
            after = replace(before, path=path + before.path.removeprefix(parted.path))
            if number not in self._owners:
                continue  # It was deleted meanwhile.
            if wanted.excludes(after.path):
                self._let_go_unowned(number)
                continue
            if self._numbers.get(after.key, number) != number:
                # The folder took the place of an empty one, which was watched too.
                self._leave(after.key)
            self._owners[number][after.key] = after
            self._numbers[after.key] = number
        return True

    def let_go_of_parted(self) -> None:
        """Let go of the folders that left the tree and did not come back to it by the look after."""
        for key, parted in list(self._parted.items()):
            if parted.is_old:
                del self._parted[key]
                for number, _ in parted.watches:
                    self._let_go_unowned(number)
            parted.is_old = True

    def _leave(self, key: tuple[str, str]) -> None:
        number = self._numbers.pop(key)
        del self._owners[number][key]
        self._let_go_unowned(number)

    def _let_go_unowned(self, number: int) -> None:
        if self._owners.get(number) == {}:
            del self._owners[number]
            inotify_calls.unwatch(self._descriptor, number)

    def _agree(self, number: int, path: str, last: Wanted) -> None:
        """Take back what one owner asked for at the cost of the others: to be told once, or not of unlinked files."""
        masks = [watch.wanted.kernel_mask for watch in self._owners[number].values()]
        if len(set(masks)) == 1 or not any(mask & (MASKS["oneshot"] | MASKS["excl_unlink"]) for mask in masks):
            return
        shared = 0
        for mask in masks:
            shared |= mask & ~(LOOKED_UP | MASKS["oneshot"] | MASKS["excl_unlink"])
        if all(mask & MASKS["excl_unlink"] for mask in masks):
            shared |= MASKS["excl_unlink"]
        inotify_calls.watch(self._descriptor, path, shared | last.mask & LOOKED_UP)
