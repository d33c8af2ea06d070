"""Names that the kernel takes and text functions of Python split: mounted and added here, then read as a device reads.

Run in a mount and a network namespace of its own: ``unshare --mount --net python -m tests.peers.odd_names FOLDER``.
Prints one JSON object of answers by function.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from device_agent import loader
from device_agent.local_host import LocalHost
from device_agent.own import Own
from tests.peers import beacon_bench

PLACES: Final = ("usb\u00a0stick", "usb\rcard", "usb\u2028card", "usb\fcard", "usb stick\\", "usb\tcard\n")
INTERFACES: Final = ("a\u2028b", "c\u2003d", "e\u0085f")
PROCESS: Final = b"x\r1 sshd"
FUNCTIONS: Final = ("mount.active", "status.netdev", "network.interfaces", "network.routes", "network.netstat")


def _lay_out(folder: Path) -> socket.socket:
    for name in PLACES:
        place = folder / name
        place.mkdir()
        # The device has no name at all, as the kernel lets some programs mount it.
        _run("mount", "-t", "tmpfs", "-o", "size=64k", "", str(place))
        (place / "full").write_bytes(bytes(60_000))
    for number, name in enumerate(INTERFACES):
        _run("ip", "link", "add", name, "type", "veth", "peer", "name", f"peer{number}")
        _run("ip", "addr", "add", f"192.0.2.{16 * number + 1}/28", "dev", name)
        _run("ip", "link", "set", name, "up")
    _run("ip", "link", "set", "lo", "up")
    ctypes.CDLL(None).prctl(15, PROCESS, 0, 0, 0)  # PR_SET_NAME
    listening = socket.socket()
    listening.bind(("127.0.0.1", 4242))
    listening.listen()
    return listening


def _run(*words: str) -> None:
    subprocess.run(words, check=True, timeout=20)


async def _answers(folder: Path) -> dict[str, Any]:
    host = LocalHost({})
    found: dict[str, Any] = {}
    for function in FUNCTIONS:
        ended = await loader.call(function, host, [], {}, Own())
        found[function] = ended.value if ended.outcome == "ok" else ended.why
    found["extended"] = (await loader.call("mount.active", host, [True], {}, Own())).value
    beacon = await beacon_bench.looked("diskusage", [{f"(?s:{folder}/.*)": "50%"}])
    return found | {"diskusage": beacon}


def main() -> None:
    """Print the answers."""
    folder = Path(sys.argv[1])
    with _lay_out(folder):
        json.dump(asyncio.run(_answers(folder)), sys.stdout)


if __name__ == "__main__":
    main()
