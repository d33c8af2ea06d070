"""The settings of the file server."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct

ENVIRONMENT_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}$(?!\n)"

Folder = Annotated[str, Meta(pattern="^/", max_length=4096)]
Pattern = Annotated[str, Meta(min_length=1, max_length=256)]


class GitRoot(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A git repository on this machine, of which one commit is served."""

    git: Annotated[Folder, Meta(description="the repository, bare or with a working tree")]
    ref: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./\-]{0,199}$(?!\n)",
            description="the branch, tag or commit that is served",
        ),
    ] = "HEAD"
    root: Annotated[str, Meta(max_length=1024, description="the folder in it that is served; default: all of it")] = ""


Root = Folder | GitRoot
Environment = Annotated[str, Meta(pattern=ENVIRONMENT_PATTERN)]
FileRoots = Annotated[
    dict[Environment, Annotated[list[Root], Meta(max_length=64)]],
    Meta(
        max_length=64,
        description="for each environment the folders that are served, the first that has a file first; "
        "a git repository is {git: PATH, ref: REF, root: FOLDER}; docs/files.md",
        examples=[{"base": ["/srv/salt"]}],
    ),
]


class FilesSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files that are served to devices and to sites, and what is kept of those above."""

    cache_megabytes: Annotated[
        int,
        Meta(ge=1, le=10_000_000, description="most that the cache takes of the disk; what is used least gives way"),
    ] = 2048
    max_bytes_per_second: Annotated[
        int, Meta(ge=0, le=10**10, description="bytes of files fetched from a master in a second; 0: no limit")
    ] = 0
    fresh_seconds: Annotated[
        float, Meta(ge=0, le=3600, description="a master is asked again about a file or a folder after so many seconds")
    ] = 10.0
    include_glob: Annotated[
        list[Pattern], Meta(max_length=64, description="only files that match one of these are served; default: all")
    ] = []
    receive: Annotated[bool, Meta(description="take files that devices hand over with cp.push")] = False
    receive_megabytes: Annotated[
        int, Meta(ge=1, le=1_000_000, description="largest file a device may hand over, and most that is kept of each")
    ] = 100


def check_patterns(patterns: list[str]) -> None:
    """Raises ``ValueError`` for what is no regular expression."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"file_ignore_regex: {pattern!r} is no regular expression: {error}") from None
