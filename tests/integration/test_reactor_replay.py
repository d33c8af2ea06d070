"""Recorded events against the rules and against a file that is no rule yet, on a real store with real renderings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import UsageInvalid
from device_agent.protocol.messages import Event, OutcomeRecord
from device_agent.protocol.outcomes import Outcome
from gateway.devices.policy import Operator
from gateway.jobs.record import outcome_statement
from gateway.reactor import past, replay
from gateway.reactor.past import Place
from gateway.reactor.replay import Wanted
from tests.peers.reacting import Reacting, reacting, written

ECHO = """\
say:
  local.test.echo:
    - tgt: {{ data['id'] }}
    - args:
      - text: {{ tag }}
"""
ANNA = Operator("anna", frozenset({"operator"}))
DAY = 86_400.0


async def recorded(station: Reacting, tag: str, ago: float, **data: Any) -> None:
    """An event as it is kept, with a stamp of its own."""
    await station.rooms.bus.accept([Event(tag=tag, data=data, stamp=station.clock.wall() - ago, site="lisbon")])


async def returned(station: Reacting, device: str, ago: float) -> None:
    """The outcome of a job on a device."""
    record = OutcomeRecord(
        jid="20261121031500000000",
        site="lisbon",
        id=device,
        fun="test.ping",
        outcome=Outcome.OK,
        value=True,
        ended=station.clock.wall() - ago,
    )
    await station.rooms.writer.commit([outcome_statement([record], "mqtt")])


def wanted(station: Reacting, **changed: Any) -> Wanted:
    now = station.clock.wall()
    return Wanted(**{"since": now - DAY, "until": now + 1.0, "tag": "*", **changed})


async def pages(station: Reacting, asked: Wanted) -> list[dict[str, Any]]:
    """Every page of it."""
    found = []
    place: Place | None = asked.after
    while place is not None:
        found.append(
            await station.kept.replay.page(
                Wanted(since=asked.since, until=asked.until, tag=asked.tag, given=asked.given, after=place), ANNA
            )
        )
        place = Place(**found[-1]["next"]) if found[-1]["next"] is not None else None
        assert len(found) < 1000
    return found


async def events(station: Reacting, **changed: Any) -> list[dict[str, Any]]:
    return [event for page in await pages(station, wanted(station, **changed)) for event in page["events"]]


def ours(event: dict[str, Any]) -> bool:
    """Not one that the station fired by itself meanwhile."""
    tag: str = event["tag"]
    return tag.startswith(("site/", "salt/job/"))


async def test_what_happened_before_there_were_rules_is_tried_and_nothing_is_done(tmp_path: Path) -> None:
    async with reacting(tmp_path, []) as station:
        await recorded(station, "site/door", 60.0, id="cam-1")
        await recorded(station, "site/own", 50.0, id="cam-1", user="Reactor")
        await recorded(station, "other/door", 40.0, id="cam-1")
        await recorded(station, "site/old", 2 * DAY, id="cam-1")
    folder = written(tmp_path, {"a.sls": ECHO, "b.sls": "bad: {{ data['lacking'] }}\n"})
    said = [{"site/*": [str(folder / "a.sls")]}, {"site/door": str(folder / "b.sls")}]
    async with reacting(tmp_path, said) as station:
        (page,) = await pages(station, wanted(station))
        (door,) = page["events"]
        assert (door["tag"], door["rules"], page["guarded"]) == ("site/door", ["site/*", "site/door"], 1)
        (reaction,) = door["reactions"]
        assert (reaction["said"], reaction["tgt"], reaction["rule"]) == ("local.test.echo", "cam-1", "site/*")
        (trouble,) = door["troubles"]
        assert (trouble["file"], trouble["line"]) == (str(folder / "b.sls"), 1)
        assert await events(station, tag="site/d?*") == [door]
        assert await events(station, tag="other/*") == []
        assert await events(station, until=station.clock.wall() - 100.0) == []
        assert await station.jobs() == []


async def test_returns_stand_among_the_events_and_each_comes_once_whatever_the_size_of_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reacting(tmp_path, []) as station:
        for number in range(12):
            await recorded(station, f"site/{number}", 100.0 - number, id="cam-1")
            await returned(station, f"cam-{number}", 100.5 - number)
        await recorded(station, "site/last", 1.0, id="cam-1")
        asked = {"tag": "s*", "given": ECHO}
        whole = [event for event in await events(station, **asked) if ours(event)]
        tags = [event["tag"] for event in whole]
        assert tags[:3] == [
            "salt/job/20261121031500000000/ret/cam-0",
            "site/0",
            "salt/job/20261121031500000000/ret/cam-1",
        ]
        assert (len(tags), tags[-1]) == (25, "site/last")
        assert [event["reactions"][0]["tgt"] for event in whole[:3]] == ["cam-0", "cam-1", "cam-1"]
        for module, name, size in (
            (replay, "EVENTS", 1),
            (past, "ROWS", 3),
            (past, "SPAN", 2),
            (replay, "REACTIONS", 2),
            (replay, "SECONDS", 0.0),
        ):
            with monkeypatch.context() as patched:
                patched.setattr(module, name, size)
                found = await events(station, **asked)
            assert sorted(each["tag"] for each in found if ours(each)) == sorted(tags), name


async def test_a_file_that_is_sent_along_has_nothing_beside_it_and_looks_as_who_asks(tmp_path: Path) -> None:
    folder = written(tmp_path, {"a.sls": ECHO, "secret.txt": "key"})
    async with reacting(tmp_path, [{"site/*": str(folder / "*.sls")}]) as station:
        await recorded(station, "site/door", 60.0, id="cam-1")
        for python in ("#!py\ndef run(): return {}\n", "  #!py  \r\ndef run(): return {}\n"):
            with pytest.raises(UsageInvalid, match="own disk alone"):
                await events(station, given=python, tag="site/*")
        for other in (f"{folder}/a.sls", f"{folder}/secret.txt".lstrip("/"), "a.sls"):
            (event,) = await events(station, given=f"{{% include '{other}' %}}\n", tag="site/*")
            assert (event["reactions"], event["troubles"][0]["file"]) == ([], "given.sls")
        look = "say: {local.test.echo: [{tgt: cam-1}, {args: [{text: {{ salt['manage.present']() | json }}}]}]}\n"
        (event,) = await events(station, given=look, tag="site/*")
        assert event["troubles"] == []
        nobody = await station.kept.replay.page(wanted(station, given=look, tag="site/*"), Operator("eve", frozenset()))
        assert "cannot be called" in nobody["events"][0]["troubles"][0]["what"]
