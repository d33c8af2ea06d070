"""The API's unix socket: who may connect, and who is asking."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from device_agent.errors import ConfigInvalid
from device_agent.parts import leaves
from gateway.api.operation import Asked, Operation
from gateway.api.server import ApiServer
from tests.peers.station import ask

ME = pwd.getpwuid(os.geteuid()).pw_name


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[ApiServer]:
    """A server with one operation."""

    async def whoami(asked: Asked) -> dict[str, str]:
        return {"user": asked.user}

    async with ApiServer(path, [Operation("GET", "/whoami", "Who asks", whoami)], on_stop=lambda: None) as server:
        yield server


async def test_the_socket_is_for_its_owner_and_group_alone(tmp_path: Path) -> None:
    path = tmp_path / "run" / "api.sock"
    async with served(path):
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert not path.exists()


async def test_who_asks_is_who_the_kernel_says(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    async with served(path):
        assert (await ask(path, "GET", "/whoami")).json() == {"user": ME}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_another_user_is_named_and_one_without_a_name_by_his_number(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    program = (
        "import os, socket, sys; os.setgroups([]); os.setuid(int(sys.argv[2]));"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        "s.sendall(b'GET /whoami HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n');"
        "sys.stdout.write(s.makefile().read())"
    )
    import sys

    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    nobody = pwd.getpwnam("nobody")
    async with served(path):
        path.chmod(0o666)
        for number, name in ((nobody.pw_uid, nobody.pw_name), (54321, "uid 54321")):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, str(path), str(number), stdout=asyncio.subprocess.PIPE
            )
            async with asyncio.timeout(60):
                out, _ = await process.communicate()
            assert json.loads(out.decode().rpartition("\n")[2]) == {"user": name}


async def test_a_second_station_on_the_same_socket_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    async with served(path):
        with pytest.raises(ExceptionGroup) as error:
            async with served(path):
                raise AssertionError("two stations at one socket")
        (reason,) = leaves(error.value)
        assert isinstance(reason, ConfigInvalid)
        assert (reason.what, reason.found) == ("another station answers at this socket", str(path))
        assert (await ask(path, "GET", "/whoami")).status == 200


async def test_a_socket_that_a_killed_station_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    path.chmod(0o777)
    async with served(path):
        assert (await ask(path, "GET", "/whoami")).status == 200
        assert stat.S_IMODE(path.stat().st_mode) == 0o660


@pytest.mark.parametrize(
    ("name", "made"), [("x" * 120, False), ("file", True), ("folder", True)], ids=["too long", "a file", "a folder"]
)
async def test_a_path_that_can_be_no_socket_stops_the_start_and_is_not_touched(
    name: str, made: bool, tmp_path: Path
) -> None:
    path = tmp_path / name
    if name == "file":
        path.write_text("precious")
    elif name == "folder":
        path.mkdir()
    with pytest.raises(ExceptionGroup) as error:
        async with served(path):
            raise AssertionError("it was made")
    (reason,) = leaves(error.value)
    assert isinstance(reason, ConfigInvalid)
    assert reason.where == "socket"
    assert path.exists() == made
    assert name != "file" or path.read_text() == "precious"
