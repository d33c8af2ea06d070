"""Which commands change accounts: those of the shadow package, or BusyBox with its own options and without changes.

Pure: every method says what to run. What no command of a device can do is written into its files (``files.py``).
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

Commands = list[list[str]]


class NewUser(Struct, frozen=True):
    """How a user shall be."""

    name: str
    uid: int | None = None
    group: str = ""
    groups: tuple[str, ...] = ()
    home: str = ""
    shell: str = ""
    unique: bool = True
    system: bool = False
    gecos: str = ""
    createhome: bool = True
    usergroup: bool | None = None


class Tools(Protocol):
    """The commands for accounts."""

    def add_user(self, user: NewUser) -> Commands:
        """Make a user."""

    def delete_user(self, name: str, *, remove: bool, force: bool) -> Commands:
        """Remove a user, and with ``remove`` his home."""

    def add_group(self, name: str, gid: int | None, *, system: bool, non_unique: bool) -> Commands:
        """Make a group."""

    def delete_group(self, name: str) -> Commands:
        """Remove a group."""

    def join(self, name: str, group: str) -> Commands:
        """Put a user into a group."""

    def leave(self, name: str, group: str) -> Commands:
        """Take a user out of a group."""


class ShadowTools:
    """useradd, usermod, groupadd, gpasswd and the like; ``root`` is an image to work on."""

    def __init__(self, root: str | None = None) -> None:
        self._root = ["--root", root] if root else []

    def add_user(self, user: NewUser) -> Commands:
        """One useradd."""
        words = ["useradd", *self._root]
        for option, value in (
            ("--uid", "" if user.uid is None else str(user.uid)),
            ("--gid", user.group),
            ("--groups", ",".join(user.groups)),
            ("--home-dir", user.home),
            ("--shell", user.shell),
            ("--comment", user.gecos),
        ):
            if value:
                words += [option, value]
        if user.usergroup is not None and not user.group:
            words.append("--user-group" if user.usergroup else "--no-user-group")
        words += ["--create-home" if user.createhome else "--no-create-home"]
        words += ["--system"] if user.system else []
        words += [] if user.unique or user.uid is None else ["--non-unique"]
        return [[*words, user.name]]

    def delete_user(self, name: str, *, remove: bool, force: bool) -> Commands:
        """One userdel."""
        return [["userdel", *self._root, *(["-r"] if remove else []), *(["-f"] if force else []), name]]

    def add_group(self, name: str, gid: int | None, *, system: bool, non_unique: bool) -> Commands:
        """One groupadd."""
        words = ["groupadd", *self._root, *(["-g", str(gid)] if gid is not None else [])]
        words += (["-r"] if system else []) + (["-o"] if non_unique and gid is not None else [])
        return [[*words, name]]

    def delete_group(self, name: str) -> Commands:
        """One groupdel."""
        return [["groupdel", *self._root, name]]

    def join(self, name: str, group: str) -> Commands:
        """One gpasswd."""
        return [["gpasswd", *self._gpasswd_root(), "-a", name, group]]

    def leave(self, name: str, group: str) -> Commands:
        """One gpasswd."""
        return [["gpasswd", *self._gpasswd_root(), "-d", name, group]]

    def _gpasswd_root(self) -> list[str]:
        return ["-Q", self._root[1]] if self._root else []

    def change_user(self, *options: str, name: str) -> Commands:
        """One usermod."""
        return [["usermod", *self._root, *options, name]]

    def change_group(self, *options: str, name: str) -> Commands:
        """One groupmod."""
        return [["groupmod", *self._root, *options, name]]


class BusyBoxTools:
    """adduser and addgroup of BusyBox, which have short options only; Debian's scripts of that name are never used."""

    def add_user(self, user: NewUser) -> Commands:
        """One adduser, and one addgroup for each further group."""
        # It would call somebody without a description "Linux User".
        words = ["adduser", "-D", "-g", user.gecos]
        for option, value in (
            ("-u", "" if user.uid is None else str(user.uid)),
            ("-G", user.group),
            ("-h", user.home),
            ("-s", user.shell),
        ):
            if value:
                words += [option, value]
        words += (["-S"] if user.system else []) + ([] if user.createhome else ["-H"])
        # It makes no folder above the home, and says nothing of it in its return code.
        above = [["mkdir", "-p", user.home.rpartition("/")[0] or "/"]] if user.home and user.createhome else []
        return [*above, [*words, user.name], *([["addgroup", user.name, group] for group in user.groups])]

    def delete_user(self, name: str, *, remove: bool, force: bool) -> Commands:  # noqa: ARG002 - nothing to force here
        """One deluser."""
        return [["deluser", *(["--remove-home"] if remove else []), name]]

    def add_group(self, name: str, gid: int | None, *, system: bool, non_unique: bool) -> Commands:  # noqa: ARG002 - it checks no number
        """One addgroup."""
        return [["addgroup", *(["-g", str(gid)] if gid is not None else []), *(["-S"] if system else []), name]]

    def delete_group(self, name: str) -> Commands:
        """One delgroup."""
        return [["delgroup", name]]

    def join(self, name: str, group: str) -> Commands:
        """One addgroup."""
        return [["addgroup", name, group]]

    def leave(self, name: str, group: str) -> Commands:
        """One delgroup."""
        return [["delgroup", name, group]]
