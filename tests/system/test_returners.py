"""Returns of a real system go to real receivers: by command and by reaction, through refusals and a kill -9."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from tests.peers.http_peer import HttpPeer, http_peer
from tests.peers.smtp_peer import SmtpPeer, smtp_peer
from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 3
REACTION = """\
highstate_run:
  local.test.echo:
    - tgt: {{ data['id'] }}
    - args:
      - text: it is back
    - ret: smtp
"""
SECRET = "a-secret-of-the-test"


class Plant:
    """A gateway with every returner, and who they send to."""

    def __init__(self, system: System, mail: SmtpPeer, hook: HttpPeer) -> None:
        self.system = system
        self.mail = mail
        self.hook = hook

    def lines(self) -> list[dict[str, Any]]:
        place = self.system.folder / "returns.json"
        return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.system.folder / "returns.db")) as database:
            return database.execute(query).fetchall()

    def returners(self) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in self.system.view("lisbon", "/returners")["returners"]}

    def lost(self) -> list[dict[str, Any]]:
        return list(self.system.view("lisbon", "/returners")["lost"])

    def run(self, *words: str) -> str:
        """Run a job to its end; its jid."""
        done = self.system.command("run", *words, "--json", station="lisbon")
        return str(done.json("summary")[0]["jid"])


@pytest.fixture(scope="module")
def plant() -> Iterator[Plant]:
    with smtp_peer() as mail, http_peer() as hook, whole_system() as system:
        template = system.folder / "mail.txt"
        template.write_text("{{ id }} said {{ return }} to {{ fun }}\n{% for each in fun_args %}{{ each }}{% endfor %}")
        (system.folder / "back.sls").write_text(REACTION)
        system.add_gateway(
            "lisbon",
            reactor=[{"site/back": str(system.folder / "back.sls")}],
            rawfile_json={"filename": str(system.folder / "returns.json")},
            returner={"sqlite3": {"database": str(system.folder / "returns.db")}},
            webhook={"url": hook.url("/ret"), "secret": SECRET},
            returner_limits={"pause_seconds": 1.0},
            **{
                "smtp.from": "outstation@example.net",
                "smtp.to": "ops@example.net, night@example.net",
                "smtp.host": "127.0.0.1",
                "smtp.port": mail.port,
                "smtp.subject": "{{ fun }} of {{ id }}",
                "smtp.fields": "outcome",
                "smtp.template": str(template),
            },
        )
        system.add_swarm(DEVICES, "lisbon")
        system.present(DEVICES, "lisbon")
        yield Plant(system, mail, hook)


def test_each_return_is_in_the_file_the_tables_and_at_the_address(plant: Plant) -> None:
    jid = plant.run("cam-*", "test.echo", "hello", "--return", "rawfile_json,sqlite,webhook")
    wanted = {f"cam-{number:05d}" for number in range(DEVICES)}
    plant.system.until(lambda: {each["id"] for each in plant.lines() if each["jid"] == jid} == wanted, "the file")
    line = next(each for each in plant.lines() if each["jid"] == jid)
    assert (line["return"], line["fun"], line["success"], line["retcode"]) == ("hello", "test.echo", True, 0)
    assert (line["fun_args"], line["tgt"], line["site"], line["outcome"]) == (["hello"], "cam-*", "lisbon", "ok")
    found = f"SELECT id, fun, success, full_ret FROM salt_returns WHERE jid = '{jid}'"
    plant.system.until(lambda: len(plant.rows(found)) == DEVICES, "the tables")
    assert {(row[0], row[1], row[2]) for row in plant.rows(found)} == {(name, "test.echo", "True") for name in wanted}
    (load,) = plant.rows(f"SELECT load FROM jids WHERE jid = '{jid}'")
    assert json.loads(load[0])["tgt"] == "cam-*"

    def posted() -> set[str]:
        told = [json.loads(each.body) for each in plant.hook.taken()]
        return {each["id"] for each in told if each["jid"] == jid}

    plant.system.until(lambda: posted() == wanted, "the address")
    assert all("X-Outstation-Signature" in each.headers for each in plant.hook.taken())
    plant.system.until(lambda: not any(each["waiting"] for each in plant.returners().values()), "nothing waits")


def test_a_reaction_with_ret_smtp_mails_what_the_device_returned(plant: Plant) -> None:
    plant.system.command("fire", "site/back", "{id: cam-00001}", station="lisbon", status=0)

    def came() -> list[EmailMessage]:
        return [each for each in list(plant.mail.mails) if "it is back" in each.get_content()]

    plant.system.until(came, "the mail came")
    (mail,) = came()
    assert mail["Subject"] == "test.echo of cam-00001 ok"
    assert (mail["From"], mail["To"]) == ("outstation@example.net", "ops@example.net, night@example.net")
    assert mail.get_content().replace("\r\n", "\n").startswith("cam-00001 said it is back to test.echo\n")


def test_a_returner_that_is_not_there_is_refused_with_those_there_are(plant: Plant) -> None:
    before = len(plant.system.stations["lisbon"].jobs(1000))
    done = plant.system.command("run", "*", "test.ping", "--return", "redis", station="lisbon", status=2)
    assert "rawfile_json, smtp, sqlite3, webhook" in done.error
    assert len(plant.system.stations["lisbon"].jobs(1000)) == before


def test_what_is_refused_for_good_is_lost_by_name_and_what_is_refused_for_now_comes_later(plant: Plant) -> None:
    plant.mail.codes.extend([451, 451, 550, 550])
    jid = plant.run("cam-00000", "test.echo", "for ever", "--return", "smtp")
    plant.system.until(lambda: any(each["jid"] == jid for each in plant.lost()), "it is lost")
    (lost,) = [each for each in plant.lost() if each["jid"] == jid]
    assert (lost["device"], lost["returner"], "550" in lost["why"]) == ("cam-00000", "smtp", True)
    assert jid in plant.system.command("returners", "list", station="lisbon").error
    plant.mail.codes.extend([451, 451])
    jid = plant.run("cam-00002", "test.fail", "--return", "smtp")
    plant.system.until(lambda: "test.fail of cam-00002 failed" in plant.mail.subjects(), "it came after all")


def test_nothing_is_lost_when_the_station_is_killed_while_nobody_takes_it(plant: Plant) -> None:
    plant.hook.statuses.extend([503] * 4)
    jids = [plant.run("cam-*", "test.echo", str(n), "--return", "webhook,rawfile_json") for n in range(3)]
    plant.system.kill("lisbon")
    plant.system.restart("lisbon")

    def keys() -> set[str]:
        return {each.headers["Idempotency-Key"] for each in plant.hook.taken()}

    wanted = {f"{jid}-lisbon-cam-{number:05d}-ok" for jid in jids for number in range(DEVICES)}
    plant.system.until(lambda: wanted <= keys(), "all of them arrived")
    plant.system.until(
        lambda: {(each["jid"], each["id"]) for each in plant.lines()} >= {
            (jid, f"cam-{number:05d}") for jid in jids for number in range(DEVICES)
        },
        "all of them are in the file",
    )  # fmt: skip
    plant.system.present(DEVICES, "lisbon")


def test_one_that_does_not_answer_is_found_and_holds_up_no_other(plant: Plant, tmp_path: Path) -> None:
    plant.mail.codes.extend([451] * 10_000)
    jid = plant.run("cam-00001", "test.echo", "late", "--return", "smtp,rawfile_json")
    plant.system.until(lambda: any(each["jid"] == jid for each in plant.lines()), "the file has it")
    plant.system.until(lambda: "451" in plant.returners()["smtp"]["why"], "it is told")
    plant.system.command("returners", "list", station="lisbon", status=1)
    assert "returner smtp does not take returns" in plant.system.command("check", station="lisbon").out
    plant.mail.codes.clear()
    plant.system.until(lambda: not plant.returners()["smtp"]["why"], "it takes mails again")
    metrics = plant.system.ask("lisbon", "GET", "/metrics")[1].decode()
    assert 'outstation_returns_sent_total{returner="rawfile_json"}' in metrics
    assert SECRET not in plant.system.log("lisbon")
