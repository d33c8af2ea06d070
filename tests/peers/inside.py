"""Runs ``outstation`` inside a machine of the tests: its root, its processes, its name; the network is this one's.

    python -m tests.peers.inside PID WORD…

PID is a process of the machine. The machine has no Python: its modules are found outside.
"""

from __future__ import annotations

import ctypes
import encodings
import os
import pkgutil
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import device_agent
import gateway.cli
from device_agent import loader
from gateway.cli.main import main

SPACES = ("uts", "ipc", "mnt", "pid")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DIE_WITH_PARENT, DROP = 1, 24
CLOCK, BOOT, MODULES = 25, 22, 16
NATIVE = ("cryptography.hazmat.bindings._rust", "ssl", "sqlite3", "yaml", "zlib", "lzma", "bz2", "decimal")
LIBRARIES = ("libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libm.so.6", "libgcc_s.so.1")
"""What a module may be linked with, which a small machine does not have."""

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


def _imported() -> None:
    """Import what is known to be wanted, and keep a way open to all else."""
    for package in (device_agent, gateway.cli, encodings):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with suppress(ImportError):
                import_module(found.name)
    for name in NATIVE:
        import_module(name)
    for name in LIBRARIES:
        with suppress(OSError):
            ctypes.CDLL(name)
    loader.names()
    sys.path[:] = _held(sys.path)
    for module in list(sys.modules.values()):
        if isinstance(getattr(module, "__path__", None), list):
            module.__path__ = _held(module.__path__)
    sys.path_importer_cache.clear()


def _held(paths: Sequence[str]) -> list[str]:
    """The same folders by descriptors, which lead there from inside another root too."""
    folders = [path or "." for path in paths]
    return [f"/proc/self/fd/{os.open(path, os.O_RDONLY)}" for path in folders if Path(path).is_dir()]


def _enter(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY)
    spaces = [os.open(f"/proc/{pid}/ns/{space}", os.O_RDONLY) for space in SPACES]
    for space in spaces:
        if libc.setns(space, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(space)
    child = os.fork()
    if child:
        for number in PASSED_ON:
            signal.signal(number, lambda given, _: os.kill(child, given))
        _, status = os.waitpid(child, 0)
        sys.exit(os.waitstatus_to_exitcode(status))
    libc.prctl(DIE_WITH_PARENT, signal.SIGKILL)
    for right in (CLOCK, BOOT, MODULES):
        libc.prctl(DROP, right)
    os.fchdir(root)
    os.chroot(".")
    os.close(root)
    os.umask(0o022)
    os.environ |= {"PATH": PATH, "HOME": "/root", "SHELL": "/bin/sh", "USER": "root", "LOGNAME": "root"}
    for name in [name for name in os.environ if name.startswith(("LC_", "LANG", "TMPDIR", "PYTHON"))]:
        del os.environ[name]


if __name__ == "__main__":
    _imported()
    _enter(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
