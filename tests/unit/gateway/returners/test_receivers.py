"""The returners to a file, to SQLite and by mail: what they write, and what they make of odd values."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol.messages import OutcomeRecord
from device_agent.protocol.outcomes import Outcome
from gateway.metrics import Metrics
from gateway.render import Renderer
from gateway.render_settings import RenderSettings
from gateway.returners.mail_text import MailText
from gateway.returners.rawfile import RawfileReturner
from gateway.returners.returned import NotReturned, Returned
from gateway.returners.settings import RawfileSettings, SmtpSettings, SqliteSettings
from gateway.returners.smtp import SmtpReturner
from gateway.returners.sqlite import SqliteReturner
from tests.peers.broker import free_port
from tests.peers.clock import HandClock
from tests.peers.database import a_job
from tests.peers.smtp_peer import smtp_peer


def returned(device: str = "cam-1", value: Any = None, site: str = "lisbon", **job: Any) -> Returned:
    record = OutcomeRecord(
        jid=a_job().jid, site=site, id=device, fun="test.echo", outcome=Outcome.OK, retcode=0, value=value, ended=1.0
    )
    return Returned(1, a_job(fun="test.echo", arg=["secret words"], **job), record)


async def test_lines_are_added_whole_and_arguments_of_a_sealed_job_are_not_told(tmp_path: Path) -> None:
    place = tmp_path / "returns"
    place.write_text('{"older": 1}\n')
    returner = RawfileReturner(RawfileSettings(filename=str(place)))
    await returner.send([returned(value={"a": "ü\n"}), returned("cam-2", sealed=True)])
    lines = [json.loads(line) for line in place.read_text().splitlines()]
    assert (lines[0], lines[1]["return"], lines[2]["fun_args"]) == ({"older": 1}, {"a": "ü\n"}, [])
    with pytest.raises(NotReturned, match="No such file"):
        await RawfileReturner(RawfileSettings(filename=str(tmp_path / "no" / "file"))).send([returned()])


async def test_a_return_that_comes_again_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    place = tmp_path / "returns.db"
    returner = SqliteReturner(SqliteSettings(database=str(place), timeout=0.1))
    await returner.send([returned(value=1), returned(site="madrid", value=2)])
    await returner.send([returned(value=3)])
    with closing(sqlite3.connect(place)) as database:
        rows = database.execute("SELECT full_ret FROM salt_returns ORDER BY rowid").fetchall()
        assert [json.loads(row[0])["return"] for row in rows] == [2, 3]
        assert database.execute("SELECT count(*) FROM jids").fetchone() == (1,)
        database.execute("BEGIN EXCLUSIVE")
        with pytest.raises(NotReturned, match="locked"):
            await returner.send([returned()])


async def test_a_mail_is_of_one_line_where_it_must_be_whatever_a_device_is_called(tmp_path: Path) -> None:
    template = tmp_path / "mail.txt"
    template.write_text("{{ return }}")
    async with Renderer(RenderSettings(workers=1), Metrics(HandClock())) as renderer:
        with smtp_peer() as peer:
            given = SmtpSettings(from_="a@b", to="c@d", host="127.0.0.1", port=peer.port, fields="site")
            text = MailText(renderer, "of {{ id }}\nBcc: eve@example.net", str(template))
            await SmtpReturner(given, text, "lisbon").send([returned("cam\r\nBcc: x@y", ".\r\n{{ 7 * 7 }}\n.")])
        (mail,) = peer.mails
        assert mail["Subject"] == "of cam Bcc: x@y Bcc: eve@example.net lisbon"
        assert (mail["Bcc"], mail["To"]) == (None, "c@d")
        assert mail.get_content().replace("\r\n", "\n") == ".\n{{ 7 * 7 }}\n.\n"
        template.write_text("{{ lacking }}\n")
        with pytest.raises(NotReturned, match=r"mail.txt.*lacking"):
            await SmtpReturner(given, text, "lisbon").send([returned()])
        nobody = SmtpSettings(from_="a@b", to="c@d", host="127.0.0.1", port=free_port())
        with pytest.raises(NotReturned, match="refused"):
            await SmtpReturner(nobody, MailText(renderer, "x", None), "lisbon").send([returned()])


def test_a_password_is_not_sent_in_the_open() -> None:
    with pytest.raises(ValueError, match="tls: true"):
        SmtpSettings(from_="a@b", to="c@d", host="mail.example.net", username="u", password="p")
    with pytest.raises(ValueError, match="there is no 'color'"):
        SmtpSettings(from_="a@b", to="c@d", host="h", fields="color")
