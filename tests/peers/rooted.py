"""A machine to throw away: this one's own disk under a layer that is forgotten, or BusyBox alone, in namespaces.

The functions run there for real, through the loader and a ``LocalHost``, in a process that has changed its root after
it had imported everything. Users, packages, mounts, the host's name and the parameters of its network are its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from device_agent import loader, restarts
from device_agent.clock import Clock
from device_agent.ended import Ended
from device_agent.local_host import LocalHost
from device_agent.outbox import Restarting

Kind = Literal["debian", "busybox"]

SEPARATE = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child"]

_LAYER = """set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
"""

_BUSYBOX = """set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir -p "$1/root"
cd "$1/root"
mkdir -p bin sbin usr/bin usr/sbin etc/init.d proc sys dev tmp root home var/run var/spool/cron/crontabs
cp "$2" bin/busybox
chroot . /bin/busybox --install -s
echo 'root:x:0:0:root:/root:/bin/sh' >etc/passwd
echo 'root:*:19000:0:99999:7:::' >etc/shadow
chmod 600 etc/shadow
printf 'root:x:0:\\nvideo:x:44:\\naudio:x:29:\\nusers:x:100:\\n' >etc/group
"""

_COMMON = """
mount -t proc proc "$1/root/proc"
mount --bind /sys "$1/root/sys" 2>/dev/null || mkdir -p "$1/root/sys"
mount --rbind /dev "$1/root/dev"
mount -t tmpfs tmpfs "$1/root/tmp"
printf '%s' "$3" | while read -r seen; do
    mkdir -p "$1/root$seen"
    mount --bind "$seen" "$1/root$seen"
done
hostname throwaway
ip link set lo up 2>/dev/null || :
cd /
shift 3
# All these machines have one clock, which is this one's.
exec setpriv --bounding-set -sys_time -- "$@"
"""


class Rooted:
    """A process in such a machine that calls functions one after another.

    It is a process of ours, unless another program is named: that is told the root and then asked as ours is. What it
    needs of this machine beside /usr is ``seen`` there.
    """

    def __init__(self, kind: Kind, folder: Path, program: Sequence[str] = (), seen: Sequence[Path] = ()) -> None:
        self.kind = kind
        self._folder = folder
        self._ours = not program
        self._program = program or (sys.executable, "-m", __name__)
        self._seen = seen
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        busybox = os.environ.get("OUTSTATION_TEST_BUSYBOX") or shutil.which("busybox") or ""
        script = (_LAYER if self.kind == "debian" else _BUSYBOX) + _COMMON
        # The words of the script: a folder, BusyBox, what is seen, and what is run in the end.
        seen = "".join(f"{path}\n" for path in self._seen)
        words = [str(self._folder), busybox, seen, *self._program, f"{self._folder}/root"]
        self._process = await asyncio.create_subprocess_exec(
            *SEPARATE,
            "sh",
            "-c",
            script,
            "sh",
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=8 * 1024 * 1024,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path) if self._ours else ""},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        process = self._process
        assert process is not None, "entered"
        assert process.stdin is not None, "a pipe"
        process.stdin.close()
        # Whatever it still does: with the first process of its namespace everything there ends.
        process.kill()
        await process.wait()

    async def call(self, fun: str, *arg: Any, **kwarg: Any) -> Ended:
        """Call a function there."""
        process = self._process
        assert process is not None, "entered"
        assert process.stdin is not None and process.stdout is not None, "pipes"  # noqa: PT018 - both are
        process.stdin.write(json.dumps([fun, arg, kwarg]).encode() + b"\n")
        async with asyncio.timeout(120):
            answer = await process.stdout.readline()
        value, retcode, outcome, why = json.loads(answer)
        return Ended(value, retcode, outcome, why)

    async def sh(self, script: str) -> str:
        """Run a script there, which must end well."""
        ended = await self.call("cmd.run", script)
        assert ended.outcome == "ok", f"{script}\n{ended}"
        return str(ended.value)


async def _serve(root: str) -> None:
    loader.names()
    # Imported when they are first wanted, which would be too late.
    await asyncio.to_thread(bool)
    datetime.strptime("1", "%H")  # noqa: DTZ007 - it is the import that is wanted
    os.chroot(root)
    os.chdir("/")
    os.umask(0o022)
    os.environ |= {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root"}
    host = LocalHost({})
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        fun, arg, kwarg = json.loads(line)
        ended = await loader.call(fun, host, arg, kwarg)
        if ended.restart is not None:
            await ended.restart.begin()
            restarting = Restarting(fun, ended.restart.boot_id, ended.restart.within)
            ended = await restarts.back(lambda: nullcontext(host), restarting, Clock(), lambda: False) or ended
        print(json.dumps([ended.value, ended.retcode, ended.outcome, ended.why]), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
