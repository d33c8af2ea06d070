"""How events get to a station that is away, busy, of another release, or a liar."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from device_agent import events as module
from device_agent.backoff import Backoff
from device_agent.clock import Clock
from device_agent.ended import FunctionFailed
from device_agent.errors import Refused
from device_agent.events import EventOutbox, Handed
from device_agent.functions import event
from device_agent.own import Own, RunningJob
from device_agent.protocol.device_events import KEEP, Fired, Heard, Page, check, decode_page, encode
from device_agent.questions import PATIENCE_SECONDS, Unanswered
from tests.peers.empty_host import EmptyHost
from tests.peers.waiting import until

JOB = RunningJob("2" * 20, "event.send", [], {}, "cam-*", "glob", "ops", 4711)


class PlayedDesk:
    """A station that answers as it is told to."""

    def __init__(self, answer: Callable[[Page], Heard]) -> None:
        self.answer = answer
        self.pages: list[Page] = []

    async def ask(self, about: str, body: bytes = b"", *, patience: float = PATIENCE_SECONDS) -> bytes:
        assert about == KEEP
        assert patience > 0
        self.pages.append(decode_page(body))
        return encode(self.answer(self.pages[-1]))


def all_of_it(page: Page) -> Heard:
    return Heard(page.events[-1].sequence)


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_FIRST_SECONDS", 0.01)
    monkeypatch.setattr(Backoff, "next", lambda _self: 0.01)


@asynccontextmanager
async def sending(path: Path, desk: PlayedDesk) -> AsyncIterator[EventOutbox]:
    outbox = EventOutbox(path, Clock())
    await outbox.open()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(outbox.send_all(desk))
        try:
            yield outbox
        finally:
            task.cancel()


def said(desk: PlayedDesk) -> list[str]:
    return [event.tag for page in desk.pages for event in page.events]


async def test_what_is_not_confirmed_is_offered_again_with_its_number(tmp_path: Path) -> None:
    answers: list[Any] = [Unanswered("nobody"), Refused("too_many_events"), Heard(99), Refused("busy")]

    def answer(page: Page) -> Heard:
        if not answers:
            return all_of_it(page)
        found = answers.pop(0)
        if isinstance(found, Heard):
            return found
        raise found

    desk = PlayedDesk(answer)
    async with sending(tmp_path / "events", desk) as outbox:
        await outbox.fire("cam-1", "site/x", {"a": 1})
        await until(lambda: len(desk.pages) == 5, what="five tries")
        assert {page.events[0].sequence for page in desk.pages} == {1}
        await outbox.fire("cam-1", "site/y", {})
        await until(lambda: len(desk.pages) == 6, what="the next")
        assert [event.sequence for event in desk.pages[-1].events] == [2]


async def test_a_part_that_is_taken_is_not_said_again(tmp_path: Path) -> None:
    desk = PlayedDesk(lambda page: Heard(page.events[0].sequence, {"event_tag": 1}))
    kept = EventOutbox(tmp_path / "events", Clock())
    await kept.open()
    for number in range(3):
        await kept.fire("cam-1", f"site/{number}", {})
    async with sending(tmp_path / "events", desk):
        await until(lambda: len(desk.pages) == 3, what="three pages")
    assert [len(page.events) for page in desk.pages] == [3, 2, 1]


async def test_an_event_that_a_station_cannot_read_holds_no_other_up(tmp_path: Path) -> None:
    def answer(page: Page) -> Heard:
        if any(event.tag == "site/1" for event in page.events):
            raise Refused("malformed")
        return all_of_it(page)

    desk = PlayedDesk(answer)
    kept = EventOutbox(tmp_path / "events", Clock())
    await kept.open()
    for number in range(3):
        await kept.fire("cam-1", f"site/{number}", {})
    async with sending(tmp_path / "events", desk):
        await until(lambda: bool(desk.pages) and desk.pages[-1].events[-1].tag == "site/2" and len(desk.pages) > 2)
        await until(lambda: desk.pages[-1].lost == 1, what="what was lost is told")
    assert said(desk)[-1] == "site/2"


async def test_without_flash_each_is_handed_over_before_the_call_ends() -> None:
    desk = PlayedDesk(all_of_it)
    handed = Handed(desk, Clock(), b"8 bytes.")
    await handed.fire("cam-1", "site/x", {})
    await handed.fire("cam-1", "site/y", {})
    assert [(page.outbox, page.events[0].sequence) for page in desk.pages] == [(b"8 bytes.", 1), (b"8 bytes.", 2)]
    desk.answer = lambda page: Heard(page.events[0].sequence, {"event_own_tag": 1})
    with pytest.raises(Refused, match="event_own_tag"):
        await handed.fire("cam-1", "site/z", {})
    with pytest.raises(Refused, match="event_own_tag"):
        await handed.fire("cam-1", "salt/auth", {})
    assert len(desk.pages) == 3, "what is refused here is not said"


@pytest.mark.parametrize(
    ("tag", "data", "reason"),
    [
        ("", {}, "event_tag"),
        ("x" * 513, {}, "event_tag"),
        ("a\nb", {}, "event_tag"),
        ("salt/minion/cam-1/start", {}, "event_own_tag"),
        ("minion_start", {}, "event_own_tag"),
        ("salt/job/1/ret/cam-1", {}, "event_own_tag"),
        ("salt/key", {}, "event_own_tag"),
        ("outstation/device/cam-1/grains", {}, "event_own_tag"),
        ("salt/run/1/new", {}, "event_own_tag"),
        ("salt/cloud/x/created", {}, "event_own_tag"),
        ("salt/wheel/1/ret", {}, "event_own_tag"),
        ("x/salt/reactors/manage/add", {}, "event_own_tag"),
        ("2" * 20, {}, "event_own_tag"),
        ("salt/beacon/cam-2/diskusage/", {}, "event_own_tag"),
        ("syndic/a/b", {}, "event_own_tag"),
        ("site/x", {"a": object()}, "event_data"),
        ("site/x", {1: 2}, "event_data"),
        ("site/x", {"a": 2**70}, "event_data"),
        ("site/x", {"a": "x" * 70_000}, "event_too_large"),
    ],
)
def test_what_no_device_may_fire(tag: str, data: dict[Any, Any], reason: str) -> None:
    with pytest.raises(Refused) as error:
        check("cam-1", tag, data)
    assert error.value.reason == reason


def test_what_a_device_may_fire() -> None:
    for tag in ("site/door", "salt/beacon/cam-1/diskusage/", "salt/custom", "minion_started", "saltx/auth"):
        assert check("cam-1", tag, {"a": [1, None]})


def test_numbers_that_do_not_rise_are_refused() -> None:
    for wrong in ([1, 1], [2, 1]):
        page = Page(events=[Fired(number, "site/x", {}, 1.0) for number in wrong])
        with pytest.raises(Refused, match="event_order"):
            decode_page(encode(page))
    with pytest.raises(Refused, match="wrong_type"):
        decode_page(encode(Page(events=[Fired(1, "site/x", {}, float("nan"))])))


class _Collected:
    def __init__(self) -> None:
        self.fired: list[tuple[str, str, dict[str, Any]]] = []
        self.local: list[str] = []

    async def fire(self, device: str, tag: str, data: dict[str, Any], *, local: bool = False) -> None:
        check(device, tag, data)
        self.fired.append((device, tag, data))
        if local:
            self.local.append(tag)


async def test_the_functions_send_what_they_are_given_and_the_job_they_are_called_for() -> None:
    collected = _Collected()
    host = EmptyHost({"id": "cam-1", "os": "Debian"})
    own = Own(events=collected, job=JOB)
    assert await event.send(host, "site/x", {"a": 1, "b": 1}, b=2, with_grains=["os"], with_env_opts=True, own=own)
    [(device, tag, data)] = collected.fired
    assert (device, tag) == ("cam-1", "site/x")
    published = {key: value for key, value in data.items() if key.startswith("__pub_")}
    assert {key: value for key, value in data.items() if key not in published} == {
        "a": 1,
        "b": 1,
        "grains": {"os": "Debian"},
        "saltenv": "base",
        "pillarenv": None,
    }
    assert published == {
        "__pub_fun": "event.send",
        "__pub_jid": "2" * 20,
        "__pub_pid": 4711,
        "__pub_ret": "",
        "__pub_tgt": "cam-*",
        "__pub_tgt_type": "glob",
        "__pub_user": "ops",
    }
    assert await event.send(host, "site/x", {"__pub_user": "root"}, own=own)
    assert collected.fired[-1][2]["__pub_user"] == "ops", "who ordered it is not said by whoever calls"
    assert await event.fire_master(host, {"a": 1}, "site/y", own=own)
    assert await event.fire(host, {"a": 1}, "site/z", own=own)
    assert collected.fired[2:] == [("cam-1", "site/y", {"a": 1}), ("cam-1", "site/z", {"a": 1})]
    assert collected.local == ["site/z"], "what stays at the station is what Salt fires on the minion's own bus"


async def test_the_functions_fail_with_what_is_wrong() -> None:
    host, own = EmptyHost({"id": "cam-1"}), Own(events=_Collected())
    with pytest.raises(FunctionFailed, match="event_own_tag") as error:
        await event.send(host, "salt/auth", own=own)
    assert error.value.value is False
    with pytest.raises(FunctionFailed, match="preload"):
        await event.fire_master(host, {}, "site/x", {"id": "cam-2"}, own=own)
    with pytest.raises(FunctionFailed, match="no station"):
        await event.fire(host, {}, "site/x", own=Own())
