"""An SSH device of a chaos run: OpenSSH in a root of its own, with a line in a file for each command that ran."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

from gateway.devices.ssh_device import host_key_fingerprint
from tests.peers.ssh_beds import SSHD, openssh_root

NAME = "ssh-0"
PORT = 2222
RAN = "tmp/ran"
LIST = "name,address,port,user,key_file,fingerprint"


class SshDevice:
    """What is on the device's disk stays when its server is killed and started again."""

    def __init__(self, folder: Path, address: str) -> None:
        folder.mkdir()
        self._folder = folder
        self._address = address
        self._root, self._keys, self._mounts = openssh_root(folder, PORT, f"ListenAddress {address}")

    def command(self) -> list[str]:
        """What starts the server; all that it started ends with it."""
        place = shlex.quote(str(self._root))
        script = f"{self._mounts} && mount -t proc proc {place}/proc && exec chroot {place} {SSHD}"
        words = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c", script]
        return ["/usr/bin/unshare", *words]

    def listed(self) -> Path:
        """A file with which an operator brings the device in."""
        key, fingerprint = self._folder / "client", host_key_fingerprint(self._keys[0])
        file = self._folder / "devices.csv"
        file.write_text(f"{LIST}\n{NAME},{self._address},{PORT},root,{key},{fingerprint}\n", encoding="ascii")
        return file

    def ran(self) -> Counter[str]:
        """How often each mark was left by a command."""
        try:
            return Counter((self._root / RAN).read_text(encoding="ascii").split())
        except FileNotFoundError:
            return Counter()


def leaves(mark: str) -> str:
    """The command that leaves a mark."""
    return f"echo {mark} >>/{RAN}"
