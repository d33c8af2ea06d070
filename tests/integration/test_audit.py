"""The audit: every row reaches the masters, once, and outlives the jobs that it tells of."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.messages import AuditRecord, JobDefinition, decode_item, encode
from device_agent.protocol.outcomes import Outcome
from gateway.audit.book import AuditBook
from gateway.audit.deed import Deed
from gateway.audit.policy_notes import PolicyNotes
from gateway.audit.views import AuditViews, Chosen
from gateway.cli.main import main
from gateway.devices.policy_file import PolicyHolder
from gateway.jobs.expect import pages
from gateway.jobs.retention import _PRUNE, _PRUNE_AUDIT
from gateway.rooms import Rooms
from gateway.spool.queue import Spool
from tests.peers.central import EPOCH, a_master, record
from tests.peers.clock import STARTED_WALL, HandClock
from tests.peers.database import Store, a_job, encoded, look, opened_rooms, opened_store
from tests.peers.office import an_office
from tests.peers.waiting import until

ENTRY = Deed(user="anna", door="api", action="keys.accept", subject="device cam-7 abcd", verdict="allow", why="new")


def book_of(store: Store, site: str = "lisbon", *, masters: bool = True) -> AuditBook:
    spool = Spool(store.writer, store.reader, store.epoch, enabled=masters)
    return AuditBook(site=site, writer=store.writer, spool=spool, clock=HandClock())


def a_record(number: int, **changed: Any) -> AuditRecord:
    given: dict[str, Any] = {
        "mark": f"{'a' * 16}-{number}",
        "site": "lisbon",
        "at": STARTED_WALL + number,
        "user": "anna",
        "door": "socket",
        "action": "run",
        "subject": "cam-*",
        "verdict": "allow",
        **changed,
    }
    return AuditRecord(**given)


def rows(rooms: Rooms, columns: str = "site, user, action, jid") -> list[Any]:
    return look(rooms.writer._path, f"SELECT {columns} FROM audit ORDER BY id")


async def test_a_deed_is_on_disk_with_what_it_tells_of_or_not_at_all(tmp_path: Path) -> None:
    async with opened_store(tmp_path) as store:
        book = book_of(store)
        event = ("INSERT INTO events (tag, data, stamp, site) VALUES ('t', x'', 1, 'lisbon')", [()])
        await store.writer.commit([*book.statements([ENTRY]), event])
        assert store.look("SELECT user, door, action, subject, verdict, why, at, site FROM audit") == [
            ("anna", "api", "keys.accept", "device cam-7 abcd", "allow", "new", STARTED_WALL, "lisbon")
        ]
        with pytest.raises(Exception, match="could not be written"):
            await store.writer.commit([*book.statements([ENTRY]), ("INSERT INTO nowhere VALUES (1)", [()])])
        assert store.look("SELECT count(*) FROM audit, spool_audit") == [(1,)]


async def test_texts_that_no_column_or_message_holds_are_cut_and_mended(tmp_path: Path) -> None:
    async with opened_store(tmp_path) as store:
        long, odd = "x" * 5000, "\ud800 no letter"
        await book_of(store).write([Deed(user=long, door="api", action=odd, subject=long, verdict="deny", why=long)])
        (row,) = store.look("SELECT user, action, subject, why FROM audit")
        assert [len(text) for text in row] == [
            limits.AUDIT_NAME_CHARACTERS,
            len(odd),
            *[limits.AUDIT_TEXT_CHARACTERS] * 2,
        ]
        assert row[0].endswith("…")
        ((body,),) = store.look("SELECT body FROM spool_audit")
        item = decode_item(body)
        assert isinstance(item, AuditRecord)
        assert (item.user, item.action) == row[:2]


async def test_two_starts_of_a_station_never_give_the_same_mark(tmp_path: Path) -> None:
    async with opened_store(tmp_path) as store:
        for _ in range(2):
            await book_of(store).write([ENTRY, ENTRY])
        assert store.look("SELECT count(DISTINCT mark) FROM audit") == [(4,)]


async def test_without_masters_nothing_is_kept_for_them(tmp_path: Path) -> None:
    async with opened_store(tmp_path) as store:
        await book_of(store, masters=False).write([ENTRY])
        assert store.look("SELECT count(*) FROM spool_audit") == [(0,)]


@pytest.mark.parametrize(
    "changed",
    [
        {"mark": "1"},
        {"mark": "A" * 16 + "-1"},
        {"verdict": "maybe"},
        {"why": "x" * 2000},
        {"at": float("nan")},
        {"site": ""},
    ],
)
def test_a_row_that_no_station_writes_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        decode_item(encode(a_record(1, **changed)))


async def test_a_master_keeps_a_sites_rows_once_and_a_relay_passes_them_on(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon", masters=True) as rooms:
        items = encoded(a_record(1, action="keys.accept"), a_record(2, verdict="deny", site="lisbon"))
        await rooms.inbox.commit("lisbon", EPOCH, "returns", items)
        # A site that lost the confirmation says it again, a restored one under other numbers.
        await rooms.inbox.commit("lisbon", "f" * 16, "returns", encoded(a_record(1, action="keys.accept"), first=9))
        assert rows(rooms) == [("lisbon", "anna", "keys.accept", ""), ("lisbon", "anna", "run", "")]
        passed = [decode_item(body) for _, body in await rooms.spool.read("audit", 0)]
        assert [item.mark[-1] for item in passed if isinstance(item, AuditRecord)] == ["1", "2", "1"]


async def test_a_site_writes_no_row_in_the_name_of_another(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon", "madrid") as rooms:
        await rooms.inbox.commit(
            "lisbon", EPOCH, "returns", encoded(a_record(1, site="madrid"), a_record(2, site="central"))
        )
        assert rows(rooms) == []
        assert rooms.metrics.refusals["uplink", "foreign_site"] == 2


async def test_that_many_sites_took_one_job_is_said_once_and_that_one_refused_it_is_said_too(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon", "madrid", "porto") as rooms:
        jid = a_job().jid
        for site, verdict in (("lisbon", "allow"), ("madrid", "deny"), ("porto", "allow")):
            row = a_record(1, site=site, door="above", jid=jid, verdict=verdict)
            await rooms.inbox.commit(site, EPOCH, "returns", encoded(row))
        assert rows(rooms, "site, verdict") == [("lisbon", "allow"), ("madrid", "deny")]


async def a_past_job(rooms: Rooms) -> str:
    """A job of anna's, known by its row, with two outcomes; its jid."""
    job = a_job(user="anna", fun="state.apply", arg=["site/x"])
    (page,) = pages(job.jid, "lisbon", ["a", "b"], 1, final=True)
    items = encoded(
        a_record(1, jid=job.jid, fun="state.apply", arguments="site/x", why="ticket 7"),
        JobDefinition(encode(job), "lisbon"),
        page,
        record(job.jid, "a", fun="state.apply"),
        record(job.jid, "b", Outcome.FAILED, fun="state.apply", retcode=2, why="it said no"),
    )
    await rooms.inbox.commit("lisbon", EPOCH, "returns", items)
    return job.jid


async def exported(rooms: Rooms, **chosen: Any) -> list[dict[str, Any]]:
    return [dict(line) async for line in AuditViews(rooms.reader).export(Chosen(**chosen)) if line is not None]


async def test_the_export_says_who_did_what_on_which_device_why_and_with_what_outcome(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon") as rooms:
        jid = await a_past_job(rooms)
        await rooms.inbox.commit("lisbon", EPOCH, "returns", encoded(a_record(2, action="keys.accept"), first=50))
        found = await exported(rooms)
        assert [(line["action"], line["device"], line["outcome"], line["retcode"]) for line in found] == [
            ("run", "a", "ok", 0),
            ("run", "b", "failed", 2),
            ("keys.accept", "", "", None),
        ]
        for line in found[:2]:
            assert (line["user"], line["fun"], line["arguments"], line["why"], line["jid"]) == (
                "anna",
                "state.apply",
                "site/x",
                "ticket 7",
                jid,
            )
        assert found[1]["outcome_why"] == "it said no"
        # After the job is let go, who and with what outcome is still known; what it returned is not.
        now = STARTED_WALL + 10 * 86_400
        await rooms.writer.commit([("UPDATE jobs SET closed = 1, deadline = 1", [()])])
        await rooms.writer.commit([(statement, [(now, now)]) for statement in _PRUNE])
        assert look(rooms.writer._path, "SELECT count(*) FROM jobs, outcomes") == [(0,)]
        kept = await exported(rooms)
        assert sorted(kept, key=str) == sorted(({**line, "retcode": None} for line in found), key=str)
        assert [line["device"] for line in await exported(rooms, device="b")] == ["b"]
        await rooms.writer.commit([(statement, [(now,)]) for statement in _PRUNE_AUDIT])
        assert await exported(rooms) == []
        assert look(rooms.writer._path, "SELECT count(*) FROM audit_outcomes") == [(0,)]


@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [
        ({}, [5, 4, 3, 2, 1]),
        ({"user": "anna"}, [4, 1]),
        ({"user": "ann"}, []),
        ({"action": "keys.accept"}, [2]),
        ({"site": "madrid"}, [3]),
        ({"verdict": "deny"}, [3]),
        ({"device": "cam-7"}, [2]),
        ({"device": "cam"}, []),
        ({"device": "cam-*"}, [5, 4, 3, 1]),
        ({"jid": "7"}, [4]),
        ({"since": STARTED_WALL + 4}, [5, 4]),
        ({"until": STARTED_WALL + 2}, [1]),
        ({"user": "anna", "since": STARTED_WALL + 2}, [4]),
    ],
)
async def test_rows_are_chosen_by_each_of_their_parts(
    chosen: dict[str, Any], numbers: list[int], tmp_path: Path
) -> None:
    async with a_master(tmp_path, "lisbon", "madrid") as rooms:
        for row in (
            a_record(1),
            a_record(2, user="bob", action="keys.accept", subject="device cam-7 ffff"),
            a_record(3, user="annabel", site="madrid", verdict="deny"),
            a_record(4, user="anna via api (carla)", jid="7"),
            a_record(5, user="bob"),
        ):
            await rooms.inbox.commit(row.site, EPOCH, "returns", encoded(row, first=int(row.mark[-1])))
        views = AuditViews(rooms.reader)
        found, cursor = await views.newest(Chosen(**chosen), 2**62, 100)
        assert [round(view["at"] - STARTED_WALL) for view in found] == numbers
        assert cursor is None
        paged: list[int] = []
        before: int | None = 2**62
        while before is not None:
            page, before = await views.newest(Chosen(**chosen), before, 2)
            paged += [round(view["at"] - STARTED_WALL) for view in page]
        assert paged == numbers


async def test_the_api_lists_and_exports_and_refuses_what_is_no_choice(tmp_path: Path) -> None:
    async with an_office(tmp_path, "tokens: {eve: viewer, anna: operator}\n") as office:
        office.here("cam-1")
        await office.run("anna", why="because")
        heard = await office.ask("eve", "GET", "/audit?action=run&limit=1")
        (row,) = heard.json()["rows"]
        assert (row["user"], row["why"], row["fun"]) == ("anna via api", "because", "test.ping")
        lines = (await office.ask("eve", "GET", "/audit/export?user=anna")).body.splitlines()
        assert [json.loads(line)["action"] for line in lines if line] == ["run"]
        for query in ("verdict=maybe", "since=yesterday", "since=nan", "until=-1", "limit=x", "who=me"):
            assert (await office.ask("eve", "GET", f"/audit?{query}")).status == 400
        assert (await office.ask("nobody", "GET", "/audit")).status == 403


async def test_the_audit_says_which_policy_counted_when(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("tokens: {anna: viewer}\n")
    path.chmod(0o644)
    async with opened_store(tmp_path / "store") as store:
        notes = PolicyNotes(PolicyHolder(str(path)), book_of(store))

        async def noted(count: int) -> list[Any]:
            def found() -> list[Any]:
                seen = store.look("SELECT action, subject, verdict, why FROM audit ORDER BY id")
                return seen if len(seen) >= count else []

            return await until(found, what=f"{count} notes")

        async with notes:
            notes.reload(str(path))
            path.write_text("tokens: {anna: boss}\n")
            notes.reload(str(path))
            await noted(2)
            path.write_text("tokens: {anna: admin}\n")
            notes.reload(str(path))
            first, broken, second = await noted(3)
    assert [row[2] for row in (first, broken, second)] == ["allow", "deny", "allow"]
    assert "boss" in broken[3]
    # A broken file leaves the policy before it in force, and the row says which that is.
    assert first[1] == broken[1] != second[1]
    assert str(path) in second[1]


async def test_the_command_line_asks_a_real_station(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with an_office(tmp_path) as office:
        office.here("cam-1")

        async def outstation(*words: str, status: int = 0) -> str:
            assert await asyncio.to_thread(main, ["--socket", str(office.socket), *words]) == status, words
            return capsys.readouterr().out

        assert "admin" in await outstation("operators", "me")
        jid = (await outstation("run", "*", "cmd.run", "ls", "--why", "ticket 7", "--detach")).strip()
        token = (await outstation("operators", "new", "anna", "--role", "viewer", "--for", "1d")).strip()
        assert (await office.ask("anna", "GET", "/jobs", token=token)).status == 200
        listed = [json.loads(line) for line in (await outstation("operators", "list", "--json")).splitlines()]
        assert [(view["user"], view["role"], view["state"]) for view in listed] == [("anna", "viewer", "valid")]
        await outstation("operators", "revoke", listed[0]["id"])
        assert (await office.ask("anna", "GET", "/jobs", token=token)).status == 401
        rows = [json.loads(line) for line in (await outstation("audit", "list", "--json")).splitlines()]
        assert [row["action"] for row in rows] == ["enter", "operators.revoke", "operators.new", "run"]
        exported = (await outstation("audit", "export", "--jid", jid, "--format", "csv")).splitlines()
        assert len(exported) == 2
        assert ",ticket 7," in exported[1]
        assert ",cmd.run,ls,*," in exported[1]
        assert await outstation("audit", "list", "--jid", "0") == ""
        await outstation("jobs", "release", jid, status=2)


async def test_a_row_goes_the_whole_way_from_a_gateways_door_to_the_masters_audit(tmp_path: Path) -> None:
    """Only the link is played: what the gateway's spool holds is what the master's inbox is given."""
    async with an_office(tmp_path / "gateway", "tokens: {anna: operator}\n", masters=True) as office:
        assert (await office.run("anna", "cmd.run", arg=["reboot"], why="hurry")).status == 403
        items = await office.rooms.spool.read("audit", 0)
    async with opened_rooms(tmp_path / "middle", name="central", clock=HandClock()) as rooms:
        await rooms.site_keys.judge("lisbon", "1" * 40, "192.0.2.1")
        await rooms.site_keys.accept("lisbon", None)
        await rooms.inbox.commit("lisbon", EPOCH, "returns", items)
        (row,) = rows(rooms, "site, user, door, action, verdict, fun, arguments, why")
        assert row == (
            "lisbon",
            "anna via api",
            "api",
            "run",
            "deny",
            "cmd.run",
            "reboot",
            "cmd.run is for admins, unless a rule names it: it is as good as a root shell (asked because: hurry)",
        )
