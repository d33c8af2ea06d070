"""What processes use is read from the kernel, and a process that has gone is an error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from device_agent.errors import StationFailed
from gateway.bench.usage import Usage, cpu_seconds, usage_of, usages

MEBIBYTE = 1024 * 1024
WORK = (
    "import sys, threading\n"
    "print('ready', flush=True)\n"
    "for line in sys.stdin:\n"
    "    thread = threading.Thread(target=lambda: [bytearray(64 << 20), sum(range(3_000_000))])\n"
    "    thread.start()\n"
    "    thread.join()\n"
    "    print('done', flush=True)\n"
)


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_work_is_counted_with_threads_that_have_ended_and_memory_that_was_given_back(
    worker: subprocess.Popen[str],
) -> None:
    assert worker.stdin is not None
    assert worker.stdout is not None
    before = usage_of(worker.pid)
    worker.stdin.write("work\n")
    worker.stdin.flush()
    assert worker.stdout.readline() == "done\n"
    used = usages({"worker": worker.pid})["worker"].since(before)
    assert used.cpu_seconds > 0.005
    assert used.peak_rss_bytes >= before.peak_rss_bytes + 60 * MEBIBYTE


def test_a_process_that_only_waits_uses_nothing(worker: subprocess.Popen[str]) -> None:
    first = cpu_seconds(worker.pid)
    assert cpu_seconds(worker.pid) - first < 0.005


def test_a_process_that_has_ended_is_an_error() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait(60)
    for look in (cpu_seconds, usage_of):
        with pytest.raises(StationFailed, match="has ended"):
            look(process.pid)


def test_a_difference_keeps_the_peak_of_the_whole_life() -> None:
    assert Usage(3.5, 700).since(Usage(1.5, 600)) == Usage(2.0, 700)
