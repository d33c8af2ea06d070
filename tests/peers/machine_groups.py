"""Control groups of booted machines: one of their own in each hierarchy that this process is in (cgroups(7)).

Without it nspawn would make its groups beside everybody's, at the root. A machine with version 2 alone has one
hierarchy; one with both has many.
"""

from __future__ import annotations

from pathlib import Path

MOUNTED = Path("/sys/fs/cgroup")
INHERITED = ("cpuset.cpus", "cpuset.mems")
"""A new cpuset of version 1 has neither, and refuses processes until it has."""


def places(name: str) -> list[Path]:
    """Where a group of this name is, or would be, under that of this process."""
    found = []
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, hierarchy, path = line.split(":", 2)
        folder = hierarchy.removeprefix("name=") or ("" if only_version_2() else "unified")
        if (MOUNTED / folder).is_dir():
            found.append(MOUNTED / folder / path.lstrip("/") / name)
    return found


def only_version_2() -> bool:
    """Whether this machine has the one hierarchy of version 2."""
    return (MOUNTED / "cgroup.controllers").is_file()


def make(name: str) -> list[Path]:
    """The groups of this name, made; ``name`` may be a path, whose folders are made too."""
    made = places(name)
    for group in made:
        for folder in (group.parent, group):
            folder.mkdir(exist_ok=True)
            for file in INHERITED:
                if (folder / file).is_file():
                    (folder / file).write_bytes((folder.parent / file).read_bytes())
    return made


def removed(name: str) -> bool:
    """Remove the groups of this name with all in them; whether none is left, as one with a process in it stays."""
    for group in places(name):
        for folder in (*sorted(group.glob("**/"), reverse=True), group):
            try:
                folder.rmdir()
            except OSError:
                continue
    return not any(group.exists() for group in places(name))
