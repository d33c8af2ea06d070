"""The installed package as a file again, with dpkg itself on a root folder of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.upgrade.repack import NotKept, repack

CONTROL = """Package: outstation
Version: 1.0
Architecture: all
Maintainer: nobody <nobody@example.org>
Installed-Size: 12
Description: a toy of two lines
 and this is the second
"""


def made(folder: Path, version: str = "1.0") -> Path:
    """A package with a program, a link, an empty folder and a settings file."""
    tree = folder / "tree"
    files = {"usr/lib/outstation/bin/tool": "#!/bin/sh\necho 1\n", "etc/default/outstation": "A=1\n"}
    for name, body in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(body)
    (tree / "usr/lib/outstation/bin/tool").chmod(0o755)
    (tree / "usr/lib/outstation/bin/link").symlink_to("tool")
    (tree / "var/cache/outstation").mkdir(parents=True)
    control = tree / "DEBIAN"
    control.mkdir()
    (control / "control").write_text(CONTROL.replace("1.0", version))
    (control / "conffiles").write_text("/etc/default/outstation\n")
    (control / "postinst").write_text("#!/bin/sh\nexit 0\n")
    (control / "postinst").chmod(0o755)
    target = folder / f"toy_{version}.deb"
    run("dpkg-deb", "--root-owner-group", "--build", str(tree), str(target))
    return target


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root folder with the toy installed, without its scripts (there is no shell in it)."""
    root = tmp_path / "root"
    info = root / "var/lib/dpkg"
    for part in ("info", "updates"):
        (info / part).mkdir(parents=True)
    for name in ("status", "available"):
        (info / name).touch()
    deb = made(tmp_path)
    run("dpkg-deb", "--extract", str(deb), str(root))
    entry = CONTROL.replace("Version", "Status: install ok installed\nVersion")
    entry = entry.replace("Description", "Conffiles:\n /etc/default/outstation 0123\nDescription")
    (info / "status").write_text(entry + "\n")
    listed = ["/.", *sorted(f"/{path.relative_to(root)}" for path in root.rglob("*") if "dpkg" not in str(path))]
    (info / "info/outstation.list").write_text("\n".join(line for line in listed if line != "/var/lib") + "\n")
    run("dpkg-deb", "--control", str(deb), str(tmp_path / "control"))
    for name in ("conffiles", "postinst"):
        (tmp_path / "control" / name).rename(info / f"info/outstation.{name}")
    sums = run("sh", "-c", f"cd {root} && md5sum usr/lib/outstation/bin/tool")
    (info / "info/outstation.md5sums").write_text(sums)
    (info / "info/format").write_text("1\n")
    return root


def test_the_file_holds_what_is_installed(root: Path, tmp_path: Path) -> None:
    (root / "etc/default/outstation").write_text("A=2\n")
    target = tmp_path / "cache/previous.deb"
    target.parent.mkdir()
    repack("outstation", target, root)
    assert run("dpkg-deb", "--show", "--showformat=${Package} ${Version}", str(target)) == "outstation 1.0"
    assert "Status" not in run("dpkg-deb", "--info", str(target), "control")
    assert run("dpkg-deb", "--info", str(target), "postinst") == "#!/bin/sh\nexit 0\n"
    out = tmp_path / "out"
    run("dpkg-deb", "--extract", str(target), str(out))
    assert (out / "usr/lib/outstation/bin/tool").stat().st_mode & 0o777 == 0o755
    assert (out / "usr/lib/outstation/bin/link").readlink() == Path("tool")
    assert (out / "var/cache/outstation").is_dir()
    # A setting that was edited stays edited.
    assert (out / "etc/default/outstation").read_text() == "A=2\n"
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_the_same_files_make_the_same_package(root: Path, tmp_path: Path) -> None:
    bodies = []
    for name in ("first.deb", "second.deb"):
        repack("outstation", tmp_path / name, root)
        run("dpkg-deb", "--extract", str(tmp_path / name), str(tmp_path / name.replace(".deb", "")))
        bodies.append(run("dpkg-deb", "--contents", str(tmp_path / name)))
    assert bodies[0].splitlines()[1:] == bodies[1].splitlines()[1:]


def test_a_package_whose_files_were_changed_is_not_kept(root: Path, tmp_path: Path) -> None:
    (root / "usr/lib/outstation/bin/tool").write_text("#!/bin/sh\necho another\n")
    with pytest.raises(NotKept, match="not those of the package"):
        repack("outstation", tmp_path / "previous.deb", root)
    assert not (tmp_path / "previous.deb").exists()


def test_a_package_that_is_not_installed_is_not_kept(root: Path, tmp_path: Path) -> None:
    with pytest.raises(NotKept):
        repack("another", tmp_path / "previous.deb", root)


def test_the_guard_needs_nothing_but_the_standard_library() -> None:
    """It runs while the files of every other package around it are replaced."""
    script = (
        "import sys; import gateway.upgrade.guard, gateway.upgrade.keep;"
        " print(sorted({n.partition('.')[0] for n in sys.modules} - set(sys.stdlib_module_names)))"
    )
    said = subprocess.run(
        [sys.executable, "-S", "-c", script],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ).stdout
    assert said.strip() == "['__main__', 'device_agent', 'gateway']"
