"""The keys that a Salt master keeps of its minions: a device here already, a future agent, or not let in."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from gateway.salt.import_devices import Devices, take_minion
from gateway.salt.import_findings import Finding
from gateway.salt.import_read import Box

KEYS: Final = 100_000
"""Most that are listed of one state."""

NOT_LET_IN: Final = {
    "minions_pre": "the Salt master has not accepted its key",
    "minions_rejected": "the Salt master has rejected its key",
    "minions_denied": "the Salt master has denied its key: another one has this name",
}
UNREADABLE: Final = "its pillar does not render, so it may be a proxy: mend the files that are named as wrong"


def accepted(box: Box) -> dict[str, str]:
    """The minions whose keys the master of this box has accepted, and the file of each key."""
    return _keys(box, "minions")


def take_minions(box: Box, devices: Devices, own: Collection[str]) -> None:
    """One verdict for each key; ``own`` are the names of this box itself."""
    for name, where in accepted(box).items():
        label = f"minion {name[:128]}"
        if name in own:
            devices.findings.append(Finding("no meaning", label, where, "it is this box itself"))
        elif name in devices.known:
            devices.findings.append(Finding("no meaning", label, where, f"{devices.known[name]} has this device"))
        elif name in devices.listed:
            devices.findings.append(Finding("no meaning", label, where, f"{devices.listed[name]} has this proxy"))
        elif name in devices.unreadable:
            devices.known[name] = where
            devices.findings.append(Finding("not carried", label, where, UNREADABLE))
        else:
            take_minion(devices, name, where)
    for state, words in NOT_LET_IN.items():
        for name, where in _keys(box, state).items():
            label = f"minion {name[:128]}"
            if name in own:
                devices.findings.append(Finding("no meaning", label, where, "it is this box itself"))
            elif name in devices.known:
                words_here = f"{words}; {devices.known[name]} has this device"
                devices.findings.append(Finding("no meaning", label, where, words_here))
            else:
                advice = "to let it in, install outstation-agent, and give it a token of its name"
                devices.findings.append(Finding("not carried", label, where, f"{words}; {advice}"))
    for state in ("minions", *NOT_LET_IN):
        if (beyond := _count(box, state) - KEYS) > 0:
            words = f"{beyond:,} keys are not listed: at most {KEYS:,} are"
            devices.findings.append(Finding("not carried", state, str(_folder(box, state)), words))


def _folder(box: Box, state: str) -> Path:
    return Path(str(box.value("master", "pki_dir", box.folder / "pki" / "master"))) / state


def _names(box: Box, state: str) -> list[str]:
    try:
        return sorted(path.name for path in _folder(box, state).iterdir() if not path.name.startswith("."))
    except OSError:
        return []


def _count(box: Box, state: str) -> int:
    return len(_names(box, state))


def _keys(box: Box, state: str) -> dict[str, str]:
    folder = _folder(box, state)
    return {name: str(folder / name) for name in _names(box, state)[:KEYS]}
