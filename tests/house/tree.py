"""The files of this repository, as the tests of the house look at them."""

from __future__ import annotations

import ast
import os
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("device_agent", "upstream", "gateway")
CODE = (*FLOORS, "tests", "examples")
LARGEST_TEXT = 1_000_000


def python_files(*folders: str) -> list[Path]:
    """Every Python file under these folders of the repository, sorted."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def text_files() -> list[Path]:
    """Every text file that belongs to the repository: what tools make, and what is no UTF-8, is left out."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if _belongs(name)]
        found += [Path(folder, name) for name in names if _is_text(Path(folder, name))]
    return sorted(found)


def _belongs(folder: str) -> bool:
    made = {"build", "dist", "__pycache__"}
    return folder in {".ci", ".github"} or not (
        folder.startswith(".") or folder in made or folder.endswith(".egg-info")
    )


def _is_text(path: Path) -> bool:
    if path.name == ".git" or not path.is_file() or path.stat().st_size > LARGEST_TEXT:
        return False
    try:
        path.read_bytes().decode()
    except UnicodeDecodeError:
        return False
    return True


@cache
def syntax(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name(path: Path) -> str:
    """A file's path in the repository."""
    return path.relative_to(ROOT).as_posix()


def listing(findings: list[str]) -> str:
    """Findings one a line, as an assertion's message."""
    return "\n" + "\n".join(findings)
