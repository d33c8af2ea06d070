"""What the commands about SSH devices have in common: an address as it is typed, and secrets that are never typed."""

from __future__ import annotations

import getpass
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from device_agent.errors import UsageInvalid
from device_agent.utf8_text import NotUtf8, utf8_text
from gateway.cli import completion
from gateway.cli.typed_text import typed_text

SECRET_BYTES = 16 * 1024
HERE = "-"

Name = Annotated[str, typer.Argument(metavar="NAME", help="the device's name", autocompletion=completion.device_names)]
PasswordFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="the password is in this file; - asks for it, or reads stdin")
]
KeyFile = Annotated[Path | None, typer.Option("--key", metavar="FILE", help="log in with this private key")]
PassphraseFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="what opens the private key is in this file; - as above")
]
Certificate = Annotated[Path | None, typer.Option(metavar="FILE", help="with --key: its OpenSSH certificate")]
Agent = Annotated[bool, typer.Option("--agent", help="log in with the keys of the station's ssh-agent")]
Jump = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="the SSH device through which it is reached", autocompletion=completion.device_names
    ),
]
Poll = Annotated[float | None, typer.Option(metavar="SECONDS", help="how often it is looked at (default: 60)")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object per device")]


def address(text: str) -> dict[str, Any]:
    """``user@host[:port]`` in parts. Raises ``UsageInvalid``."""
    user, at, rest = text.rpartition("@")
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    elif rest.count(":") > 1:
        host, port = rest, ""
    else:
        host, _, port = rest.partition(":")
    if not at or not user or not host or (port and not (port.isascii() and port.isdigit() and len(port) <= 5)):
        raise UsageInvalid(
            "this is no address of an SSH device",
            error_id="ssh.address",
            where="--ssh",
            found=text[:120],
            allowed="user@host or user@host:port; an IPv6 address with a port in brackets: root@[fd00::7]:22",
        )
    return {"user": user, "host": host, **({"port": int(port)} if port else {})}


def poll_of(seconds: float | None) -> dict[str, float]:
    """How often, as the API wants it; empty when nothing was said. Raises ``UsageInvalid``."""
    if seconds is not None and not math.isfinite(seconds):
        raise UsageInvalid(
            "this is no number", error_id="ssh.poll_seconds", where="--poll", found=str(seconds), allowed="seconds"
        )
    return {} if seconds is None else {"poll_seconds": seconds}


def secrets(
    password_file: str | None,
    key: Path | None,
    passphrase_file: str | None,
    certificate: Path | None,
    agent: bool,
) -> dict[str, str]:
    """How to log in, as the API wants it; empty when nothing was said. Raises ``UsageInvalid``."""
    if sum((password_file is not None, key is not None, agent)) > 1:
        raise UsageInvalid(
            "a device is logged in to in one way",
            error_id="ssh.logins",
            allowed="one of --password-file, --key (with --certificate) and --agent",
        )
    if key is None and (certificate is not None or passphrase_file is not None):
        what = "--certificate" if certificate is not None else "--passphrase-file"
        raise UsageInvalid(f"{what} belongs to a private key", error_id="ssh.logins", hint=f"--key FILE {what} FILE")
    if agent:
        return {"login": "agent"}
    if password_file is not None:
        return {"login": "password", "password": one_line(password_file, "password")}
    if key is None:
        return {}
    found = {"login": "key", "private_key": text_of(key)}
    if passphrase_file is not None:
        found["passphrase"] = one_line(passphrase_file, "passphrase")
    if certificate is not None:
        found |= {"login": "certificate", "certificate": text_of(certificate)}
    return found


def one_line(place: str, what: str) -> str:
    """A secret from a file, from stdin, or asked for without an echo; without the end of its line."""
    if place != HERE:
        return text_of(Path(place)).rstrip("\r\n")
    if sys.stdin.isatty():
        return getpass.getpass(f"The {what} of the device: ")
    return typed_text(sys.stdin.buffer.readline(SECRET_BYTES)).rstrip("\r\n")


def text_of(path: Path) -> str:
    """The text of a small file. Raises ``UsageInvalid``."""
    try:
        with path.open("rb") as file:
            body = file.read(SECRET_BYTES + 1)
        if len(body) > SECRET_BYTES:
            raise UsageInvalid("the file is too long", where=str(path), allowed=f"{SECRET_BYTES} bytes")
        return utf8_text(body)
    except OSError as error:
        raise UsageInvalid("the file cannot be read", where=str(path), found=error.strerror) from None
    except NotUtf8 as error:
        raise error.of_file(UsageInvalid, path, is_secret=True) from None
