"""The service manager's end of sd_notify(3): a socket that keeps what a daemon says of itself."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.peers.waiting import until


class PlayedSupervisor:
    """What was heard, in order, each message as its lines."""

    def __init__(self, listener: socket.socket, path: Path) -> None:
        self._listener = listener
        self._path = path
        self._heard: list[list[str]] = []

    def environment(self, *, watchdog_seconds: float = 0.0) -> dict[str, str]:
        """What systemd puts into the environment of the daemon. The watchdog is then meant for any process."""
        found = {"NOTIFY_SOCKET": str(self._path)}
        if watchdog_seconds:
            found["WATCHDOG_USEC"] = str(int(watchdog_seconds * 1e6))
        return found

    @property
    def heard(self) -> list[list[str]]:
        """Every message so far."""
        while True:
            try:
                self._heard.append(self._listener.recv(65_536).decode().split("\n"))
            except BlockingIOError:
                return self._heard

    @property
    def ready(self) -> bool:
        """Whether the daemon has said that it serves."""
        return any("READY=1" in message for message in self.heard)

    @property
    def status(self) -> str:
        """What ``systemctl status`` would show now."""
        said = [line.removeprefix("STATUS=") for message in self.heard for line in message if line[:7] == "STATUS="]
        return said[-1] if said else ""

    def fed(self) -> int:
        """How often the watchdog was fed."""
        return sum("WATCHDOG=1" in message for message in self.heard)

    async def until_ready(self, seconds: float = 60.0) -> str:
        """Wait until the daemon serves; the status."""
        await until(lambda: self.ready, seconds, "the daemon says that it is ready")
        return self.status

    async def until_status(self, part: str, seconds: float = 60.0) -> str:
        """Wait until the status has this in it; the whole status."""
        return await self.until_fits(lambda said: part in said, seconds)

    async def until_fits(self, fits: Callable[[str], bool], seconds: float = 30.0) -> str:
        """Wait until the status fits; the whole status."""
        try:
            await until(lambda: fits(self.status), seconds)
        except AssertionError:
            raise AssertionError(f"no status as it should be in {seconds:g} s: {self.heard}") from None
        return self.status


@contextmanager
def played_supervisor() -> Iterator[PlayedSupervisor]:
    """A service manager for as long as the block lasts."""
    # Not in a test's own folder: the path of a socket has 107 bytes and no more.
    with (
        tempfile.TemporaryDirectory(prefix="os-notify-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listener,
    ):
        path = Path(folder) / "notify"
        listener.bind(str(path))
        os.chmod(folder, 0o711)  # noqa: PTH101 - a string from the library
        path.chmod(0o777)
        yield PlayedSupervisor(listener, path)
