"""A user who may only look, or a stranger, opens as many connections to the API as it gets, and says little on them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import pwd
import resource
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from gateway.api import connection as connection_module
from gateway.api import operation as operation_module
from gateway.api.listener import Listen
from gateway.api.places import PLACES, places_now
from gateway.api.server import DoorName
from gateway.devices.policy import Policy, Role
from tests.integration.test_api_port import Gate, a_gate
from tests.peers.certificate import self_made
from tests.peers.station import SECONDS, ask
from tests.peers.waiting import until

ADMIN: frozenset[Role] = frozenset({"admin"})
POLICY = Policy({pwd.getpwuid(os.geteuid()).pw_name: ADMIN, "ada": ADMIN}, {}, frozenset({"viewer"}))
MANY = PLACES + 18
IDLE = """
import os, resource, socket, sys
path, count, user = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
os.setgroups([]); os.setuid(user)
held = []
for _ in range(count):
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(60)
    one.connect(path)
    held.append(one)
print("held", flush=True)
sys.stdin.readline()
ended = 0
for one in held:
    try:
        ended += one.recv(1) == b""
    except ConnectionResetError:
        ended += 1
print(ended, flush=True)
"""


@contextmanager
def flood(port: int, count: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections of one address that are never finished."""
    with ExitStack() as stack:
        held = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS))
            if said:
                one.sendall(said)
            held.append(one)
        yield held


async def held_by_nobody(gate: Gate, door: DoorName = "port") -> None:
    """Wait until no connection has a place."""
    await until(lambda: not gate.server.places[door].held, what="every place is free")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_idle_connections_of_a_viewer_at_the_socket_keep_nobody_out_and_end_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "HEAD_SECONDS", 5.0)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    async with a_gate(tmp_path, POLICY) as gate:
        path = tmp_path / "api.sock"
        path.chmod(0o666)
        viewer = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", IDLE, str(path), str(MANY), "54321"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert viewer.stdin is not None
        assert viewer.stdout is not None
        async with asyncio.timeout(SECONDS):
            assert await viewer.stdout.readline() == b"held\n"
        assert gate.server.places["socket"].held <= PLACES // 4
        assert (await ask(path, "GET", "/whoami")).json()["roles"] == ["admin"]
        assert gate.metrics.refusals["api", "too_many_connections"] >= MANY - PLACES // 4
        # They said nothing, so none of them is there any more after the time for a head.
        await held_by_nobody(gate, "socket")
        async with asyncio.timeout(SECONDS):
            out, _ = await viewer.communicate(b"\n")
        assert int(out) == MANY


async def test_a_user_with_too_many_connections_is_told_so(tmp_path: Path) -> None:
    async with a_gate(tmp_path, Policy({}, {}, frozenset({"viewer"}))) as gate:
        path = tmp_path / "api.sock"
        with ExitStack() as stack:
            for _ in range(PLACES // 4):
                stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
            await until(lambda: gate.server.places["socket"].held == PLACES // 4, what="the share is used up")
            heard = await ask(path, "GET", "/whoami")
            assert (heard.status, heard.error["id"]) == (503, "api.too_many_connections")
        await held_by_nobody(gate, "socket")
        assert (await ask(path, "GET", "/whoami")).status == 200


async def test_a_group_makes_an_admin_also_when_every_place_of_users_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [frozenset({"wheel"}), frozenset[str]()]
    monkeypatch.setattr("gateway.api.door.unix_groups", lambda _: groups[0])
    async with a_gate(tmp_path, Policy({}, {"wheel": ADMIN}, frozenset({"viewer"}))) as gate:
        path, places = tmp_path / "api.sock", gate.server.places["socket"]
        others = [places.take("user", f"user {number % 2}", lambda: None) for number in range(PLACES // 2)]
        assert all(others)
        assert (await ask(path, "GET", "/whoami")).status == 200
        gate.door._groups.clear()
        groups.reverse()
        assert (await ask(path, "GET", "/whoami")).status == 503

        def no_answer(_: int) -> frozenset[str]:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        # A user database that does not answer makes nobody an admin, and ends nothing.
        with monkeypatch.context() as broken:
            broken.setattr("gateway.api.door.unix_groups", no_answer)
            gate.door._groups.clear()
            heard = await ask(path, "GET", "/whoami")
            assert heard.status == 503
            assert heard.error["id"] in {"api.groups_unknown", "api.too_many_connections"}
        gate.door._groups.clear()
        groups.reverse()
        assert (await ask(path, "GET", "/whoami")).status == 200


async def test_strangers_who_never_finish_the_tls_handshake_keep_no_token_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.api.server.HEAD_SECONDS", 5.0)
    certificate, key = self_made(tmp_path)
    async with a_gate(tmp_path, POLICY, Listen("127.0.0.1:0", str(certificate), str(key))) as gate:
        with flood(gate.port, MANY):
            assert await _over_tls(gate, certificate, await gate.token("ada", "admin")) == 200
            assert gate.server.places["port"].held <= PLACES // 8
            await held_by_nobody(gate)


async def test_strangers_who_say_nothing_inside_tls_are_aborted_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "HEAD_SECONDS", 1.0)
    monkeypatch.setattr("gateway.api.acceptor.SHUTDOWN_SECONDS", 10 * SECONDS)
    certificate, key = self_made(tmp_path)
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    async with a_gate(tmp_path, POLICY, Listen("127.0.0.1:0", str(certificate), str(key))) as gate:
        writers = []
        for _ in range(10):
            _, writer = await asyncio.open_connection("127.0.0.1", gate.port, ssl=context)
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # it never hears that the other side closes
            writers.append(writer)
        await held_by_nobody(gate)
        for writer in writers:
            writer.transport.abort()


async def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    async with a_gate(tmp_path, POLICY) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        writer.write(b"POST /whoami HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\na")
        async with asyncio.timeout(SECONDS):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 401")
        assert b"\r\nconnection: close\r\n" in answer.lower()
        writer.close()
        await held_by_nobody(gate)


async def test_a_slow_body_and_a_request_that_trickles_in_behind_an_answer_end_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_module, "BODY_SECONDS", 0.2)
    monkeypatch.setattr(connection_module, "HEAD_SECONDS", 1.0)
    async with a_gate(tmp_path, POLICY) as gate:
        token = await gate.token("ada", "admin")
        head = f"Host: x\r\nAuthorization: Bearer {token}\r\n".encode()
        for request, status in (
            (b"POST /whoami HTTP/1.1\r\n" + head + b"Content-Length: 100000\r\n\r\na", b"408"),
            (b"GET /whoami HTTP/1.1\r\n" + head + b"\r\nG", b"200"),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
            writer.write(request)
            async with asyncio.timeout(SECONDS):
                answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 " + status), answer
            writer.close()


async def test_a_body_that_is_too_large_is_answered_although_it_still_comes(tmp_path: Path) -> None:
    async with a_gate(tmp_path, POLICY) as gate:
        heard = await ask(tmp_path / "api.sock", "POST", "/whoami", b" " * (3 * operation_module.BODY_BYTES))
        assert heard.status == 413
        token = await gate.token("ada", "admin")
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        head = f"POST /body HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 9999999\r\n\r\n"
        writer.write(head.encode() + b" " * (operation_module.BODY_BYTES + 1))
        async with asyncio.timeout(SECONDS):
            assert (await reader.read()).startswith(b"HTTP/1.1 413")
        writer.close()


async def test_streams_of_a_viewer_leave_places_for_its_requests_and_for_others(tmp_path: Path) -> None:
    async with a_gate(tmp_path, POLICY) as gate:
        viewer, admin = await gate.token("eve"), await gate.token("ada", "admin")
        asked = f"GET /forever HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {viewer}\r\n\r\n".encode()
        with flood(gate.port, PLACES // 8, asked):
            await until(lambda: gate.streams == PLACES // 8, what="the streams are open")
            heard = await gate.ask(f"Bearer {viewer}", "/forever")
            assert (heard.status, heard.error["id"]) == (429, "api.too_many_streams")
            assert (await gate.ask(f"Bearer {viewer}")).status == 200
            assert (await gate.ask(f"Bearer {admin}")).status == 200
        await held_by_nobody(gate)


async def _over_tls(gate: Gate, certificate: Path, token: str) -> int:
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port, ssl=context)
    writer.write(
        f"GET /whoami HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
    async with asyncio.timeout(SECONDS):
        status = int((await reader.readline()).split()[1])
        assert json.loads((await reader.read()).rpartition(b"\r\n\r\n")[2])["name"] == "ada"
    writer.close()
    return status


def test_a_station_that_may_open_few_files_has_fewer_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert places_now() == 128
    monkeypatch.setattr(resource, "getrlimit", lambda _: (65_536, 65_536))
    assert places_now() == PLACES
