"""Returners whose receivers hang: each holds up itself alone, in a station that has one thread for all the others."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from device_agent.protocol.messages import OutcomeRecord
from device_agent.protocol.outcomes import Outcome
from gateway.metrics import Metrics
from gateway.render import Renderer
from gateway.render_settings import RenderSettings
from gateway.returners.mail_text import MailText
from gateway.returners.own_thread import OwnThread
from gateway.returners.rawfile import RawfileReturner
from gateway.returners.returned import NotReturned, Returned, Returner
from gateway.returners.settings import RawfileSettings, SmtpSettings, SqliteSettings, WebhookSettings
from gateway.returners.smtp import SmtpReturner
from gateway.returners.sqlite import SqliteReturner
from gateway.returners.webhook import WebhookReturner
from tests.peers.clock import HandClock
from tests.peers.database import a_job
from tests.peers.waiting import until

pytestmark = pytest.mark.timeout(120)

SECONDS = 60.0
JOB = a_job(fun="test.ping")
RECORD = OutcomeRecord(
    jid=JOB.jid, site="lisbon", id="cam-1", fun="test.ping", outcome=Outcome.OK, retcode=0, ended=1.0
)
RETURNED = Returned(1, JOB, RECORD)


def threads() -> int:
    """Those of returners that have not ended."""
    return sum(thread.name == "returner" for thread in threading.enumerate())


async def hangs_alone(returner: Returner, *, begun: Callable[[], object]) -> None:
    """While what it sends hangs, the one thread of the station is free, and no second attempt is begun."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(returner.send([RETURNED]))
        await until(begun, SECONDS)
        async with asyncio.timeout(SECONDS):
            await asyncio.to_thread(lambda: None)
        assert not sending.done()
        sending.cancel()
    with pytest.raises(NotReturned, match="hangs still") as caught:
        await returner.send([RETURNED])
    assert not caught.value.final
    assert threads() == 1


async def test_a_file_that_another_keeps_locked(tmp_path: Path) -> None:
    place = tmp_path / "returns"
    returner = RawfileReturner(RawfileSettings(filename=str(place)))
    with place.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        await hangs_alone(returner, begun=threads)
    await until(lambda: threads() == 0, SECONDS)
    await returner.send([RETURNED])
    # At least once: the attempt that hung came to its end too.
    assert len(place.read_text().splitlines()) == 2


async def test_a_database_that_another_keeps_locked(tmp_path: Path) -> None:
    place = tmp_path / "returns.db"
    returner = SqliteReturner(SqliteSettings(database=str(place), timeout=60))
    with closing(sqlite3.connect(place)) as database:
        database.execute("BEGIN EXCLUSIVE")
        await hangs_alone(returner, begun=threads)
    await until(lambda: threads() == 0, SECONDS)
    await returner.send([RETURNED])


async def test_an_address_that_never_answers() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/"
        await hangs_alone(WebhookReturner(WebhookSettings(url=url, seconds=60)), begun=threads)
    await until(lambda: threads() == 0, SECONDS)


async def test_a_mail_server_that_never_answers(tmp_path: Path) -> None:
    async with Renderer(RenderSettings(workers=1), Metrics(HandClock())) as renderer:
        with closing(socket.create_server(("127.0.0.1", 0))) as nobody:
            nobody.setblocking(False)
            port = nobody.getsockname()[1]
            given = SmtpSettings(from_="a@b", to="c@d", host="127.0.0.1", port=port, seconds=60)
            returner = SmtpReturner(given, MailText(renderer, "x", None), "lisbon")
            came: list[socket.socket] = []

            def called() -> list[socket.socket]:
                with suppress(BlockingIOError):
                    came.append(nobody.accept()[0])
                return came

            await hangs_alone(returner, begun=called)
            came.pop().close()
        await until(lambda: threads() == 0, SECONDS)


async def test_a_template_that_cannot_be_read_now(tmp_path: Path) -> None:
    template = tmp_path / "mail.txt"
    # As a disk of the network that is gone: it opens when somebody writes to it.
    os.mkfifo(template)
    async with Renderer(RenderSettings(workers=1), Metrics(HandClock())) as renderer:
        given = SmtpSettings(from_="a@b", to="c@d", host="127.0.0.1", port=9)
        returner = SmtpReturner(given, MailText(renderer, "x", str(template)), "lisbon")
        await hangs_alone(returner, begun=threads)
        template.write_text("")
        await until(lambda: threads() == 0, SECONDS)


async def test_one_that_gets_no_thread_gets_one_later(monkeypatch: pytest.MonkeyPatch) -> None:
    own = OwnThread()
    with monkeypatch.context() as full:
        # No test can take all threads of a machine.
        full.setattr(threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("can't start new thread")))
        with pytest.raises(RuntimeError, match="new thread"):
            await own.call(lambda: 1)
    assert await own.call(lambda: 1) == 1
