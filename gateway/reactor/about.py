"""Whose key an event is about: a call that it sets off decides about that device alone, whoever else has its name."""

from __future__ import annotations

from device_agent.protocol import tags
from device_agent.protocol.messages import Event
from gateway.calls.call import About


def about(event: Event, site: str) -> About | None:
    """The device of an event of this site's keys; None for an event that is about no device."""
    named, did = event.data.get("id"), event.data.get("did")
    if event.tag not in (tags.AUTH, tags.KEY) or not isinstance(named, str):
        return None
    if event.site != site:
        # What a site says of its keys is decided there, and nobody here goes by it.
        return About("", named)
    return About(did, named) if isinstance(did, str) else None
