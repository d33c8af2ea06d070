"""One device over SSH as a row of an inventory, from the fields of a proxy or of a roster entry. Pure.

Each field of Salt's is in the row, or is named in a note. No note holds a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway.devices.ssh_wish import is_host

SSH_PORT: Final = 22
HIGHEST_PORT: Final = 65535
AGENT: Final = "agent-forwarding"
"""The word that Salt takes as a key for the keys of the SSH agent."""

ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "address": ("host", "hostname", "ip", "address"),
    "port": ("port",),
    "user": ("username", "user"),
    "password": ("password", "passwd", "pass"),
    "key_file": ("key_file", "priv", "private_key", "identity_file", "ssh_priv"),
    "passphrase": ("passphrase", "priv_passwd", "key_passphrase"),
}
KNOWN: Final = frozenset(name for names in ALIASES.values() for name in names)
IGNORED: Final = frozenset(
    {
        "conn_timeout",
        "device_type",
        "driver",
        "identities_only",
        "multiprocessing",
        "optional_args",
        "proxytype",
        "sudo",
        "thin_dir",
        "timeout",
        "tty",
        "use_keys",
    }
)
"""Fields that have no meaning here, or that are looked at by themselves."""

NO_HOST: Final = "what it names is no host: an IPv4 or IPv6 address, or a host name, is one"
_KINDS: Final = {bool: "true or false", float: "a number with a point", list: "a list", dict: "a mapping"}


@dataclass
class SshRow:
    """A row, what is to be said of it, and why there is none."""

    cells: dict[str, Any] = field(default_factory=dict, repr=False)
    notes: list[str] = field(default_factory=list)
    fault: str = ""
    wrong: bool = False
    """Whether the fault is in what was written, and not in what was left out."""


def ssh_row(name: str, said: Mapping[str, Any]) -> SshRow:
    """The row of a device, without its host key."""
    row = SshRow({"name": name})
    _columns(row, said)
    options = said.get("optional_args")
    if isinstance(options, Mapping):
        _columns(row, options)
    address = row.cells.get("address")
    if address is None:
        row.fault = "it names no host"
        return row
    address = row.cells["address"] = bare_host(address)
    if not is_host(address):
        row.fault, row.wrong = NO_HOST, True
        return row
    _port(row)
    row.cells.setdefault("user", "root")
    _login(row)
    if said.get("sudo"):
        row.notes.append(f"without sudo: {instead_of_sudo(row.cells['user'][:64])}")
    beside = [str(key) for key in said if key not in KNOWN | IGNORED]
    if isinstance(options, Mapping):
        beside += [f"optional_args.{key}" for key in options if key not in KNOWN | IGNORED]
    if beside:
        row.notes.append(f"without {', '.join(sorted(beside))[:200]}")
    return row


def bare_host(text: str) -> str:
    """A host without the brackets that an IPv6 address may stand in."""
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


def instead_of_sudo(user: str) -> str:
    """What to do without sudo, which the gateway does not use. ``user`` is who logs in."""
    return f"functions run as {user} here; what needs root needs a login as root"


def names_login(said: Mapping[str, Any]) -> bool:
    """Whether a host is named, with a password or a key."""
    named = {column for column, names in ALIASES.items() if any(said.get(name) not in (None, "") for name in names)}
    return "address" in named and bool({"password", "key_file"} & named)


def _columns(row: SshRow, said: Mapping[str, Any]) -> None:
    for column, names in ALIASES.items():
        for name in names:
            value = said.get(name)
            if value is None or value == "":
                continue
            if isinstance(value, bool) or not isinstance(value, (str, int)):
                kind = _KINDS.get(type(value), "no text")
                row.notes.append(f"without {name}, which YAML reads as {kind}: write it in quotes")
            elif column not in row.cells:
                row.cells[column] = str(value)
                if column == "password" and isinstance(value, int):
                    row.notes.append(f"{name} is a number in YAML, and may have lost zeros: compare it")
            elif row.cells[column] != str(value):
                row.notes.append(f"without {name}: another field says it already")


def _port(row: SshRow) -> None:
    port = row.cells.get("port")
    if port is None:
        return
    if port.isascii() and port.isdigit() and 0 < int(port) <= HIGHEST_PORT:
        row.cells["port"] = int(port)
    else:
        del row.cells["port"]
        row.notes.append(f"without port, which is no number from 1 to {HIGHEST_PORT}")


def _login(row: SshRow) -> None:
    """How it logs in: with a key before a password, as Salt does."""
    passphrase = row.cells.pop("passphrase", None)
    key = row.cells.get("key_file")
    if key is not None and row.cells.pop("password", None) is not None:
        row.notes.append("without its password: Salt tries the key first")
    if key == AGENT:
        del row.cells["key_file"]
        row.cells["login"] = "agent"
        row.notes.append("it logs in with the keys of the SSH agent of the gateway's user")
        return
    if key is not None and key.startswith("~"):
        row.cells["key_file"] = str(Path(key).expanduser())
    elif key is not None and not key.startswith("/"):
        row.notes.append("its key_file is no whole path: write it as /FOLDER/FILE")
    if passphrase is not None and key is not None:
        row.notes.append("its key has a passphrase: put it into a file, and name that in passphrase_file")
    elif passphrase is not None:
        row.notes.append("without the passphrase: no key is named")
    if key is None and "password" not in row.cells:
        row.notes.append("it has neither password nor key: add one, or login: agent")
    row.cells["login"] = "key" if key is not None else "password" if "password" in row.cells else "agent"
