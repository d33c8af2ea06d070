"""Rules with bounds on a real store: what is let through, collected and held back, also across a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol.messages import Event, Gone, Hello
from gateway.calls.call import About
from gateway.reactor.throttle import Bounded
from gateway.store.writer import Statement, StoreFailed
from tests.peers.clock import HandClock
from tests.peers.reacting import Reacting, reacting, written
from tests.peers.waiting import until

ECHO = """\
say:
  local.test.echo:
    - tgt: {{ data['id'] }}
    - args:
      - text: {{ tag }}
      - all: {{ collected | map(attribute='tag') | join(' ') }}
"""


def rules(folder: Path) -> list[dict[str, str]]:
    return [{"site/*": str(written(folder, {"a.sls": ECHO}) / "a.sls")}]


async def throttled(station: Reacting, tag: str, *states: str) -> dict[str, Any]:
    """Wait until one throttle has made one of these of the newest event with this tag; what it says of it."""
    found: dict[str, Any] = {}

    async def there() -> bool:
        for matched in await station.kept.explain._book.newest(tag, 1):
            (told,) = (await station.kept.explain.why(str(matched.id)))["events"]
            found.update(told)
            return any(each["state"] in states for each in told["throttled"])
        return False

    await until(there, 30.0, f"{tag} is {states}")
    (each,) = found["throttled"]
    return dict(each)


async def texts(station: Reacting, count: int = 0) -> list[str]:
    """What the jobs say, of which there are at least so many."""
    return [job.kwarg["text"] for job in await station.jobs_are(count)]


async def test_once_within_holds_back_by_device_is_counted_and_told(tmp_path: Path) -> None:
    clock = HandClock()
    bounds: dict[str, Any] = {"reactor_throttle": {"site/*": {"once_within": 60.0}}, "clock": clock}
    async with reacting(tmp_path, rules(tmp_path), **bounds) as station:
        await station.fire("site/1", id="cam-1")
        await throttled(station, "site/1", "done")
        await station.fire("site/2", id="cam-1")
        held = await throttled(station, "site/2", "held")
        assert held["why"].startswith("once_within 60 s for cam-1, the last was event ")
        await station.fire("site/3", id="cam-2")
        await throttled(station, "site/3", "done")
        assert station.counted("reactions_held_back") == 1
        (rule,) = (await station.kept.explain.listed())["rules"]
        assert rule["throttles"][0]["throttle"] == "once_within 60 s by id"
        assert rule["throttles"][0]["events"] == {"done": 2, "held": 1}
        assert await texts(station, 2) == ["site/1", "site/3"]
    clock.move(30.0)
    # A restart opens no window, and a clock that is set back keeps none closed for longer than it is said to.
    clock.step_wall(-86_400.0)
    async with reacting(tmp_path, rules(tmp_path), **bounds) as station:
        await station.fire("site/4", id="cam-1")
        await throttled(station, "site/4", "held")
        clock.move(61.0)
        await station.fire("site/5", id="cam-1")
        await throttled(station, "site/5", "done")
        assert sorted(await texts(station, 3)) == ["site/1", "site/3", "site/5"]


async def test_once_after_reacts_once_it_is_quiet_also_after_a_restart(tmp_path: Path) -> None:
    clock = HandClock()
    bounds: dict[str, Any] = {"reactor_throttle": {"site/*": {"once_after": 10.0}}, "clock": clock}
    async with reacting(tmp_path, rules(tmp_path), **bounds) as station:
        for number in range(1, 4):
            await station.fire(f"site/{number}", id="cam-1")
            await throttled(station, f"site/{number}", "waits")
            clock.move(5.0)
        assert (await throttled(station, "site/1", "held"))["why"].endswith("came after it")
        assert station.kept.reactor.gauges()["reactor_events_throttled"] == 1
        assert await station.jobs() == []
    async with reacting(tmp_path, rules(tmp_path), **bounds) as station:
        clock.move(5.0)
        await throttled(station, "site/3", "done")
        assert await texts(station, 1) == ["site/3"]


async def test_many_events_have_one_reaction_that_is_given_them_all(tmp_path: Path) -> None:
    clock = HandClock()
    bounds: dict[str, Any] = {
        "reactor_throttle": {"site/*": {"accumulate": {"count": 3, "seconds": 60}}},
        "clock": clock,
    }
    async with reacting(tmp_path, rules(tmp_path), **bounds) as station:
        for number in range(1, 3):
            await station.fire(f"site/{number}", id="cam-1")
            await throttled(station, f"site/{number}", "waits")
    async with reacting(tmp_path, rules(tmp_path), **bounds) as station:
        await station.fire("site/3", id="cam-1")
        await throttled(station, "site/3", "done")
        joined = await throttled(station, "site/1", "joined")
        assert joined["why"] == f"in the reaction to event {joined['joined']}"
        (job,) = await station.jobs_are(1)
        assert job.kwarg == {"text": "site/3", "all": "site/1 site/2 site/3"}
        await station.fire("site/4", id="cam-1")
        await throttled(station, "site/4", "waits")
        clock.move(61.0)
        await throttled(station, "site/4", "done")
        assert (await station.jobs_are(2))[1].kwarg == {"text": "site/4", "all": "site/4"}


async def test_no_more_than_so_many_run_at_once_and_the_others_have_their_turn(tmp_path: Path) -> None:
    clock = HandClock()
    bounds: dict[str, Any] = {
        "reactor_throttle": {str(tmp_path / "*.sls"): {"max_concurrent": 1, "by": []}},
        "clock": clock,
    }
    async with reacting(tmp_path, rules(tmp_path), **bounds) as station:
        # A device that is known and away: its job is open until it is cancelled.
        station.rooms.registry.hello("mqtt", "cam-9", Hello("1" * 16, "0", {}))
        station.rooms.registry.gone("cam-9", Gone("1" * 16))
        await station.fire("site/1", id="cam-9")
        await throttled(station, "site/1", "running")
        for number in range(2, 4):
            await station.fire(f"site/{number}", id="cam-9")
            await throttled(station, f"site/{number}", "turn")
        held = station.kept.reactor._throttling._book
        assert not await held.is_over(1, "site/*", str(tmp_path / "a.sls")), "its job is open"
    # A station that starts at the very moment of its last job would give it that job's number.
    clock.move(1.0)
    async with reacting(tmp_path, rules(tmp_path), **bounds) as station:
        assert await texts(station, 1) == ["site/1"]
        for number in range(2, 4):
            (job,) = (await station.jobs_are(number - 1))[number - 2 :]
            await station.rooms.delivery.cancel(job.jid)
            await throttled(station, f"site/{number}", "running")
            assert (await texts(station, number))[-1] == f"site/{number}"
        await throttled(station, "site/1", "done")


async def test_an_event_that_gives_way_gives_its_turn_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds: dict[str, Any] = {
        "reactor_throttle": {"site/*": {"max_concurrent": 1}},
        "reactions": {"waiting": 1, "at_once": 1, "when_full": "oldest"},
    }
    async with reacting(tmp_path, rules(tmp_path), **bounds) as station:
        station.rooms.registry.hello("mqtt", "cam-9", Hello("1" * 16, "0", {}))
        station.rooms.registry.gone("cam-9", Gone("1" * 16))
        await station.fire("site/1", id="cam-9")
        await throttled(station, "site/1", "running")
        await station.fire("site/2", id="cam-9")
        await throttled(station, "site/2", "turn")
        reactor = station.kept.reactor
        await until(lambda: reactor.gauges()["reactor_events_under_way"] == 0, what="nothing is at work")
        go, plain = asyncio.Event(), reactor._planner.bounded

        async def late(event: Event) -> list[Bounded]:
            await go.wait()
            return await plain(event)

        monkeypatch.setattr(reactor._planner, "bounded", late)
        await station.fire("site/3", id="cam-9")
        await until(lambda: reactor.gauges()["reactor_events_under_way"] == 1, what="the third is at work")
        (job,) = await station.jobs_are(1)
        await station.rooms.delivery.cancel(job.jid)
        await until(lambda: reactor.gauges()["reactor_events_waiting"] == 1, what="the second has its turn, and waits")
        await station.fire("site/4", id="cam-9")
        assert "gave way" in (await throttled(station, "site/2", "held"))["why"]
        go.set()
        await throttled(station, "site/3", "running")


async def test_max_per_day(tmp_path: Path) -> None:
    bounds: dict[str, Any] = {"reactor_throttle": {"site/*": {"max_per_day": 2}}}
    async with reacting(tmp_path, rules(tmp_path), **bounds) as station:
        for number in range(1, 5):
            await station.fire(f"site/{number}", id="cam-1")
            await throttled(station, f"site/{number}", "done", "held")
        told = await throttled(station, "site/4", "held")
        assert "max_per_day 2 for cam-1: there were 2 since " in told["why"]
        assert await texts(station, 2) == ["site/1", "site/2"]


async def test_a_throttle_stands_in_the_map_file_too_and_one_of_nothing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "map.yaml"
    (rule,) = rules(tmp_path)
    text = f"reactor:\n  - site/*: {rule['site/*']}\nreactor_throttle:\n  "
    path.write_text(text + "site/*: {once_within: 60}\n  sit/*: {once_within: 1}\n")
    async with reacting(tmp_path, str(path)) as station:
        await station.fire("site/1", id="cam-1")
        await throttled(station, "site/1", "done")
        await station.fire("site/2", id="cam-1")
        await throttled(station, "site/2", "held")
        (unused,) = (await station.kept.explain.checked())["skipped"]
        assert unused == "reactor_throttle: 'sit/*' is no tag glob of a rule and no file of one"
        path.write_text(text + "site/*: {once_withn: 60}\n")
        (wrong,) = (await station.kept.explain.checked())["skipped"]
        assert wrong.startswith(f"{path}: reactor_throttle: ")
        assert "once_withn" in wrong


async def test_only_the_file_that_is_bounded_waits(tmp_path: Path) -> None:
    folder = written(tmp_path, {"a.sls": ECHO, "b.sls": "b: {local.test.ping: [{tgt: cam-1}]}\n"})
    said = [{"site/*": [str(folder / "a.sls"), str(folder / "b.sls")]}]
    bounds: dict[str, Any] = {"reactor_throttle": {str(folder / "a.sls"): {"once_within": 60}}}
    async with reacting(tmp_path, said, **bounds) as station:
        for number in range(1, 4):
            await station.fire(f"site/{number}", id="cam-1")
            await throttled(station, f"site/{number}", "done", "held")
            await station.event(f"site/{number}")
        assert sorted(job.fun for job in await station.jobs_are(4)) == [
            "test.echo",
            "test.ping",
            "test.ping",
            "test.ping",
        ]
        told = await station.event("site/1")
        assert [each["id"] for each in told["reactions"]] == ["b", "say"]


async def test_what_could_not_be_written_is_decided_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: dict[str, Any] = {"reactor_throttle": {"site/*": {"once_within": 60}}}
    async with reacting(tmp_path, rules(tmp_path), **bounds) as station:
        book = station.kept.reactor._throttling._book
        write, failures = book.write, [1, 2]

        async def failing(statements: Sequence[Statement]) -> None:
            if failures:
                failures.pop()
                raise StoreFailed("no", found="a fault", hint="none")
            await write(statements)

        monkeypatch.setattr(book, "write", failing)
        await station.fire("site/1", id="cam-1")
        await throttled(station, "site/1", "done")
        assert await texts(station, 1) == ["site/1"]
        assert station.counted("reactions_held_back") == 0


async def test_what_fell_due_while_the_store_failed_has_its_reaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock()
    bounds: dict[str, Any] = {"reactor_throttle": {"site/*": {"once_after": 10.0}}, "clock": clock}
    async with reacting(tmp_path, rules(tmp_path), **bounds) as station:
        await station.fire("site/1", id="cam-1")
        await throttled(station, "site/1", "waits")
        book = station.kept.reactor._throttling._book
        write, failures = book.write, [1, 2, 3]

        async def failing(statements: Sequence[Statement]) -> None:
            if failures:
                failures.pop()
                raise StoreFailed("no", found="a fault", hint="none")
            await write(statements)

        monkeypatch.setattr(book, "write", failing)
        clock.move(11.0)
        await throttled(station, "site/1", "done")
        assert await texts(station, 1) == ["site/1"]


@pytest.mark.parametrize("state", ["waits", "ready"])
async def test_what_waited_is_taken_up_where_nothing_is_throttled_any_more(state: str, tmp_path: Path) -> None:
    clock = HandClock()
    bounds: dict[str, Any] = {"reactor_throttle": {"site/*": {"once_after": 10.0}}, "clock": clock}
    async with reacting(tmp_path, rules(tmp_path), **bounds) as station:
        await station.fire("site/1", id="cam-1")
        await throttled(station, "site/1", "waits")
    if state == "ready":
        clock.move(11.0)
    async with reacting(tmp_path, rules(tmp_path), clock=clock) as station:
        clock.move(11.0)
        await throttled(station, "site/1", "done")
        assert await texts(station, 1) == ["site/1"]


async def test_what_is_let_through_and_not_rendered_yet_is_not_over(tmp_path: Path) -> None:
    bounds: dict[str, Any] = {"reactor_throttle": {"site/*": {"max_concurrent": 1}}}
    async with reacting(tmp_path, rules(tmp_path), **bounds) as station:
        await station.fire("site/1", id="cam-1")
        await throttled(station, "site/1", "running", "done")
        book, file = station.kept.reactor._throttling._book, str(tmp_path / "a.sls")
        await book.write(book.moving(1, "site/*", file, "ready"))
        assert not await book.is_over(1, "site/*", file)
        assert await book.is_over(4711, "site/*", file), "of what is gone nothing is open"


@pytest.mark.parametrize("throttle", [{}, {"salt/auth": {"accumulate": {"count": 2}, "by": []}}])
async def test_a_call_is_about_the_device_of_its_event_and_of_several_about_none(
    throttle: dict[str, Any], tmp_path: Path
) -> None:
    rule = "turn_away:\n  wheel.key.reject:\n    - match: {{ data['id'] }}\n"
    path = str(written(tmp_path, {"a.sls": rule}) / "a.sls")
    bounds: dict[str, Any] = {"reactor_throttle": throttle, "policy": "users: {reactor: approver}"}
    async with reacting(tmp_path, [{"salt/auth": path}], **bounds) as station:
        for number in range(2):
            await station.fire("salt/auth", id=f"ink-{number}", did=f"k5ln7wrg{number}", act="pend", result=True)

        async def calls() -> list[About | None]:
            found = [kept for kept in await station.kept.own.calls.book.newest(10) if kept.ended.state == "ok"]
            return [kept.call.about for kept in found] if len(found) == (1 if throttle else 2) else []

        told = await until(calls, 30.0, "the calls have ended")
        alone = {About("k5ln7wrg0", "ink-0"), About("k5ln7wrg1", "ink-1")}
        assert set(told) == ({None} if throttle else alone)
