"""Who is logged in, from utmp(5). A machine whose C library keeps no such file has nobody in it."""

from __future__ import annotations

import struct
from typing import Any

from msgspec import Struct

PLACES = ("/run/utmp", "/var/run/utmp")
USER_PROCESS = 7
_SIZES = (384, 400)
"""Bytes of a record: the second where times have 64 bits in it."""


class Login(Struct, frozen=True):
    """One login."""

    name: str
    terminal: str
    host: str
    started: float
    pid: int

    def shown(self) -> dict[str, Any]:
        """As ``ps.get_users`` shows it."""
        return {
            "name": self.name,
            "terminal": self.terminal,
            "host": self.host,
            "started": self.started,
            "pid": self.pid,
        }


def logins(body: bytes, order: str = "little") -> list[Login]:
    """The logins in such a file; in one of an unknown size of records there are none."""
    size = next((size for size in _SIZES if body and len(body) % size == 0), 0)
    if not size:
        return []
    mark = "<" if order == "little" else ">"
    time_place, time_form = (340, "i") if size == _SIZES[0] else (344, "q")
    found = []
    for start in range(0, len(body), size):
        record = body[start : start + size]
        kind, _, pid = struct.unpack_from(f"{mark}hhi", record)
        (started,) = struct.unpack_from(f"{mark}{time_form}", record, time_place)
        if kind == USER_PROCESS:
            found.append(Login(_word(record[44:76]), _word(record[8:40]), _word(record[76:332]), float(started), pid))
    return found


def _word(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="replace")
