"""What a Salt master makes up is refused with a reason and counted, and ends nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import StationFailed
from gateway.jobs.request import JobRequest
from gateway.salt.orders import SaltOrders
from tests.peers.clock import HandClock
from tests.peers.database import FIRST_JID
from tests.peers.salt_above import published
from tests.peers.salt_gate import GATEWAY, JID, MASTER, opened
from upstream.salt import wire
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


FAULTS: list[tuple[str, Any, str]] = [
    ("arg", [{None: "b"}], "a key must be text or a whole number, found null"),
    ("arg", [{b"\xff": 1}], "a key must be text or a whole number, found bytes"),
    ("arg", "uptime", "allowed is a list"),
    ("arg", [0] * 300, "300 arguments"),
    ("arg", wire.Unreadable("deeper than 48"), "deeper than 48"),
    ("metadata", {None: 1}, "found null"),
    ("ret", {None: 1}, "found null"),
    ("user", 7, "allowed is text"),
    ("fun", ["a.b"] * 65, "65 functions"),
    ("auth_list", [{b"\xff": 1}], "found bytes"),
    ("auth_list", {}, "allowed is a list"),
    ("auth_list", "", "allowed is a list"),
    ("auth_list", 0, "allowed is a list"),
    ("auth_list", False, "allowed is a list"),
    ("tgt_extra", {b"\xff": 1}, "found bytes"),
]


@pytest.mark.parametrize(("field", "value", "why"), FAULTS)
async def test_a_publish_with_a_malformed_field_is_answered_by_each_device_and_runs_nowhere(
    field: str, value: Any, why: str, tmp_path: Path, clock: HandClock
) -> None:
    order = read_order({"jid": JID, "fun": "test.arg", "tgt": "*", field: value})
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1", "cam-2")
        await gate.orders.take(order, MASTER)
        said = gate.told.values() | {GATEWAY: gate.told.own()[0][1].value}
        assert sorted(said) == ["cam-1", "cam-2", GATEWAY]
        assert all(text.startswith("refused: malformed: ") for text in said.values()), said
        assert all(f"the field {field} of a publish" in text and why in text for text in said.values()), said
        assert gate.told.announced == [(MASTER, JID, ["cam-1", "cam-2", GATEWAY])]
        assert gate.rooms.metrics.refusals["salt", "malformed"] == 1
        assert [row[2:] for row in await gate.audited()] == [("run", "deny")]
        assert gate.rooms.open_jobs.get(JID) is None
        assert await gate.outcomes() == {}


TARGET_FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"tgt": None}, "malformed", "the field tgt of a publish: allowed is text"),
    ({"tgt": "x" * 131_073}, "malformed", "the field tgt of a publish: allowed is text of at most 131072"),
    ({"tgt": ["x" * 128] * 20_001, "tgt_type": "list"}, "malformed", "the field tgt of a publish: allowed are ids"),
    ({"tgt": wire.Unreadable("more than 1000000 values")}, "malformed", "tgt of a publish: more than 1000000 values"),
    ({"tgt_type": 4}, "malformed", "the field tgt_type of a publish: allowed is text"),
    ({"tgt_type": "data"}, "bad_target", "targets of the kind data"),
    ({"delimiter": ["|"]}, "malformed", "the field delimiter of a publish: allowed is text"),
    ({"tgt": "cam-(", "tgt_type": "pcre"}, "bad_target", "regular expression"),
    ({"tgt": "cam-1 and", "tgt_type": "compound"}, "bad_target", "a term is missing"),
    ({"tgt": "192.0.2.7/24", "tgt_type": "ipcidr"}, "bad_target", "no address and no network"),
    ({"tgt": "nowhere", "tgt_type": "nodegroup"}, "bad_target", "nowhere"),
]


@pytest.mark.parametrize(("changes", "reason", "why"), TARGET_FAULTS)
async def test_an_order_whose_target_cannot_be_read_is_answered_by_the_gateway(
    changes: dict[str, Any], reason: str, why: str, tmp_path: Path, clock: HandClock
) -> None:
    order = read_order({"jid": JID, "fun": "test.ping", "tgt": "*", **changes})
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(order, MASTER)
        assert gate.told.announced == [(MASTER, JID, [GATEWAY])]
        ((jid, answer),) = gate.told.own()
        assert (jid, answer.success, answer.retcode) == (JID, False, 1)
        assert answer.value.startswith(f"refused: {reason}: ")
        assert why in answer.value
        assert gate.rooms.metrics.refusals["salt", reason] == 1
        assert [row[2:] for row in await gate.audited()] == [("run", "deny")]
        assert gate.rooms.open_jobs.get(JID) is None


async def test_an_order_with_another_jid_is_answered_under_it_and_runs_nowhere(
    tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published("my-job"), MASTER)
        assert gate.told.announced == [(MASTER, "my-job", ["cam-1", GATEWAY])]
        said = gate.told.values() | {GATEWAY: gate.told.own()[0][1].value}
        assert all(
            "the field jid of a publish: found 'my-job', allowed are 20 digits" in text for text in said.values()
        )
        assert {entry.jid for entry in gate.told.entries} == {"my-job"}
        assert gate.rooms.open_jobs.get("my-job") is None


async def test_a_malformed_order_for_other_gateways_is_not_answered(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID, arg=[{None: 1}], tgt="lamp-*"), MASTER)
        assert gate.told.announced == []
        assert gate.rooms.metrics.counters["salt_orders_for_others"] == 1


async def test_an_order_whose_target_cannot_be_resolved_is_answered_by_the_gateway(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, clock, "looks") as gate:

        async def unreadable(_target: object) -> None:
            raise StationFailed("the store cannot be read")

        monkeypatch.setattr(gate.rooms.registry, "know", unreadable)
        await gate.orders.take(published(JID, tgt="cam-*"), MASTER)
        assert gate.told.announced == [(MASTER, JID, [GATEWAY])]
        assert "the disk" in gate.told.own()[0][1].value


async def test_an_order_that_fails_before_the_master_was_told_of_it_is_answered(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")

        async def unreadable(_jid: str) -> None:
            raise StationFailed("the store cannot be read")

        async def broken(_jid: str) -> None:
            raise KeyError("unforeseen")

        for number, (failing, why) in enumerate(((unreadable, "the disk"), (broken, "unforeseen"))):
            monkeypatch.setattr(gate.book, "known", failing)
            jid = str(FIRST_JID + number)
            await gate.orders.take(published(jid, tgt="cam-*"), MASTER)
            assert gate.told.announced[number:] == [(MASTER, jid, ["cam-1"])]
            assert why in gate.told.values()["cam-1"]


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
        assert gate.told.announced, "it is answered in either case"
        assert bool(await gate.book.known(jid)) is not bool(reason)
        if reason:
            assert gate.rooms.metrics.refusals["salt", reason] == 1
            assert gate.told.values()["cam-1"].startswith(f"refused: {reason}: ")
            assert "date -u" in gate.told.values()["cam-1"]
