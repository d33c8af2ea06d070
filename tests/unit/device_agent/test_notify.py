"""What a daemon says to the service manager, and when it feeds the watchdog."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from device_agent.errors import ConfigInvalid, StationFailed
from device_agent.notify import STATUS_CHARACTERS, Notifier, one_sentence
from device_agent.service_reports import ServiceReports
from tests.peers.notified import played_supervisor
from tests.peers.waiting import until


def test_the_environment_keeps_nothing_that_a_child_could_speak_with() -> None:
    with played_supervisor() as manager:
        environment = {**manager.environment(watchdog_seconds=3), "WATCHDOG_PID": str(os.getpid()), "HOME": "/root"}
        told = Notifier(environment)
        assert environment == {"HOME": "/root"}
        assert (told.listens, told.watchdog_seconds) == (True, 3.0)


def test_a_watchdog_that_is_meant_for_another_process_is_not_fed() -> None:
    with played_supervisor() as manager:
        told = Notifier({**manager.environment(watchdog_seconds=3), "WATCHDOG_PID": "1"})
        told.alive()
        assert told.watchdog_seconds == 0.0
        assert manager.heard == []


def test_where_nobody_listens_nothing_is_said_and_nothing_breaks() -> None:
    told = Notifier({})
    told.ready("serves")
    told.status("as ever")
    told.alive()
    told.stopping("ends")
    assert not told.listens


def test_a_status_is_one_line_without_what_a_terminal_obeys_and_said_once() -> None:
    with played_supervisor() as manager:
        told = Notifier(manager.environment())
        told.status("lisbon:\n 2 of\x1b[31m 3 devices")
        told.status("lisbon: 2 of [31m 3 devices")
        assert manager.heard == [["STATUS=lisbon: 2 of [31m 3 devices"]]
        told.status("x" * 1000)
        assert len(manager.status) == STATUS_CHARACTERS


def test_each_message_is_what_the_protocol_says() -> None:
    with played_supervisor() as manager:
        told = Notifier(manager.environment(watchdog_seconds=10))
        told.extend(90, "opens the store")
        told.ready("serves")
        told.alive()
        told.stopping("ends")
        assert manager.heard == [
            ["EXTEND_TIMEOUT_USEC=90000000", "STATUS=opens the store"],
            ["READY=1", "STATUS=serves"],
            ["WATCHDOG=1"],
            ["STOPPING=1", "STATUS=ends"],
        ]


def test_an_abstract_socket_is_found() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listener:
        name = f"outstation-test-{os.getpid()}"
        listener.bind(f"\0{name}")
        Notifier({"NOTIFY_SOCKET": f"@{name}"}).ready("serves")
        assert listener.recv(100) == b"READY=1\nSTATUS=serves"


def test_a_socket_that_is_gone_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    told.ready("serves")
    told.status("as ever")
    assert caplog.text.count("the service manager cannot be told") == 1


def test_the_error_that_ends_a_daemon_is_its_last_status() -> None:
    error = ConfigInvalid(
        "the port is taken", where="broker.port 1884", found="in use", allowed="a free one", hint="ss -ltnp"
    )
    with played_supervisor() as manager:
        told = Notifier(manager.environment())
        with pytest.raises(ConfigInvalid), told.told():
            raise error
        assert one_sentence(error) == "the port is taken (broker.port 1884): in use; try: ss -ltnp"
        # Its unit starts nothing again that ended so.
        assert manager.status == f"{one_sentence(error)}; then start this unit again"
        told.crashed([ZeroDivisionError("a bug"), StationFailed("the broker ended by itself")])
        assert manager.status == "crashed: the broker ended by itself"
        told.crashed([ZeroDivisionError("a bug")])
        assert manager.status == "crashed: ZeroDivisionError: a bug"


async def saying() -> str:
    return "lisbon: fine"


async def test_ready_is_said_when_it_opens_and_stopping_when_it_drains() -> None:
    with played_supervisor() as manager:
        async with ServiceReports(Notifier(manager.environment()), saying, {}):
            assert manager.heard[0] == ["READY=1", "STATUS=lisbon: fine"]
        assert manager.heard[-1][0] == "STOPPING=1"
        assert manager.fed() == 0


async def test_the_watchdog_is_fed_while_every_judge_agrees() -> None:
    asked: list[str] = []

    async def store() -> str | None:
        asked.append("store")
        return None

    with played_supervisor() as manager:
        told = Notifier(manager.environment(watchdog_seconds=0.04))
        async with ServiceReports(told, saying, {"store": store}):
            await until(lambda: manager.fed() > 2, what="food")
        assert len(asked) >= 3


async def test_a_judge_that_finds_something_hung_stops_the_feeding_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reason: str | None = None

    async def link() -> str | None:
        return reason

    with played_supervisor() as manager:
        told = Notifier(manager.environment(watchdog_seconds=0.04))
        async with ServiceReports(told, saying, {"broker link": link}):
            await until(lambda: manager.fed() > 0, what="food")
            reason = "20 messages wait"
            await manager.until_status("hangs, and is started again: broker link: 20 messages wait")
            fed = manager.fed()
            reason = None
            await manager.until_status("lisbon: fine")
            # Nothing was fed in between: the status came back with the first food.
            assert [m for m in manager.heard if "WATCHDOG=1" in m][fed:] != []
            hung = manager.heard.index(["STATUS=hangs, and is started again: broker link: 20 messages wait"])
            mended = manager.heard.index(["STATUS=lisbon: fine"], hung)
            assert [m for m in manager.heard[hung + 1 : mended] if "WATCHDOG=1" in m] == [["WATCHDOG=1"]]
    assert "the watchdog is not fed: broker link: 20 messages wait" in caplog.text


async def test_a_judge_that_does_not_come_back_stops_the_feeding() -> None:
    async def store() -> str | None:
        await asyncio.Event().wait()
        return None

    with played_supervisor() as manager:
        told = Notifier(manager.environment(watchdog_seconds=0.04))
        async with ServiceReports(told, saying, {"store": store}):
            await manager.until_status("store: nothing came back in 0.02 s")
        assert manager.fed() == 0
