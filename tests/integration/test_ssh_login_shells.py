"""A command arrives unchanged whatever the login shell of the account is."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agent.host import Completed
from gateway.devices.ssh_secrets import Secret
from tests.peers.login_shells import IMITATED, SHELLS, login_shell
from tests.peers.ssh_played import PASSWORD, PlayedDevice, played_device
from tests.peers.ssh_site import ssh_site

LOGIN = Secret(password=PASSWORD)
TEXTS = (
    r"a\\b",
    r"\'",
    "wow! !! !$",
    "two\nlines",
    "tab\there",
    "Gerät",
    "$HOME `id` %s",
    "\\\\server\\share",
    "~ * ?",
)


@pytest.mark.parametrize("shell", [*SHELLS, *(f"imitated-{name}" for name in IMITATED)])
async def test_a_command_arrives_unchanged(tmp_path: Path, shell: str) -> None:
    folder = tmp_path / "a\\\\b's !folder"
    folder.mkdir()
    async with played_device() as camera, ssh_site(tmp_path / "site") as site:
        camera.login_shell = login_shell(shell)
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")
        # The argument that arrives is: printf '%s' 'a\\b'
        ended = (await site.run("cmd.run", "cam-1", arg=[r"printf '%s' 'a\\b'"]))["cam-1"]
        assert (ended.outcome, ended.value) == ("ok", r"a\\b")
        stead = site.ssh._steads["cam-1"]
        async with stead.line.lend() as host:
            for text in ("|".join(TEXTS), "|".join(TEXTS) * 300):
                done = await host.run(["printf", "%s|%s", text, "end"], env={"LC_ALL": "C"})
                assert done == Completed(0, f"{text}|end".encode(), b"")
            done = await host.run(
                ["sh", "-c", 'cat; printf "%s" "$V"; pwd'], stdin=b"in\\\\put!\n", cwd=str(folder), env={"V": r"\\!'"}
            )
            assert done.stdout == b"in\\\\put!\n" + rb"\\!'" + f"{folder}\n".encode()
            stopped = await host.run(["sleep", "600"], timeout=0.5)
            assert stopped.timed_out
        assert is_quiet(camera)


def is_quiet(camera: PlayedDevice) -> bool:
    """Whether every line that the device was given is printable ASCII."""
    return all(command.isascii() and command.isprintable() for command in camera.commands)
