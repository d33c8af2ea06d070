"""Reads the accounts of a host, also those of a directory service, and writes those that are in its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from device_agent import text_files
from device_agent.accounts import files
from device_agent.accounts.files import Group, Shadow, User
from device_agent.accounts.tools import BusyBoxTools, Commands, ShadowTools
from device_agent.commands import Said, ask, present, shell
from device_agent.ended import FunctionFailed
from device_agent.file_changes import changing
from device_agent.host import Host

_DATABASE = """case $3 in -*) exit 0 ;; esac
if [ -z "$2" ] && command -v getent >/dev/null 2>&1; then getent "$1" ${3:+"$3"}
else cat "$2/etc/$1"; fi"""
"""A directory service may tell of nobody who is not asked for. No name begins as an option of getent does."""


Entry = TypeVar("Entry", User, Group, Shadow)


async def database(_host: Host, arguments: Mapping[str, Any]) -> str:
    """What a function changes that changes accounts: the files under ``root``, all together."""
    return f"{(arguments['root'] or '').rstrip('/')}/etc/.pwd.lock"


class Accounts:
    """The accounts of a host, or of the image of a system under ``root``."""

    def __init__(self, host: Host, root: str | None = None) -> None:
        self.host = host
        self._root = root
        self._at = (root or "").rstrip("/")
        self._lock_file = f"{self._at}/etc/.pwd.lock"

    async def users(self) -> list[User]:
        """All users."""
        return await self._users()

    async def groups(self) -> list[Group]:
        """All groups."""
        return await self._groups()

    async def shadows(self) -> list[Shadow]:
        """All passwords; none where there is no such file. Raises ``OSError`` where it must not be read."""
        try:
            return files.shadows(await self._read("shadow"))
        except FileNotFoundError:
            return []

    async def user(self, name: str) -> User | None:
        """One user."""
        return _named(name, await self._users(name))

    async def user_or_number(self, wanted: str) -> User | None:
        """One user by name, or else by number."""
        users = await self._users(wanted)
        return _named(wanted, users) or next((user for user in users if str(user.uid) == wanted), None)

    async def group(self, name: str) -> Group | None:
        """One group."""
        return _named(name, await self._groups(name))

    async def group_or_number(self, wanted: str) -> Group | None:
        """One group by name, or else by number."""
        groups = await self._groups(wanted)
        return _named(wanted, groups) or next((group for group in groups if str(group.gid) == wanted), None)

    async def shadow(self, name: str) -> Shadow | None:
        """One password."""
        return _named(name, await self.shadows())

    async def some_user(self, name: str) -> User:
        """One user. Raises ``FunctionFailed`` when there is none."""
        user = await self.user(name)
        if user is None:
            raise FunctionFailed(f"there is no user {name!r} on this device")
        return user

    async def tools(self, needed: str) -> ShadowTools | BusyBoxTools:
        """The commands of this host, found by one of those of the shadow package. Raises ``FunctionFailed``."""
        there = await present(self.host, needed, "adduser", "addgroup")
        if needed in there:
            return ShadowTools(self._root)
        if not there:
            raise FunctionFailed(f"this device has no {needed} and no adduser of BusyBox", 127)
        if self._root:
            raise FunctionFailed(f"root={self._root!r} takes {needed}, and this device has only BusyBox's commands")
        return BusyBoxTools()

    async def run(self, commands: Commands) -> Said:
        """Run commands up to the first that fails; what that one said, or the last."""
        said = Said("", 0, b"", "")
        async with self._alone():
            for words in commands:
                said = await ask(self.host, *words)
                if not said.ok:
                    break
        return said

    async def change(self, commands: Commands) -> bool:
        """Run commands that must all end well, and return ``True``. Raises ``FunctionFailed`` that shows ``False``."""
        (await self.run(commands)).must(failing=False)
        return True

    async def edit(self, file: str, name: str, change: Callable[[str], str | None]) -> None:
        """Change a line of /etc/passwd, group or shadow, or take it out with ``None``."""
        async with self._alone(), self.host.lock(self._lock_file):
            text = await self._read(file)
            await self._write(file, files.changed(text, name, change))

    async def append(self, file: str, line: str) -> None:
        """Add a line to /etc/passwd, group or shadow."""
        async with self._alone(), self.host.lock(self._lock_file):
            text = await self._read(file)
            await self._write(file, f"{text.removesuffix(chr(10))}\n{line}\n" if text else f"{line}\n")

    async def edit_user(self, name: str, change: Callable[[User], User]) -> None:
        """Change a line of /etc/passwd."""
        await self.edit("passwd", name, lambda line: "".join(change(user).line() for user in files.users(line)) or line)

    async def edit_group(self, name: str, change: Callable[[Group], Group]) -> None:
        """Change a line of /etc/group."""
        await self.edit("group", name, lambda line: "".join(change(each).line() for each in files.groups(line)) or line)

    async def edit_shadow(self, name: str, change: Callable[[Shadow], Shadow]) -> None:
        """Change a line of /etc/shadow."""
        await self.edit(
            "shadow", name, lambda line: "".join(change(each).line() for each in files.shadows(line)) or line
        )

    def _alone(self) -> AbstractAsyncContextManager[None]:
        """One change of accounts at a time. Commands take the lock file themselves."""
        return changing(self.host, self._lock_file)

    async def _users(self, wanted: str = "") -> list[User]:
        return files.users((await shell(self.host, _DATABASE, "passwd", self._at, wanted)).out)

    async def _groups(self, wanted: str = "") -> list[Group]:
        return files.groups((await shell(self.host, _DATABASE, "group", self._at, wanted)).out)

    async def _read(self, file: str) -> str:
        return await text_files.read(self.host, f"{self._at}/etc/{file}")

    async def _write(self, file: str, text: str) -> None:
        await text_files.write(self.host, f"{self._at}/etc/{file}", text)


def _named(name: str, entries: Iterable[Entry]) -> Entry | None:
    return next((entry for entry in entries if entry.name == name), None)
