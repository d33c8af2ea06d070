"""A machine of BusyBox alone in namespaces of its own: its interfaces, its name, its processes and its files."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

from device_agent.host import HOST_READ_BYTES, Completed, Stat
from device_agent.local_command import run_here, words_of
from device_agent.local_host import LocalHost

INTERFACES = """
ip link set lo up
ip link add cam0 address 02:00:00:00:00:07 type veth peer name cam1 address 02:00:00:00:00:08
ip link set cam0 up
ip addr add 10.7.0.2/24 brd 10.7.0.255 dev cam0
ip addr add 10.7.0.3/24 dev cam0
ip addr add 2001:db8:7::2/64 dev cam0
ip route add default via 10.7.0.1 dev cam0
hostname cam-7
"""


class SmallMachine(LocalHost):
    """The same as ``LocalHost``, inside."""

    def __init__(self, inside: int, root: Path) -> None:
        super().__init__({"id": "cam-7"})
        self._inside = inside
        self.root = root

    async def run(
        self,
        argv: Sequence[str] | str,
        *,
        shell: bool = False,
        stdin: bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        output_limit: int = 65536,
    ) -> Completed:
        entered = ["nsenter", "--target", str(self._inside), "--all", "--root", "--wdns=/"]
        words = [*entered, "env", "-i", "PATH=/bin", *words_of(argv, shell=shell)]
        return await run_here(
            words, shell=False, stdin=stdin, cwd=cwd, env=env, timeout=timeout, output_limit=output_limit
        )

    async def read(self, path: str, *, offset: int = 0, limit: int = HOST_READ_BYTES) -> bytes:
        return await super().read(self._there(path), offset=offset, limit=limit)

    async def write(self, path: str, data: bytes, **options: Any) -> None:
        await super().write(self._there(path), data, **options)

    async def append(self, path: str, data: bytes, *, at: int) -> None:
        await super().append(self._there(path), data, at=at)

    async def replace(self, path: str, target: str) -> None:
        await super().replace(self._there(path), self._there(target))

    async def stat(self, path: str, *, follow: bool = True) -> Stat | None:
        return await super().stat(self._there(path), follow=follow)

    async def list(self, path: str) -> list[str]:
        return await super().list(self._there(path))

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        await super().remove(self._there(path), recursive=recursive)

    def lock(self, path: str) -> AbstractAsyncContextManager[None]:
        return super().lock(self._there(path))

    def _there(self, path: str) -> str:
        return f"/proc/{self._inside}/root{path}"


@contextmanager
def small_machine(root: Path) -> Iterator[SmallMachine]:
    """Start it with two interfaces, one of them down; everything in it ends with it."""
    for name in ("bin", "proc", "sys", "etc", "tmp", "dev"):
        (root / name).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox is not None, "the tests need busybox-static"
    shutil.copy(busybox, root / "bin/busybox")
    for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    (root / "etc/hosts").write_text("127.0.0.1\tlocalhost\n# cam-7 is below\n127.0.1.1\tcam-7.old cam-7\n")
    inside = "mount -t proc proc /proc; mount -t sysfs sysfs /sys; echo ready; exec sleep 1000000"
    begun = f'set -e; mount --bind /dev "$1/dev"{INTERFACES}exec chroot "$1" /bin/sh -c "$2"'
    spaces = ("--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
    held = subprocess.Popen(
        ["unshare", *spaces, "sh", "-c", begun, "sh", str(root), inside],
        stdout=subprocess.PIPE,
        env={"PATH": "/bin:/usr/bin:/usr/sbin"},
        text=True,
    )
    try:
        assert held.stdout is not None
        assert held.stdout.readline() == "ready\n"
        children = Path(f"/proc/{held.pid}/task/{held.pid}/children").read_text(encoding="ascii").split()
        yield SmallMachine(int(children[0]), root)
    finally:
        held.kill()
        held.wait()
        if held.stdout is not None:
            held.stdout.close()


def allowed() -> bool:
    """Whether this user may make such a machine."""
    return os.geteuid() == 0
