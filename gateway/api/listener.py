"""The API's TLS port: its socket and its certificate, looked at before anything is served."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from device_agent.errors import ConfigInvalid
from device_agent.settings_file import made_readable
from device_agent.start_errors import start_error


@dataclass(frozen=True)
class Listen:
    """Where the API listens beside its unix socket, and with which certificate; without one only on loopback."""

    address: str
    certificate: str | None = None
    key: str | None = None

    @property
    def host(self) -> str:
        """The address without the port."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port; 0 is any that is free."""
        return int(self.address.rpartition(":")[2])

    def check(self) -> None:
        """Raises ``ConfigInvalid`` for what must not, or cannot, be served."""
        if self.certificate is None or self.key is None:
            if not is_loopback(self.host):
                raise ConfigInvalid(
                    "the API does not listen without TLS where others can reach it",
                    where="api",
                    found=f"listen: {self.address}, no certificate",
                    allowed="certificate: and key:, or a loopback address such as 127.0.0.1:4512",
                    hint="docs/operators.md makes a certificate in one command",
                )
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:
            # SSLError is an OSError, and says little of what is wrong with a file.
            raise start_error(
                # An SSLError has a number of OpenSSL where an OSError has its errno.
                error if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else OSError(str(error)),
                "the API's certificate cannot be used",
                Path(self.certificate),
                Path(self.key),
                where="api.certificate, api.key",
                found=f"{self.certificate}, {self.key}: {getattr(error, 'reason', None) or error}",
                allowed="a certificate chain and its key without a password, both PEM, readable by this user",
                hint=_mend(Path(self.certificate), Path(self.key)),
            ) from None

    def settings(self) -> dict[str, Any]:
        """What the server must be told of it."""
        if self.certificate is None or self.key is None:
            return {}
        return {"ssl_certfile": self.certificate, "ssl_keyfile": self.key}


def _mend(certificate: Path, key: Path) -> str:
    """What to type about a certificate and its key that cannot be used."""
    for file in (certificate, key):
        if not os.access(file, os.R_OK):
            return made_readable(file) if os.access(file, os.F_OK) else f"sudo ls -l {file}"
    return f"openssl x509 -noout -subject -dates -in {certificate}; openssl pkey -noout -check -in {key}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def renew(context: ssl.SSLContext | None, listen: Listen) -> None:
    """Take the certificate's files again, for connections to come. Raises ``ConfigInvalid``."""
    listen.check()
    if context is not None and listen.certificate is not None:
        context.load_cert_chain(Path(listen.certificate), None if listen.key is None else Path(listen.key))
