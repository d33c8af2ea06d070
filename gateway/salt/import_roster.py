"""The roster of salt-ssh: its entries as devices, each with what the master's settings fill into it.

Salt completes an entry from ``roster_defaults``, then from the ``ssh_*`` keys, then with the key pair that it makes for
itself. The nearest of these that names a login decides on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from device_agent.errors import ConfigInvalid
from device_agent.settings_file import Scalar
from gateway.devices.ssh_wish import is_host
from gateway.render_names import roster_names
from gateway.salt.import_devices import Devices, take_roster, take_wrong
from gateway.salt.import_files import INVENTORY
from gateway.salt.import_findings import Finding, Said, Verdict
from gateway.salt.import_read import Box, read_mapping, typed
from gateway.salt.import_ssh_row import ALIASES, bare_host, instead_of_sudo

SSH_KEYS: Final = {
    "ssh_user": "user",
    "ssh_port": "port",
    "ssh_passwd": "passwd",
    "ssh_priv": "priv",
    "ssh_priv_passwd": "priv_passwd",
    "ssh_sudo": "sudo",
    "ssh_sudo_user": "sudo_user",
    "ssh_options": "ssh_options",
    "ssh_remote_port_forwards": "remote_port_forwards",
}
"""Key of the master -> field of an entry that it fills in."""

DEFAULTS: Final = "roster_defaults"
_SUDO: Final = instead_of_sudo("the user of the login")
NOT_HERE: Final = {
    "sudo": _SUDO,
    "sudo_user": _SUDO,
    "ssh_options": "the gateway has its own SSH client; a jump host is the field jump (docs/ssh-devices.md)",
    "remote_port_forwards": "the gateway opens no tunnels on a device",
}
"""Fields without a counterpart, and what takes their place."""

ROSTER_KEYS: Final = frozenset({DEFAULTS, "roster", "roster_file", "rosters", *SSH_KEYS})
OTHER_ROSTER: Final = "only a flat roster is read: write what this one lists into a file, and name that in roster_file"
ONE_TEXT: Final = (
    "it is one text, and no host: an IPv4 or IPv6 address, or a host name, is one; "
    "where it is meant as fields, write a blank behind each colon"
)
_logins: Final = frozenset({*ALIASES["password"], *ALIASES["key_file"]})


@dataclass
class _Level:
    """One place that fills in what an entry does not say: its fields, and how Salt's settings name each."""

    values: dict[str, Any] = field(default_factory=dict, repr=False)
    names: dict[str, str] = field(default_factory=dict)
    taken: Counter[str] = field(default_factory=Counter)
    """Field -> how many entries took it."""

    def login(self) -> set[str]:
        """The fields that say how to log in."""
        return {key for key, value in self.values.items() if key in _logins and value not in (None, "")}


@dataclass
class _Roster:
    """What fills in the entries: the nearest level first, and at last the key that salt-ssh made for itself."""

    levels: list[_Level]
    own_key: str | None = None
    files: list[Path] = field(default_factory=list)

    def filled(self, entry: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """An entry with all that Salt would fill in, and what is to be said of it."""
        found = dict(entry)
        notes: list[str] = []
        login = any(found.get(key) not in (None, "") for key in _logins)
        for level in self.levels:
            here = login
            for key, value in level.values.items():
                if key in found:
                    continue
                if key in _logins and here:
                    notes.append(f"without {level.names[key]}, for the entry has a login of its own")
                else:
                    found[key] = value
                    level.taken[key] += 1
            login = login or bool(level.login())
        if not login and self.own_key is not None:
            found["priv"] = self.own_key
            notes.append("it names no login, so it has the key that salt-ssh made for itself")
        return found, notes


def take_rosters(box: Box, devices: Devices) -> None:
    """Every entry of every roster, and each key of the master that has to do with them."""
    master = box.said.get("master", {})
    roster = _Roster([_defaults(master.get(DEFAULTS)), _options(master)], _own_key(box), _files(box))
    for path in roster.files:
        _take_file(path, roster, devices)
    for said in master.values():
        if said.key in ROSTER_KEYS:
            devices.findings.append(_verdict(said, roster))


def _defaults(said: Said | None) -> _Level:
    values = typed(said.value, said.tree) if said is not None else {}
    if not isinstance(values, Mapping):
        return _Level()
    return _Level({str(key): value for key, value in values.items()}, {str(key): f"{DEFAULTS}.{key}" for key in values})


def _options(master: Mapping[str, Said]) -> _Level:
    found = {field: master[key] for key, field in SSH_KEYS.items() if key in master}
    return _Level(
        {field: typed(said.value, said.tree) for field, said in found.items()},
        {field: said.key for field, said in found.items()},
    )


def _own_key(box: Box) -> str | None:
    """The private key that salt-ssh makes for itself and uses where nothing else is named."""
    path = Path(str(box.value("master", "pki_dir", box.folder / "pki" / "master"))) / "ssh" / "salt-ssh.rsa"
    return str(path.absolute()) if path.is_file() else None


def _files(box: Box) -> list[Path]:
    more = box.value("master", "rosters", [])
    said = [box.value("master", "roster_file", "roster"), *(more if isinstance(more, list) else [more])]
    paths = [box.folder / str(each) for each in said if each]
    return [path for path in dict.fromkeys(paths) if path.is_file()]


def _take_file(path: Path, roster: _Roster, devices: Devices) -> None:
    try:
        entries, tree = read_mapping(path, roster_names)
    except ConfigInvalid as error:
        words = (
            f"{error.what}; a roster with Jinja: render it with salt-ssh -H" if "%" in str(error.found) else error.what
        )
        devices.findings.append(Finding("wrong", path.name, error.where or str(path), words))
        return
    for name, entry in typed(entries, tree).items():
        written = tree.entries.get(name)
        where = str(tree.places.get(name, path))
        # A short entry is its host, whatever YAML makes of it.
        if isinstance(written, Scalar) and written.text and not is_host(bare_host(written.text)):
            take_wrong(devices, name, str(written.place), ONE_TEXT)
            continue
        fields = {"host": written.text} if isinstance(written, Scalar) else entry
        if not isinstance(fields, Mapping):
            take_wrong(devices, name, where, "an entry is a host, or a mapping of fields")
            continue
        said, notes = roster.filled(fields)
        take_roster(devices, name, said, where, notes)


def _verdict(said: Said, roster: _Roster) -> Finding:
    """What became of a key of the master that has to do with rosters. No value is in it."""
    files = ", ".join(path.name for path in roster.files)
    match said.key:
        case "roster" if said.value != "flat":
            return Finding("not carried", said.key, said.where, OTHER_ROSTER)
        case "roster" | "roster_file" | "rosters":
            if not files:
                return Finding(
                    "not carried", said.key, said.where, "there is no roster at this place, so none was read"
                )
            return Finding("translated", said.key, said.where, f"the entries of {files} were read", INVENTORY)
        case key if not files:
            return Finding("no meaning", key, said.where, "it completes entries of a roster, and there is none")
        case "roster_defaults" if not isinstance(said.value, Mapping):
            return Finding("not carried", said.key, said.where, "it is no mapping of fields")
    level, fields = (
        (roster.levels[0], list(roster.levels[0].values))
        if said.key == DEFAULTS
        else (roster.levels[1], [SSH_KEYS[said.key]])
    )
    taken = [f"{name} of {level.taken[name]}" for name in fields if level.taken[name] and name not in NOT_HERE]
    words = [f"it fills in {', '.join(taken)} entries"] if taken else []
    words += [f"without {name}: {NOT_HERE[name]}" for name in fields if name in NOT_HERE and level.values[name]]
    idle = [name for name in fields if not level.taken[name] and name not in NOT_HERE]
    if idle:
        words.append(f"no entry takes {', '.join(idle)}")
    verdict: Verdict = "translated" if taken else "not carried" if not idle and words else "no meaning"
    return Finding(verdict, said.key, said.where, "; ".join(words), INVENTORY if taken else "")
