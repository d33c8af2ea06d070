"""SSH servers that are right and unusual: text in other encodings, old algorithms, hang-ups behind the login."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from asyncssh.packet import Boolean, String, UInt32

from gateway.config import SshSettings
from gateway.devices.ssh_device import host_key_fingerprint
from gateway.devices.ssh_secrets import Secret
from gateway.downlinks.ssh_scan import ScanFailed, scan
from tests.peers.ssh_beds import SshBed, openssh
from tests.peers.ssh_played import PASSWORD, PlayedDevice, new_key, played_device, shell
from tests.peers.ssh_site import ssh_site
from tests.peers.waiting import until

LOGIN = Secret(password=PASSWORD)
LATIN_1 = "Unbefugter Zugriff auf dieses Gerät ist verboten\r\n".encode("iso-8859-1")
SHOWN = "Unbefugter Zugriff auf dieses Ger\\xe4t ist verboten"


def by_key(bed: SshBed) -> Secret:
    return Secret(private_key=bed.client_key.read_text())


async def test_a_banner_and_a_version_that_are_not_utf_8_keep_no_gateway_out(tmp_path: Path) -> None:
    with openssh(tmp_path / "bed", settings="Banner /etc/ssh/banner\nVersionAddendum Gerät") as bed:
        (bed.root / "etc/ssh/banner").write_bytes(LATIN_1)
        assert {key.line for key in await scan("127.0.0.1", bed.port)} == set(bed.host_keys)
        async with ssh_site(tmp_path / "site") as site:
            await site.add("s", bed.port, bed.host_keys[:1], by_key(bed), known=False)
            await site.here("s")
            assert (await site.run("test.ping", "s"))["s"].value is True


Act = Callable[[asyncssh.SSHServerProcess[bytes]], None]


def debug(process: asyncssh.SSHServerProcess[bytes]) -> None:
    process.channel.get_connection().send_packet(4, Boolean(True), String(LATIN_1), String(b"\xe4"))


def disconnect(process: asyncssh.SSHServerProcess[bytes]) -> None:
    connection = process.channel.get_connection()
    connection.send_packet(1, UInt32(12), String(LATIN_1), String(b"\xe4"))
    connection.abort()


def signal(process: asyncssh.SSHServerProcess[bytes]) -> None:
    channel: Any = process.channel
    channel.send_packet(
        98, String("exit-signal"), Boolean(False), String("TERM"), Boolean(False), String(LATIN_1), String(b"\xe4")
    )
    process.close()


async def test_messages_in_another_encoding_are_shown_and_break_nothing(tmp_path: Path) -> None:
    acts: list[Act] = []

    async def speaking(process: asyncssh.SSHServerProcess[bytes]) -> None:
        for act in acts:
            act(process)
        if not process.is_closing():
            await shell(process)

    async with played_device(speaking) as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")
        acts[:] = [debug]
        assert (await site.run("cmd.run", "cam-1", arg=["echo here"]))["cam-1"].value == "here"
        acts[:] = [signal]
        ended = (await site.run("cmd.run", "cam-1", arg=["echo here"]))["cam-1"]
        assert ended.outcome == "failed", ended
        assert camera.logins == 1, "one connection for all of it"
        acts[:] = [disconnect]
        ended = (await site.run("cmd.run", "cam-1", arg=["echo here"]))["cam-1"]
        assert ended.outcome == "unknown"
        assert SHOWN in (ended.why or "")


class Asking(asyncssh.SSHServer):
    """Asks for the password in German, in ISO 8859-1, or wants another one first."""

    def __init__(self, *, change: bool) -> None:
        self._change = change
        self.told: list[str] = []

    def password_auth_supported(self) -> bool:
        return self._change

    def validate_password(self, username: str, password: str) -> bool:
        raise asyncssh.PasswordChangeRequired(LATIN_1)  # type: ignore[arg-type] # bytes are sent as they are

    def kbdint_auth_supported(self) -> bool:
        return not self._change

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> Any:
        return LATIN_1, LATIN_1, b"\xe4", [("Kennwort für root: ".encode("iso-8859-1"), False)]

    def validate_kbdint_response(self, username: str, responses: Any) -> bool:
        self.told += responses
        return list(responses) == [PASSWORD]


@asynccontextmanager
async def asking(server: Asking) -> AsyncIterator[PlayedDevice]:
    device = PlayedDevice(new_key(), home=Path("/nonexistent"))

    class Remembering(Asking):
        def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
            conn.set_extra_info(device=device)

    server.__class__ = Remembering
    listener = await asyncssh.create_server(
        lambda: server, "127.0.0.1", 0, server_host_keys=[device.key], process_factory=shell, encoding=None
    )
    device.port = listener.sockets[0].getsockname()[1]
    try:
        yield device
    finally:
        listener.close()
        await listener.wait_closed()


async def test_a_prompt_in_any_language_and_encoding_is_answered_with_the_password_once(tmp_path: Path) -> None:
    server = Asking(change=False)
    async with asking(server) as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")
        assert server.told == [PASSWORD]
        server.told.clear()
        await site.add("cam-1", camera.port, camera.host_keys, Secret(password="wrong"), poll_seconds=30.0)
        await site.away("cam-1", "login_refused: ")
        assert server.told == ["wrong"], "once: some accounts are locked after three"


async def test_a_device_that_wants_a_new_password_first_is_quoted(tmp_path: Path) -> None:
    async with asking(Asking(change=True)) as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.away("cam-1", "login_refused: the device wants a new password first; it said 'Unbefugter")


async def test_a_device_that_hangs_up_at_each_command_is_tried_less_and_less(tmp_path: Path) -> None:
    async def closer(process: asyncssh.SSHServerProcess[bytes]) -> None:
        process.channel.get_connection().abort()

    await waits_grow(closer, tmp_path)


async def test_a_device_whose_grains_break_the_line_is_tried_less_and_less(tmp_path: Path) -> None:
    async def part(process: asyncssh.SSHServerProcess[bytes]) -> None:
        if "uname" in (process.command or ""):
            process.channel.get_connection().abort()
        else:
            await shell(process)

    await waits_grow(part, tmp_path)


async def waits_grow(handle: Callable[[asyncssh.SSHServerProcess[bytes]], Any], folder: Path) -> None:
    async with played_device(handle) as camera, ssh_site(folder) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.away("cam-1", "connection_lost: ")
        stead = site.ssh._steads["cam-1"]
        for count in (2, 3):
            await until(lambda: camera.logins == count, what=f"login {count}")  # noqa: B023 - awaited in the same turn
            await until(lambda: stead.line.breaker.failures == count, what="its failure")  # noqa: B023 - as above
            assert not stead.line.connected
        view = site.ssh.view("cam-1")
        assert view is not None
        assert view["why"].startswith("connection_lost: ")
        # The fourth wait is 8 to 16 s; after a login alone it would begin with 1 s again.
        assert stead.line.breaker.until - stead.line._ways.clock.monotonic() > 2.0
        assert (await site.run("cmd.run", "cam-1", arg=["echo"]))["cam-1"].outcome == "unreachable"
        assert camera.logins == 3, "a job is no reason to log in sooner"


async def test_a_camera_with_ssh_rsa_alone_is_reached_by_its_fingerprint(tmp_path: Path) -> None:
    with openssh(
        tmp_path / "bed", settings="HostKeyAlgorithms ssh-rsa\nPubkeyAcceptedAlgorithms ssh-rsa,ssh-ed25519"
    ) as bed:
        async with ssh_site(tmp_path / "site") as site:
            await site.add("cam", bed.port, bed.host_keys[1:], by_key(bed), known=False)
            await site.here("cam")
            assert (await site.run("test.ping", "cam"))["cam"].value is True


async def test_the_pinned_key_is_asked_for_when_a_server_prefers_to_show_another(tmp_path: Path) -> None:
    with openssh(tmp_path / "bed") as bed:
        async with ssh_site(tmp_path / "site") as site:
            await site.add("cam", bed.port, bed.host_keys[1:], by_key(bed), known=False)
            await site.here("cam")

            def learned() -> bool:
                device = site.site.ssh_book.by_name("cam")
                return device is not None and device.host_keys == bed.host_keys[1:]

            await until(learned, what="the key is kept")


async def test_a_server_without_a_common_host_key_is_said_to_be_one(tmp_path: Path) -> None:
    with openssh(tmp_path / "bed", settings="HostKeyAlgorithms ssh-rsa") as bed:
        async with ssh_site(tmp_path / "site", SshSettings(connect_seconds=20.0)) as site:
            pinned = host_key_fingerprint(bed.host_keys[0])
            await site.add("cam", bed.port, bed.host_keys[:1], by_key(bed))
            await site.away(
                "cam",
                f"host_key_changed: it has no key of a kind that is pinned ({pinned}): no common host key algo",
            )
            view = site.ssh.view("cam")
            assert view is not None
            assert "ssh-rsa" in view["why"]


@pytest.mark.parametrize("kex", ["diffie-hellman-group14-sha1", "diffie-hellman-group18-sha512"])
async def test_the_scan_takes_no_key_exchange_that_the_login_refuses(tmp_path: Path, kex: str) -> None:
    with openssh(tmp_path / "bed", settings=f"KexAlgorithms {kex}") as bed:
        async with ssh_site(tmp_path / "site") as site:
            await site.add("cam", bed.port, bed.host_keys, by_key(bed))
            await site.away("cam", "no_common_algorithm: ")
        with pytest.raises(ScanFailed, match=f"no common key exchange algorithm: it offers {kex}"):
            await scan("127.0.0.1", bed.port)
