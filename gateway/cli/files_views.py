"""What the API says of files, as types, and how the command line asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from msgspec import Struct

if TYPE_CHECKING:
    from gateway.cli.client import StationClient


class FilesView(Struct, frozen=True):
    """A page of the files that are served."""

    saltenv: str
    paths: list[str]
    environments: list[str] = []
    commits: list[str] = []
    next: str | None = None


class FileView(Struct, frozen=True):
    """One file."""

    path: str
    saltenv: str
    size: int
    sha256: str
    commit: str = ""
    kept: bool = False


class ContentView(Struct, frozen=True):
    """One content of the cache."""

    sha256: str
    size: int
    whole: bool
    path: str = ""
    saltenv: str = ""


class FetchView(Struct, frozen=True):
    """One content on its way."""

    path: str
    saltenv: str
    size: int
    here: int
    error: str = ""


class CacheView(Struct, frozen=True):
    """What is kept of the station above."""

    used_bytes: int
    most_bytes: int
    files: int
    contents: list[ContentView]
    fetches: list[FetchView] = []


def listed(client: StationClient, saltenv: str, under: str, after: str, limit: int) -> FilesView:
    """A page of the files."""
    query = urlencode({"saltenv": saltenv, "under": under, "after": after, "limit": limit})
    return client.ask("GET", f"/files?{query}", FilesView)


def found(client: StationClient, path: str, saltenv: str) -> FileView:
    """The file at a path. Raises ``NotFound``."""
    return client.ask("GET", f"/files/find?{urlencode({'path': path, 'saltenv': saltenv})}", FileView)


def cache(client: StationClient) -> CacheView:
    """The cache."""
    return client.ask("GET", "/files/cache", CacheView)
