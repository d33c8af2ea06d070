"""The beacons of a device as they are configured: in its settings, saved on it, and in its pillar.

settings    what the settings file says
saved       what ``beacons.save`` wrote down: it counts before the settings, and says what of them was deleted
now         the two together, and what was changed since
pillar      counts beside, for names that are not among these
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from device_agent.beacons.kinds import ALL_ENABLED, CONFIGURATION_BYTES
from device_agent.durable import replace_private
from device_agent.facts import loaded

log = logging.getLogger(__name__)

FILE: Final = "beacons.conf"
FILE_BYTES: Final = 16 * CONFIGURATION_BYTES

Configured = dict[str, Any]


class Kept:
    """What is configured on the device itself. ``now`` changes in place, and is durable when it is saved."""

    def __init__(self, settings: Mapping[str, Any], path: Path) -> None:
        self.path: Final = path
        self.now: Configured = copy.deepcopy(dict(settings))
        self._settings: Final = frozenset(settings)

    def load(self) -> None:
        """Read what was saved. A file that does not read is told in the log, and counts as none."""
        try:
            with self.path.open("rb") as file:
                body = file.read(FILE_BYTES + 1)
            if len(body) > FILE_BYTES:
                raise ValueError(f"more than {FILE_BYTES} bytes")
            saved = loaded(body.decode())
            beacons, deleted = (saved.get("beacons") or {}, saved.get("deleted") or []) if saved else ({}, [])
            if not isinstance(beacons, dict) or not isinstance(deleted, list):
                raise TypeError("beacons is a mapping, deleted a list")
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError) as error:
            log.error("the saved beacons are not read, those of the settings count file=%s error=%s", self.path, error)
            return
        for name in deleted:
            self.now.pop(name, None)
        self.now.update({str(name): data for name, data in beacons.items()})

    def save(self) -> None:
        """Have what counts now count at the next start. Raises ``OSError``."""
        saved: dict[str, Any] = {"beacons": self.now}
        if gone := sorted(self._settings - self.now.keys()):
            saved["deleted"] = gone
        replace_private(self.path, yaml.safe_dump(saved, default_flow_style=False, allow_unicode=True).encode())


def configured(now: Mapping[str, Any], pillar: Mapping[str, Any]) -> Configured:
    """All beacons that are configured: those of the device count before those of its pillar, as in Salt."""
    return {**pillar, **now}


def of_pillar(pillar: Mapping[Any, Any]) -> Configured:
    """The beacons in a pillar; what is no mapping is none, and is told in the log."""
    found = pillar.get("beacons") or {}
    if isinstance(found, Mapping):
        return {str(name): data for name, data in found.items()}
    log.error("beacons in the pillar must be a dictionary: none of them runs")
    return {}


def all_enabled(beacons: Mapping[str, Any]) -> bool:
    """Whether any of them runs."""
    return bool(beacons.get(ALL_ENABLED, True))
