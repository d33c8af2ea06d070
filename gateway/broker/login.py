"""Whether a broker lets somebody in: the only proof that it runs, is ours, and has read what was written for it."""

from __future__ import annotations

import asyncio

from device_agent.exhausted import shortage
from device_agent.lean_mqtt import DISCONNECT, encode_connect
from device_agent.mqtt import BrokerAddress

ANSWER_SECONDS = 5.0
_ACCEPTED = b"\x20\x02\x00\x00"


async def lets_in(address: BrokerAddress) -> bool:
    """Log in and leave again; False too when nobody answers."""
    return await _answer(address) == _ACCEPTED


async def answers(address: BrokerAddress) -> bool:
    """Whether anything comes back, be it a refusal: one that hangs takes a connection and says nothing.

    True as well when this process has no descriptor left to ask with: that says nothing about the broker.
    """
    return shortage() is not None or bool(await _answer(address))


async def _answer(address: BrokerAddress) -> bytes:
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            if address.unix_socket is not None:
                reader, writer = await asyncio.open_unix_connection(address.unix_socket)
            else:
                reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(encode_connect("rules", 10, username=address.username, password=address.password))
            answer = await reader.readexactly(len(_ACCEPTED))
            if answer == _ACCEPTED:
                writer.write(DISCONNECT)
            return answer
    except (OSError, EOFError, TimeoutError):
        return b""
    finally:
        if writer is not None:
            writer.close()
