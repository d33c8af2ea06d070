"""What a Salt master makes up is refused with a reason and counted, and ends nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import Refused
from gateway.jobs.request import JobRequest
from gateway.salt.orders import SaltOrders
from tests.peers.clock import HandClock
from tests.peers.database import FIRST_JID
from tests.peers.salt_above import published
from tests.peers.salt_gate import JID, MASTER, opened
from upstream.salt.order import SaltOrder, read_order

DEEP: list[Any] = []
for _ in range(40):
    DEEP = [DEEP]


def order_of(**changes: object) -> SaltOrder:
    """An order as if its reader had let it pass."""
    given: dict[str, Any] = {"jid": JID, "fun": "test.ping", "tgt": "*", **changes}
    return SaltOrder(load=dict(given), **given)


@pytest.mark.parametrize(
    "changes",
    [
        {"arg": [{b"\xff": 1}]},
        {"kwarg": {"deep": {b"\xff": 1}}},
        {"arg": [{1: 2, "a": 3}]},
        {"arg": [DEEP]},
        {"arg": [object()]},
        {"arg": [b"\xff", float("nan"), 2**63]},
        {"auth_list": [{b"\xff": [1]}, 7, [[]]]},
        {"fun": "\ud800"},
        {"user": "\ud800"},
        {"metadata": {b"\xff": object()}},
    ],
)
async def test_no_order_leaves_the_door_as_an_error(
    changes: dict[str, object], tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(order_of(**changes), MASTER)
        await gate.orders.take(published(str(FIRST_JID + 1)), MASTER)
        assert gate.rooms.open_jobs.get(str(FIRST_JID + 1)) is not None, "the next one is taken"


async def test_arguments_that_json_cannot_carry_are_answered_as_refused(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(order_of(arg=[{b"\xff": 1}]), MASTER)
        assert "cannot be sent" in (await gate.outcomes())["cam-1"].why


async def test_what_nobody_foresaw_is_counted_and_logged_with_where_it_was(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise KeyError("unforeseen")

    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        monkeypatch.setattr(SaltOrders, "_take", broken)
        await gate.orders.take(published(JID), MASTER)
        assert gate.rooms.metrics.refusals["salt", "unforeseen"] == 1
        assert "Traceback" in caplog.text


@pytest.mark.parametrize("field", ["arg", "metadata", "auth_list", "tgt_extra"])
def test_keys_that_are_no_text_are_no_publish(field: str) -> None:
    value: Any = {b"\xff": 1} if field in ("metadata", "tgt_extra") else [{b"\xff": 1}]
    with pytest.raises(Refused) as refused:
        read_order({"jid": JID, "fun": "test.ping", "tgt": "*", field: value})
    assert refused.value.reason == "malformed"


@pytest.mark.parametrize("auth_list", [{}, "", 0, False])
def test_an_empty_thing_that_is_no_list_makes_nobody_a_superuser(auth_list: object) -> None:
    with pytest.raises(Refused) as refused:
        read_order({"jid": JID, "fun": "test.ping", "tgt": "*", "auth_list": auth_list})
    assert "auth_list" in refused.value.detail


@pytest.mark.parametrize("fun", ["test.ping", ["test.ping", "test.version"], "nonsense"])
async def test_the_jid_of_a_job_of_the_gateway_does_not_give_its_answers_away(
    fun: Any, tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        jid = await gate.rooms.acceptance.submit(JobRequest(tgt="cam-1", fun="test.ping"), "ops")
        await gate.orders.take(published(jid, fun, [[], []] if isinstance(fun, list) else []), MASTER)
        assert "has the jid" in gate.told.values()["cam-1"]
        assert await gate.book.get(jid) is None, "its answers are for nobody else"
        assert await gate.outcomes() == {}


@pytest.mark.parametrize(
    ("jid", "reason"),
    [
        ("20261119120000000000", "old_jid"),
        ("20261119140000000000", ""),
        ("20261121170000000000", ""),
        ("20261121180000000000", "early_jid"),
        ("99999999999999999999", "early_jid"),
    ],
)
async def test_an_order_is_of_its_day_in_whatever_time_zone(
    jid: str, reason: str, tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(jid), MASTER)
        assert bool(gate.told.announced) is not bool(reason)
        assert not reason or gate.rooms.metrics.refusals["salt", reason] == 1
