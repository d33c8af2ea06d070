"""Serves the numbers of the station to Prometheus, at ``/metrics`` of an address."""

from __future__ import annotations

import asyncio
from contextlib import closing
from http.client import HTTPException
from typing import Final

from device_agent.errors import NotRunning
from gateway.cli.client import UnixConnection
from gateway.engines.context import Context, current
from gateway.engines.listening import Came, Door, Turned, listen

SECONDS: Final = 10.0
TEXT_BYTES: Final = 64 * 1024 * 1024


def start(token: str = "", address: str = "127.0.0.1", port: int = 9108, certificate: str = "", key: str = "") -> None:
    """Listen for ever. Raises ``ValueError`` and ``OSError``."""
    context = current()

    async def take(came: Came) -> str:
        if came.path != "/metrics":
            raise Turned("path", "there is /metrics", 404)
        text = await asyncio.to_thread(_metrics, context)
        context.report.add("scraped")
        return text

    door = Door(address=address, port=port, token=token, certificate=certificate, key=key, body_bytes=1024)
    asyncio.run(listen(context, door, take, methods=("GET",)))


def _metrics(context: Context) -> str:
    try:
        with closing(UnixConnection(context.api, SECONDS)) as connection:
            connection.request("GET", "/metrics")
            with connection.getresponse() as response:
                return response.read(TEXT_BYTES).decode()
    except (OSError, HTTPException) as error:
        raise NotRunning("the station does not answer", found=str(error)) from None
