"""A machine that is not to be had, played from what it says: each command in its order, and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from device_agent.host import Completed
from device_agent.local_host import LocalHost


class Told(NamedTuple):
    """A command, and what came of it."""

    command: str
    out: str = ""
    err: str = ""
    returncode: int = 0


class Transcript(LocalHost):
    """Answers the commands that are written down, and no others. ``kind`` is what it says of its init system."""

    def __init__(self, *told: Told, programs: Sequence[str] = (), kind: str = "") -> None:
        super().__init__({"id": "played"})
        self.left = list(told)
        self._programs = programs
        self._kind = kind

    async def run(self, argv: Sequence[str] | str, **how: Any) -> Completed:
        """The answer to the next command, which must be the one that is written down."""
        assert not isinstance(argv, str)
        _, _, script, _, *words = argv
        if 'exec "$@"' in script:
            assert self.left, f"{words} is asked, and nothing is left"
            told = self.left.pop(0)
            assert " ".join(words) == told.command
            return Completed(told.returncode, told.out.encode(), told.err.encode())
        if script.endswith("done; :"):
            return Completed(0, "".join(f"{name}\n" for name in words if name in self._programs).encode(), b"")
        assert "/run/systemd/system" in script, script
        return Completed(0, f"{self._kind}\n".encode(), b"")
