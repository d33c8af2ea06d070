"""Wait for the lock of a package manager that another program holds, such as an update the device makes by itself.

apt waits for one of its locks only (``DPkg::Lock::Timeout``: the one of dpkg). It tries those of its lists and of its
archive of downloads once, and so do ``dpkg --set-selections`` (``apt-mark hold``), opkg and apk.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from device_agent.commands import Said, ask
from device_agent.host import Host

WAIT_SECONDS: Final = 60
"""How long a lock is waited for."""

PAUSE_SECONDS: Final = 1.0
"""How long to wait between two tries."""

HELD: Final = re.compile(
    r"Could not get lock \S*/(lists|archives)/lock"
    r"|dpkg: error: dpkg \S+ lock was locked by another process"
    r"|Could not lock \S*opkg\.lock"
    r"|Unable to lock database"
)
"""What apt-get, dpkg, opkg and apk say before they have done anything."""


async def ask_when_unlocked(host: Host, *words: str) -> Said:
    """Run a command, again while another program holds its lock; how it ends is the caller's business."""
    loop = asyncio.get_running_loop()
    until = loop.time() + WAIT_SECONDS
    while True:
        said = await ask(host, *words)
        if said.ok or not HELD.search(said.err + said.out) or loop.time() >= until:
            return said
        await asyncio.sleep(PAUSE_SECONDS)
