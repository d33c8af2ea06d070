"""A station whose address, name or interface is not there yet ends with a status that systemd starts again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import EXIT_NOT_ALL_OK
from tests.peers.broker import free_port
from tests.peers.certificate import self_made
from tests.peers.station import StationProcess

CERTIFICATE = {"certificate": "FOLDER/station.crt", "key": "FOLDER/station.key"}
"""Of an API; the word is replaced by the folder of the test."""


@pytest.mark.parametrize(
    ("role", "changed", "said"),
    [
        ("gateway", {"broker": {"host": "192.0.2.1"}}, "(broker.host 192.0.2.1)"),
        ("master", {"sites": {"listen": "tcp://192.0.2.77:4510"}}, "the address for sites cannot be used"),
        ("master", {"sites": {"listen": "tcp://eth99:4510"}}, "the address for sites cannot be used"),
        ("gateway", {"api": {"listen": "192.0.2.77:4512", **CERTIFICATE}}, "the API cannot listen there (api.listen)"),
        ("gateway", {"api": {"listen": "api.invalid:4512", **CERTIFICATE}}, "the API cannot listen there (api.listen)"),
    ],
    ids=["address of the broker", "address for sites", "interface for sites", "address of the API", "name of the API"],
)
async def test_an_address_that_is_not_here_yet_ends_with_a_status_that_is_started_again(
    role: str, changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    self_made(tmp_path)
    changed = json.loads(json.dumps(changed).replace("FOLDER", str(tmp_path)))
    given = {"broker": {"port": free_port()}, **changed} if role == "gateway" else changed
    station = StationProcess(tmp_path, role, given)
    await station.start()
    assert await station.ended() == EXIT_NOT_ALL_OK
    assert said in station.log_text()
    assert "Traceback" not in station.log_text()
