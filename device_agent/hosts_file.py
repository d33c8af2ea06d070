"""hosts(5): put another host name of this machine in the place of its old one."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Final

SPECIAL: Final = re.compile(
    r"(localhost\d?(\.localdomain\d?)?|.+\.localhost|ip6-[a-z]+|loopback|broadcasthost)\.?", re.IGNORECASE
)
"""Names that mean the loopback interface or a group of machines (RFC 6761, Debian's /etc/hosts), whatever a machine is
called. Programs look these names up, so they are never replaced."""

_BLANKS: Final = re.compile(r"([ \t\v\f\r]+)")


def renamed(hosts: str, before: str, now: str, addresses: Collection[str] = ()) -> str:
    """Replace a host name and its short form on the lines of this machine; everything else stays as it is.

    Args:
        hosts: The text of /etc/hosts.
        before: The host name until now.
        now: The new host name.
        addresses: The addresses of this machine. A line is its own when it has one of these or a loopback address, or
            when the whole old name with its domain stands there. Other machines may have the same short name.

    A special name (localhost) stays; the new name is added behind it where the machine had that name.
    """
    if not before or SPECIAL.fullmatch(now):
        return hosts
    names = {before.partition(".")[0].lower(): now.partition(".")[0], before.lower(): now}
    new = {old: name for old, name in names.items() if not SPECIAL.fullmatch(old)}
    return "".join(_line(line, before.lower(), now, new, addresses) for line in re.split(r"(?<=\n)", hosts))


def _line(line: str, before: str, now: str, new: dict[str, str], addresses: Collection[str]) -> str:
    text, mark, comment = line.partition("#")
    entry = text.rstrip()
    rest = f"{text[len(entry) :]}{mark}{comment}"
    words = _BLANKS.split(entry)
    place = next((at for at, word in enumerate(words) if word and not _BLANKS.fullmatch(word)), len(words))
    names = [word.lower() for word in words[place + 1 :]]
    if before not in names and not any(name in names for name in new):
        return line
    if not (_is_own(words[place], addresses) or ("." in before and before in new and before in names)):
        return line
    changed = words[: place + 1] + [new.get(word.lower(), word) for word in words[place + 1 :]]
    if before in names and before not in new and now.lower() not in names:
        changed += [" ", now]
    return "".join(changed) + rest


def _is_own(address: str, addresses: Collection[str]) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return found.is_loopback or str(found) in addresses
