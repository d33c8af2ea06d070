"""Releases for tests: a release key, file roots with modules in them, and a source of code that reads a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from device_agent.custom.kinds import LIST
from device_agent.custom.sync import Found
from device_agent.trust.keys import SigningKey
from device_agent.trust.release_list import sign_release_list
from gateway.fleet.release_folder import files_in
from tests.peers.fleet import signing_key

RELEASE_KEY = signing_key("release")
ISSUED = 1_800_000_000

DOOR = '''
"""The door of a camera's housing."""

from __future__ import annotations

from typing import Any

from device_agent.host import Host

__reach__ = {"status": "looks"}


async def status(host: Host, times: int = 1) -> dict[str, Any]:
    """Say how the door is."""
    return {"door": "shut", "times": times}


async def open_(host: Host) -> str:
    """Open it."""
    return "open"


def hello(name):
    return f"hello {name}"
'''
LENS = """
async def lens(host):
    return {"lens": {"mm": 35}}
"""


def lay(root: Path, files: Mapping[str, str]) -> Path:
    """Put files into a file root."""
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return root


def release(root: Path, version: int = 1, key: SigningKey = RELEASE_KEY) -> bytes:
    """Sign what lies in a file root, and put the list there."""
    body = sign_release_list(key, version=version, issued=ISSUED, files=files_in(root))
    (root / LIST).write_bytes(body)
    return body


class FolderSource:
    """Implements ``CodeSource``: each environment is a folder."""

    def __init__(self, **roots: Path) -> None:
        self.roots = roots
        self.read_paths: list[str] = []

    async def paths(self, saltenv: str, under: str) -> list[str]:
        root = self.roots.get(saltenv)
        if root is None:
            return []
        return sorted(str(each.relative_to(root)) for each in (root / under).rglob("*") if each.is_file())

    async def find(self, saltenv: str, path: str) -> Found | None:
        place = self.roots.get(saltenv, Path("/nowhere")) / path
        if not place.is_file():
            return None
        body = place.read_bytes()
        return Found(len(body), hashlib.sha256(body).digest())

    async def read(self, saltenv: str, path: str, found: Found) -> bytes:
        assert found is not None
        self.read_paths.append(path)
        return (self.roots[saltenv] / path).read_bytes()
