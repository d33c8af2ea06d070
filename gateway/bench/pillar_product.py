"""Ours in ``bench pillar``: a station's own rooms, asked for every device's pillar. Run as a program of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import uvloop

from device_agent.clock import Clock
from device_agent.protocol.messages import Hello
from device_agent.protocol.pillar import ITEMS, PillarTold
from gateway.bench import pillar_tree
from gateway.config import StationSettings
from gateway.kept_rooms import KeptRooms
from gateway.rooms import Rooms

AT_ONCE = 64


async def measure(roots: Path, devices: int, inputs: int) -> dict[str, float]:
    """Ask for the pillar of each device once."""
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="outstation-bench-") as folder:
        settings = StationSettings(name="bench", pillar_roots={"base": [str(roots)]})
        rooms = Rooms("gateway", settings, Path(folder), clock)
        kept = KeptRooms(rooms, settings, Path(folder), clock)
        async with AsyncExitStack() as stack:
            for part in [*rooms.parts_before_recovery(), *kept.parts()]:
                await stack.enter_async_context(part)
            for device in range(devices):
                told = pillar_tree.grains(device, inputs)
                rooms.registry.hello("mqtt", told["id"], Hello("0" * 16, "bench", told))
            left = iter(range(devices))
            right = 0

            async def ask() -> None:
                nonlocal right
                for device in left:
                    body = await kept.to_devices.ask(f"cam-{device}", ITEMS)
                    found = msgspec.msgpack.decode(body, type=PillarTold).value()
                    right += pillar_tree.is_right(found, device, inputs)

            begun = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(ask())
            seconds = time.perf_counter() - begun
            compiled = rooms.metrics.counters["pillar_compiled"]
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "ok": right,
        "compiled": compiled,
        "seconds": seconds,
        "cpu_seconds": sum(each.ru_utime + each.ru_stime for each in spent),
        "peak_rss_bytes": 1024 * max(each.ru_maxrss for each in spent),
    }


if __name__ == "__main__":
    logging.disable()
    found = uvloop.run(measure(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
    sys.stdout.write(json.dumps(found))
