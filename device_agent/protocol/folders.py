"""Folders that the paths among a job's arguments must not leave by a link: a policy rule limits them to these."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

FOLDERS_MOST: Final = 64
FOLDER_CHARACTERS: Final = 256

Folders = Annotated[
    list[Annotated[str, Meta(pattern="^/", max_length=FOLDER_CHARACTERS)]], Meta(min_length=1, max_length=FOLDERS_MOST)
]


def are_folders(value: object) -> bool:
    """Whether this is a list of at most ``FOLDERS_MOST`` absolute paths."""
    if type(value) is not list or len(value) > FOLDERS_MOST:
        return False
    return all(type(each) is str and each.startswith("/") and len(each) <= FOLDER_CHARACTERS for each in value)
