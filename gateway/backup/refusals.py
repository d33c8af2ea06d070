"""Why a file is not taken for a backup: each reason with what would be right, and how to mend it."""

from __future__ import annotations

from typing import Final

from device_agent.errors import UsageInvalid

_WHOLE = "the file as `outstation gateway backup` wrote it, every byte of it"
_ANOTHER = "copy it again from where it was kept, in binary mode, or take an older backup"

_WORDS: Final[dict[str, tuple[str, str, str]]] = {
    "not_a_backup": ("this is no backup", "a file that `outstation gateway backup` wrote", "give the path of one"),
    "newer": (
        "this backup was written by a newer release",
        "one of this release or an older one",
        "install the release that wrote it, or a newer one, and restore with that",
    ),
    "too_costly": (
        "this backup asks for more work than a passphrase may cost",
        "scrypt with n up to 2^20, at most 1 GiB of memory, and p up to 4",
        "it is damaged on purpose, or made by something else: take another copy of it",
    ),
    "passphrase": (
        "this is not the passphrase of this backup",
        "the passphrase that was given when the backup was made",
        "try again: upper and lower case, spaces and the layout of the keyboard count",
    ),
    "damaged": ("this backup is damaged", _WHOLE, _ANOTHER),
    "truncated": ("this backup ends too early", _WHOLE, _ANOTHER),
    "trailing": ("this backup goes on after its end", _WHOLE, _ANOTHER),
    "malformed": (
        "what is in this backup is not what this release writes",
        "one of this release or an older one",
        "install the release that wrote it, and restore with that",
    ),
    "other_site": (
        "this is the backup of another site",
        "the backup of the site that the settings name",
        "take the right file, or give the settings of its site: --config FILE",
    ),
    "bad_store": (
        "the store in this backup is damaged: it was so when the backup was taken",
        "a sound store",
        "take an older backup",
    ),
}


class BackupRefused(UsageInvalid):
    """A file that is not restored; ``reason`` is one of the keys above."""

    def __init__(self, reason: str, where: str, found: str) -> None:
        what, allowed, hint = _WORDS[reason]
        super().__init__(what, error_id=f"backup.{reason}", where=where, found=found, allowed=allowed, hint=hint)
        self.reason = reason
