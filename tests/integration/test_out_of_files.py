"""A door of the API while the process has no descriptor left: it says so once, counts, and goes on afterwards."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.accept_failures import LOG_EVERY_SECONDS
from gateway.api import acceptor as acceptor_module
from gateway.api.operation import Asked, Operation
from gateway.api.server import ApiServer
from gateway.metrics import Metrics
from tests.peers.clock import HandClock
from tests.peers.station import ask
from tests.peers.waiting import until


class FewFiles(socket.socket):
    """A listening socket for which there are so few descriptors."""

    left = 0
    failed = 0
    spare: Sequence[int] | None = None
    """Descriptors that the server keeps: there are others once it has closed these."""

    def accept(self) -> tuple[socket.socket, Any]:
        if FewFiles.spare is not None and not FewFiles.spare:
            return super().accept()
        if not FewFiles.left:
            FewFiles.failed += 1
            raise OSError(errno.EMFILE, "Too many open files")
        FewFiles.left -= 1
        return super().accept()


async def whoami(asked: Asked) -> dict[str, str]:
    return {"user": asked.user}


async def test_a_door_without_descriptors_says_so_once_counts_and_accepts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acceptor_module, "RETRY_SECONDS", 0.05)
    clock = HandClock()
    metrics = Metrics(clock)
    failures = metrics.accept_failures
    path = tmp_path / "api.sock"
    operations = [Operation("GET", "/whoami", "Who asks", whoami)]
    server = ApiServer(path, operations, on_stop=lambda: None, failures=failures)
    claim = server._claim

    def few() -> socket.socket:
        bound = claim()
        return FewFiles(bound.family, bound.type, fileno=bound.detach())

    monkeypatch.setattr(server, "_claim", few)
    with caplog.at_level(logging.ERROR):
        async with server, asyncio.TaskGroup() as group:
            FewFiles.left = FewFiles.failed = 0
            asking = group.create_task(ask(path, "GET", "/whoami"))
            await until(lambda: FewFiles.failed >= 5, what="it has tried again")
            assert not asking.done()
            assert list(failures.last) == ["api.socket"]
            lines = [record.getMessage() for record in caplog.records]
            assert len(lines) == 1
            assert lines[0].startswith(
                "no connection can be accepted door=api.socket error='Too many open files' open_f"
            )
            assert metrics.counters["accept_failed"] == FewFiles.failed
            clock.move(LOG_EVERY_SECONDS)
            await until(lambda: len(caplog.records) == 2, what="a minute later it says so again")
            FewFiles.left = 10
            assert (await asking).status == 200


async def test_connections_that_wait_are_accepted_with_the_descriptors_that_were_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor_module, "RETRY_SECONDS", 3600.0)
    path = tmp_path / "api.sock"
    server = ApiServer(path, [Operation("GET", "/whoami", "Who asks", whoami)], on_stop=lambda: None)
    claim = server._claim

    def few() -> socket.socket:
        bound = claim()
        return FewFiles(bound.family, bound.type, fileno=bound.detach())

    monkeypatch.setattr(server, "_claim", few)
    async with server:
        (acceptor,) = server._servers[0].servers
        assert isinstance(acceptor, acceptor_module.Acceptor)
        monkeypatch.setattr(FewFiles, "spare", acceptor._spare)
        monkeypatch.setattr(FewFiles, "left", 0)
        monkeypatch.setattr(FewFiles, "failed", 0)
        async with asyncio.timeout(30):
            assert (await ask(path, "GET", "/whoami")).status == 200
        assert FewFiles.failed == 1
