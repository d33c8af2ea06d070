"""How far each key of a Salt master was heard, in a real store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import Refused
from gateway.salt.serials import KEYS, SaltSerials
from tests.peers.clock import HandClock
from tests.peers.database import opened_rooms
from tests.peers.salt_double import new_box
from upstream.salt.box import Box
from upstream.salt.serials import SerialGuard


async def take(guard: SerialGuard, load: dict[str, Any], box: Box, master: str) -> int:
    heard = await guard.hear(load, box, master)
    await guard.keep(heard)
    return heard.lost


async def test_it_is_known_after_a_restart(tmp_path: Path) -> None:
    clock, box = HandClock(), new_box()
    for serial in (1, 7):
        async with opened_rooms(tmp_path, clock=clock, masters=True) as rooms:
            guard = SerialGuard(SaltSerials(rooms.writer, rooms.reader, clock))
            assert await take(guard, {"serial": serial}, box, "salt") == (0 if serial == 1 else 5)
            with pytest.raises(Refused, match="replayed"):
                await take(SerialGuard(SaltSerials(rooms.writer, rooms.reader, clock)), {"serial": serial}, box, "salt")
            assert box.key not in str(await rooms.reader.rows("SELECT * FROM salt_serials")), "no key is on disk"


async def test_a_master_that_makes_ever_new_keys_fills_no_disk_and_pushes_out_only_its_own(tmp_path: Path) -> None:
    clock, box = HandClock(), new_box()
    async with opened_rooms(tmp_path, clock=clock, masters=True) as rooms:
        serials = SaltSerials(rooms.writer, rooms.reader, clock)
        guard = SerialGuard(serials)
        await take(guard, {"serial": 3}, box, "quiet")
        keys = [new_box() for _ in range(KEYS + 20)]
        for key in keys:
            clock.move(1.0)
            await take(guard, {"serial": 1}, key, "busy")
        assert await rooms.reader.rows("SELECT master, count(*) FROM salt_serials GROUP BY master ORDER BY master") == [
            ("busy", KEYS),
            ("quiet", 1),
        ]
        for mine in (box, keys[-1]):
            with pytest.raises(Refused, match="replayed"):
                await take(SerialGuard(serials), {"serial": 1}, mine, "quiet")
