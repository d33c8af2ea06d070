"""What a station's own settings let jobs call on it: ``station.grants``. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from device_agent.errors import Refused
from device_agent.trust.reach import Arguments, Custom, can_cover, granted


def check_station_grants(grants: Sequence[str], fun: str, given: Arguments | None, custom: Custom) -> None:
    """Check that the grants cover a call. Raises ``Refused`` (``not_granted``).

    Args:
        grants: Classes and globs.
        fun: The function.
        given: The arguments. None if they are not known: the grants then cover the function with some arguments.
        custom: The class of a function that the site brought.
    """
    if given is None:
        covered = any(can_cover(term, fun, custom) for term in grants)
    else:
        covered = any(granted(term, fun, given, custom=custom) for term in grants)
    if not covered:
        raise Refused("not_granted", f"{fun} on a station takes a grant in its settings: station.grants")
