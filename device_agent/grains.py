"""Grains: the facts of this machine, with what its settings add, as far as a message can carry them."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

from device_agent.errors import ConfigInvalid, Refused
from device_agent.facts import NoFacts
from device_agent.host import Host
from device_agent.protocol import limits
from device_agent.protocol.messages import Grains, check_plain, encode_value
from device_agent.readings.machine import WORD_CHARACTERS, word

log = logging.getLogger(__name__)


async def own_grains(host: Host, name: str, extra: Grains, before: Grains) -> Grains:
    """The grains of the machine this agent runs on. Raises ``ConfigInvalid`` for what no message can carry.

    A machine that does not tell its facts keeps those it told last: the agent is there all the same.
    """
    try:
        found = await host.facts()
    except NoFacts as error:
        log.error("the facts of this machine are not known error=%r", str(error))
        found = before
    return check_grains({**found, **extra, "id": name})


def check_grains(grains: Grains) -> Grains:
    """The same grains, if a hello can carry them. Raises ``ConfigInvalid``."""
    try:
        check_plain(grains)
        size = len(encode_value(grains))
    except Refused as refused:
        raise ConfigInvalid("a grain cannot be sent", where="grains", found=refused.detail) from refused
    except (OverflowError, TypeError, ValueError) as error:
        raise ConfigInvalid("a grain cannot be sent", where="grains", found=str(error)) from error
    if size > limits.GRAINS_BYTES:
        raise ConfigInvalid(
            "the grains are too large",
            where="grains",
            found=f"{size} bytes with the machine's own",
            allowed=f"at most {limits.GRAINS_BYTES}",
        )
    return grains


def machine_serial(root: Path = Path("/")) -> str:
    """The serial number of this machine as its maker wrote it, or its host name where there is none."""
    return _printed(root, "serial-number", "product_serial") or socket.gethostname()[:WORD_CHARACTERS]


def machine_model(root: Path = Path("/")) -> str:
    """The model of this machine as its maker wrote it; empty where there is none."""
    return _printed(root, "model", "product_name")


def _printed(root: Path, node: str, attribute: str) -> str:
    """What the maker wrote: in the device tree of a board, or in the DMI table of a PC, sysfs(5)."""
    for path in (root / "proc/device-tree" / node, root / "sys/class/dmi/id" / attribute):
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                return word(file.read(65536))
        except OSError:
            continue
    return ""
