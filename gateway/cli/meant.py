"""Which station a command means: what stands before the command, and what the environment says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.cli.client import StationClient

SOCKET_VARIABLE = "OUTSTATION_SOCKET"
API_VARIABLE = "OUTSTATION_API"
TOKEN_FILE_VARIABLE = "OUTSTATION_TOKEN_FILE"  # noqa: S105 - the name of a variable, no password
AUTHORITIES_VARIABLE = "OUTSTATION_CA"


@dataclass(frozen=True)
class Meant:
    """A socket, or the address of an API with a token; what was typed goes before what the environment says."""

    socket: Path | None = None
    api: str | None = None
    token_file: Path | None = None
    authorities: Path | None = None
    typed: bool = False
    """Before the command, and not by the environment."""

    def client(self, timeout_seconds: float) -> StationClient:
        """The client of this station. Raises ``UsageInvalid``, ``NotRunning`` and ``PolicyRefused``."""
        from gateway.cli.client import StationClient, find_socket

        if self.api is None:
            return StationClient(find_socket(self.socket), timeout_seconds)
        from gateway.cli.remote import remote

        return StationClient(remote(self.api, self.token_file, self.authorities), timeout_seconds)


def meant(typed: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Meant:
    """The station that is meant. Raises ``UsageInvalid`` when two were typed."""
    from device_agent.errors import UsageInvalid

    socket, api = typed.get("socket"), typed.get("api")
    by_hand = bool(socket or api)
    if socket and api:
        raise UsageInvalid("a station is meant by its socket or by its API", found="--socket and --api")
    if not by_hand:
        api = environment.get(API_VARIABLE)
        socket = None if api else environment.get(SOCKET_VARIABLE)
    token_file = typed.get("token_file") or environment.get(TOKEN_FILE_VARIABLE)
    authorities = typed.get("ca") or environment.get(AUTHORITIES_VARIABLE)
    return Meant(
        socket=Path(socket) if socket else None,
        api=str(api) if api else None,
        token_file=Path(token_file) if token_file else None,
        authorities=Path(authorities) if authorities else None,
        typed=by_hand,
    )
