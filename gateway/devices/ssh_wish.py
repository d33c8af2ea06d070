"""What an operator says of an SSH device, and whether that can be: each fault with its field, and with what may be.

Pure, and silent about secrets: no fault shows one.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Final, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from device_agent.errors import Refused
from gateway.devices.naming import is_name
from gateway.devices.ssh_book import Wanted
from gateway.devices.ssh_device import LOGINS, PORT, SshDevice, host_key_fingerprint
from gateway.devices.ssh_secrets import Secret

PINS: Final = 8
JUMPS: Final = 4
"""Jump hosts one behind the other."""

POLL_LEAST, POLL_MOST = 5.0, 86_400.0
PASSWORD_CHARACTERS: Final = 1024
KEY_CHARACTERS: Final = 16 * 1024
FOUND_CHARACTERS: Final = 80

NAME_WORDS: Final = "1 to 128 letters, digits and _ . : @ -, not beginning with . : @ or -"
FINGERPRINT_WORDS: Final = "SHA256: and 43 characters, as ssh-keygen -lf shows it on the device"
_user = re.compile(r"[^\s:@\x00-\x1f\x7f]{1,64}(?:@[A-Za-z0-9.-]{1,128})?\Z")
_label = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_host = re.compile(rf"(?=.{{1,253}}\Z){_label}(?:\.{_label})*\.?\Z")
_fingerprint = re.compile(r"SHA256:[A-Za-z0-9+/]{43}\Z")


class SshWish(Struct, frozen=True, forbid_unknown_fields=True):
    """An SSH device as it is to be. What is left out stays as it is, or is the default of a new one.

    A secret that is given, or a ``login``, takes the place of every secret before it. ``proof`` says by what the host
    key is known: ``first_use`` for one that nobody compared.
    """

    name: str
    user: str | UnsetType = UNSET
    host: str | UnsetType = UNSET
    port: int | UnsetType = UNSET
    login: Literal["password", "key", "agent", "certificate"] | UnsetType = UNSET
    password: str = ""
    private_key: str = ""
    passphrase: str = ""
    certificate: str = ""
    fingerprints: list[str] = []
    host_keys: list[str] = []
    jump: str | UnsetType = UNSET
    poll_seconds: float | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    proof: Literal["fingerprint", "first_use"] = "fingerprint"

    def __repr__(self) -> str:
        """Its name: there may be secrets in the rest."""
        return f"SshWish({self.name!r})"

    __str__ = __repr__


class Fault(Struct, frozen=True):
    """Why a wish cannot be fulfilled. ``index`` is its place among those that came with it."""

    index: int
    name: str
    field: str
    what: str
    found: str
    allowed: str


class _Faulty(Exception):
    """``shown``: what was found is what somebody said, and is cut; otherwise they are our own words."""

    def __init__(self, field: str, what: str, found: object, allowed: str, *, shown: bool = True) -> None:
        super().__init__(what)
        self.fault = (field, what, str(found)[:FOUND_CHARACTERS] if shown else str(found), allowed)


KeyProblem = Callable[[str, str, str], str]
"""What is wrong with a private key, given its passphrase and certificate; empty when nothing is."""


class Judge:
    """Judges wishes that come together. ``known`` finds a device; ``coming`` are names that are added before these."""

    def __init__(
        self,
        known: Callable[[str], SshDevice | None],
        *,
        coming: Mapping[str, str],
        key_problem: KeyProblem,
        added_by: str,
        only: Literal["new", "known", ""] = "",
    ) -> None:
        self._known = known
        self._jumps = dict(coming)
        self._key_problem = key_problem
        self._added_by = added_by
        self._only = only
        self._seen: set[str] = set()

    def judge(self, index: int, wish: SshWish) -> Wanted | Fault:
        """What is wanted, or the first thing that is wrong with it."""
        try:
            return self._wanted(wish)
        except _Faulty as faulty:
            field, what, found, allowed = faulty.fault
            return Fault(index, wish.name[:FOUND_CHARACTERS], field, what, found, allowed)

    def _wanted(self, wish: SshWish) -> Wanted:
        if not is_name(wish.name):
            raise _Faulty("name", "no device can be called that", wish.name, NAME_WORDS)
        if wish.name in self._seen:
            raise _Faulty("name", "this name is said twice", wish.name, "each device once")
        self._seen.add(wish.name)
        known = self._known(wish.name)
        if known is None and self._only == "known":
            raise _Faulty(
                "name", "no SSH device has this name", wish.name, "one that was added: outstation devices add"
            )
        login, secret = self._secret(wish, known)
        device = SshDevice(
            name=wish.name,
            user=_user_of(wish, known),
            host=_host_of(wish, known),
            port=_port_of(wish, known),
            login=login,  # type: ignore[arg-type] # one of LOGINS, which _secret has seen to
            jump=self._jump_of(wish, known),
            poll_seconds=_poll_of(wish, known),
            enabled=wish.enabled if wish.enabled is not UNSET else (known.enabled if known is not None else True),
            added_by=self._added_by,
        )
        fingerprints, host_keys = _pins(wish, known)
        self._jumps[device.name] = device.jump
        return Wanted(replace(device, fingerprints=fingerprints, host_keys=host_keys), secret, wish.proof)

    def _secret(self, wish: SshWish, known: SshDevice | None) -> tuple[str, Secret | None]:
        """How it logs in, and with what; None when that stays as it is."""
        given = Secret(wish.password, wish.private_key, wish.passphrase, wish.certificate)
        login = wish.login if wish.login is not UNSET else _login_by(given)
        if login is None:
            if known is None:
                raise _Faulty(
                    "login", "nothing says how to log in", "no password, no key", f"one of {', '.join(LOGINS)}"
                )
            return known.login, None
        if given == Secret() and known is not None and known.login == login:
            return login, None
        needed = {"password": ("password",), "key": ("private_key",), "certificate": ("private_key", "certificate")}
        for field in needed.get(login, ()):
            if not getattr(given, field):
                raise _Faulty(field, f"a login by {login} needs this", "nothing", f"a {field.replace('_', ' ')}")
        optional = ("passphrase",) if login in ("key", "certificate") else ()
        for field in ("password", "private_key", "passphrase", "certificate"):
            if getattr(given, field) and field not in (*needed.get(login, ()), *optional):
                raise _Faulty(field, f"a login by {login} has no such thing", f"a {field.replace('_', ' ')}", "nothing")
        self._check_texts(given)
        return login, given

    def _check_texts(self, given: Secret) -> None:
        for field, most in (("password", PASSWORD_CHARACTERS), ("passphrase", PASSWORD_CHARACTERS)):
            text = getattr(given, field)
            if len(text) > most or any(each in text for each in "\0\r\n"):
                raise _Faulty(
                    field, "this cannot be typed at a login", f"{len(text)} characters", f"one line, at most {most}"
                )
        for field in ("private_key", "certificate"):
            if len(getattr(given, field)) > KEY_CHARACTERS:
                raise _Faulty(
                    field, "this is too long", f"{len(getattr(given, field))} characters", f"at most {KEY_CHARACTERS}"
                )
        if given.private_key:
            problem = self._key_problem(given.private_key, given.passphrase, given.certificate)
            if problem:
                field = "certificate" if problem.startswith("the certificate") else "private_key"
                allowed = "OpenSSH, PEM or PKCS#8, and its passphrase"
                raise _Faulty(field, "this cannot be used", problem, allowed, shown=False)

    def _jump_of(self, wish: SshWish, known: SshDevice | None) -> str:
        if wish.jump is UNSET:
            return known.jump if known is not None else ""
        step, way = wish.jump, [wish.name]
        while step:
            if step in way:
                raise _Faulty("jump", "jump hosts lead in a circle", " → ".join([*way, step]), "a way with an end")
            way.append(step)
            if len(way) > JUMPS + 1:
                raise _Faulty("jump", "too many jump hosts one behind the other", len(way) - 1, f"at most {JUMPS}")
            through = self._known(step)
            if step not in self._jumps and through is None:
                raise _Faulty("jump", "no SSH device has this name", step, "the name of an SSH device, added before")
            step = self._jumps.get(step, through.jump if through is not None else "")
        return wish.jump


def _login_by(given: Secret) -> str | None:
    if given.certificate:
        return "certificate"
    if given.private_key:
        return "key"
    return "password" if given.password else None


def _user_of(wish: SshWish, known: SshDevice | None) -> str:
    if wish.user is UNSET and known is not None:
        return known.user
    user = "" if wish.user is UNSET else wish.user
    if not _user.match(user):
        raise _Faulty("user", "nobody can be called that", user, "1 to 64 characters without spaces and colons")
    return user


def _host_of(wish: SshWish, known: SshDevice | None) -> str:
    if wish.host is UNSET and known is not None:
        return known.host
    host = "" if wish.host is UNSET else wish.host
    if not is_host(host):
        raise _Faulty("address", "no device can be there", host, "an IPv4 or IPv6 address, or a host name")
    return host


def _port_of(wish: SshWish, known: SshDevice | None) -> int:
    if wish.port is UNSET:
        return known.port if known is not None else PORT
    if not 1 <= wish.port <= 65535:
        raise _Faulty("port", "there is no such port", wish.port, "1 to 65535")
    return wish.port


def _poll_of(wish: SshWish, known: SshDevice | None) -> float:
    if wish.poll_seconds is UNSET:
        return known.poll_seconds if known is not None else SshDevice("", "", "").poll_seconds
    if not POLL_LEAST <= wish.poll_seconds <= POLL_MOST:
        allowed = f"{POLL_LEAST:g} to {POLL_MOST:g} seconds"
        raise _Faulty("poll_seconds", "it cannot be looked at as often", wish.poll_seconds, allowed)
    return wish.poll_seconds


def _pins(wish: SshWish, known: SshDevice | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is pinned. A known device keeps its pins: another host key is accepted by its own command."""
    lines = []
    for line in wish.host_keys:
        try:
            lines.append((" ".join(line.split()[:2]), host_key_fingerprint(line)))
        except Refused:
            raise _Faulty("host_keys", "this is no host key", line, "the kind and the key, as OpenSSH has it") from None
    for text in wish.fingerprints:
        if not is_fingerprint(text):
            raise _Faulty("fingerprint", "this is no fingerprint of a host key", text, FINGERPRINT_WORDS)
    said = list(dict.fromkeys([*(print_ for _, print_ in lines), *wish.fingerprints]))
    if known is not None:
        other = sorted(set(said) - set(known.fingerprints))
        if other:
            allowed = f"{', '.join(known.fingerprints)}; or: outstation devices key {known.name} --accept {other[0]}"
            raise _Faulty("fingerprint", "another host key is pinned", ", ".join(other), allowed)
        return known.fingerprints, known.host_keys
    if not 1 <= len(said) <= PINS:
        words = f"{len(said)} fingerprints" if said else "nothing"
        raise _Faulty("fingerprint", "the host key of a new device must be known", words, FINGERPRINT_WORDS)
    return tuple(said), tuple(dict.fromkeys(line for line, _ in lines))


def is_fingerprint(text: str) -> bool:
    """Whether this is a fingerprint as OpenSSH writes it."""
    return _fingerprint.match(text) is not None


def is_host(text: str) -> bool:
    """Whether a device can be there: an address, or a name that is none."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        last = text.rstrip(".").rpartition(".")[2]
        return _host.match(text) is not None and not last.isdigit()
    return True
