"""Every MQTT topic, once. A device is named by its did, whose text is its user name at the broker too.

os/<site>/enr/req             a device that joins -> station: its request, its word that it has the answer
os/<site>/enr/rsp/<did>       station -> a device that joins
os/<site>/d/<did>/up/<kind>   one device -> station: ses (opens a session), f (frames of it), bye (last will)
os/<site>/d/<did>/job         station -> one device: jobs, cancellations, frames of its session
os/<site>/d/<did>/sok         station -> one device: its session is open, or is not known
os/<site>/d/<did>/ep          station -> one device: a group key
os/<site>/g/all/job           station -> every device of the site
os/<site>/g/all/ack           station -> every device: confirmations
os/<site>/g/all/time          station -> every device, retained: the newest time beacon of a master
os/<site>/trust               station -> every device, retained: root lists, site certificates, prekey, revocations
"""

from __future__ import annotations

import re

from device_agent.errors import Refused
from device_agent.trust.keys import DID_PATTERN

_did = re.compile(DID_PATTERN)


def enrol_request(site: str) -> str:
    """Where a device asks to join."""
    return f"os/{site}/enr/req"


def enrol_response(site: str, did: str) -> str:
    """Where a device that asked to join is answered."""
    return f"os/{site}/enr/rsp/{did}"


def device_up(site: str, did: str, kind: str) -> str:
    """Where one device speaks; ``kind`` is ``ses``, ``f`` or ``bye``."""
    return f"os/{site}/d/{did}/up/{kind}"


def device_job(site: str, did: str) -> str:
    """Where one device hears of jobs, and the frames of its session."""
    return f"os/{site}/d/{did}/job"


def device_sok(site: str, did: str) -> str:
    """Where one device hears of its session."""
    return f"os/{site}/d/{did}/sok"


def device_ep(site: str, did: str) -> str:
    """Where one device gets group keys."""
    return f"os/{site}/d/{did}/ep"


def group_job(site: str) -> str:
    """Where every device listens."""
    return f"os/{site}/g/all/job"


def group_ack(site: str) -> str:
    """Where every device hears confirmations."""
    return f"os/{site}/g/all/ack"


def group_time(site: str) -> str:
    """Where every device hears what time it is by a master; retained.

    A topic of its own: a device of a release that knows no time beacons does not listen here, so it refuses none.
    """
    return f"os/{site}/g/all/time"


def trust(site: str) -> str:
    """Where every device hears whom to believe; retained."""
    return f"os/{site}/trust"


def station_filter(site: str) -> str:
    """What a station subscribes to, beside ``enrol_request``."""
    return f"os/{site}/d/+/up/+"


def sender(topic: str) -> str:
    """The did, as text, of the device that spoke on an upward topic. Raises ``Refused`` when it is none."""
    levels = topic.split("/", 4)
    if len(levels) != 5 or not _did.match(levels[3]):
        raise Refused("bad_topic", topic[:200])
    return levels[3]
