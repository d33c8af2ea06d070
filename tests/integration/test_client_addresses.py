"""From where devices ask to join, as a real mosquitto tells it."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.broker.passwords import hash_password
from gateway.broker.rules import ENROLL_PASSWORD, ENROLL_USER
from gateway.broker.start import find_mosquitto
from gateway.devices.client_addresses import ClientAddresses
from tests.peers.broker import free_port
from tests.peers.joining import a_device
from tests.peers.waiting import until

LET_IN = b"\x20\x02\x00\x00"
SETTINGS = """
listener {port} 127.0.0.1
allow_anonymous false
password_file {passwords}
log_dest stderr
log_timestamp false
log_type error
log_type warning
log_type notice
connection_messages true
"""


async def _connected(port: int, client: str, user: str, password: str) -> bytes:
    """Connect once, and go again; the broker's answer (MQTT 3.1.1, sections 3.1 and 3.2)."""
    fields = [client.encode(), user.encode(), password.encode()]
    body = b"\x00\x04MQTT\x04\xc2\x00\x3c" + b"".join(len(each).to_bytes(2, "big") + each for each in fields)
    length = bytes([len(body)]) if len(body) < 128 else bytes([len(body) % 128 | 128, len(body) // 128])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x10" + length + body)
    async with asyncio.timeout(60):
        answer = await reader.readexactly(4)
    writer.write(b"\xe0\x00")
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return answer


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below tmp_path, which only its owner may enter: the broker has a user."""
    with tempfile.TemporaryDirectory(prefix="outstation-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed")
async def test_the_broker_tells_from_where_a_device_asks_and_nobody_can_make_it_tell_otherwise(folder: Path) -> None:
    port, passwords = free_port(), folder / "passwords"
    device, other = a_device("cam-1"), a_device("cam-2")
    passwords.write_text(f"{ENROLL_USER}:{hash_password(ENROLL_PASSWORD)}\n{other.did}:{hash_password('secret')}\n")
    settings = folder / "mosquitto.conf"
    settings.write_text(SETTINGS.format(port=port, passwords=passwords))
    program = find_mosquitto()
    assert program is not None
    process = await asyncio.create_subprocess_exec(program, "-c", str(settings), stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    addresses, left = ClientAddresses(), []

    async def read(lines: asyncio.StreamReader) -> None:
        while line := await lines.readline():
            if not addresses.line(text := line.decode()):
                left.append(text)

    try:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read(process.stderr))
            hostile = f"{other.did} (p2, c1, k60, u'{ENROLL_USER}')."
            await until(lambda: accepts(port), what="the broker")
            for client in (hostile, f"x as {hostile}", device.did):
                assert await _connected(port, client, ENROLL_USER, ENROLL_PASSWORD) == LET_IN
            assert await _connected(port, other.did, other.did, "secret") == LET_IN
            assert await _connected(port, other.did, ENROLL_USER, "wrong") != LET_IN
            await until(lambda: addresses.of(device.did) == "127.0.0.1", what="the address of the device")
            process.terminate()
            await reading
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    assert addresses.of(other.did) == ""
    # The rest is what the broker says of itself.
    assert not [line for line in left if "onnect" in line]
