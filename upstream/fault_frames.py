"""What a site says of itself while it can take no job: typed and bounded, part of ``SiteRole``. Pure.

A master of an older release leaves it out; a site of an older release says nothing, which means that all is well.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

FAULTS = 8
"""At most so many are told at once."""

DETAIL_CHARACTERS = 256

Reason = Annotated[str, Meta(min_length=1, max_length=64)]


class SiteFault(Struct, frozen=True):
    """What keeps a site from taking jobs.

    Args:
        reason: The reason with which it refuses them (docs/reasons.md).
        since: Since when, in wall seconds of the site.
        detail: What is wrong, in words.
    """

    reason: Reason
    since: float
    detail: Annotated[str, Meta(max_length=DETAIL_CHARACTERS)] = ""
