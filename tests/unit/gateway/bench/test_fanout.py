"""A job that did not end ok on every device is a failure, never a figure."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from device_agent.clock import Clock
from device_agent.errors import StationFailed
from device_agent.protocol import bitmap
from device_agent.trust import notices
from device_agent.trust.deliveries import JobDelivery, read_delivery
from device_agent.trust.signed_job import open_group, read_job
from gateway.bench import fanout as measuring
from gateway.bench.fanout import Fanout
from gateway.bench.witness import Standing, Times, Witness
from gateway.cli.output import Output
from gateway.cli.views import JobView
from gateway.fleet.rehearsed import RehearsedFleet
from gateway.rehearsal import Rehearsal
from tests.peers.database import opened_rooms

JID = "20260101000000000000"


class Answers(Witness):
    """A master that has closed the job with these counts."""

    def __init__(self, counts: dict[str, int]) -> None:
        super().__init__(Path("unused.sock"))
        self._counts = counts

    def create_job(self, job: Mapping[str, Any]) -> JobView:
        return JobView(jid=JID, fun=job["fun"], state="open")

    def standing(self) -> Standing:
        return Standing(present=3, jobs_open=0, spool_pending=0)

    def times(self, jid: str) -> Times:
        return Times(issued=100.0, closed=102.5, counts=self._counts)


class NoProcesses(Rehearsal):
    """A rehearsal in which nothing was started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.children = {}

    def wait_until(self, probe: Callable[[], bool], seconds: float, what: str) -> None:
        assert probe(), what


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, int]], Fanout]:
    for name in ("LOOK_SECONDS", "QUIET_WINDOW_SECONDS", "CONFIRM_SECONDS"):
        monkeypatch.setattr(measuring, name, 0.001)

    def with_counts(counts: dict[str, int]) -> Fanout:
        output = Output(io.StringIO(), io.StringIO(), {}, Clock())
        system = Fanout(NoProcesses(tmp_path), 3, output)
        system._master = Answers(counts)
        return system

    return with_counts


@pytest.mark.parametrize("counts", [{"ok": 2, "unreachable": 1}, {"ok": 2}, {"ok": 4}, {}, {"ok": 3, "failed": 1}])
def test_a_job_without_exactly_one_ok_of_each_device_is_no_figure(
    prepared: Callable[[dict[str, int]], Fanout], counts: dict[str, int]
) -> None:
    with pytest.raises(StationFailed, match="not every device answered ok") as failed:
        prepared(counts)._job()
    assert failed.value.exit_status == 1
    assert failed.value.allowed == "3 ok"


def test_the_time_is_the_masters_own(prepared: Callable[[dict[str, int]], Fanout]) -> None:
    assert prepared({"ok": 3})._job().seconds == 2.5


async def test_the_reference_publishes_what_a_gateway_would(
    prepared: Callable[[dict[str, int]], Fanout], tmp_path: Path
) -> None:
    system = prepared({"ok": 3})
    state = tmp_path / measuring.SITE
    RehearsedFleet(tmp_path / "fleet").certify(state, measuring.SITE)
    async with opened_rooms(state, name=measuring.SITE, masters=True) as rooms:
        signing, key = rooms.authority.signing, rooms.epochs.key
    jid, payload, acknowledge = system._as_published()
    delivery = read_delivery(payload)
    assert isinstance(delivery, JobDelivery)
    sealed = read_job(delivery.job).verified(signing.public)
    assert (sealed.header.jid, sealed.header.tgt, sealed.header.site) == (jid, "*", measuring.SITE)
    assert open_group(sealed, key).fun == "test.ping"
    ack = notices.open_ack(acknowledge, lambda kid: signing.public, site=measuring.SITE)
    assert list(ack.jids) == [jid]
    for bits in (delivery.bitmap, ack.bitmap):
        assert bits is not None
        assert [bitmap.has(bits, place) for place in range(4)] == [True, True, True, False]
    assert system._as_published()[0] > jid
