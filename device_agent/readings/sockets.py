"""Connections from /proc/net/tcp, tcp6, udp and udp6, proc(5), and who holds them."""

from __future__ import annotations

import re
import socket
from typing import Any, Literal

from msgspec import Struct

from device_agent import system_text

STATES = {
    1: "ESTABLISHED",
    2: "SYN_SENT",
    3: "SYN_RECV",
    4: "FIN_WAIT1",
    5: "FIN_WAIT2",
    6: "TIME_WAIT",
    7: "CLOSE",
    8: "CLOSE_WAIT",
    9: "LAST_ACK",
    10: "LISTEN",
    11: "CLOSING",
}
ESTABLISHED = 1
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_FOLDER = re.compile(r"^/proc/(\d+)/fd:$")


class Connection(Struct, frozen=True):
    """One line of such a file."""

    proto: str
    local: tuple[str, int]
    remote: tuple[str, int]
    state: int
    queued: tuple[int, int]
    """Bytes that wait to be sent and to be read."""

    uid: str
    inode: str

    def shown(self, programs: dict[str, str]) -> dict[str, Any]:
        """As ``network.netstat`` shows it."""
        row = {
            "proto": self.proto,
            "recv-q": str(self.queued[1]),
            "send-q": str(self.queued[0]),
            "local-address": _shown(self.local),
            "remote-address": _shown(self.remote),
        }
        if self.proto.startswith("tcp"):
            row["state"] = STATES.get(self.state, "UNKNOWN")
        return row | {"user": self.uid, "inode": self.inode, "program": programs.get(self.inode, "-")}


def connections(proto: str, text: str, order: Literal["little", "big"] = "little") -> list[Connection]:
    """The connections of one of these files, whose numbers are in the byte order of the machine."""
    found = []
    for line in system_text.lines(text)[1:]:
        words = system_text.words(line)
        if len(words) < 10:
            continue
        try:
            sent, _, waiting = words[4].partition(":")
            found.append(
                Connection(
                    proto,
                    _endpoint(words[1], order),
                    _endpoint(words[2], order),
                    int(words[3], 16),
                    (int(sent, 16), int(waiting, 16)),
                    words[7],
                    words[9],
                )
            )
        except ValueError:
            continue
    return found


def holders(listing: str, names: str) -> dict[str, str]:
    """Number and name of the process by inode, from ``ls -l`` of the folders of open files and a list of names."""
    called = dict(line.partition(" ")[::2] for line in system_text.lines(names))
    found: dict[str, str] = {}
    pid = ""
    for line in system_text.lines(listing):
        folder = _FOLDER.match(line)
        if folder is not None:
            pid = folder[1]
        for inode in _SOCKET.findall(line):
            found.setdefault(inode, f"{pid}/{called.get(pid, '')}")
    return found


def _endpoint(text: str, order: str) -> tuple[str, int]:
    digits, _, port = text.partition(":")
    raw = bytes.fromhex(digits)
    if order == "little":
        raw = b"".join(raw[place : place + 4][::-1] for place in range(0, len(raw), 4))
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw), int(port, 16)


def _shown(endpoint: tuple[str, int]) -> str:
    return f"{endpoint[0]}:{endpoint[1] or '*'}"
