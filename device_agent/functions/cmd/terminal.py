"""Terminals of the device."""

from __future__ import annotations

import re

from device_agent.commands import LOOK_SECONDS, shell
from device_agent.ended import FunctionFailed
from device_agent.host import Host

ECHO = '[ -c "$1" ] && printf %s "$2" > "$1"'

_terminal = re.compile(r"tty[A-Za-z0-9]*|pts/?[0-9]+")


async def tty(host: Host, device: str, echo: str = "") -> dict[str, str]:
    """Write a text to a terminal of the device, such as ``tty1`` or ``pts3``, and return that it was written.

    CLI Example:

        outstation run 'cam-7' cmd.tty tty1 'Restart in five minutes'
    """
    if not _terminal.fullmatch(device):
        why = f"{device[:100]!r} is no terminal; allowed: a name such as tty1 or pts3"
        raise FunctionFailed(why, value={"Error": "The specified device is not a valid TTY"})
    path = f"/dev/{device}" if device.startswith("tty") else f"/dev/pts/{device.removeprefix('pts').lstrip('/')}"
    said = await shell(host, ECHO, path, echo, timeout=LOOK_SECONDS)
    said.must({"Error": f"Echoing to {path} returned error"})
    return {"Success": f"Message was successfully echoed to {path}"}
