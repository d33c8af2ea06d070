"""The folders ``proxy.d/NAME``, in which Salt keeps settings of one proxy: each key in them gets a verdict."""

from __future__ import annotations

from typing import Final

from gateway.salt.import_devices import Devices, take_proxy
from gateway.salt.import_findings import Finding, Said, Verdict
from gateway.salt.import_keys import no_meaning, not_carried
from gateway.salt.import_read import Box, keys_of, pieces, typed

IN_PILLAR: Final = frozenset({"beacons", "grains", "mine_functions", "mine_interval", "pillar", "schedule"})
IN_PILLAR_WORDS: Final = (
    "it holds for this proxy alone: what targets need goes into the pillar of the device (docs/targets.md), and what "
    "runs by itself into schedule: of the gateway, with its target (docs/schedules.md)"
)


def take_proxy_folders(box: Box, devices: Devices) -> dict[str, str]:
    """Each proxy that its own folder describes; the names of all such folders, and where they are."""
    place = box.folder / "proxy.d"
    folders = sorted(path for path in place.iterdir() if path.is_dir()) if place.is_dir() else []
    for folder in folders:
        for piece in pieces(folder, "*.conf"):
            box.files.append(piece)
            for said in keys_of(box, "proxy", piece):
                if said.key == "proxy":
                    take_proxy(devices, folder.name, typed(said.value, said.tree), said.where)
                else:
                    devices.findings.append(_verdict(folder.name, said))
    return {folder.name: str(folder) for folder in folders}


def _verdict(name: str, said: Said) -> Finding:
    verdict: Verdict = "not carried"
    if said.key in IN_PILLAR:
        words = IN_PILLAR_WORDS
    elif said.key == "id":
        verdict, words = "no meaning", "it names a process; the devices are listed by their own names"
    elif (why := no_meaning(said.key)) is not None:
        verdict, words = "no meaning", why
    else:
        words = f"it holds for this proxy alone; {not_carried(said.key)}"
    return Finding(verdict, f"{said.key} of proxy {name[:128]}", said.where, words)
