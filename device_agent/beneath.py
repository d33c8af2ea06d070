"""Open a path below a folder without leaving the folder by a link, whatever changes there meanwhile.

Each part of the path is opened by itself, relative to the folder that was opened before it, and the kernel follows no
link: what ``openat2(2)`` does with RESOLVE_BENEATH, also for kernels without that call. Links that stay below the
folder are followed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from device_agent.local_files import LINKS_FOLLOWED

LEAVES: Final = "a link leads out of the folder that was granted"


class _Walk:
    """The folders that are open between the top and where the walk is; each is below the one before it."""

    def __init__(self, folder: str, path: str) -> None:
        self._path = path
        self._folder = folder
        self._handles = [os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
        self._links = 0

    def close(self) -> None:
        for handle in self._handles:
            os.close(handle)

    def to(self, parts: list[str], *, follow: bool) -> str:
        """Walk to a path of these parts; return a path to its last part that cannot lead out of the folder."""
        left = list(reversed(parts))
        while left:
            part = left.pop()
            if part in {"", "."}:
                continue
            if part == "..":
                self._up()
            elif (target := self._link(part, last=not left, follow=follow)) is not None:
                left += reversed(self._of_link(target))
            elif left:
                flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                self._handles.append(os.open(part, flags, dir_fd=self._handles[-1]))
            else:
                return f"/proc/self/fd/{self._handles[-1]}/{part}"
        # The folder itself; what is in /proc is a link to it.
        return f"/proc/self/fd/{self._handles[-1]}/."

    def _up(self) -> None:
        if len(self._handles) == 1:
            raise OSError(errno.EXDEV, LEAVES, self._path)
        os.close(self._handles.pop())

    def _link(self, part: str, *, last: bool, follow: bool) -> str | None:
        """Where a link points that is to be followed; None for anything else, and for nothing."""
        try:
            found = os.stat(part, dir_fd=self._handles[-1], follow_symlinks=False)
        except FileNotFoundError:
            if last:
                return None
            raise
        if not stat.S_ISLNK(found.st_mode) or (last and not follow):
            return None
        self._links += 1
        if self._links > LINKS_FOLLOWED:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self._path)
        return os.readlink(part, dir_fd=self._handles[-1])

    def _of_link(self, target: str) -> list[str]:
        """The parts that a link leads to, from where the walk is then."""
        if not target.startswith("/"):
            return target.split("/")
        for top in (self._folder, str(Path(f"/proc/self/fd/{self._handles[0]}").readlink())):
            if target == top or target.startswith(f"{top}/"):
                while len(self._handles) > 1:
                    os.close(self._handles.pop())
                return target[len(top) :].split("/")
        raise OSError(errno.EXDEV, LEAVES, self._path)


@contextmanager
def beneath(folder: str, path: str, *, follow: bool = True) -> Iterator[str]:
    """Give a path to what ``path`` names below ``folder``; it holds for as long as the context is open.

    Args:
        folder: An absolute folder. Links on the way to it are followed, as whoever granted it named it.
        path: An absolute path that begins with ``folder``. Its last part need not be there.
        follow: Whether a link that the last part is gets followed.

    Raises:
        OSError: ``EXDEV`` where a link leads out of the folder; anything else as the kernel says it.
    """
    walk: _Walk | None = None
    try:
        walk = _Walk(folder, path)
        yield walk.to(path[len(folder) :].split("/"), follow=follow)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        if walk is not None:
            walk.close()


def beneath_all(stack: ExitStack, folders: Sequence[str], path: str, *, follow: bool) -> str:
    """A path to what ``path`` names below each of some nested folders, as ``beneath`` for one; the outermost first.

    Raises:
        OSError: ``EXDEV`` also where the walks from two of the folders end at two places.
    """
    kept = [stack.enter_context(beneath(folder, path, follow=follow)) for folder in folders]
    if any(not _is_one_place(kept[-1], other) for other in kept[:-1]):
        raise OSError(errno.EXDEV, LEAVES, path)
    return kept[-1]


def _is_one_place(path: str, other: str) -> bool:
    (folder, name), (other_folder, other_name) = os.path.split(path), os.path.split(other)
    if name == other_name and Path(folder).samefile(other_folder):
        return True
    try:
        found, other_found = os.lstat(path), os.lstat(other)
    except FileNotFoundError:
        return False
    # A folder has one place, where a file may have several names.
    return stat.S_ISDIR(found.st_mode) and os.path.samestat(found, other_found)
