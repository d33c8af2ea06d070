"""The gateway answers a Salt master for its own id: a few functions that harm nothing, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import Refused
from device_agent.questions import Unanswered
from gateway.salt.gateway_facts import GatewayFacts
from tests.peers.clock import HandClock
from tests.peers.database import FIRST_JID
from tests.peers.salt_above import SaltAboveDouble, published
from tests.peers.salt_gate import GATEWAY, JID, MASTER, OTHER, Gate, opened
from tests.peers.waiting import until
from upstream.salt.ports import DeviceAnswer

ANSWERED: list[tuple[str, list[Any], Any]] = [
    ("test.ping", [], True),
    ("saltutil.running", [], []),
    ("saltutil.is_running", ["state.*"], []),
    ("saltutil.find_job", [JID], {}),
]
EVERYTHING = ("looks", "root-shell", "cmd.*", "state.*", "saltutil.*", "test.*", "grains.*", "file.*")


async def said(gate: Gate, fun: str | list[str], arg: list[Any] | None = None, **more: Any) -> DeviceAnswer:
    """The gateway's own answer to an order for its id alone."""
    number = len(gate.told.entries)
    jid = str(FIRST_JID + 1000 + number)
    await gate.orders.take(published(jid, fun, arg or [], **{"tgt": GATEWAY, **more}), MASTER)
    assert len(gate.told.entries) == number + 1, "it is answered, and once"
    assert gate.told.own()[-1][0] == jid
    return gate.told.own()[-1][1]


@pytest.mark.parametrize(("fun", "arg", "value"), ANSWERED)
async def test_it_answers_what_a_master_asks_of_each_minion(
    fun: str, arg: list[Any], value: Any, tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock) as gate:
        answer = await said(gate, fun, arg)
        assert (answer.value, answer.retcode, answer.success) == (value, 0, True)
        assert type(answer.value) is type(value)
        assert await gate.audited() == []
        assert await gate.rooms.spool.pending() == 0
        assert not gate.told.announced, "no minion announces itself"


async def test_it_tells_its_grains_as_they_are_now(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock) as gate:
        gate.grains["floor"] = 3
        assert (await said(gate, "grains.items")).value == gate.grains


@pytest.mark.parametrize(
    ("fun", "arg"),
    [
        ("cmd.run", ["id"]),
        ("state.apply", []),
        ("test.version", []),
        ("test.echo", ["x"]),
        ("grains.set", ["a", "b"]),
        ("saltutil.kill_job", [JID]),
        ("saltutil.refresh_pillar", []),
        ("file.write", ["/tmp/x", "y"]),
        ("nonsense", []),
    ],
)
async def test_everything_else_is_refused_by_name_whatever_is_granted(
    fun: str, arg: list[Any], tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, *EVERYTHING) as gate:
        answer = await said(gate, fun, arg)
        assert (answer.retcode, answer.success) == (1, False)
        assert answer.value.startswith(f"refused: not_granted: {fun} is not answered for {GATEWAY}")
        assert "test.ping" in answer.value
        assert "lisbon-station" in answer.value
        assert await gate.audited() == [(f"root@{MASTER}", "salt", "run", "deny")]
        assert not list(gate.rooms.open_jobs)


async def test_several_functions_are_answered_one_by_one(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, *EVERYTHING) as gate:
        answer = await said(gate, ["test.ping", "cmd.run", "saltutil.running"], [[], ["id"], []])
        assert answer.value["test.ping"] is True
        assert answer.value["saltutil.running"] == []
        assert answer.value["cmd.run"].startswith("refused: not_granted: cmd.run")
        assert answer.retcodes == {"test.ping": 0, "cmd.run": 1, "saltutil.running": 0}
        assert not answer.success


@pytest.mark.parametrize(
    ("fun", "arg", "more", "why"),
    [
        ("test.ping", ["x"], {}, "takes no arguments here, found 1"),
        ("saltutil.find_job", [], {}, "takes 1 argument here, found 0"),
        ("test.ping", [], {"auth_list": ["grains.*"], "user": "ann"}, "does not let ann run test.ping"),
        ("test.ping", [], {"auth_list": [{"cam-*": ["test.*"]}], "user": "ann"}, "does not let ann run test.ping"),
    ],
)
async def test_what_it_does_not_take_is_refused_with_the_reason(
    fun: str, arg: list[Any], more: dict[str, Any], why: str, tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, *EVERYTHING) as gate:
        answer = await said(gate, fun, arg, **more)
        assert answer.value.startswith("refused: ")
        assert why in answer.value


@pytest.mark.parametrize("ret", ["mysql", "no_such_returner", "smtp,mysql", ["mysql"]])
async def test_a_returner_does_not_stop_the_answer_of_the_gateway_or_of_a_device(
    ret: str | list[str], tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID, ret=ret), MASTER)
        assert [(answer.value, answer.retcode, answer.success) for _, answer in gate.told.own()] == [(True, 0, True)]
        assert sorted(gate.job().waiting) == ["cam-1"], "the device runs it too"
        assert gate.told.announced == [(MASTER, JID, ["cam-1"])]


async def test_a_user_who_may_gets_an_answer(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock) as gate:
        assert (await said(gate, "test.ping", auth_list=[{"gw-*": ["test.*"]}])).value is True
        assert (await said(gate, "test.ping", auth_list=[{"G@os:Alpine": ["test.ping"]}])).value is True


@pytest.mark.parametrize(
    ("tgt", "kind", "devices", "own"),
    [
        ("*", "glob", ["cam-1"], True),
        ("cam-*", "glob", ["cam-1"], False),
        (["cam-1", GATEWAY], "list", ["cam-1"], True),
        ("os:Alpine", "grain", [], True),
        ("os:Debian", "grain", ["cam-1"], False),
        ("os:(alpine|debian)", "grain_pcre", ["cam-1"], True),
        ("192.0.2.0/24", "ipcidr", [], True),
        ("198.51.100.0/24", "ipcidr", [], False),
        ("roles:camera-site", "pillar", [], True),
        ("roles:other", "pillar", [], False),
        ("* and not cam-*", "compound", [], True),
        (f"M@{GATEWAY}", "compound", [], True),
        ("M@gw-9", "compound", [], False),
        ("T@camera", "compound", [], False),
    ],
)
async def test_every_kind_of_target_means_it_as_it_means_a_minion(
    tgt: Any, kind: str, devices: list[str], own: bool, tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        above = SaltAboveDouble()
        above.pillars[GATEWAY] = {"roles": "camera-site"}
        async with above.fed(gate.facts, MASTER):
            await until(lambda: above.asked_pillars)
        await gate.orders.take(published(JID, tgt=tgt, tgt_type=kind), MASTER)
        assert [ids for _, _, ids in gate.told.announced] == ([devices] if devices else [])
        assert [answer.value for _, answer in gate.told.own()] == ([True] if own else [])
        if not own and not devices:
            assert gate.rooms.metrics.counters["salt_orders_for_others"] == 1


async def test_a_jid_is_answered_once_from_whichever_master_it_comes(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        for master in (MASTER, OTHER, MASTER):
            await gate.orders.take(published(JID), master)
        assert len(gate.told.own()) == 1
        assert gate.rooms.metrics.counters["salt_orders_repeated"] == 2


async def test_a_device_that_has_the_id_of_the_gateway_answers_itself(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello(GATEWAY)
        await gate.orders.take(published(JID, tgt=GATEWAY), MASTER)
        assert gate.told.announced == [(MASTER, JID, [GATEWAY])]
        assert gate.told.own() == []


async def test_each_master_is_told_the_grains_and_again_when_they_change() -> None:
    grains: dict[str, Any] = {"id": GATEWAY}
    above = SaltAboveDouble()
    above.pillars[GATEWAY] = {}
    facts = GatewayFacts(lambda: grains, look=0.01, again=0.01)
    async with above.fed(facts, MASTER):
        await asyncio.sleep(0)
        assert above.asked_pillars == [], "this machine has not been looked at yet"
        grains["os"] = "Debian"
        await until(lambda: above.asked_pillars)
        grains["floor"] = 3
        await until(lambda: len(above.asked_pillars) == 2)
    assert above.asked_pillars == [{"id": GATEWAY, "os": "Debian"}, {"id": GATEWAY, "os": "Debian", "floor": 3}]


async def test_a_master_without_a_pillar_for_it_is_told_once_and_one_that_is_silent_again() -> None:
    above = SaltAboveDouble()
    facts = GatewayFacts(lambda: {"id": GATEWAY, "os": "Debian"}, look=0.01, again=0.01)
    above.pillar_refusal = Refused("malformed", "no pillar in a pillar")
    async with above.fed(facts, MASTER):
        await until(lambda: above.asked_pillars)
    assert len(above.asked_pillars) == 1
    assert facts.known_to(MASTER).pillar == {}
    above.pillar_refusal = Unanswered("the master does not answer")
    with pytest.raises(Unanswered):
        await facts.run(above, MASTER)
