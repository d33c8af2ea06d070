"""Names of services: which words are a name, and which names are as good as a root shell. Pure.

systemctl and rc-service also take a path: systemctl links the unit file at that path, and rc-service runs it. So a
service is given by its name here, and never by a path.
"""

from __future__ import annotations

import re
from typing import Any, Final

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\\@+-]{0,254}")
"""The letters of unit names, systemd.unit(5); scripts in /etc/init.d have none beside them."""

CONSOLES: Final = frozenset({"console-shell", "debug-shell", "emergency", "rescue", "runlevel1", "single", "sulogin"})
"""Services and targets that put a shell, or a login as root alone, on the console of the device."""

MOUNTS: Final = (".automount", ".mount", ".swap")
SINGLE_USER: Final = frozenset({"1", "s", "S"})
"""Runlevels with a shell of root on the console, init(8)."""


def is_service_name(text: str) -> bool:
    """Whether a text is the name of a service: no path, no option, no pattern."""
    return _NAME.fullmatch(text) is not None


def is_instance(text: str) -> bool:
    """Whether a name is that of an instance of a template (``openvpn@office``): what it runs is said by the name."""
    return "@" in text


def opens_more(value: Any) -> bool:
    """Whether a unit of this name gives more than a service: a root shell on the console, or something mounted.

    What is no name counts too: devices of release 0.1.0 hand it to systemctl.
    """
    text = str(value)
    return (
        not is_service_name(text)
        or text.removesuffix(".service").removesuffix(".target") in CONSOLES
        or text.endswith(MOUNTS)
    )


def begins_more(value: Any) -> bool:
    """The same of a unit that is to begin. An instance of a template is a service that was not there before."""
    return opens_more(value) or is_instance(str(value))


def is_single_user(value: Any) -> bool:
    """Whether a runlevel is the one for a single user, who is root."""
    return str(value) in SINGLE_USER
