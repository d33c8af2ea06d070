"""Every event tag, once, and the rule by which a glob matches one. Tags and shapes are Salt's."""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache

LEGACY_START = "minion_start"
"""Under which Salt tells of a minion's start a second time, unless it is told not to."""

PRESENCE_CHANGE = "salt/presence/change"
PRESENCE_PRESENT = "salt/presence/present"
AUTH = "salt/auth"
KEY = "salt/key"
OWN = ("outstation", "salt/auth", "salt/job", "salt/key", "salt/minion", "salt/presence")
"""What only the station itself says: a tag that is one of these, or begins with one and a slash."""

NO_DEVICES = (LEGACY_START, "salt/cloud", "salt/cluster", "salt/reactors", "salt/run", "salt/wheel", "syndic")
"""What no device says, beside those."""

BEACON = "salt/beacon/"
REACTION = "outstation/reaction/"
_CONTROL = "salt/reactors/manage/"
_JID = re.compile(r"[0-9]{20}")


def job_new(jid: str) -> str:
    """A station accepted a job."""
    return f"salt/job/{jid}/new"


def job_publish(jid: str) -> str:
    """A job is on its way to whom it is for."""
    return f"salt/job/{jid}/publish"


def is_jid(tag: str) -> bool:
    """Whether it is a bare job id, under which Salt names the minions of a new job."""
    return _JID.fullmatch(tag) is not None


def job_return(jid: str, device: str) -> str:
    """A device has an outcome."""
    return f"salt/job/{jid}/ret/{device}"


def is_job_return(tag: str) -> bool:
    """Whether it is the tag of a return."""
    return tag.startswith("salt/job/") and tag.split("/", 4)[3:4] == ["ret"]


def job_close(jid: str) -> str:
    """A station said its last word on a job. Not one of Salt's, which never knows that a job has ended."""
    return f"salt/job/{jid}/close"


def device_start(device: str) -> str:
    """A device joined or came back; Salt's tag for a minion's start."""
    return f"salt/minion/{device}/start"


def device_grains(device: str) -> str:
    """A device reports other grains than before."""
    return f"outstation/device/{device}/grains"


def device_events_lost(device: str) -> str:
    """A device had more events than it could keep for its station: the oldest gave way."""
    return f"outstation/device/{device}/events_lost"


def device_cloned(device: str) -> str:
    """Two machines speak with the identity of one device."""
    return f"outstation/device/{device}/cloned"


def device_ssh(device: str) -> str:
    """An operator added a device that is reached over SSH, or changed or removed it."""
    return f"outstation/device/{device}/ssh"


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


def station_upgraded(station: str, ended: str) -> str:
    """Another version was installed on a station, and how that ended: ``healthy``, ``rolled_back`` or ``failed``."""
    return f"outstation/station/{station}/upgrade/{ended}"


def master_rolled_back(master: str) -> str:
    """A master knows less than it once said: it was restored from a backup. Told by the gateway that saw it."""
    return f"outstation/master/{master}/rolled_back"


def check(name: str) -> str:
    """What a check finds wrong with the station has changed, or is right again."""
    return f"outstation/check/{name}"


def schedule_missed(name: str) -> str:
    """A run of the station's schedule was missed while nobody was there. Told by the station itself."""
    return f"outstation/schedule/{name}/missed"


def is_own(tag: str) -> bool:
    """Whether only the station itself fires this tag."""
    return any(tag == own or tag.startswith(f"{own}/") for own in OWN)


def reaction(key: str) -> str:
    """A site tells those above of one of its reactions."""
    return f"{REACTION}{key}"


def through(site: str, tag: str) -> str:
    """The second tag of an event that came up from a site: Salt's for one that came through a syndic."""
    return f"syndic/{site}/{tag}"


def is_flat(tag: str) -> bool:
    """Whether Salt has the data of such an event flat where files in the field also read it one level deeper.

    Those are beacons, and what a master fired itself; the master's own events under ``salt/`` are read one way only.
    """
    return tag.startswith(BEACON) or not tag.startswith("salt/")


def may_come_from(device: str, tag: str) -> bool:
    """Whether a device may fire this tag: none of a station's, of Salt's masters' or of another device's beacons."""
    if is_own(tag) or any(tag == own or tag.startswith(f"{own}/") for own in NO_DEVICES):
        return False
    # Whoever orders a reactor is known by the end of the tag; Salt tells of a new job under the bare jid.
    if _CONTROL in tag or is_jid(tag):
        return False
    return not tag.startswith(BEACON) or tag.startswith(f"{BEACON}{device}/")


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def matches(pattern: str, tag: str) -> bool:
    """Salt's rule: ``fnmatch`` over the whole tag, where ``*`` crosses ``/``."""
    return _compiled(pattern).match(tag) is not None
