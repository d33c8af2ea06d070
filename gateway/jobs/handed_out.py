"""To whom a job was handed out, and over which link: it is repeated over no other.

What ran is remembered at the end of each link apart, by the device or in its stead. Two links to one device do not know
what the other has run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from device_agent.protocol.messages import decode_stored, encode_value
from gateway.devices.ssh_device import LINK as SSH
from gateway.jobs.open_jobs import OpenJob, Waiting
from gateway.jobs.silence import Presence
from gateway.store.reader import Reader
from gateway.store.rows import Statement

AWAY: Final = Presence(present=False, unheard=False, gone=0.0)
SEVERAL: Final = "?"
"""Handed out over one link and then another: it is not known which of them has run it, so neither gets it again."""

_ADD: Final = "INSERT INTO deliveries (jid, ids, link) VALUES (?, ?, ?)"


class Linked(Protocol):
    """A device (``gateway.devices.device.Device``)."""

    @property
    def link(self) -> str:
        """The link over which it is reached now."""

    @property
    def present(self) -> bool:
        """Whether it is here by that link."""

    @property
    def answered(self) -> float:
        """When it last returned any job, monotonic seconds."""

    @property
    def unheard(self) -> bool:
        """Whether it is expected back on it."""

    @property
    def gone(self) -> float:
        """When it went, in monotonic seconds."""


class Roll(Protocol):
    """Where devices are found (``gateway.devices.registry.Registry``)."""

    def own_device(self, device: str) -> Linked | None:
        """One of this station's own devices."""


def over_links(names: Iterable[str], registry: Roll) -> dict[str, list[str]]:
    """Devices by the links over which they are reached now."""
    by_link: dict[str, list[str]] = defaultdict(list)
    for name in names:
        device = registry.own_device(name)
        by_link[device.link if device is not None else ""].append(name)
    return by_link


def handing_out(jid: str, by_link: Mapping[str, Sequence[str]]) -> Statement:
    """What puts on disk that these devices are handed the job over these links."""
    return (_ADD, [(jid, encode_value(names), link) for link, names in by_link.items()])


async def handed_out(reader: Reader, jid: str) -> dict[str, str]:
    """Who was handed a job, and over which link; "" where an earlier release did it."""
    found: dict[str, str] = {}
    for ids, link in await reader.rows("SELECT ids, link FROM deliveries WHERE jid = ?", (jid,)):
        for name in decode_stored(ids):
            found[name] = link if found.get(name, link) == link else SEVERAL
    return found


def may_repeat(opened: OpenJob, waiting: Waiting, link: str) -> bool:
    """Whether a job may go to a device over the link that it has now."""
    return waiting.link in ("", link) or has_moved(opened, waiting, link)


def presence_for(opened: OpenJob, waiting: Waiting, device: Linked | None, heard_since: float) -> Presence:
    """Whether a device is where a job was handed out to: one that is here by another link does not answer over this."""
    if device is None:
        return AWAY
    # What was handed out over SSH is in this station's own hands, and is answered by whichever link the device is here.
    same = waiting.link == SSH or may_repeat(opened, waiting, device.link)
    # A device that returns other jobs has more to say, and says one thing after another.
    return Presence(device.present and same, device.unheard and same, device.gone, max(heard_since, device.answered))


def has_moved(opened: OpenJob, waiting: Waiting, link: str) -> bool:
    """Whether a device has another link than when the job was taken, and nothing was sent over that one."""
    never_sent = not (waiting.tries or opened.recovered or opened.cancelled)
    return never_sent and waiting.link not in ("", link)
