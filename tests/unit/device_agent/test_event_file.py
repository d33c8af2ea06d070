"""The file of events that wait: kept before anybody is told, bounded, mended, and never said under another's number."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from device_agent import event_file
from device_agent.event_file import MAGIC, EventFile
from device_agent.outbox import JournalUnavailable
from device_agent.protocol.device_events import PAGE_BYTES, PAGE_EVENTS, Page, decode_page
from device_agent.protocol.messages import encode_value

HALF = 20


async def opened(path: Path, most: int = 1000, most_bytes: int = 1024 * 1024) -> EventFile:
    made = EventFile(path, most=most, most_bytes=most_bytes)
    await made.open()
    return made


async def add(kept: EventFile, *numbers: int, size: int = 0) -> None:
    for number in numbers:
        await kept.add(f"site/{number}", encode_value({"n": number, "x": "x" * size}), float(number))


def numbers(page: Page) -> list[int]:
    return [event.data["n"] for event in page.events]


async def test_events_wait_in_order_until_they_are_taken_also_for_the_next_process(tmp_path: Path) -> None:
    kept = await opened(tmp_path / "events")
    await add(kept, 1, 2, 3)
    first = await kept.page()
    assert numbers(first) == [1, 2, 3]
    assert [event.sequence for event in first.events] == [1, 2, 3]
    assert (first.events[0].tag, first.events[0].at) == ("site/1", 1.0)
    await kept.taken(2)
    again = await opened(tmp_path / "events")
    page = await again.page()
    assert (numbers(page), page.events[0].sequence, page.outbox) == ([3], 3, first.outbox)
    await again.taken(3)
    last = await opened(tmp_path / "events")
    assert len(last) == 0
    await add(last, 4)
    assert (await last.page()).events[0].sequence == 4, "no number is given twice"


async def test_what_is_local_is_still_local_for_the_next_process_and_what_is_older_is_not(tmp_path: Path) -> None:
    kept = await opened(tmp_path / "events")
    await kept.add("site/1", encode_value({}), 1.0, local=True)
    await add(kept, 2)
    again = await opened(tmp_path / "events")
    assert [(each.tag, each.local) for each in (await again.page()).events] == [("site/1", True), ("site/2", False)]
    older = encode_value({"events": [[1, "site/1", {}, 1.0]], "outbox": b"8 bytes."})
    assert [each.local for each in decode_page(older).events] == [False], "the words of a release before"


async def test_a_page_is_waited_for_and_is_bounded(tmp_path: Path) -> None:
    kept = await opened(tmp_path / "events")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(kept.page())
        await add(kept, *range(PAGE_EVENTS + 5))
    assert numbers(waiting.result())[0] == 0
    assert len((await kept.page()).events) == PAGE_EVENTS
    assert len((await kept.page(1)).events) == 1
    large = await opened(tmp_path / "large")
    await add(large, *range(4), size=60_000)
    assert len((await large.page()).events) == PAGE_BYTES // 60_000


async def test_the_oldest_gives_way_and_is_counted_but_not_what_is_under_way(tmp_path: Path) -> None:
    kept = await opened(tmp_path / "events", most=5)
    await add(kept, *range(5))
    assert numbers(await kept.page(2)) == [0, 1]
    await add(kept, 5, 6)
    assert numbers(await kept.page()) == [0, 1, 4, 5, 6]
    again = await opened(tmp_path / "events", most=5)
    page = await again.page()
    assert (numbers(page), page.lost) == ([0, 1, 4, 5, 6], 2)
    by_bytes = await opened(tmp_path / "bytes", most_bytes=10_000)
    await add(by_bytes, *range(8), size=3000)
    page = await by_bytes.page()
    assert (numbers(page), page.lost) == ([5, 6, 7], 5)


async def test_what_no_station_reads_is_let_go_and_counted(tmp_path: Path) -> None:
    kept = await opened(tmp_path / "events")
    await add(kept, 1, 2)
    await kept.lose(1)
    page = await (await opened(tmp_path / "events")).page()
    assert (numbers(page), page.lost) == ([2], 1)


async def test_a_torn_tail_is_cut_and_a_damaged_file_is_set_aside_under_another_outbox(tmp_path: Path) -> None:
    path = tmp_path / "events"
    kept = await opened(path)
    await add(kept, 1, 2, 3)
    outbox = (await kept.page()).outbox
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    torn = await opened(path)
    assert numbers(await torn.page()) == [1, 2]
    await add(torn, 4)
    page = await (await opened(path)).page()
    assert (numbers(page), page.outbox) == ([1, 2, 4], outbox)
    place = whole.index(b"site/1")
    path.write_bytes(whole[:place] + b"SITE" + whole[place + 4 :])
    mended = await opened(path)
    page = await mended.page()
    assert numbers(page) == [2, 3]
    assert page.outbox != outbox
    assert (tmp_path / "events.corrupt-1").read_bytes().startswith(MAGIC)
    assert numbers(await (await opened(path)).page()) == [2, 3]


async def test_the_file_is_rewritten_before_it_grows_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_file, "COMPACT_BYTES", 2000)
    path = tmp_path / "events"
    kept = await opened(path)
    for number in range(1, 200):
        await add(kept, number)
        if number > 2:
            await kept.taken(number - 2)
    assert path.stat().st_size < 4000
    again = await opened(path)
    page = await again.page()
    assert numbers(page) == [198, 199]
    assert page.outbox == (await kept.page()).outbox


async def test_a_disk_that_takes_nothing_is_told_and_leaves_no_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = await opened(tmp_path / "events")
    await add(kept, 1)

    real = os.pwrite

    def half(descriptor: int, data: bytes, place: int) -> int:
        if len(data) < HALF:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[: len(data) - HALF + 1], place)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", half)
        with pytest.raises(JournalUnavailable, match="No space left"):
            await add(kept, 2)
    await add(kept, 3)
    again = await opened(tmp_path / "events")
    assert numbers(await again.page()) == [1, 3]
    with pytest.raises(JournalUnavailable, match="cannot be opened"):
        await EventFile(tmp_path / "nowhere" / "events").open()
