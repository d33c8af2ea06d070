"""Logins of HTTP and RTSP: digest of RFC 7616, with what cameras still have of RFC 2069, and basic of RFC 7617."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from device_agent.errors import OutstationError

CHALLENGES = 8
CHALLENGE_CHARACTERS = 4096
PARAMETER = re.compile(r'([!#$%&\'*+.^_`|~0-9A-Za-z-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,"]+)')
_SCHEME = re.compile(r"(?:^|,)\s*(Digest|Basic)(?=\s|$)", re.IGNORECASE)


class CannotLogIn(OutstationError):
    """A camera asks for a login that nobody here can give."""

    default_id = "camera.login"


class Login(Struct, frozen=True):
    """A name and a password; neither is ever shown."""

    username: str
    password: str

    def __repr__(self) -> str:
        """Without what is secret."""
        return "Login()"

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.username or self.password)


class Challenge(Struct, frozen=True):
    """One way to log in that was offered."""

    scheme: str
    parameters: dict[str, str]

    @property
    def realm(self) -> str:
        """What the login is for."""
        return self.parameters.get("realm", "")[:128]

    @property
    def algorithm(self) -> str:
        """How a digest is made, in capital letters."""
        return self.parameters.get("algorithm", "MD5").upper()

    @property
    def stale(self) -> bool:
        """Whether only the nonce was too old, and the login was right."""
        return self.parameters.get("stale", "").lower() == "true"


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sha512_256(data: bytes) -> str:
    return hashlib.new("sha512_256", data).hexdigest()


_DIGESTS: Final[dict[str, Callable[[bytes], str]]] = {"SHA-512-256": _sha512_256, "SHA-256": _sha256, "MD5": _md5}
"""The strongest first."""


def challenges(values: Iterable[str]) -> list[Challenge]:
    """The ways to log in that the values of ``WWW-Authenticate`` offer; several may be in one value."""
    found = []
    for whole in values:
        value = whole[:CHALLENGE_CHARACTERS]
        # What is in quotes cannot begin a scheme, whatever it says.
        plain = re.sub(r'"(?:[^"\\]|\\.)*"', lambda quoted: '"' + "x" * (len(quoted[0]) - 2) + '"', value)
        starts = list(_SCHEME.finditer(plain))
        for place, start in enumerate(starts):
            end = starts[place + 1].start() if place + 1 < len(starts) else len(value)
            parameters = {name.lower(): _unquoted(word) for name, word in PARAMETER.findall(value[start.end() : end])}
            found.append(Challenge(start[1].capitalize(), parameters))
    return found[:CHALLENGES]


def best(offered: list[Challenge]) -> Challenge:
    """The strongest way that can be used; basic only where no digest is offered. Raises ``CannotLogIn``."""
    digests = [each for each in offered if each.scheme == "Digest"]
    for algorithm in _DIGESTS:
        for each in digests:
            usable = each.algorithm.removesuffix("-SESS") == algorithm and "nonce" in each.parameters
            if usable and (algorithm != "SHA-512-256" or "sha512_256" in hashlib.algorithms_available):
                return each
    for each in offered:
        if each.scheme == "Basic" and not digests:
            return each
    names = ", ".join(f"{each.scheme} {each.parameters.get('algorithm', '')}".strip() for each in offered)
    raise CannotLogIn(
        "the camera asks for a login that is not known here", found=names or "none", allowed="Digest, Basic"
    )


def authorization(
    challenge: Challenge, login: Login, method: str, target: str, *, cnonce: str, count: int = 1, body: bytes = b""
) -> str:
    """The value of ``Authorization``. ``cnonce`` has to be random, ``count`` to rise with each use of a nonce."""
    if challenge.scheme == "Basic":
        both = f"{login.username}:{login.password}".encode()
        return f"Basic {base64.b64encode(both).decode()}"
    told = challenge.parameters
    digest = _DIGESTS[challenge.algorithm.removesuffix("-SESS")]

    def hashed(*parts: str) -> str:
        return digest(":".join(parts).encode())

    realm, nonce = told.get("realm", ""), told["nonce"]
    secret = hashed(login.username, realm, login.password)
    if challenge.algorithm.endswith("-SESS"):
        secret = hashed(secret, nonce, cnonce)
    offered = [word.strip().lower() for word in told.get("qop", "").split(",") if word.strip()]
    quality = next((word for word in ("auth", "auth-int") if word in offered), "")
    asked = hashed(method, target, digest(body)) if quality == "auth-int" else hashed(method, target)
    number = f"{count:08x}"
    response = hashed(secret, nonce, number, cnonce, quality, asked) if quality else hashed(secret, nonce, asked)
    hidden = told.get("userhash", "").lower() == "true"
    name = hashed(login.username, realm) if hidden else login.username
    parts = [
        f"username={_quoted(name)}",
        f"realm={_quoted(realm)}",
        f"nonce={_quoted(nonce)}",
        f"uri={_quoted(target)}",
    ]
    parts.append(f"response={_quoted(response)}")
    if "algorithm" in told:
        parts.append(f"algorithm={told['algorithm']}")
    if "opaque" in told:
        parts.append(f"opaque={_quoted(told['opaque'])}")
    if quality:
        parts += [f"qop={quality}", f"nc={number}", f"cnonce={_quoted(cnonce)}"]
    elif challenge.algorithm.endswith("-SESS"):
        parts.append(f"cnonce={_quoted(cnonce)}")
    if hidden:
        parts.append("userhash=true")
    return "Digest " + ", ".join(parts)


def _unquoted(word: str) -> str:
    return re.sub(r"\\(.)", r"\1", word[1:-1]) if word.startswith('"') else word


def _quoted(word: str) -> str:
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
