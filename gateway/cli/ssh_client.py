"""The client's side of SSH devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from gateway.cli.client import StationClient
from gateway.cli.ssh_views import HostKeyView, KeysCompared, ScanView, SshDone, SshView

Wish = Mapping[str, Any]


class SshClient:
    """What a station is asked about SSH devices."""

    def __init__(self, client: StationClient) -> None:
        self._client = client

    def show(self, name: str) -> SshView:
        """One device. Raises ``NotFound``."""
        return self._client.ask("GET", f"/ssh-devices/{quote(name, safe='')}", SshView)

    def scan(self, host: str, port: int, jump: str, seconds: float) -> list[HostKeyView]:
        """The host keys of a server. Raises ``StationFailed`` when none was heard."""
        body = {"host": host, "port": port, "jump": jump, "seconds": seconds}
        return self._client.ask("POST", "/ssh-devices/scan", ScanView, body=body).keys

    def put(self, wishes: Sequence[Wish], **how: Any) -> SshDone:
        """Add devices or change them: all of them, or with ``skip_bad`` those that can be."""
        return self._client.ask("POST", "/ssh-devices", SshDone, body={"devices": list(wishes), **how})

    def key(self, name: str, accept: str | None) -> KeysCompared:
        """Compare host keys, and accept one."""
        path = f"/ssh-devices/{quote(name, safe='')}/key"
        return self._client.ask("POST", path, KeysCompared, body={"accept": accept})

    def remove(self, name: str, why: str) -> SshView:
        """Put a device out."""
        return self._client.ask("POST", f"/ssh-devices/{quote(name, safe='')}/remove", SshView, body={"why": why})
