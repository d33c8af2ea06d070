"""Every MQTT topic, once.

os/<site>/d/<id>/job          station -> one device
os/<site>/d/<id>/up/<kind>    one device -> station
os/<site>/g/all/job           station -> every device of the site
os/<site>/g/all/ack           station -> every device: confirmations
"""

from __future__ import annotations

import re

from device_agent.errors import Refused
from device_agent.protocol.messages import DEVICE_ID_PATTERN

_device_id = re.compile(DEVICE_ID_PATTERN)


def device_job(site: str, device: str) -> str:
    """Where one device listens."""
    return f"os/{site}/d/{device}/job"


def device_up(site: str, device: str, kind: str) -> str:
    """Where one device speaks; ``kind`` is for people with a packet dump and for access rules."""
    return f"os/{site}/d/{device}/up/{kind}"


def group_job(site: str) -> str:
    """Where every device listens."""
    return f"os/{site}/g/all/job"


def group_ack(site: str) -> str:
    """Where every device hears confirmations."""
    return f"os/{site}/g/all/ack"


def station_filter(site: str) -> str:
    """What a station subscribes to."""
    return f"os/{site}/d/+/up/+"


def sender(topic: str) -> str:
    """The device that spoke on an upward topic. Raises ``Refused`` when the id is not one."""
    levels = topic.split("/", 4)
    if len(levels) != 5 or not _device_id.match(levels[3]):
        raise Refused("bad_topic", topic[:200])
    return levels[3]
