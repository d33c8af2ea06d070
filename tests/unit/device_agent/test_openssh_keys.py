"""device_agent/openssh_keys.py and openssh_files.py: lines of authorized_keys and known_hosts as OpenSSH reads them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from device_agent.ended import FunctionFailed
from device_agent.functions import ssh
from device_agent.local_host import LocalHost
from device_agent.openssh_keys import authorized, known_host
from tests.peers.ssh_public_keys import public_key
from tests.unit.device_agent.test_system_text import OTHER_ENDS

FIRST, SECOND, THIRD = (public_key(number) for number in (1, 2, 3))
USER = "root"

LINES = (
    f"ssh-ed25519 {FIRST}",
    f"ssh-ed25519 {FIRST} tech@office",
    f"ssh-ed25519 {FIRST}\r",
    f"ssh-ed25519 {FIRST} tech\r",
    f"ssh-ed25519\t{FIRST}\ttech\fbox",
    f"ssh-ed25519 {FIRST} x\rssh-ed25519 {THIRD}",
    f"ssh-ed25519 {FIRST} x\u2028ssh-ed25519 {THIRD}",
    f"ssh-ed25519\f{FIRST} tech",
    f"ssh-ed25519 {FIRST[:20]}\f{FIRST[20:]} tech",
    f"no-pty\u00a0x ssh-ed25519 {FIRST} tech",
    f"ssh-ed25519\u00a0{FIRST} tech",
    f'command="echo \\"a b\\"",no-pty ssh-ed25519 {FIRST}',
    f'command="a\\\\" ssh-ed25519 {FIRST}',
    f'command="a\\" ssh-ed25519 {FIRST} "',
    f'command="a b ssh-ed25519 {FIRST}',
    f'"x ssh-ed25519 {FIRST}',
    f'ssh-ed25519 "{FIRST}',
    f'ssh-ed25519 {FIRST} "tech',
    f"no-pty ssh-ed25519 {THIRD} ssh-ed25519 {FIRST}",
    f"\f ssh-ed25519 {FIRST}",
    f" # ssh-ed25519 {FIRST}",
    "",
)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="takes ssh-keygen")
@pytest.mark.parametrize("line", LINES)
def test_a_line_is_read_as_ssh_keygen_reads_it(line: str, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(f"{line}\n".encode())
    done = subprocess.run(["ssh-keygen", "-lf", file], capture_output=True, text=True, check=False, timeout=20)
    read = authorized(line)
    assert (done.returncode == 0) == (read is not None), (line, done.stdout, done.stderr)
    if read is not None:
        file.write_text(f"{read.enc} {read.key}\n", encoding="ascii")
        again = subprocess.run(["ssh-keygen", "-lf", file], capture_output=True, text=True, check=True, timeout=20)
        assert again.stdout.split()[1] == done.stdout.split()[1]


@pytest.mark.parametrize("end", OTHER_ENDS)
async def test_a_change_of_a_file_makes_no_second_key_of_a_comment(end: str, tmp_path: Path) -> None:
    file, host = tmp_path / "keys", LocalHost({})
    first = f"ssh-ed25519 {FIRST} x{end}ssh-ed25519 {THIRD}\n".encode()
    file.write_bytes(first)
    assert await ssh.set_auth_key(host, USER, SECOND, "ed25519", config=str(file)) == "new"
    assert file.read_bytes() == first + f"ssh-ed25519 {SECOND}\n".encode()
    assert set(await ssh.auth_keys(host, USER, config=str(file))) == {FIRST, SECOND}
    assert await ssh.rm_auth_key(host, USER, SECOND, config=str(file)) == "Key removed"
    assert file.read_bytes() == first


@pytest.mark.parametrize("end", [*OTHER_ENDS, "\n", "\0"])
async def test_a_comment_and_an_option_are_one_line_for_every_reader(end: str, tmp_path: Path) -> None:
    file, host = tmp_path / "keys", LocalHost({})
    for comment, options in ((f"x{end}ssh-ed25519 {THIRD}", []), ("", [f'environment="A={end}"'])):
        with pytest.raises(FunctionFailed, match="a key is one line") as failed:
            await ssh.set_auth_key(host, USER, FIRST, "ed25519", comment, options, config=str(file))
        assert failed.value.value == "invalid"
    assert not file.exists()


@pytest.mark.parametrize("option", [f"no-pty ssh-ed25519 {THIRD}", f"no-pty\tssh-rsa {THIRD}", 'command="a', '"x', "#"])
async def test_a_line_that_sshd_reads_as_another_key_is_refused(option: str, tmp_path: Path) -> None:
    file, host = tmp_path / "keys", LocalHost({})
    with pytest.raises(FunctionFailed, match="sshd would read") as failed:
        await ssh.set_auth_key(host, USER, FIRST, "ed25519", options=[option], config=str(file))
    assert failed.value.value == "invalid"
    assert not file.exists()


async def test_a_key_of_a_file_with_windows_line_ends_is_revoked(tmp_path: Path) -> None:
    file, host = tmp_path / "keys", LocalHost({})
    file.write_bytes(f"ssh-ed25519 {FIRST}\r\nssh-ed25519 {SECOND} tech\r\n".encode())
    assert await ssh.set_auth_key(host, USER, SECOND, "ed25519", "tech", config=str(file)) == "no change"
    assert await ssh.rm_auth_key(host, USER, FIRST, config=str(file)) == "Key removed"
    assert file.read_bytes() == f"ssh-ed25519 {SECOND} tech\r\n".encode()


async def test_the_key_of_a_host_stays_one_line(tmp_path: Path) -> None:
    file, host = tmp_path / "hosts", LocalHost({})
    line = f"a.example ssh-ed25519 {FIRST} x\rb.example ssh-ed25519 {THIRD}\n"
    file.write_bytes(line.encode())
    await ssh.set_known_host(
        host, None, "c.example", key=SECOND, enc="ed25519", config=str(file), hash_known_hosts=False
    )
    assert file.read_bytes() == f"{line}c.example ssh-ed25519 {SECOND}\n".encode()
    assert await ssh.check_known_host(host, None, "b.example", config=str(file)) == "add"


def test_a_known_host_is_split_at_blanks_that_ssh_knows() -> None:
    assert known_host(f"a\u00a0b ssh-ed25519 {FIRST}") is not None
    assert known_host(f"a ssh-ed25519\u00a0{FIRST} {SECOND}") is None
    found = known_host(f"@revoked\ta\tssh-ed25519\t{FIRST}\r")
    assert found is not None
    assert (found.marker, found.hostname, found.key) == ("@revoked", "a", FIRST)
