"""Engines in real processes: they crash, loop, fork and hide, and nothing of them stays or harms who keeps them."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from device_agent.errors import NotFound
from tests.peers.engine_bench import SECONDS, EngineBench
from tests.peers.processes import runs
from tests.peers.waiting import until

pytestmark = pytest.mark.timeout(120)

FOR_EVER = "import time\n\ndef start(**options):\n    while True:\n        time.sleep(1)\n"
FAMILY = """
import os, signal, sys, time

def start(pids, stubborn=True):
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with open(pids, "a") as file:
                file.write(f"{os.getpid()}\\n")
            time.sleep(1000)
    time.sleep(1000)
"""


@pytest.fixture
def bench(tmp_path: Path) -> EngineBench:
    tmp_path.chmod(0o755)
    return EngineBench(tmp_path)


def pids(place: Path) -> list[int]:
    return [int(line) for line in place.read_text().split()] if place.exists() else []


async def test_an_engine_that_raises_is_started_again_and_says_where_it_was(bench: EngineBench) -> None:
    bench.write("crash", "def start():\n    raise ValueError('no badge')\n")
    async with bench.running("crash"):
        view = await bench.until("crash", "waiting", "crash.py:2: ValueError: no badge")
        assert view["again_at"] > view["since"]
        await until(lambda: bench.view("crash")["starts"] >= 3, SECONDS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def start():\n    return\n", "its start() returned"),
        ("import os\ndef start():\n    os.kill(os.getpid(), 11)\n", "signal 11 (SIGSEGV)"),
        ("import os\ndef start():\n    os._exit(7)\n", "exit status 7"),
        ("import sys\ndef start():\n    sys.exit(4)\n", "exit status 4"),
        ("def start(:\n", "x.py:1: SyntaxError"),
        ("import salt.client\ndef start(): ...\n", "No module named 'salt.client'"),
        ("stop = 1\n", "it has no start()"),
        ("def start(host): ...\n", "missing a required argument: 'host'; start of"),
        (
            "def __virtual__():\n    return (False, 'no datadog')\n",
            "__virtual__ says that it cannot run here: no datadog",
        ),
        ("def start():\n    x = 'x'\n    while True:\n        x += x\n", "it used up its memory"),
        ("async def start():\n    raise KeyError('late')\n", "KeyError: 'late'"),
    ],
)
async def test_why_an_engine_does_not_run_is_told_in_words(bench: EngineBench, text: str, why: str) -> None:
    bench.write("x", text)
    async with bench.running("x"):
        await bench.until("x", "waiting", why)


async def test_a_name_that_is_nowhere_is_waited_for_and_counted(bench: EngineBench) -> None:
    async with bench.running("later"):
        await bench.until("later", "waiting", "there is no engine later")
        bench.write("later", FOR_EVER)
        assert bench.part is not None
        bench.part.restart("later")
        await bench.until("later", "running")
        assert bench.metrics.refusals["engines", "not_there"] >= 1
        with pytest.raises(NotFound):
            bench.part.restart("other")


async def test_what_an_engine_started_ends_with_it_whatever_it_does_to_get_away(
    bench: EngineBench, tmp_path: Path
) -> None:
    bench.write("family", FAMILY)
    place = tmp_path / "pids"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(bench.running({"family": {"pids": str(place)}}))
        await until(lambda: len(pids(place)) == 3, SECONDS)
        async with asyncio.timeout(SECONDS):
            await stack.aclose()
    await until(lambda: not any(runs(pid) for pid in pids(place)), SECONDS)
    assert bench.left() == []


async def test_an_engine_that_was_killed_leaves_nothing_and_is_started_again(
    bench: EngineBench, tmp_path: Path
) -> None:
    bench.write("family", FAMILY)
    place = tmp_path / "pids"
    async with bench.running({"family": {"pids": str(place)}}):
        await until(lambda: len(pids(place)) == 3, SECONDS)
        first = pids(place)
        # The process above it, which could have ended what got away.
        os.kill(bench.view("family")["pid"], 9)
        await until(lambda: len(pids(place)) == 6, SECONDS)
        assert not any(runs(pid) for pid in first)


async def test_one_that_has_too_many_processes_is_ended_with_all_of_them(bench: EngineBench, tmp_path: Path) -> None:
    place = tmp_path / "pids"
    text = f"""
import os, time

def start():
    for _ in range(12):
        if os.fork() == 0:
            with open({str(place)!r}, "a") as file:
                file.write(f"{{os.getpid()}}\\n")
            time.sleep(1000)
    time.sleep(1000)
"""
    bench.write("bomb", text)
    async with bench.running("bomb", processes=5):
        await bench.until("bomb", "waiting", "at most 5: engine_limits.processes")
        await until(lambda: not any(runs(pid) for pid in pids(place)), SECONDS)


async def test_a_flood_of_lines_is_cut_and_counted_and_the_others_run_on(
    bench: EngineBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.write("loud", "def start():\n    while True:\n        print('spam ' * 100)\n")
    bench.write("quiet", FOR_EVER)
    caplog.set_level("INFO", "gateway.engines")
    async with bench.running("loud", "quiet"):
        await bench.until("quiet", "running")
        await until(lambda: bench.metrics.counters["engine_lines_left_out"] > 1000, SECONDS)
        assert len([1 for record in caplog.records if "spam" in record.getMessage()]) <= 400
        assert bench.view("quiet")["state"] == "running"


async def test_its_log_has_the_level_that_it_was_said_with(
    bench: EngineBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.write("says", "import logging, time\ndef start():\n    logging.error('it burns')\n    time.sleep(1000)\n")
    caplog.set_level("DEBUG", "gateway.engines")
    async with bench.running("says"):
        await until(lambda: any("it burns" in each.getMessage() for each in caplog.records), SECONDS)
    (record,) = [each for each in caplog.records if "it burns" in each.getMessage()]
    assert (record.levelname, "engine says:" in record.getMessage()) == ("ERROR", True)


async def test_options_and_what_salt_puts_into_a_module_are_there(bench: EngineBench, tmp_path: Path) -> None:
    place = tmp_path / "seen"
    bench.write(
        "look",
        "import time\n"
        "def start(path, words, **more):\n"
        "    open(path, 'w').write(repr((words, more, __opts__['__role'])))\n"
        "    open(path, 'a').write(repr(['test.ping' in __salt__]))\n"
        "    time.sleep(1000)\n",
    )
    async with bench.running({"two": {"engine_module": "look", "path": str(place), "words": ["a", 1], "x": None}}):
        await until(lambda: place.exists() and "]" in place.read_text()[10:], SECONDS)
    assert place.read_text() == "(['a', 1], {'x': None}, 'master')[True]"


async def test_each_has_its_own_bounds_and_an_end_that_is_asked_for(bench: EngineBench, tmp_path: Path) -> None:
    place = tmp_path / "bounds"
    bench.write(
        "bounds",
        "import resource, signal, sys, time\n"
        "def start(path):\n"
        "    def end(*_):\n"
        "        open(path, 'a').write(' ended')\n"
        "        sys.exit(0)\n"
        "    signal.signal(signal.SIGTERM, end)\n"
        "    open(path, 'w').write(' '.join(str(resource.getrlimit(x)[0]) for x in (9, 7, 4)))\n"
        "    time.sleep(1000)\n",
    )
    async with bench.running({"bounds": {"path": str(place)}}, memory_megabytes=200, open_files=40):
        await until(lambda: place.exists() and place.read_text(), SECONDS)
    assert place.read_text() == f"{200 * 1024 * 1024} 40 0 ended"
