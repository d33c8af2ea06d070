"""``devices add``, ``set``, ``key`` and ``remove``: the real command line, API, store and SSH server."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from gateway.devices.ssh_device import host_key_fingerprint
from tests.peers.broker import free_port
from tests.peers.ssh_beds import SshBed, openssh
from tests.peers.ssh_desk import SshDesk, a_print, opened_desk

PASSWORD = "made up for this test"
OTHER = "SHA256:" + "A" * 43


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[SshDesk]:
    folder = tmp_path / "site"
    folder.mkdir()
    async with opened_desk(folder) as opened:
        yield opened


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[SshBed]:
    folder = tmp_path / "bed"
    folder.mkdir()
    with openssh(folder) as running:
        yield running


def prints(bed: SshBed) -> list[str]:
    return [host_key_fingerprint(line) for line in bed.host_keys]


# --- add --------------------------------------------------------------------------------------------------------------


async def test_a_device_is_added_by_the_fingerprint_that_it_shows_itself(desk: SshDesk, bed: SshBed) -> None:
    (first, _) = prints(bed)
    line = ("devices", "add", "cam-1", "--ssh", f"root@127.0.0.1:{bed.port}", "--password-file", "-")
    added = await desk.type(*line, "--fingerprint", first, said=f"{PASSWORD}\n")
    assert (added.status, added.error) == (0, "")
    assert added.out == f"added cam-1 root@127.0.0.1:{bed.port} by password\n"
    device = desk.book.by_name("cam-1")
    assert device is not None
    assert device.fingerprints == (first,)
    assert device.host_keys == bed.host_keys[:1]
    assert desk.book.secret("cam-1").password == PASSWORD
    again = await desk.type(*line, "--fingerprint", first, said=f"{PASSWORD}\n")
    assert (again.status, again.out.split(" cam")[0]) == (0, "left as it was")
    other = await desk.type(*line, "--fingerprint", first, said="another\n")
    assert (other.status, "devices set" in other.error) == (2, True)
    shown = await desk.ask("GET", "/ssh-devices/cam-1")
    assert PASSWORD not in json.dumps(shown) + added.out + str(desk.site.events("*"))
    audit = desk.site.look("SELECT user, action, subject, why, arguments FROM audit")
    assert PASSWORD not in str(audit)


async def test_without_anybody_to_ask_nothing_is_pinned_silently(desk: SshDesk, bed: SshBed) -> None:
    line = ("devices", "add", "cam-1", "--ssh", f"root@127.0.0.1:{bed.port}", "--key", str(bed.client_key))
    asked = await desk.type(*line)
    assert asked.status == 2
    assert "--fingerprint" in asked.error
    assert desk.count() == 0
    wrong = await desk.type(*line, "--fingerprint", OTHER)
    assert wrong.status == 2
    assert all(each in wrong.error for each in prints(bed)), "what it shows stands beside what was typed"
    assert desk.count() == 0
    taken = await desk.type(*line, "--yes")
    assert taken.status == 0
    assert all(each in taken.error for each in prints(bed)), "also who does not compare is shown"
    assert "unproven" in taken.error
    known = desk.book.identity("cam-1")
    assert known is not None
    assert (known.unproven, known.proof) == (True, "first_use")


@pytest.mark.parametrize("word", ["y", "n", ""])
async def test_on_a_terminal_somebody_compares_what_is_seen(word: str, desk: SshDesk, bed: SshBed) -> None:
    line = ("devices", "add", "cam-1", "--ssh", f"root@127.0.0.1:{bed.port}", "--key", str(bed.client_key))
    asked = await desk.type(*line, said=f"{word}\n", terminal=True)
    assert all(each in asked.error for each in prints(bed))
    if word == "y":
        assert asked.status == 0
        known, device = desk.book.identity("cam-1"), desk.book.by_name("cam-1")
        assert known is not None
        assert device is not None
        assert (known.unproven, known.proof) == (False, "fingerprint")
        assert device.host_keys == bed.host_keys
    else:
        assert asked.status == 1
        assert "nothing was changed" in asked.error
        assert desk.count() == 0


async def test_a_device_that_is_away_is_pinned_by_its_fingerprint(desk: SshDesk) -> None:
    line = ("devices", "add", "cam-1", "--ssh", f"root@127.0.0.1:{free_port()}", "--agent")
    added = await desk.type(*line, "--fingerprint", OTHER, "--json")
    assert added.status == 0
    assert "nothing listens there" in added.error
    (told,) = added.json("ssh_device")
    assert (told["login"], told["fingerprints"], told["host_keys"]) == ("agent", [OTHER], [])
    unseen = await desk.type("devices", "add", "cam-2", "--ssh", f"root@127.0.0.1:{free_port()}", "--agent", "--yes")
    assert unseen.status == 1
    assert "no host key was heard" in unseen.error


ADD = ("devices", "add", "cam-1", "--ssh")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ((*ADD, "192.0.2.7", "--agent", "--yes"), "user@host"),
        ((*ADD, "root@", "--agent", "--yes"), "user@host"),
        ((*ADD, "root@host:port", "--agent", "--yes"), "user@host"),
        ((*ADD, "root@fd00::7:x", "--agent", "--fingerprint", OTHER), "address"),
        ((*ADD, "root@host:0", "--agent", "--fingerprint", OTHER), "1 to 65535"),
        ((*ADD, "root@host:65536", "--agent", "--fingerprint", OTHER), "1 to 65535"),
        ((*ADD, "root@host_;rm", "--agent", "--fingerprint", OTHER), "host name"),
        ((*ADD, "root@300.1.1.1", "--agent", "--fingerprint", OTHER), "host name"),
        ((*ADD, "ro ot@host", "--agent", "--fingerprint", OTHER), "spaces"),
        ((*ADD, "root@host", "--yes"), "nothing says how to log in"),
        ((*ADD, "root@host", "--agent", "--password-file", "-", "--yes"), "one of --password-file"),
        ((*ADD, "root@host", "--certificate", "/dev/null", "--yes"), "--key FILE"),
        ((*ADD, "root@host", "--key", "/nowhere", "--yes"), "No such file"),
        ((*ADD, "root@host", "--key", "/dev/null", "--fingerprint", OTHER), "private key"),
        ((*ADD, "root@host", "--agent", "--fingerprint", "MD5:aa"), "SHA256:"),
        ((*ADD, "root@host", "--agent", "--fingerprint", OTHER, "--jump", "nobody"), "added before"),
        ((*ADD, "root@host", "--agent", "--fingerprint", OTHER, "--jump", "cam-1"), "circle"),
        ((*ADD, "root@host", "--agent", "--fingerprint", OTHER, "--poll", "1"), "5 to 86400"),
        ((*ADD, "root@host", "--agent", "--fingerprint", OTHER, "--poll", "nan"), "no number"),
        ((*ADD, "root@host", "--agent", "--fingerprint", OTHER, "--poll", "inf"), "no number"),
        (("devices", "add", "-x", "--ssh", "root@h", "--agent", "--fingerprint", OTHER), "-x"),
        (("devices", "add", "a b", "--ssh", "root@h", "--agent", "--fingerprint", OTHER), "letters"),
        (("devices", "set", "nobody", "--poll", "60"), "devices add"),
        (("devices", "set", "nobody"), "nothing was said"),
        (("devices", "key", "nobody"), "no SSH device"),
        (("devices", "remove", "nobody", "--yes"), "no SSH device"),
        (("devices", "remove", "nobody"), "--yes"),
    ],
)
async def test_a_mistake_is_told_and_changes_nothing(line: tuple[str, ...], words: str, desk: SshDesk) -> None:
    finished = await desk.type(*line, said="\n")
    assert (finished.status, finished.out) == (2, ""), finished.error
    assert words in finished.error
    assert "Traceback" not in finished.error
    assert desk.count() == 0


async def test_private_keys_are_looked_at_when_they_are_given(desk: SshDesk, tmp_path: Path) -> None:
    def make(name: str, phrase: str) -> Path:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", phrase, "-f", tmp_path / name], check=True)
        return tmp_path / name

    plain = await asyncio.to_thread(make, "plain", "")
    bcrypt = await asyncio.to_thread(make, "bcrypt", "open sesame")
    locked = tmp_path / "locked"
    sealed: list[str | Path] = [
        "openssl",
        "genpkey",
        "-algorithm",
        "ed25519",
        "-aes256",
        "-pass",
        "pass:open sesame",
        "-out",
        locked,
    ]
    await asyncio.to_thread(lambda: subprocess.run(sealed, check=True))
    (tmp_path / "right").write_text("open sesame\n")
    (tmp_path / "wrong").write_text("open barley\n")
    line = ("devices", "add", "cam-1", "--ssh", "root@127.0.0.1:1", "--fingerprint", OTHER, "--key")
    for words, more in [
        ("no passphrase is given", (str(locked),)),
        ("does not open it", (str(locked), "--passphrase-file", str(tmp_path / "wrong"))),
        ("no passphrase is given", (str(bcrypt),)),
        ("does not open it", (str(bcrypt), "--passphrase-file", str(tmp_path / "wrong"))),
        ("none that OpenSSH would read", (str(plain), "--certificate", f"{plain}.pub")),
    ]:
        refused = await desk.type(*line, *more)
        assert refused.status == 2
        assert words in refused.error
        assert "sesame" not in refused.error
        assert "barley" not in refused.error
    assert (await desk.type(*line, str(locked), "--passphrase-file", str(tmp_path / "right"))).status == 0
    secret = desk.book.secret("cam-1")
    assert (secret.passphrase, secret.private_key) == ("open sesame", locked.read_text())
    again = ("devices", "add", "cam-2", *line[3:])
    assert (await desk.type(*again, str(bcrypt), "--passphrase-file", str(tmp_path / "right"))).status == 0
    assert desk.book.secret("cam-2").private_key == bcrypt.read_text()


# --- set, key, remove -------------------------------------------------------------------------------------------------


async def test_what_is_not_said_stays_as_it_is(desk: SshDesk, bed: SshBed) -> None:
    line = ("devices", "add", "cam-1", "--ssh", f"root@127.0.0.1:{bed.port}", "--key", str(bed.client_key))
    assert (await desk.type(*line, "--yes")).status == 0
    before = desk.book.by_name("cam-1")
    assert before is not None
    moved = await desk.type("devices", "set", "cam-1", "--ssh", "camera@cam.example", "--poll", "300", "--disable")
    assert moved.status == 0
    after = desk.book.by_name("cam-1")
    assert after is not None
    assert (after.user, after.host, after.port) == ("camera", "cam.example", bed.port)
    assert (after.poll_seconds, after.enabled, after.fingerprints) == (300, False, before.fingerprints)
    assert desk.book.secret("cam-1").private_key == bed.client_key.read_text()
    assert (await desk.type("devices", "set", "cam-1", "--password-file", "-", said="new\n")).status == 0
    assert repr(desk.book.secret("cam-1")) == "Secret(password)"
    assert desk.site.deeds()[-1][1] == "devices.set"


async def test_a_changed_host_key_is_shown_beside_the_pinned_one_and_accepted_by_name_only(
    desk: SshDesk, bed: SshBed
) -> None:
    line = ("devices", "add", "cam-1", "--ssh", f"root@127.0.0.1:{free_port()}", "--agent", "--fingerprint", OTHER)
    assert (await desk.type(*line)).status == 0
    assert (await desk.type("devices", "set", "cam-1", "--ssh", f"root@127.0.0.1:{bed.port}")).status == 0
    (new, rsa) = prints(bed)
    compared = await desk.type("devices", "key", "cam-1")
    assert compared.status == 1
    assert compared.out.splitlines()[0] == f"pinned  {OTHER}"
    assert f"shown   {new} ssh-ed25519" in compared.out
    assert f"--accept {new}" in compared.error
    typo = await desk.type("devices", "key", "cam-1", "--accept", a_print())
    assert typo.status == 2
    assert rsa in typo.error
    device = desk.book.by_name("cam-1")
    assert device is not None
    assert device.fingerprints == (OTHER,)
    accepted = await desk.type("devices", "key", "cam-1", "--accept", new)
    assert accepted.status == 0
    device = desk.book.by_name("cam-1")
    assert device is not None
    assert (device.fingerprints, device.host_keys) == ((new,), bed.host_keys[:1])
    fine = await desk.type("devices", "key", "cam-1", "--json")
    assert fine.status == 0
    assert fine.json("host_keys")[0]["silent"] == ""


@pytest.mark.parametrize("typed", ["SHA256: " + "a" * 42, "SHA256:\n" + "a" * 42, "SHA256:" + "a" * 42 + "=", "x"])
async def test_what_is_no_fingerprint_is_not_accepted_from_a_device_that_is_away(typed: str, desk: SshDesk) -> None:
    line = ("--ssh", f"root@127.0.0.1:{free_port()}", "--agent", "--fingerprint", OTHER)
    assert (await desk.type("devices", "add", "cam-1", *line)).status == 0
    refused = await desk.type("devices", "key", "cam-1", "--accept", typed)
    assert (refused.status, refused.out) == (2, "")
    assert "43 characters" in refused.error
    device = desk.book.by_name("cam-1")
    assert device is not None
    assert device.fingerprints == (OTHER,)


async def test_a_device_is_removed_with_what_opened_its_door(desk: SshDesk) -> None:
    line = ("--ssh", f"root@127.0.0.1:{free_port()}", "--agent", "--fingerprint", OTHER)
    assert (await desk.type("devices", "add", "gate", *line)).status == 0
    assert (await desk.type("devices", "add", "cam-1", *line, "--jump", "gate")).status == 0
    kept = await desk.type("devices", "remove", "gate", "--yes")
    assert (kept.status, "cam-1" in kept.error) == (2, True)
    assert (await desk.type("devices", "remove", "cam-1", "--yes")).status == 0
    assert (await desk.type("devices", "remove", "gate", "--yes", "--why", "scrapped")).status == 0
    assert desk.count() == 0
    assert desk.site.registry.own_device("gate") is None


async def test_a_station_without_devices_of_its_own_says_so(tmp_path: Path) -> None:
    async with opened_desk(tmp_path, devices=False) as master:
        refused = await master.refused(404, "GET", "/ssh-devices")
        assert refused["id"] == "ssh.no_devices"


async def test_what_is_behind_a_jump_host_is_seen_through_it(bed: SshBed, tmp_path: Path) -> None:
    @asynccontextmanager
    async def tunnel(name: str) -> AsyncIterator[asyncssh.SSHClientConnection]:
        assert name == "gate"
        async with await bed.connect() as connection:
            yield connection

    folder = tmp_path / "site"
    folder.mkdir()
    async with opened_desk(folder, tunnel=tunnel) as desk:
        gate = ("devices", "add", "gate", "--ssh", f"root@127.0.0.1:{bed.port}", "--key", str(bed.client_key))
        assert (await desk.type(*gate, "--yes")).status == 0
        behind = ("devices", "add", "cam-1", "--ssh", f"root@localhost:{bed.port}", "--agent", "--jump", "gate")
        added = await desk.type(*behind, "--yes")
        assert added.status == 0
        assert all(each in added.error for each in prints(bed))
        silent = await desk.refused(500, "POST", "/ssh-devices/scan", {"host": "127.0.0.1", "port": 1, "jump": "gate"})
        assert silent["id"] == "ssh.scan_failed"
        unknown = await desk.refused(404, "POST", "/ssh-devices/scan", {"host": "127.0.0.1", "jump": "nobody"})
        assert unknown["id"] == "device.unknown"
