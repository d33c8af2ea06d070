"""The file systems that booted machines start from: a Debian 12 made once by mmdebstrap, and kept by its recipe.

A root is in ``.cache/machines`` of the repository, in a folder named by a digest of the recipe: another recipe is
another root. Nobody writes to one: each machine lays its own disk over it. What is fetched comes from where this
machine's own packages come from.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "machines"
SUITE = "bookworm"
MAKING_SECONDS = 900.0
"""A slow mirror is waited for; it takes about half a minute."""

ALWAYS = ("systemd", "systemd-sysv", "dbus", "apt", "procps", "iproute2", "adduser")
"""What makes a Debian boot, install a package, and show what it does."""

SETTLE = """set -e
root=$1
: >"$root/etc/machine-id"
rm -f "$root/etc/hostname" "$root/usr/sbin/policy-rc.d" "$root"/var/cache/apt/*.bin
rm -f "$root"/var/lib/apt/lists/*_*
: >"$root/etc/apt/sources.list"
mkdir -p "$root/var/log/journal"
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/not-for-keeps"
for unit in systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
"""
"""Name and id are each machine's own, given at its first boot; the journal is on disk; nothing starts by the clock; no
package comes from anywhere but from a file, and it is unpacked without waiting for the disk after each of its files."""


class RootNotMade(Exception):
    """mmdebstrap did not make the root; what it said."""


@dataclass(frozen=True)
class Recipe:
    """A Debian 12 with these packages beside what always belongs to it, without what they only recommend."""

    packages: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Where its root is kept."""
        text = "\0".join((SUITE, SETTLE, *ALWAYS, *sorted(self.packages)))
        return CACHE / hashlib.sha256(text.encode()).hexdigest()[:16]


SERVER = Recipe(("python3", "mosquitto", "debconf", "ca-certificates", "openssl", "openssh-client"))
"""The server of a site, or of the middle: all that the package asks of Debian is there."""

CAMERA = Recipe(("python3",))
"""The smallest machine that the agent's package installs on."""


def root_of(recipe: Recipe) -> Path:
    """The folder of a root, made now unless it is there; others who want the same one wait.

    Raises RootNotMade.
    """
    folder = recipe.folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _make(recipe, folder)
    return folder


def _make(recipe: Recipe, folder: Path) -> None:
    begun = folder.with_suffix(".begun")
    shutil.rmtree(begun, ignore_errors=True)
    include = ",".join((*ALWAYS, *recipe.packages))
    words = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={include}", SUITE, str(begun)]
    _said([*words, *_mirror()])
    _said(["sh", "-c", SETTLE, "sh", str(begun)])
    begun.rename(folder)


def _mirror() -> list[str]:
    """Where this machine has its Debian from, when it is the same one; else mmdebstrap knows."""
    found = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(CREATED_BY)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    rows = [line.split() for line in found.stdout.splitlines()]
    return [row[0] for row in rows if row[1:] == [SUITE, "Packages"]][:1]


def _said(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=MAKING_SECONDS, check=False)
    if done.returncode:
        raise RootNotMade(f"{words[0]}: {done.stderr.strip()[-2000:]}")
