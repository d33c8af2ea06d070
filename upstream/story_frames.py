"""How a master that owns a job gets what the spool has not brought it: it asks, and the site tells. Pure.

The spool goes to one master at a time. A job's story goes to whoever asks for it: the same items, out of the site's own
tables, without a place in the spool's sequence; whoever has them already loses nothing by having them again.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from device_agent.protocol import limits
from device_agent.protocol.messages import Jid

STORIES_IN_FLIGHT = 4
"""Frames of stories that a site sends before the master has taken one."""


class AskJob(Struct, frozen=True, tag="ask_job"):
    """A master asks what became of a job. ``anew``: from its beginning, whatever was told on this connection."""

    jid: Jid
    anew: bool = False


class StoryTaken(Struct, frozen=True, tag="story_taken"):
    """The master has dealt with one ``Story`` or ``UnknownJob``: there is room for another."""

    jid: Jid


class Story(Struct, frozen=True, tag="story"):
    """Some of a job's story, in order: its definition, who answers, outcomes, the close. ``final``: that was all."""

    jid: Jid
    items: Annotated[
        list[Annotated[bytes, Meta(max_length=limits.ITEM_BYTES)]],
        Meta(min_length=1, max_length=limits.BATCH_ITEMS),
    ]
    final: bool = False


class UnknownJob(Struct, frozen=True, tag="unknown_job"):
    """The site does not know this job: it never had it, or lost it, or has let it go long after its close."""

    jid: Jid
