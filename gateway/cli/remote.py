"""A station on another machine: its API over TLS, where a token says who is asking."""

from __future__ import annotations

import http.client
import socket
import ssl
import stat
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from device_agent.errors import NotRunning, OutstationError, StationFailed, UsageInvalid
from device_agent.host_port import host_port
from device_agent.utf8_text import NotUtf8, utf8_text

TOKEN_BYTES = 4096


@dataclass(frozen=True)
class Remote:
    """Where the API is, and with which token; ``authorities`` is a PEM file of who may vouch for the station."""

    host: str
    port: int
    secure: bool
    token: str = field(repr=False)
    authorities: Path | None = None

    def __str__(self) -> str:
        return f"{'https' if self.secure else 'http'}://{host_port(self.host, self.port)}"

    def headers(self) -> dict[str, str]:
        """Who is asking."""
        return {"Authorization": f"Bearer {self.token}"}

    def connection(self, timeout_seconds: float) -> http.client.HTTPConnection:
        """A connection that is not open yet. Raises ``UsageInvalid`` when the authorities cannot be read."""
        if not self.secure:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout_seconds)
        try:
            context = ssl.create_default_context(cafile=None if self.authorities is None else str(self.authorities))
        except OSError as error:
            raise UsageInvalid(
                "the certificates cannot be read", where="--ca", found=f"{self.authorities}: {error}"
            ) from None
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_seconds, context=context)

    def unreachable(self, error: OSError) -> OutstationError:
        """Why there is no connection."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return StationFailed(
                "the station's certificate cannot be trusted",
                error_id="api.certificate",
                where=str(self),
                found=error.verify_message,
                hint="outstation --ca FILE …, with the certificate of whoever made the station's",
            )
        found = "no such host" if isinstance(error, socket.gaierror) else error.strerror or str(error)
        return NotRunning(
            "no station answers there",
            where=str(self),
            found=found.lower(),
            hint="on the station: outstation check, and api: in its settings",
        )


def remote(address: str, token_file: Path | None, authorities: Path | None) -> Remote:
    """The station that the command line means. Raises ``UsageInvalid``."""
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("https", "http") or not parts.hostname or port is None or parts.path not in ("", "/"):
        raise UsageInvalid("this is no address of an API", where="--api", found=address, allowed="https://HOST:PORT")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise UsageInvalid(
            "a token is not sent in the clear to another machine",
            where="--api",
            found=address,
            allowed="https://HOST:PORT, or http:// to a loopback address",
        )
    if token_file is None:
        raise UsageInvalid(
            "a station on another machine wants a token",
            where="--token-file",
            found="none",
            allowed="a file with what `outstation operators new` printed on the station",
            hint="outstation --api … --token-file FILE …   or   export OUTSTATION_TOKEN_FILE=FILE",
        )
    return Remote(parts.hostname, port, parts.scheme == "https", _token(token_file), authorities)


def _token(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            mode = stat.S_IMODE(file.stat().st_mode)
            token = utf8_text(opened.read(TOKEN_BYTES)).strip()
            token.encode("ascii")
    except (OSError, NotUtf8, UnicodeEncodeError) as error:
        reason = (error.strerror or "").lower() if isinstance(error, OSError) else "it is no text in ASCII"
        raise UsageInvalid(
            "the token cannot be read",
            where="--token-file",
            found=f"{file}: {reason}",
            allowed="a file with what `outstation operators new` printed",
        ) from None
    if mode & stat.S_IROTH:
        raise UsageInvalid(
            "everybody on this machine may read the token",
            where="--token-file",
            found=f"{file}, mode {mode:04o}",
            allowed="a file that only you may read",
            hint=f"chmod 600 {file}",
        )
    if not token or any(character.isspace() for character in token):
        raise UsageInvalid("the file holds no token", where="--token-file", found=str(file), allowed="one word")
    return token


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
