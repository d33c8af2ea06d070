"""Who may say and hear what at the site's broker, once; and the files that tell mosquitto so. Pure.

Three doors, each with its own users and rules (``per_listener_settings``):

- the devices' door: user and client id are the did, whatever client id was asked for; a device speaks on its own
  upward topics and hears its own, the group's and the trust topic;
- the enrollment door: one well-known user, who stands in its password file only while somebody may join;
- the station's door: a unix socket, and a user made for this run of the broker.

What mosquitto 2.0 cannot say, and is left: a retained message is kept if it may be written at all, so a hostile device
can leave as many as it has upward topics, which is why they are named one by one and nobody but the station hears
them; client ids are one space for all doors, so while the enrollment door is open whoever knows a did can throw that
device off, which comes back. ``max_qos`` and ``max_connections`` are not set: the first reload puts both back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from device_agent.protocol import limits
from device_agent.trust.keys import DID_PATTERN
from gateway.broker.passwords import is_hash

ENROLL_USER = "enroll"
ENROLL_PASSWORD = "enroll"  # noqa: S105 - well known and public: it keeps nobody out
CANARY_USER = "rules"
"""Lets nobody do anything: that its newest password is taken proves that the rules written before it are in force."""

PACKET_BYTES = limits.MESSAGE_BYTES + 2048
"""The topic and its header come on top of the payload."""

SETTINGS_FILE = "mosquitto.conf"
STATION_SOCKET = "station"
PID_FILE = "mosquitto.pid"
NOTICES = "$SYS/broker/log/N"
"""Where a broker with a log of its own tells the station who connects, and from where."""

SERVER_CERTIFICATE = "server.pem"
SERVER_KEY = "server.key"

_user = re.compile(r"^[^\s:#+/]{1,64}$(?!\n)")
_did = re.compile(DID_PATTERN)


class Role(Enum):
    """Who somebody is to the broker."""

    DEVICE = "devices"
    ENROLLING = "enrollment"
    STATION = "station"


@dataclass(frozen=True, slots=True)
class Grant:
    """Topic filters below ``os/<site>/``; ``%u`` is the user's name and ``%c`` the client id."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]


GRANTS: Mapping[Role, Grant] = {
    Role.DEVICE: Grant(
        reads=("d/%u/+", "g/all/+", "trust"),
        writes=("d/%u/up/ses", "d/%u/up/f", "d/%u/up/bye"),
    ),
    Role.ENROLLING: Grant(reads=("enr/rsp/%c",), writes=("enr/req",)),
    Role.STATION: Grant(reads=("#",), writes=("#",)),
}


def is_did(text: str) -> bool:
    """Whether this has the form of a did, which is safe in a topic and in a file."""
    return _did.match(text) is not None


def may_read(role: Role, topic: str, *, site: str, user: str, client: str) -> bool:
    """Whether somebody may hear a topic, or everything that a filter stands for."""
    return any(_covers(each, topic) for each in _filled(GRANTS[role].reads, site, user, client))


def may_write(role: Role, topic: str, *, site: str, user: str, client: str) -> bool:
    """Whether somebody may speak on a topic."""
    return any(_covers(each, topic) for each in _filled(GRANTS[role].writes, site, user, client))


def _filled(filters: Iterable[str], site: str, user: str, client: str) -> Iterator[str]:
    for each in filters:
        yield f"os/{site}/{each}".replace("%u", user).replace("%c", client)


def _covers(granted: str, asked: str) -> bool:
    """Whether a filter stands for every topic that another one, or a topic, stands for."""
    below = asked.split("/")
    for place, level in enumerate(granted.split("/")):
        if level == "#":
            return True
        if place >= len(below) or below[place] == "#" or level not in {"+", below[place]}:
            return False
    return len(granted.split("/")) == len(below)


@dataclass(frozen=True, slots=True)
class Users:
    """Everybody who may log in now: name to hash, by door."""

    devices: Mapping[str, str]
    enrolling: Mapping[str, str]
    station: Mapping[str, str]

    def __post_init__(self) -> None:
        """A name or a hash that ends its line would let somebody else in. Raises ``ValueError``."""
        for names in (self.devices, self.enrolling, self.station):
            for name, password_hash in names.items():
                if not _user.match(name) or not is_hash(password_hash):
                    raise ValueError(f"{name[:40]!r} with this hash cannot stand in a password file")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRules:
    """The files of one broker. ``host`` None is every address of its machine.

    ``station_user`` is the station's name at the broker. Without ``station_door`` it comes through the devices' door,
    as at a broker that somebody else runs. With ``runtime``, a folder for its socket and its process id, it is one that
    another program starts, as ``user``.
    """

    site: str
    folder: Path
    host: str | None
    port: int
    enroll_port: int
    tls_port: int | None = None
    station_user: str | None = None
    station_door: bool = True
    runtime: Path | None = None
    user: str | None = None

    def fixed_files(self) -> dict[str, str]:
        """What stays as it is while the broker runs: its settings and the access lists, by file name."""
        files = {SETTINGS_FILE: self.settings()}
        for role in self._roles():
            files[f"{role.value}.acl"] = self.access(role)
        return files

    def password_files(self, users: Users) -> dict[str, str]:
        """Who may log in, by file name, in the order to write them: the one with the canary is last."""
        devices = dict(users.devices)
        if not self.station_door:
            devices |= users.station
        files = {
            f"{Role.DEVICE.value}.passwords": _password_lines(devices),
            f"{Role.ENROLLING.value}.passwords": _password_lines(users.enrolling),
        }
        if self.station_door:
            files[f"{Role.STATION.value}.passwords"] = _password_lines(users.station)
        return files

    def settings(self) -> str:
        """The broker's whole configuration (mosquitto.conf(5)).

        The station's door comes first: its password file, with the canary, is then read before the others, each of
        which was written before it. So who finds the canary changed knows that every file was read as it is now.
        """
        lines = [
            "# Written by Outstation at each start; changes made here are lost.",
            "per_listener_settings true",
            "persistence false",
            # Whoever asks for a session that outlives its connection has it for so long.
            "persistent_client_expiration 1h",
            "max_queued_messages 0",
            "max_inflight_messages 0",
            "set_tcp_nodelay true",
            f"max_packet_size {PACKET_BYTES}",
            "log_dest stderr",
            "log_timestamp false",
            "log_type error",
            "log_type warning",
            # Who connects, and from where: the station reads it off here.
            "log_type notice",
            "connection_messages true",
        ]
        if self.runtime is not None:
            lines += [f"pid_file {self.runtime / PID_FILE}", "log_dest topic"]
        if self.user is not None:
            lines.append(f"user {self.user}")
        if self.station_door:
            path = (self.runtime or self.folder) / STATION_SOCKET
            lines += self._door(Role.STATION, f"listener 0 {path}", bound=True)
        lines += self._door(Role.DEVICE, self._listener(self.port), bound=True)
        lines += self._door(Role.ENROLLING, self._listener(self.enroll_port), bound=False)
        if self.tls_port is not None:
            lines += self._door(Role.DEVICE, self._listener(self.tls_port), bound=True)
            lines += [
                f"certfile {self.folder / SERVER_CERTIFICATE}",
                f"keyfile {self.folder / SERVER_KEY}",
                "tls_version tlsv1.2",
            ]
        return _text(lines)

    def access(self, role: Role) -> str:
        """The access list of one door (mosquitto.conf(5), ``acl_file``)."""
        lines = []
        grant = GRANTS[role]
        named = {Role.DEVICE: None, Role.ENROLLING: ENROLL_USER, Role.STATION: self.station_user}[role]
        if named is not None:
            lines.append(f"user {named}")
        for verb, filters in (("read", grant.reads), ("write", grant.writes)):
            for each in filters:
                # A pattern holds for every user of the door, a topic for the user named above it.
                kind = "topic" if named is not None and "%" not in each else "pattern"
                lines.append(f"{kind} {verb} os/{self.site}/{each}")
        if role is Role.STATION and self.runtime is not None:
            lines.append(f"topic read {NOTICES}")
        if role is Role.DEVICE and self.station_user is not None and not self.station_door:
            lines += [f"user {self.station_user}", f"topic readwrite os/{self.site}/#"]
        return _text(lines)

    def _roles(self) -> list[Role]:
        return [role for role in Role if role is not Role.STATION or self.station_door]

    def _listener(self, port: int) -> str:
        return f"listener {port}" if self.host is None else f"listener {port} {self.host}"

    def _door(self, role: Role, listener: str, *, bound: bool) -> list[str]:
        """One listener; ``bound``: whoever logs in has its user's name as client id and can take no other's place."""
        lines = [
            listener,
            "allow_anonymous false",
            f"password_file {self.folder / f'{role.value}.passwords'}",
            f"acl_file {self.folder / f'{role.value}.acl'}",
        ]
        return [*lines, "use_username_as_clientid true"] if bound else lines


def _password_lines(users: Mapping[str, str]) -> str:
    return "".join(f"{name}:{password_hash}\n" for name, password_hash in users.items())


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
