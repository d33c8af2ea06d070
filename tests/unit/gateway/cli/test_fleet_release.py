"""gateway/cli/fleet_release.py: from a release key to a signed file root, as it is typed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from device_agent.trust.keys import fingerprint
from device_agent.trust.release_list import open_release_list
from gateway.fleet.ceremony import Ceremony
from tests.peers.released import DOOR, LENS, lay
from tests.unit.gateway.cli.conftest import Shell

WORDS = "a passphrase of several words"


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An offline machine with a fleet, a passphrase in a file, and a file root."""
    folder = tmp_path / "desk"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("gateway.fleet.release_keys.LOG_N", 10)
    passphrase = folder / "words"
    passphrase.write_text(WORDS + "\n")
    passphrase.chmod(0o600)
    lay(folder / "salt", {"_modules/door.py": DOOR, "_grains/lens.py": LENS})
    return folder


def with_key(shell: Shell) -> None:
    assert shell.here("fleet", "init").status == 0
    made = shell.here("fleet", "release", "key", "release.key", "--file", "line", "--passphrase-file", "words")
    assert made.status == 0, made.error
    assert shell.here("fleet", "release", "add", "line").status == 0


def sign(shell: Shell, *more: str) -> str:
    done = shell.here("fleet", "release", "sign", "salt", "--passphrase-file", "words", *more)
    assert done.status == 0, done.error
    return done.out


def test_a_release_key_is_made_taken_up_and_signs_a_file_root(shell: Shell, desk: Path) -> None:
    with_key(shell)
    assert stat.S_IMODE((desk / "release.key").stat().st_mode) == 0o600
    root = Ceremony(desk / "fleet").current()
    [public] = root.releases
    assert f"release key: {fingerprint(public)}" in shell.here("fleet", "show", "fleet/root-lists").out
    signed = sign(shell)
    assert "_modules/door.py  status: looks  new" in signed
    assert "_grains/lens.py  shell  new" in signed
    listed = open_release_list((desk / "salt" / "_release").read_bytes(), root)
    assert [each.path for each in listed.files] == ["_grains/lens.py", "_modules/door.py"]
    verified = shell.here("fleet", "release", "verify", "salt")
    assert (verified.status, verified.out) == (0, "verified version 1, 2 files\n")
    # The next one is above it, and says what is new.
    lay(desk / "salt", {"_modules/lamp.py": "async def on(host):\n    return True\n"})
    again = sign(shell)
    assert "_modules/lamp.py  shell  new" in again
    assert "_modules/door.py  status: looks\n" in again
    assert "version: 2, dated" in " ".join(shell.here("fleet", "release", "show", "salt").out.split())


def test_what_is_not_as_it_was_signed_is_named(shell: Shell, desk: Path) -> None:
    with_key(shell)
    sign(shell)
    lay(desk / "salt", {"_modules/door.py": DOOR + "\n", "_modules/evil.py": "async def f(host):\n    return 1\n"})
    found = shell.here("fleet", "release", "verify", "salt")
    assert found.status == 1
    assert found.out.splitlines() == ["altered  _modules/door.py", "unsigned  _modules/evil.py"]


def test_a_key_of_another_fleet_or_a_dropped_one_verifies_nothing(shell: Shell, desk: Path) -> None:
    with_key(shell)
    sign(shell)
    [public] = Ceremony(desk / "fleet").current().releases
    other = shell.here("fleet", "release", "drop", "aaaa-bbbb-cccc-dddd")
    assert other.status == 2
    assert fingerprint(public) in other.error
    assert shell.here("fleet", "release", "drop", fingerprint(public)).status == 0
    root = Ceremony(desk / "fleet").current()
    assert root.releases == ()
    found = shell.here("fleet", "release", "verify", "salt")
    assert found.status == 2
    assert "release_key_revoked" in found.error
    assert "was dropped" in shell.here("fleet", "release", "add", "line").error


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"_modules/test.py": "async def f(host): ...\n"}, "test is a module of this release"),
        ({"_modules/Door.py": "async def f(host): ...\n"}, "NAME.py"),
        ({"_modules/door.txt": ""}, "NAME.py"),
        ({"_modules/door/deep.py": ""}, "NAME.py"),
        ({"_modules/salty.py": "def f(name):\n    return name\n"}, "async def f(host, …)"),
        ({"_modules/broken.py": "async def f(host:\n"}, "SyntaxError"),
        ({"_modules/x.py": "__reach__ = dict(f='looks')\nasync def f(host): ...\n"}, "a literal"),
        ({"_modules/x.py": "__reach__ = {'g': 'looks'}\nasync def f(host): ...\n"}, "names 'g'"),
        ({"_modules/x.py": "__reach__: dict = {'g': 'looks'}\nasync def f(host): ...\n"}, "names 'g'"),
        ({"_modules/x.py": "__reach__: dict\nasync def f(host): ...\n"}, "a literal"),
        ({"_modules/x.py": "__reach__ = {'f': 'root'}\nasync def f(host): ...\n"}, "'root'"),
    ],
)
def test_what_cannot_be_a_module_is_not_signed(shell: Shell, desk: Path, files: dict[str, str], found: str) -> None:
    with_key(shell)
    lay(desk / "salt", files)
    refused = shell.here("fleet", "release", "sign", "salt", "--passphrase-file", "words")
    assert refused.status == 2
    assert found in refused.error
    assert not (desk / "salt" / "_release").exists()


def test_what_python_and_editors_leave_beside_is_passed_over(shell: Shell, desk: Path) -> None:
    with_key(shell)
    lay(desk / "salt", {"_modules/__pycache__/door.pyc": "", "_modules/.door.py.swp": "", "_modules/__init__.py": ""})
    assert "pycache" not in sign(shell)


def test_another_passphrase_an_older_version_and_a_short_passphrase_are_refused(shell: Shell, desk: Path) -> None:
    with_key(shell)
    sign(shell, "--version", "7")
    old = shell.here("fleet", "release", "sign", "salt", "--version", "7", "--passphrase-file", "words")
    assert (old.status, "8 or more" in old.error) == (2, True)
    (desk / "words").write_text("quite another passphrase\n")
    wrong = shell.here("fleet", "release", "sign", "salt", "--passphrase-file", "words")
    assert (wrong.status, "does not open the release key" in wrong.error) == (2, True)
    (desk / "words").write_text("short\n")
    short = shell.here("fleet", "release", "key", "other.key", "--passphrase-file", "words")
    assert (short.status, "whoever has the release key" in short.error) == (2, True)
    assert shell.here("fleet", "release", "sign", "salt", "--key", "fleet/root-1.key").status == 2
    assert shell.here("fleet", "release", "add", "line", "--fingerprint", "aaaa-bbbb-cccc-dddd").status == 2
