"""``ps``: processes that run and should not, or do not run and should."""

from __future__ import annotations

from pathlib import Path

from device_agent.beacons.aside import Aside
from device_agent.beacons.given import Given
from device_agent.beacons.port import Around, Found, Looking
from device_agent.readings.process_name import NAME_BYTES, whole_name

LINE_BYTES = 4096


class Processes(Looking):
    """``processes``: by name ``running`` or ``stopped``, and it is told when it is so."""

    def __init__(self, given: Given) -> None:
        given.only("processes")
        if "processes" not in given.values:
            raise given.wrong("requires processes.", None, "- processes: {mosquitto: stopped}")
        wanted = given.values["processes"]
        if not isinstance(wanted, dict):
            raise given.says("Processes for ps beacon must be a dictionary.", wanted, "mosquitto: stopped")
        self._wanted = {given.typed("processes", name, str, "names"): state for name, state in wanted.items()}
        self._aside = Aside()

    async def look(self, around: Around) -> list[Found]:
        """The processes that are as it is told of them."""
        here = await self._aside.call(lambda: names(around.proc))
        found = []
        for name, state in self._wanted.items():
            if state == "running":
                said: str | None = "Running" if name in here else None
            elif state == "stopped":
                said = "Stopped" if name not in here else None
            elif name not in here:
                # As in Salt: any other word tells that it does not run.
                found.append(Found({name: False}, about=name))
                continue
            else:
                continue
            if said is not None:
                found.append(Found({name: said}, about=name))
        return found


def names(proc: Path) -> set[str]:
    """The names of all processes: of a long one the whole name, and the beginning that the kernel keeps."""
    found = set()
    for place in proc.iterdir():
        if not place.name.isdecimal():
            continue
        try:
            name = (place / "comm").read_bytes().removesuffix(b"\n").decode(errors="replace")
            found.add(name)
            if len(name.encode()) >= NAME_BYTES:
                with (place / "cmdline").open("rb") as file:
                    found.add(whole_name(name, file.read(LINE_BYTES).decode(errors="replace").split("\0")))
        except OSError:
            continue  # It has ended meanwhile.
    return found
