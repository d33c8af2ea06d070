"""Salt's ``webhook`` engine: what is posted to it becomes an event, with the path in its tag. It asks for a token."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from device_agent.errors import UsageInvalid
from gateway.engines.context import current
from gateway.engines.listening import Came, Door, Turned, listen

KEPT_OUT: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers with secrets, which everybody who hears events would hear."""

BODY_BYTES: Final = 48 * 1024
"""An event has 64 KiB."""


def start(
    address: str = "127.0.0.1",
    port: int = 5000,
    ssl_crt: str = "",
    ssl_key: str = "",
    token: str = "",
    tag_prefix: str = "salt/engines/hook",
) -> None:
    """Listen for ever; ``headers`` and ``body`` are in the event, as in Salt. Raises ``ValueError`` and ``OSError``."""
    context = current()

    async def take(came: Came) -> str:
        headers = {name: value for name, value in came.headers.items() if name.lower() not in KEPT_OUT}
        data: dict[str, Any] = {"headers": headers, "body": came.body.decode("utf-8", "replace")}
        words = came.path.strip("/")
        try:
            await asyncio.to_thread(context.client().fire, f"{tag_prefix}/{words}" if words else tag_prefix, data)
        except UsageInvalid as error:
            raise Turned("event", f"{error.what}: {error.found}"[:300]) from None
        context.report.add("fired")
        return ""

    door = Door(address=address, port=port, token=token, certificate=ssl_crt, key=ssl_key, body_bytes=BODY_BYTES)
    asyncio.run(listen(context, door, take))
