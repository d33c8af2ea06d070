"""``log``: lines in a file that look like something."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final

from device_agent.beacons.aside import Aside
from device_agent.beacons.given import Given
from device_agent.beacons.port import Around, Found, Looking

LOOK_SECONDS: Final = 1.0
READ_BYTES: Final = 1024 * 1024
"""Read at one look; the rest waits for the next."""

LINE_BYTES: Final = 4096
"""Of a longer line the beginning is looked at and told."""

TAGS: Final = 64


class Log(Looking):
    """``file``: whose new lines are read; ``tags``: what goes behind the tag, with the ``regex`` of the lines."""

    interval: ClassVar[float] = LOOK_SECONDS
    momentary: ClassVar[bool] = True
    reads: ClassVar[bool] = True

    def __init__(self, given: Given) -> None:
        given.only("file", "tags")
        if "file" not in given.values:
            raise given.wrong("must contain file option.", None, "- file: /var/log/messages")
        self._path = given.typed("file", given.values["file"], str, "a path", "- file: /var/log/messages")
        if not self._path.startswith("/") or "\0" in self._path:
            raise given.wrong("option file must be a path from the root on.", self._path)
        tags = given.typed("tags", given.values.get("tags", {}), dict, "a dictionary", "login: {regex: .*login.*}")
        if len(tags) > TAGS:
            raise given.wrong(f"has at most {TAGS} tags.", len(tags))
        self._tests: dict[str, Callable[[str], bool]] = {}
        for tag, wanted in tags.items():
            if not isinstance(wanted, dict) or not wanted.get("regex"):
                raise given.wrong(f"tag {tag} must have a regex.", wanted, f"{tag}: {{regex: .*login.*}}")
            self._tests[str(tag)] = given.regex(f"regex of {tag}", wanted["regex"])
        self._aside = Aside()
        self._descriptor = -1
        self._cut = b""
        self._skips = False
        self._first = True

    async def look(self, _around: Around) -> list[Found]:
        """The lines that were written since the look before; of the first look, those from now on."""
        found = []
        for line in await self._aside.call(self._lines):
            for tag, fits in self._tests.items():
                if fits(line):
                    found.append(Found({"match": "yes", "raw": line, "error": ""}, tag=tag, about=line))
        return found

    async def close(self) -> None:
        """Let go of the file. What is written until the next look is not told then."""
        self._aside.last(self._let_go)

    # --- in its thread ---------------------------------------------------------------------------------------------

    def _let_go(self) -> None:
        self._first = True
        self._cut, self._skips = b"", False
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _lines(self) -> list[str]:
        if self._descriptor < 0:
            self._open(at_end=self._first)
            self._first = False
        room = READ_BYTES
        lines = []
        while room > 0:
            read = os.read(self._descriptor, min(room, 65_536))
            room -= len(read)
            if read:
                lines += self._whole(read)
            elif self._is_another():
                # It was rotated: the old one is read to its end, the new one from its beginning.
                os.close(self._descriptor)
                self._descriptor = -1
                self._cut, self._skips = b"", False
                self._open(at_end=False)
            else:
                break
        return lines

    def _open(self, *, at_end: bool) -> None:
        # What is no file could hang.
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if at_end:
            with contextlib.suppress(OSError):
                os.lseek(self._descriptor, 0, os.SEEK_END)

    def _is_another(self) -> bool:
        here = os.fstat(self._descriptor)
        if os.lseek(self._descriptor, 0, os.SEEK_CUR) > here.st_size:
            return True  # It was cut off.
        try:
            there = Path(self._path).stat()
        except OSError:
            return False  # It is about to be made anew.
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)

    def _whole(self, read: bytes) -> list[str]:
        """The lines that are complete now; what has no end yet waits."""
        *ended, rest = (self._cut + read).split(b"\n")
        lines = []
        for line in ended:
            if self._skips:
                self._skips = False
            else:
                lines.append(line[:LINE_BYTES].rstrip(b"\r").decode(errors="replace"))
        if len(rest) > LINE_BYTES and not self._skips:
            # It is told as far as it is looked at, and its end is no line of its own.
            lines.append(rest[:LINE_BYTES].decode(errors="replace"))
            self._skips = True
        self._cut = b"" if self._skips else rest
        return lines
