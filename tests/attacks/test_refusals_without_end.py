"""A caller who may only look asks for what it may not do, without end and with subjects of its own making."""

from __future__ import annotations

import asyncio
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from gateway.audit.folding import DISTINCT, ROWS_OF_A_USER
from gateway.audit.refusal_rows import RefusalRows
from tests.peers.clock import HandClock
from tests.peers.database import look
from tests.peers.office import DAY_SECONDS, Office, an_office
from tests.peers.station import SECONDS

POLICY = 'tokens: {eve: viewer, ada: admin, olga: operator}\nrules: {operator: [{functions: ["test.*"]}]}\n'
ASKED = 150


async def test_a_viewer_who_cancels_jobs_that_it_makes_up_does_not_fill_the_audit(tmp_path: Path) -> None:
    clock = HandClock()
    async with an_office(tmp_path, POLICY, clock=clock) as office:
        statuses = await _asked(
            office, "eve", [("/jobs/" + "x" * 3000 + f"{number}/cancel", b"") for number in range(ASKED)]
        )
        assert statuses == {403: ASKED}
        written = _rows(office, "verdict = 'deny'")
        assert len(written) == DISTINCT
        assert {times for _, times, _ in written} == {1}
        assert max(length for _, _, length in written) <= 256
        clock.move(60)
        await office.rooms.audit.write_counted()
        assert sum(times for _, times, _ in _rows(office, "verdict = 'deny'")) == ASKED
        assert len(_rows(office, "verdict = 'deny'")) == DISTINCT + 1
        # What an admin does is never folded, however often it is the same.
        for _ in range(3):
            assert (
                await office.ask("ada", "POST", "/operators/tokens", {"user": "ada", "role": "viewer"})
            ).status == 201
        assert [times for _, times, _ in _rows(office, "action = 'operators.new'")] == [1, 1, 1]


async def test_an_operator_whose_jobs_no_rule_grants_does_not_fill_it_either(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("cam-1")
        jobs = [("/jobs", b'{"tgt": "*", "fun": "cmd.run", "arg": ["%d"]}' % number) for number in range(ASKED)]
        assert await _asked(office, "olga", jobs) == {403: ASKED}
        assert len(_rows(office, "verdict = 'deny'")) == DISTINCT <= ROWS_OF_A_USER
        assert (await office.run("olga")).status == 201
        assert [action for action, _, _ in _rows(office, "verdict = 'allow' AND user LIKE 'olga%'")] == ["run"]


async def test_refusals_that_were_counted_are_on_disk_when_the_station_has_stopped(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        async with RefusalRows(office.rooms.audit):
            assert await _asked(office, "eve", [("/jobs/1/cancel", b"")] * 7) == {403: 7}
            assert [times for _, times, _ in _rows(office, "verdict = 'deny'")] == [1]
        assert [times for _, times, _ in _rows(office, "verdict = 'deny'")] == [1, 6]


def _rows(office: Office, where: str) -> list[Any]:
    asked = f"SELECT action, times, length(subject) FROM audit WHERE {where} ORDER BY id"
    return look(office.rooms.writer._path, asked)


async def _asked(office: Office, user: str, requests: list[tuple[str, bytes]]) -> dict[int, int]:
    """Many requests on one connection; how often which status came."""
    token, _ = await office.rooms.tokens.make(user, None, DAY_SECONDS, "test")

    def ask_all() -> dict[int, int]:
        found: dict[int, int] = {}
        connection = HTTPConnection("127.0.0.1", office._port(), timeout=SECONDS)
        try:
            for path, body in requests:
                connection.request("POST", path, body=body, headers={"Authorization": f"Bearer {token}"})
                with connection.getresponse() as response:
                    response.read()
                    found[response.status] = found.get(response.status, 0) + 1
        finally:
            connection.close()
        return found

    return await asyncio.to_thread(ask_all)
