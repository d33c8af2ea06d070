"""Every event tag, once, and the rule by which a glob matches one. Tags and shapes are Salt's."""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache

PRESENCE_CHANGE = "salt/presence/change"
AUTH = "salt/auth"
KEY = "salt/key"
OWN = ("outstation", "salt/auth", "salt/job", "salt/key", "salt/minion", "salt/presence")
"""What only the station itself says: a tag that is one of these, or begins with one and a slash."""


def job_new(jid: str) -> str:
    """A station accepted a job."""
    return f"salt/job/{jid}/new"


def job_return(jid: str, device: str) -> str:
    """A device has an outcome."""
    return f"salt/job/{jid}/ret/{device}"


def job_close(jid: str) -> str:
    """A station said its last word on a job. Not one of Salt's, which never knows that a job has ended."""
    return f"salt/job/{jid}/close"


def device_start(device: str) -> str:
    """A device joined or came back; Salt's tag for a minion's start."""
    return f"salt/minion/{device}/start"


def device_cloned(device: str) -> str:
    """Two machines speak with the identity of one device."""
    return f"outstation/device/{device}/cloned"


def site_change(site: str) -> str:
    """A site came or went, seen from a station above it."""
    return f"outstation/site/{site}/change"


def site_twin(site: str) -> str:
    """Two gateways run with the store of one site."""
    return f"outstation/site/{site}/twin"


def drill(station: str) -> str:
    """The uplink of a station is cut on purpose, or mended again."""
    return f"outstation/station/{station}/drill"


def station_damaged(station: str) -> str:
    """A station found its store damaged and went on with what could be read of it."""
    return f"outstation/station/{station}/damaged"


def master_rolled_back(master: str) -> str:
    """A master knows less than it once said: it was restored from a backup. Told by the gateway that saw it."""
    return f"outstation/master/{master}/rolled_back"


def is_own(tag: str) -> bool:
    """Whether only the station itself fires this tag."""
    return any(tag == own or tag.startswith(f"{own}/") for own in OWN)


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def matches(pattern: str, tag: str) -> bool:
    """Salt's rule: ``fnmatch`` over the whole tag, where ``*`` crosses ``/``."""
    return _compiled(pattern).match(tag) is not None
