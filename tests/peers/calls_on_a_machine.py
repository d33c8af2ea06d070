"""Makes the hostile calls on the machine that it runs on, as a program: a booted one that is thrown away afterwards.

It prints a JSON object: ``calls``, how many were made, and ``found``, a list of what was outside of a place or shown.
Of each function the calls are made that reach the machine at all on paper. Afterwards every file is compared.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import stat
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from device_agent import loader
from device_agent.facts import collect
from device_agent.host import Host
from device_agent.local_host import LocalHost
from device_agent.trust.reach import FUNCTIONS
from tests.peers.hostile_calls import ENTRIES, EVIL, Call, calls_of
from tests.peers.recording_host import CANARY, RecordingHost
from tests.peers.recording_own import CONTENT, Effects, recording_own

SHA256: Final = hashlib.sha256(CONTENT).hexdigest()
FOLDER: Final = "/var/lib/outstation"
ENDS: Final = {
    "ps.pkill": "a pattern ends this program",
    "system.halt": "ends the machine",
    "system.init": "ends the machine",
    "system.poweroff": "ends the machine",
    "system.reboot": "ends the machine",
    "system.shutdown": "ends the machine",
}
"""Functions that are tried on paper alone, and why."""

VALUES: Final = (
    f"{EVIL}/evil.service",
    f"../../..{EVIL}/evil",
    f"{EVIL}/secret",
    f"kernel/../../..{EVIL}/secret",
    f"{EVIL}/evil.deb",
    f"--root={EVIL}",
    "*",
    "evil@x",
    "debug-shell",
    f"$(touch {EVIL}/ran)",
    f"x\ntouch {EVIL}/ran\n",
)
NOT_COMPARED: Final = (
    *("/dev", "/proc", "/run/log", "/run/systemd", "/run/udev", "/sys", "/tmp/systemd-private-"),
    *("/var/lib/systemd", "/var/log", "/var/tmp/systemd-private-"),
)
"""What the machine itself writes while it runs, and the repository that is lent to it."""

EXPECTED: Final = ("known", "evil@x", "systemd-")
"""Units that calls of class ``changes`` may begin, and those of systemd that serve such a call."""

CALLS_AT_ONCE: Final = 4
SECONDS: Final = 60.0
Tree = dict[str, tuple[Any, ...]]


async def main(lent: str) -> dict[str, Any]:
    """Make the calls. Files are compared after each function that changes something, or each module that does not."""
    machine = LocalHost(await collect(LocalHost({}), "cam-7", f"{FOLDER}/grains"))
    found: list[str] = []
    calls = 0
    before, units = tree(lent), active()
    for name, together in groupby((fun for fun in sorted(ENTRIES) if fun not in ENDS), _compared_together):
        funs = list(together)
        for fun in funs:
            wanted = [call for call in calls_of(fun, VALUES, by_name_alone=True) if call.reach != "shell"]
            wanted = [call for call in wanted if await _reaches(call)]
            calls += len(wanted)
            turn = asyncio.Semaphore(1 if FUNCTIONS[fun] == "changes" else CALLS_AT_ONCE)
            async with asyncio.TaskGroup() as group:
                told = [group.create_task(_shown(machine, call, turn)) for call in wanted]
            found += [shown for each in told for shown in each.result()]
        after, now = tree(lent), active()
        changed = [
            f"write:{path}" for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)
        ]
        for fun in funs:
            changed = ENTRIES[fun].outside(changed, FOLDER)
        found += [f"{name}: {effect}" for effect in changed]
        found += [f"{name}: began {unit}" for unit in sorted(now - units) if not unit.startswith(EXPECTED)]
        before, units = after, units | now
    return {"calls": calls, "found": found}


def _compared_together(fun: str) -> str:
    return fun if FUNCTIONS[fun] == "changes" else f"{fun.partition('.')[0]}.*"


def tree(lent: str) -> Tree:
    """Every file of the machine, and what would change with it. Of a folder its times do not count."""
    found: Tree = {}
    folders = ["/"]
    while folders:
        for each in os.scandir(folders.pop()):
            if each.path.startswith(NOT_COMPARED) or each.path == lent:
                continue
            there = each.stat(follow_symlinks=False)
            if stat.S_ISDIR(there.st_mode):
                folders.append(each.path)
                found[each.path] = (there.st_mode, there.st_uid, there.st_gid)
            elif stat.S_ISLNK(there.st_mode):
                found[each.path] = (str(Path(each.path).readlink()),)
            else:
                found[each.path] = (there.st_mode, there.st_uid, there.st_gid, there.st_size, there.st_mtime_ns)
    return found


def active() -> set[str]:
    """The units that run, without those of the program itself."""
    words = ["systemctl", "list-units", "--state=active,activating,failed", "--plain", "--no-legend", "--type=service"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[0] for line in listed if not line.startswith("run-")}


async def _reaches(call: Call) -> bool:
    """Whether a call comes as far as the machine."""
    paper = RecordingHost()
    await _called(paper, call)
    return paper.touched


async def _called(host: Host, call: Call) -> str:
    """What a call shows."""
    async with asyncio.timeout(SECONDS):
        ended = await loader.call(call.fun, host, call.arg, call.kwarg, recording_own(FOLDER, Effects(), SHA256))
    return f"{ended.value!r} {ended.why}"


async def _shown(machine: Host, call: Call, turn: asyncio.Semaphore) -> list[str]:
    """The secret that a call shows though it may not."""
    async with turn:
        shown = await _called(machine, call)
    return [f"{call} shows what only root may read"] if call.reach == "looks" and CANARY in shown else []


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
