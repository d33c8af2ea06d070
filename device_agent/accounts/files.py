"""The lines of passwd(5), group(5) and shadow(5), taken apart and put together again."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from device_agent import system_text

GECOS = ("fullname", "roomnumber", "workphone", "homephone", "other")


class User(Struct, frozen=True):
    """A line of /etc/passwd."""

    name: str
    passwd: str
    uid: int
    gid: int
    gecos: str
    home: str
    shell: str

    def line(self) -> str:
        """As it stands in the file."""
        return ":".join([self.name, self.passwd, str(self.uid), str(self.gid), self.gecos, self.home, self.shell])

    def described(self) -> dict[str, str]:
        """The parts of the description, of which the last may have commas."""
        parts = self.gecos.split(",", len(GECOS) - 1)
        return dict(zip(GECOS, parts + [""] * (len(GECOS) - len(parts)), strict=True))

    def describing(self, key: str, value: str) -> str:
        """The description with another part."""
        return ",".join((self.described() | {key: value}).values()).rstrip(",")


class Group(Struct, frozen=True):
    """A line of /etc/group."""

    name: str
    passwd: str
    gid: int
    members: list[str]

    def line(self) -> str:
        """As it stands in the file."""
        return ":".join([self.name, self.passwd, str(self.gid), ",".join(self.members)])


class Shadow(Struct, frozen=True):
    """A line of /etc/shadow; days and dates are -1 where the line has none, as in the C library."""

    name: str
    passwd: str
    lstchg: int = -1
    min: int = -1
    max: int = -1
    warn: int = -1
    inact: int = -1
    expire: int = -1

    def line(self) -> str:
        """As it stands in the file."""
        days = (self.lstchg, self.min, self.max, self.warn, self.inact, self.expire)
        return ":".join([self.name, self.passwd, *("" if day < 0 else str(day) for day in days), ""])


def users(text: str) -> list[User]:
    """The lines that are whole; others, such as those of NIS, are left out."""
    found = []
    for line in system_text.lines(text):
        parts = line.split(":")
        if len(parts) == 7 and parts[2].isdecimal() and parts[3].isdecimal():
            found.append(User(parts[0], parts[1], int(parts[2]), int(parts[3]), *parts[4:]))
    return found


def groups(text: str) -> list[Group]:
    """The lines that are whole."""
    found = []
    for line in system_text.lines(text):
        parts = line.split(":")
        if len(parts) == 4 and parts[2].isdecimal():
            found.append(Group(parts[0], parts[1], int(parts[2]), [name for name in parts[3].split(",") if name]))
    return found


def shadows(text: str) -> list[Shadow]:
    """The lines that have a name and a password."""
    found = []
    for line in system_text.lines(text):
        name, *rest = line.split(":")
        if name and rest:
            days = [int(part) if part.isdecimal() else -1 for part in rest[1:7]]
            found.append(Shadow(name, rest[0], *days))
    return found


def groups_of(user: User, known: list[Group]) -> list[str]:
    """The names of the groups somebody is in, with the one of his own."""
    return sorted({group.name for group in known if group.gid == user.gid or user.name in group.members})


def changed(text: str, name: str, change: Callable[[str], str | None]) -> str:
    """The text with the line of this name changed, or without it; a line end is added where the last had none."""
    lines = []
    for line in text.removesuffix("\n").split("\n"):
        new = change(line) if line.partition(":")[0] == name else line
        if new is not None:
            lines.append(new)
    return "".join(f"{line}\n" for line in lines)


def with_members(group: Group, members: list[str]) -> Group:
    """The same group with other members, each once."""
    return replace(group, members=list(dict.fromkeys(members)))
