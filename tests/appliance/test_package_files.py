"""What is in the Debian packages: nothing that lintian minds, nothing of one machine, the same bits from any folder.

The short form looks at the packages that ``make test`` has built beside the checks, and builds them once more with the
wheels that are there. The long form builds both in their release form, and the second with wheels that it fetches anew.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from device_agent import __version__
from tests.appliance.conftest import ASKED, SHORT
from tests.house.tree import ROOT, listing
from tests.peers.appliance import package_of

MAKE_DEB = ROOT / "packaging" / "make-deb"
NAMES = ("outstation", "outstation-agent")
SECONDS = 1100
IS_SHORT = os.environ.get(ASKED) == SHORT

pytestmark = pytest.mark.short


@dataclass(frozen=True)
class Built:
    """Packages, and what they unpack to."""

    folder: Path

    def deb(self, name: str) -> Path:
        return self.folder / f"{name}_{__version__}_amd64.deb"

    def tree(self, name: str) -> Path:
        return self.folder / "unpacked" / name

    def files(self, name: str) -> list[Path]:
        """Every file and link, as it stands on an installed machine."""
        return sorted(path.relative_to(self.tree(name)) for path in self.tree(name).rglob("*") if not path.is_dir())


def build(tree: Path, folder: Path, **environment: str) -> None:
    """Build both packages: for tests in the short form, else as they are released."""
    result = subprocess.run(
        [str(tree / "packaging" / "make-deb"), "amd64", str(folder)],
        env={**os.environ, **environment, "OUTSTATION_DEB_FAST": "1" if IS_SHORT else ""},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    folder = tmp_path_factory.mktemp("packages")
    there = Built(folder)
    if IS_SHORT:
        for name in NAMES:
            there.deb(name).symlink_to(package_of(name))
    else:
        build(ROOT, folder)
    for name in NAMES:
        there.tree(name).mkdir(parents=True)
        subprocess.run(["dpkg-deb", "-x", there.deb(name), there.tree(name)], timeout=SECONDS, check=True)
    yield there
    shutil.rmtree(folder)


def test_lintian_has_nothing_to_say(built: Built) -> None:
    result = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "error,warning", *(str(built.deb(name)) for name in NAMES)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "")


def test_every_override_of_lintian_has_a_reason() -> None:
    for path in sorted((ROOT / "debian").glob("*.lintian-overrides")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for before, line in zip(["", *lines], lines, strict=False):
            assert line.startswith("#") or before.startswith(("#", path.stem)), f"{path.name}: {line}"


def test_another_folder_gives_the_same_bits(built: Built, tmp_path: Path) -> None:
    tree = tmp_path / "another place" / "outstation"
    tree.mkdir(parents=True)
    copied = re.search(r'^cp -r (.+) "\$tree"$', MAKE_DEB.read_text(encoding="utf-8"), re.MULTILINE)
    assert copied is not None
    for name in copied[1].split():
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, tree / name)
    # A Python that stands first in the path, and does not do what Python does.
    other = tmp_path / "bin"
    other.mkdir()
    (other / "python3").write_text("#!/bin/sh\necho another Python >&2\nexit 1\n", encoding="utf-8")
    (other / "python3").chmod(0o755)
    build(
        tree,
        tmp_path / "dist",
        PATH=f"{other}:{os.environ['PATH']}",
        OUTSTATION_WHEELHOUSE=str(ROOT / ".cache" / "wheelhouse" if IS_SHORT else tmp_path / "wheels"),
        TZ="Asia/Tokyo",
        LC_ALL="C",
        PYTHONHASHSEED="1",
    )
    for name in NAMES:
        again = Built(tmp_path / "dist").deb(name)
        assert digest(again) == digest(built.deb(name)), f"{name}; what is in dist/ may be older: make deb FAST=1"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_tells_where_it_was_built(built: Built, name: str) -> None:
    assert built.files(name)
    here = re.compile(
        b"|".join(re.escape(str(path).encode()) for path in (ROOT, built.folder.parent)) + rb"|/tmp/tmp\."
    )
    findings = [
        str(path)
        for path in built.files(name)
        if not built.tree(name).joinpath(path).is_symlink() and here.search((built.tree(name) / path).read_bytes())
    ]
    assert not findings, listing(findings)


@pytest.mark.parametrize("name", NAMES)
def test_no_tests_and_no_tools_are_shipped(built: Built, name: str) -> None:
    # The module ``test`` of the functions is our own.
    parts = {part for path in built.files(name) if "functions" not in path.parts for part in path.parts}
    assert not parts & {
        "tests",
        "test",
        "pip",
        "setuptools",
        "pytest",
        "hypothesis",
        "amqtt",
        "RECORD",
        "direct_url.json",
    }
    assert not {path.suffix for path in built.files(name)} & {".pyi", ".c", ".h", ".whl"}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_the_environment_is_stale_or_is_executed(built: Built, name: str) -> None:
    environment = Path("usr/lib", name)
    inside = [path for path in built.files(name) if path.is_relative_to(environment)]
    links = {path.name: str(where.readlink()) for path in inside if (where := built.tree(name) / path).is_symlink()}
    assert links == {"python": "python3", "python3": "../../../bin/python3"}
    for path in inside:
        where = built.tree(name) / path
        if path.suffix == ".pyc":
            # The flags: hash-based, and never held against the source.
            assert int.from_bytes(where.read_bytes()[4:8], "little") == 1, str(path)
        assert where.is_symlink() or not where.stat().st_mode & 0o111, str(path)
    compiled = {path.name.partition(".")[0] for path in inside if path.suffix == ".pyc"}
    assert {"__init__", "errors"} <= compiled


def test_a_device_has_the_lowest_floor_alone(built: Built) -> None:
    site = built.tree("outstation-agent") / "usr/lib/outstation-agent/lib/python3.11/site-packages"
    assert (site / "device_agent" / "agent.py").is_file()
    assert not [name for name in ("gateway", "upstream", "zmq", "asyncssh", "typer", "rich") if (site / name).exists()]


@pytest.mark.parametrize("name", NAMES)
def test_dpkg_asks_nothing_in_an_upgrade(built: Built, name: str) -> None:
    shown = subprocess.run(["dpkg-deb", "-I", built.deb(name)], capture_output=True, text=True, timeout=60, check=True)
    assert "conffiles" not in shown.stdout
    assert not [path for path in built.files(name) if path.parts[0] == "etc"]


@pytest.mark.parametrize("name", NAMES)
def test_a_package_asks_for_the_python_that_it_is_made_for(built: Built, name: str) -> None:
    field = ["dpkg-deb", "-f", str(built.deb(name)), "Depends"]
    depends = subprocess.run(field, capture_output=True, text=True, timeout=60, check=True).stdout
    assert {"python3 (>= 3.11)", "python3 (<< 3.12)"} <= set(depends.strip().split(", "))
    assert "libsystemd0" in depends
    assert ("mosquitto" in depends) is (name == "outstation")


def test_the_manual_and_the_completions_come_along(built: Built) -> None:
    shared = {path.relative_to("usr/share") for path in built.files("outstation") if path.is_relative_to("usr/share")}
    manual = {"man1/outstation.1", "man5/outstation-gateway.yaml.5", "man7/outstation.7", "man8/outstation-gateway.8"}
    assert shared >= {Path(f"man/{page}.gz") for page in manual}
    assert shared >= {
        Path("bash-completion/completions/outstation"),
        Path("zsh/vendor-completions/_outstation"),
        Path("fish/vendor_completions.d/outstation.fish"),
    }
    assert Path("usr/share/man/man8/outstation-agent.8.gz") in built.files("outstation-agent")
