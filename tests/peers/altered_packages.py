"""The package that was built, as another version of itself: with other files in it, healthy or not."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from pathlib import Path

SITE_PACKAGES = "usr/lib/{name}/lib/python3.11/site-packages"


def altered(
    package: Path,
    version: str,
    folder: Path,
    files: Mapping[str, str] | None = None,
    scripts: Mapping[str, str] | None = None,
) -> Path:
    """A package of this version, with these files (under site-packages) in the place of its own or beside them.

    ``scripts`` are lines for its maintainer scripts, which these do first.
    """
    name_of = package.name.partition("_")[0]
    site_packages = SITE_PACKAGES.format(name=name_of)
    tree = folder / f"tree-{name_of}-{version}"
    _run("dpkg-deb", "--raw-extract", str(package), str(tree))
    control = tree / "DEBIAN/control"
    lines = control.read_text().splitlines()
    control.write_text(
        "".join(f"Version: {version}\n" if line.startswith("Version:") else f"{line}\n" for line in lines)
    )
    sums = tree / "DEBIAN/md5sums"
    known = {name: digest for digest, name in (line.split("  ", 1) for line in sums.read_text().splitlines())}
    for name, body in (files or {}).items():
        path = tree / site_packages / name
        path.write_text(body)
        known[f"{site_packages}/{name}"] = hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()
        # The byte code is believed without a look at its source.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.cpython-*.pyc"):
            compiled.unlink()
            known.pop(str(compiled.relative_to(tree)), None)
    sums.write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(known.items())))
    for name, first in (scripts or {}).items():
        script = tree / "DEBIAN" / name
        head, _, rest = (script.read_text() if script.exists() else "#!/bin/sh\nset -e\n").partition("\n")
        script.write_text(f"{head}\n{first}{rest}")
        script.chmod(0o755)
    target = folder / f"{name_of}_{version}_amd64.deb"
    _run("dpkg-deb", "--root-owner-group", "-Zzstd", "-z1", "--build", str(tree), str(target))
    return target


def source_of(package: Path, name: str, folder: Path) -> str:
    """What a file (under site-packages) of a package says."""
    tree = folder / "read"
    if not tree.exists():
        _run("dpkg-deb", "--extract", str(package), str(tree))
    return (tree / SITE_PACKAGES.format(name="outstation") / name).read_text()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=300)
