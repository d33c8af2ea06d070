"""Host: all that a function may touch, so that the same function works here and through any other way to a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Final, Literal, Protocol

from msgspec import Struct

from device_agent.errors import OutstationError

SHELL: Final = "/bin/sh"

HOST_READ_BYTES: Final = 1_048_576
"""What ``Host.read`` gives at most when nobody says otherwise."""

NEW_FILE_MODE: Final = 0o644
"""Less the umask, for a file that ``Host.write`` makes without being told a mode."""

Kind = Literal["file", "directory", "link", "block", "character", "fifo", "socket"]


class HostLost(OutstationError):
    """The way to a machine broke under what was being done there. ``started`` says whether it may have been done."""

    default_id: ClassVar[str] = "host.lost"

    def __init__(self, what: str, *, started: bool = True, hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.started = started


class Completed(Struct, frozen=True):
    """A command that ended. ``truncated`` counts the bytes thrown away; a negative ``returncode`` is a signal."""

    returncode: int
    stdout: bytes
    stderr: bytes
    truncated: int = 0
    timed_out: bool = False


class Stat(Struct, frozen=True):
    """What a directory entry is. ``user`` and ``group`` are the number in digits where it has no name."""

    kind: Kind
    mode: int
    """The permission bits with set-user, set-group and sticky: 0o7777 at most."""

    uid: int
    gid: int
    user: str
    group: str
    size: int
    atime: float
    mtime: float
    ctime: float
    inode: int
    target: str = ""
    """Where a link points, as it is written in it."""


class Reader(Protocol):
    """The incoming half of a stream, as ``asyncio.StreamReader`` and asyncssh have it."""

    async def read(self, n: int = -1, /) -> bytes: ...

    async def readline(self) -> bytes: ...

    async def readexactly(self, n: int, /) -> bytes: ...

    def at_eof(self) -> bool: ...


class Writer(Protocol):
    """The outgoing half of a stream, as ``asyncio.StreamWriter`` and asyncssh have it."""

    def write(self, data: bytes, /) -> None: ...

    def write_eof(self) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...


class Host(Protocol):
    """The machine a function works on.

    A path is text; bytes of a name that are no UTF-8 are surrogates in it, as Python's own functions have them. What
    the machine refuses is an ``OSError`` with its ``errno`` and ``filename``, whatever the way to it. Any of these
    raises ``HostLost`` when the way breaks, and ``ValueError`` for a path with a null character.
    """

    @property
    def grains(self) -> dict[str, Any]:
        """The facts it reported last; empty before the first time."""

    async def run(
        self,
        argv: Sequence[str] | str,
        *,
        shell: bool = False,
        stdin: bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        output_limit: int = 65536,
    ) -> Completed:
        """Run a command to its end and keep the first ``output_limit`` bytes of each of its two streams.

        With ``shell`` the command is one text for ``/bin/sh``; without, a text is split into words as a shell would.
        ``env`` is added to the environment. After ``timeout`` seconds, and when the caller is cancelled, the command
        and all it started are killed. Raises ``OSError`` when it cannot start and ``ValueError`` when it cannot be one.
        """

    async def read(self, path: str, *, offset: int = 0, limit: int = HOST_READ_BYTES) -> bytes:
        """At most ``limit`` bytes of a file from ``offset`` on; fewer only where it ends.

        A pipe or a socket is refused (``ENXIO``), for it might never end.
        """

    async def write(
        self, path: str, data: bytes, *, mode: int | None = None, owner: tuple[int, int] | None = None
    ) -> None:
        """Make this the content of a file, whole or not at all, and on its disk when this returns.

        It is written beside the file and renamed over it; a link is followed. The file keeps its mode and owner unless
        they are given (-1 leaves the user or the group); a new one gets 0o644 less the umask. What is neither a file
        nor absent is refused. What an earlier write left that did not live to its end is removed. It also keeps its
        access control list and attributes. A file that is itself a mount point is written in place: a crash then can
        leave a part of each content.
        """

    async def append(self, path: str, data: bytes, *, at: int) -> None:
        """Put data behind the first ``at`` bytes of a file that is being collected; what was behind them is gone.

        At 0 it is made anew, for its owner alone. It is neither whole nor on disk before ``replace``. A file that is
        shorter, a link, and what is no file are refused (``EINVAL``).
        """

    async def replace(self, path: str, target: str) -> None:
        """Make a collected file the content of ``target`` in the same folder, as ``write`` does; a link is replaced."""

    async def stat(self, path: str, *, follow: bool = True) -> Stat | None:
        """What is there, of a link what it points to unless ``follow`` is false; None when there is nothing.

        Times are whole seconds through a shell.
        """

    async def list(self, path: str) -> list[str]:
        """The names in a directory, sorted, without "." and ".."."""

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a link or an empty directory; with ``recursive`` a directory with all that is in it."""

    def lock(self, path: str) -> AbstractAsyncContextManager[None]:
        """Hold a lock file as the programs of the machine do (/etc/.pwd.lock), where this way to it can.

        Raises ``TimeoutError`` when another program holds it too long. Through a shell there is no such lock.
        """

    async def connect(self, port: int, *, address: str = "127.0.0.1") -> tuple[Reader, Writer]:
        """A TCP connection as the machine itself would make it, so 127.0.0.1 is the machine."""

    async def facts(self) -> dict[str, Any]:
        """Its grains, collected anew."""
