"""A unix socket of this station's own: bound where no other station answers, open to its user and group alone."""

from __future__ import annotations

import errno
import pwd
import socket
import struct
from pathlib import Path

from device_agent.errors import ConfigInvalid, StartDeferred
from device_agent.start_errors import start_error

PATH_BYTES = 107
"""Longest path of a unix socket (unix(7))."""

MODE = 0o660
PROBE_SECONDS = 1.0


def own_socket(path: Path, *, what: str, setting: str) -> socket.socket:
    """A stream socket that is bound and does not listen yet; a file that nobody answers at is taken away before.

    Raises ``ConfigInvalid`` when it cannot be made, or another station answers there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_socket():
            raise FileExistsError(errno.EEXIST, "there is something else")
        if path.exists():
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(PROBE_SECONDS)
                probe.connect(str(path))
            # The other one may end.
            raise StartDeferred(
                "another station answers at this socket",
                where=setting,
                found=str(path),
                allowed="a path that no running station uses",
                hint=f"stop the other one, or set {setting}: in the settings",
            )
    except (ConnectionRefusedError, FileNotFoundError):
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(path, what, setting, error) from None
    bound = socket.socket(socket.AF_UNIX)
    made = False
    try:
        bound.bind(str(path))
        made = True
        path.chmod(MODE)
    except OSError as error:
        bound.close()
        if made:
            path.unlink(missing_ok=True)
        raise _unusable(path, what, setting, error) from None
    return bound


def user_at(connection: socket.socket) -> tuple[str, int]:
    """The user at the other end of a unix socket, as the kernel knows it (SO_PEERCRED, unix(7))."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    try:
        return pwd.getpwuid(user).pw_name, user
    except KeyError:
        return f"uid {user}", user


def _unusable(path: Path, what: str, setting: str, error: OSError) -> ConfigInvalid:
    return start_error(
        error,
        f"{what} cannot be made",
        path,
        where=setting,
        found=f"{path}: {error.strerror or error}",
        allowed=f"a path of at most {PATH_BYTES} bytes in a folder that this user may write",
        hint=f"set {setting}: in the settings",
    )
