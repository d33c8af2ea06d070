"""The functions of services take names alone: no path, option or pattern reaches a program that would follow it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from device_agent import loader
from device_agent.accounts.database import _DATABASE
from device_agent.ended import FunctionFailed
from device_agent.files import find
from device_agent.host import Completed
from device_agent.init_systems.openrc import OpenRc
from device_agent.init_systems.scripts import BusyBox, Procd, SysV
from device_agent.protocol.file_questions import FileEntry, encode
from tests.peers.empty_host import EmptyHost

NO_NAMES = (
    "/var/cache/evil.service",
    "../evil",
    "evil/../x",
    "-f",
    "--root=/x",
    "e*",
    "[e]vil",
    "",
    "a b",
    "a\n",
    "~/x",
)
TAKES_A_NAME = (
    "available disable disabled enable enabled force_reload mask masked missing reload restart show start status stop"
    " unmask"
)


class SystemdHost(EmptyHost):
    """A host with systemd: it keeps the commands and answers each with ``said``."""

    def __init__(self, init: str = "systemd", said: bytes = b"") -> None:
        super().__init__({"id": "cam-7"})
        self.init = init
        self.said = said
        self.commands: list[list[str]] = []

    async def run(self, argv: Sequence[str] | str, **_: Any) -> Completed:
        words = list(argv)[4:]
        if not words:
            return Completed(0, f"{self.init}\n".encode(), b"")
        self.commands.append(words)
        return Completed(0, self.said, b"")


@pytest.mark.parametrize("fun", TAKES_A_NAME.split())
@pytest.mark.parametrize("name", NO_NAMES)
async def test_a_service_is_named_and_never_a_path(fun: str, name: str) -> None:
    host = SystemdHost()
    ended = await loader.call(f"service.{fun}", host, [name], {})
    if fun == "status" and name in {"e*", "[e]vil"}:
        assert ended.value == {}, "a pattern is held against the names of the services"
        return
    assert ended.outcome == "failed"
    assert "there is no service" in ended.why
    assert host.commands == []


@pytest.mark.parametrize("fun", ["service.start", "service.restart"])
async def test_a_name_of_a_service_reaches_systemctl(fun: str) -> None:
    host = SystemdHost()
    assert (await loader.call(fun, host, ["ssh"], {})).value is True
    assert host.commands == [["systemctl", "--no-pager", fun.partition(".")[2], "--", "ssh"]]


@pytest.mark.parametrize(("state", "outcome"), [(b"inactive\n", "failed"), (b"active\n", "ok"), (b"failed\n", "ok")])
async def test_an_instance_is_restarted_only_where_it_was_before(state: bytes, outcome: str) -> None:
    host = SystemdHost(said=state)
    ended = await loader.call("service.restart", host, ["openvpn@office"], {})
    assert ended.outcome == outcome
    assert any("restart" in words for words in host.commands) is (outcome == "ok")


@pytest.mark.parametrize("kind", [SysV, Procd, BusyBox, OpenRc])
async def test_no_script_outside_the_folder_of_services_is_run(kind: Any) -> None:
    host = SystemdHost()
    for name in ("../../var/cache/evil", "/var/cache/evil"):
        with pytest.raises(FunctionFailed):
            await kind(host).running(name)
        with pytest.raises(FunctionFailed):
            await kind(host).act(name, "start")
    assert not any("evil" in word for words in host.commands for word in words)


async def test_a_parameter_of_the_kernel_is_no_way_out_of_proc() -> None:
    host = SystemdHost()
    for name in ("kernel/../../../etc/shadow", "kernel.//.//.//.etc.shadow"):
        ended = await loader.call("sysctl.get", host, [name], {})
        assert ended.outcome == "failed", name
        assert "is no parameter" in ended.why
    assert host.commands == []


async def test_process_1_is_sent_no_signal() -> None:
    host = SystemdHost()
    assert (await loader.call("ps.kill_pid", host, [1, 35], {})).outcome == "failed"
    assert host.commands == []


@pytest.mark.parametrize("fun", ["pkg.hold", "pkg.unhold", "pkg.latest_version", "pkg.info_installed"])
async def test_a_package_is_named_and_never_a_file(fun: str) -> None:
    host = SystemdHost("apt-get", b"")
    for name in ("/tmp/x.deb", "./x.deb", "https://example.com/x.ipk", "-o"):
        ended = await loader.call(fun, host, [name], {"refresh": False} if "latest" in fun else {})
        assert ended.outcome == "failed", name
        assert not any(name in words for words in host.commands)


class Elsewhere:
    """A station that answers for another path than the one it was asked for."""

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 0.0) -> bytes:
        return encode(FileEntry("../../../../etc/cron.d/x", "base", 1, "0" * 64))


async def test_a_station_cannot_answer_with_another_path() -> None:
    with pytest.raises(FunctionFailed, match="another path"):
        await find(Elsewhere(), "fw.bin", "base")


def test_the_name_of_a_user_is_no_option_of_getent(tmp_path: Path) -> None:
    program = tmp_path / "getent"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)

    def said(name: str) -> str:
        words = ["/bin/sh", "-c", _DATABASE, "sh", "passwd", "", name]
        return subprocess.run(words, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True).stdout

    assert said("root") == "passwd root\n"
    assert said("--service=evil") == ""
