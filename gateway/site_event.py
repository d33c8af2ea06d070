"""An event that came up from a site, with its origin: the identity by which a reader of two masters finds a repeat.

The origin is the site, the epoch of its store, the stream and the sequence there. It does not depend on the master. It
is never read from the wire: a station forms it from the position of the item, or from what the site signed.
"""

from __future__ import annotations

from typing import Self

from device_agent.protocol.messages import Event


class SiteEvent(Event, frozen=True, kw_only=True, tag="event"):
    """An event with its origin."""

    origin: str
    """``site/epoch/stream/sequence``, as the API shows it."""

    @classmethod
    def of(cls, event: Event, origin: str) -> Self:
        """Return the same event with this origin."""
        return cls(tag=event.tag, data=event.data, stamp=event.stamp, site=event.site, origin=origin)


def origin_of(event: Event) -> str:
    """Return the origin of an event; empty for an event of the station itself."""
    return event.origin if isinstance(event, SiteEvent) else ""
