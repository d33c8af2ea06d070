"""What a device has beside its machine, on paper: station, jobs, beacons and schedule record what is done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, tzinfo
from typing import Any

from device_agent.beacons.asked import Changed
from device_agent.custom.sync import Synced
from device_agent.own import NoCustom, NoJobs, Own, RunningJob
from device_agent.pillar import HeldPillar
from device_agent.protocol import file_questions as files
from device_agent.protocol import mine
from device_agent.questions import Station
from device_agent.trust.reach import Reach
from tests.peers.function_case import SETTINGS, PillarStation

CONTENT = b"firmware"
SHA256 = "b1a4cd6e1b7a4b5c0d3bd5ae9a1ff2b55cc50ba1d1d4fbb57b0d4fd2f3ab8a3e"
ENTRY: dict[str, Any] = {"seconds": 60, "function": "test.ping", "enabled": True}


class Effects(list[str]):
    """What was done, in its order."""


class RecordingStation(PillarStation):
    """Serves one file under any path, and takes everything."""

    def __init__(self, effects: Effects, sha256: str) -> None:
        self._effects = effects
        self._sha256 = sha256

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 0.0) -> bytes:
        if about == files.FIND:
            wanted = files.decode(body, files.FindFile)
            return files.encode(files.FileEntry(wanted.path, wanted.saltenv, len(CONTENT), self._sha256))
        if about == files.CHUNK:
            return CONTENT
        if about == files.LIST:
            return files.encode(files.Listing(["fw.bin"]))
        if about == files.PUSH:
            self._effects.append("pushed")
            return b""
        if about == mine.GET:
            return mine.encode(list[mine.Found]())
        if about.startswith("mine."):
            self._effects.append("mine")
            return b""
        return await super().ask(about, body)


class RecordingJobs(NoJobs):
    """One job runs."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    def running(self) -> list[RunningJob]:
        return [RunningJob("20261122140501123456", "test.sleep", [], {}, "*", "glob", "anna", 1)]

    def stop(self, jid: str, why: str) -> bool:
        self._effects.append("jobs")
        return super().stop(jid, why)


class RecordingCustom(NoCustom):
    """Brings nothing, and records that it was to."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    async def sync(self, station: Station, kinds: Sequence[str], saltenvs: Sequence[str]) -> Synced:
        self._effects.append("code")
        return await super().sync(station, kinds, saltenvs)


class RecordingEvents:
    """Takes every event."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    async def fire(self, device: str, tag: str, data: dict[str, Any], *, local: bool = False) -> None:
        self._effects.append("event")


class RecordingBeacons:
    """The beacon ``swapusage`` is configured, and ``memusage`` is not."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    def listed(self, *, pillar: bool = True, own: bool = True) -> dict[str, Any]:
        return {"swapusage": [{"percent": 80}]}

    def available(self) -> list[str]:
        return ["memusage", "swapusage"]

    def wrong(self, name: str, data: Any) -> str:
        return ""

    def put(self, name: str, data: Any) -> Changed:
        return self._changed()

    def delete(self, name: str) -> Changed:
        return self._changed()

    def enable(self, name: str | None, *, enabled: bool) -> Changed:
        return self._changed()

    def reset(self) -> None:
        self._changed()

    async def save(self) -> str:
        self._changed()
        return "its file"

    def _changed(self) -> Changed:
        self._effects.append("beacons")
        return Changed(True)


class RecordingSchedule:
    """The entry ``known`` is in the schedule."""

    zone: tzinfo = UTC
    enabled = True

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    def written(self, where: object = None) -> dict[str, dict[str, Any]]:
        return {"known": dict(ENTRY)}

    def kept(self) -> dict[str, dict[str, Any]]:
        return {"known": dict(ENTRY)}

    def is_pillar(self, name: str) -> bool:
        return False

    def status(self, name: str) -> dict[str, Any]:
        return {}

    def next_fire(self, name: str) -> float | None:
        return 0.0

    async def put(self, name: str, value: dict[str, Any], reach: Reach | None, *, persist: bool) -> None:
        self._effects.append("schedule")

    async def remove(self, name: str, *, persist: bool) -> None:
        self._effects.append("schedule")

    async def switch(self, name: str | None, *, on: bool, persist: bool) -> None:
        self._effects.append("schedule")

    async def move(self, name: str, at: float, to: float | None) -> None:
        self._effects.append("schedule")

    async def run(self, name: str) -> str:
        self._effects.append("schedule")
        return "20261122140501123456"

    async def save(self) -> None:
        self._effects.append("schedule")

    async def reload(self) -> bool:
        self._effects.append("schedule")
        return False


def recording_own(folder: str, effects: Effects, sha256: str) -> Own:
    """What a device has beside its machine; its own files are in ``folder``."""
    station = RecordingStation(effects, sha256)
    return Own(
        jobs=RecordingJobs(effects),
        settings=dict(SETTINGS),
        grains_file=f"{folder}/grains",
        cache_dir=f"{folder}/cache",
        station=station,
        custom=RecordingCustom(effects),
        pillar=HeldPillar(station),
        events=RecordingEvents(effects),
        schedule=RecordingSchedule(effects),
        beacons=RecordingBeacons(effects),
    )
