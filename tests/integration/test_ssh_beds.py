"""The SSH downlink on real servers: OpenSSH with GNU's programs, dropbear with BusyBox alone, each login, each end."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncssh
import pytest

from gateway.config import SshSettings
from gateway.devices.ssh_secrets import Secret
from gateway.downlinks.ssh_width import START
from tests.peers.ssh_beds import SshBed, _descendants, dropbear, openssh
from tests.peers.ssh_site import ssh_site
from tests.peers.waiting import until


@pytest.fixture(scope="module")
def gnu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshBed]:
    with openssh(tmp_path_factory.mktemp("openssh")) as bed:
        yield bed


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshBed]:
    with dropbear(tmp_path_factory.mktemp("dropbear")) as bed:
        yield bed


def by_key(bed: SshBed) -> Secret:
    return Secret(private_key=bed.client_key.read_text())


async def test_every_login_leads_to_the_same_device(gnu: SshBed, small: SshBed, tmp_path: Path) -> None:
    key = asyncssh.read_private_key(gnu.client_key)
    locked = Secret(private_key=key.export_private_key("pkcs8-pem", passphrase="open").decode(), passphrase="open")
    certified = Secret(private_key=by_key(gnu).private_key, certificate=gnu.certificate("root").read_text())
    agent = tmp_path / "agent.sock"
    with running_agent(agent, gnu.client_key):
        async with ssh_site(tmp_path / "site", SshSettings(connect_seconds=20.0, agent_socket=str(agent))) as site:
            keys = gnu.host_keys
            await site.add("by-password", gnu.port, keys, Secret(password=gnu.password))
            await site.add("by-key", gnu.port, keys[1:], by_key(gnu))
            await site.add("by-locked-key", gnu.port, keys, locked)
            await site.add("by-certificate", gnu.port, keys, certified, login="certificate")
            await site.add("by-agent", gnu.port, keys, Secret(), login="agent")
            await site.add("small-password", small.port, small.host_keys[:1], Secret(password=small.password))
            await site.add("small-key", small.port, small.host_keys, by_key(small))
            names = ["by-password", "by-key", "by-locked-key", "by-certificate", "by-agent"]
            names += ["small-password", "small-key"]
            await site.here(*names)
            ended = await site.run("cmd.run", *names, arg=["id -un"])
            assert {name: each.value for name, each in ended.items()} == dict.fromkeys(names, "root")


async def test_a_pin_by_fingerprint_alone_learns_the_key_and_takes_no_other(gnu: SshBed, tmp_path: Path) -> None:
    async with ssh_site(tmp_path) as site:
        await site.add("cam-1", gnu.port, gnu.host_keys[:1], by_key(gnu), known=False)
        await site.here("cam-1")

        def learned() -> bool:
            device = site.site.ssh_book.by_name("cam-1")
            return device is not None and device.host_keys == gnu.host_keys[:1]

        await until(learned, what="the key is kept")


async def test_a_device_that_stops_answering_under_a_command_is_noticed(tmp_path: Path) -> None:
    settings = SshSettings(connect_seconds=8.0, keepalive_seconds=2.0)
    with openssh(tmp_path / "bed-1") as stuck, openssh(tmp_path / "bed-2") as well:
        async with ssh_site(tmp_path / "site", settings) as site:
            await site.add("stuck", stuck.port, stuck.host_keys, by_key(stuck))
            await site.add("well", well.port, well.host_keys, by_key(well))
            await site.here("stuck", "well")
            jid = await site.start("cmd.run", "stuck", arg=["sleep 60077"])
            await until(lambda: stuck.running("60077"), what="the command")
            for process in (stuck.init, *_descendants(stuck.init)):
                os.kill(process, signal.SIGSTOP)
            assert (await site.run("test.ping", "well"))["well"].outcome == "ok"
            ended = (await site.outcomes(jid))["stuck"]
            assert (ended.outcome, ended.executions) == ("unknown", 1)
            await site.away("stuck", "timed_out: no answer within 8 s while waiting for its first word")


async def test_the_death_of_a_device_under_a_command_leaves_it_unknown_and_it_comes_back(tmp_path: Path) -> None:
    with dropbear(tmp_path / "bed") as bed:
        async with ssh_site(tmp_path / "site") as site:
            await site.add("cam-1", bed.port, bed.host_keys, by_key(bed))
            await site.here("cam-1")
            jid = await site.start("cmd.run", "cam-1", arg=["sleep 60077"])
            await until(lambda: bed.running("60077"), what="the command")
            bed.power_cut()
            assert (await site.outcomes(jid))["cam-1"].outcome == "unknown"
            await site.here("cam-1")
            assert (await site.run("cmd.run", "cam-1", arg=["echo back"]))["cam-1"].value == "back"


@contextmanager
def running_agent(socket: Path, key: Path) -> Iterator[None]:
    """An SSH agent that holds one key, for as long as the block lasts."""
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    environment = {**os.environ, "SSH_AUTH_SOCK": str(socket)}
    try:
        while subprocess.run(["ssh-add", "-q", key], env=environment, check=False, capture_output=True).returncode:
            assert agent.poll() is None
        yield
    finally:
        agent.kill()
        agent.wait()


async def test_a_server_that_drops_logins_is_asked_less_at_once_until_all_are_in(small: SshBed, tmp_path: Path) -> None:
    # Dropbear lets five be on their way in from one address, and hangs up on the sixth.
    async with ssh_site(tmp_path, SshSettings(connect_seconds=20.0)) as site:
        names = [f"cam-{number}" for number in range(40)]
        for name in names:
            await site.add(name, small.port, small.host_keys[:1], by_key(small))
        await until(lambda: all(site.device(name).present for name in names), what="all are in")
        status = site.ssh.status()
        assert (status["reached"], status["troubled"]) == (len(names), 0)
        assert status["width"] < START
        ended = await site.run("test.ping", *names)
        assert {each.outcome for each in ended.values()} == {"ok"}


async def test_a_key_with_a_passphrase_as_ssh_keygen_writes_it_opens_the_door(tmp_path: Path) -> None:
    folder = tmp_path / "bed"
    folder.mkdir()
    with openssh(folder) as bed:
        locked = tmp_path / "locked"
        shutil.copy(bed.client_key, locked)
        change = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", str(locked)]
        await asyncio.to_thread(lambda: subprocess.run(change, check=True, capture_output=True))
        assert "BEGIN OPENSSH PRIVATE KEY" in locked.read_text()
        async with ssh_site(tmp_path / "site") as site:
            await site.add("cam-1", bed.port, bed.host_keys, Secret(private_key=locked.read_text(), passphrase="wrong"))
            await site.away("cam-1", "login_unusable: the private key or its passphrase is not usable")
            secret = Secret(private_key=locked.read_text(), passphrase="open sesame")
            await site.add("cam-1", bed.port, bed.host_keys, secret, poll_seconds=30.0)
            await site.here("cam-1")
            assert (await site.run("cmd.run", "cam-1", arg=["echo in"]))["cam-1"].value == "in"
