"""Reactions on their way to the stations above: each told once, bounded, and found there by event and by job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from device_agent.errors import Refused
from device_agent.protocol import tags
from device_agent.protocol.messages import Event, decode_item
from gateway.metrics import Metrics
from gateway.reactor.report import ARGUMENT_BYTES, DATA_BYTES, Report, ReportedCall, data_of, report_of
from gateway.reactor.site_reactions import SiteReactions, keeping, pruning
from tests.peers.clock import HandClock
from tests.peers.database import opened_store
from tests.peers.reacting import Reacting, reacting, written
from tests.peers.waiting import until

FILE = """\
say:
  local.test.echo:
    - tgt: {{ data['id'] }}
    - args:
      - text: {{ data['text'] }}
no_such:
  runner.nonsense.run: []
fire:
  runner.event.send:
    - args:
      - tag: other/fired
"""
REPORT = Report(
    key="a1",
    number=7,
    place=0,
    tag="site/a",
    data={"door": "north"},
    stamp=10.5,
    site="lisbon",
    depth=0,
    call=ReportedCall(id="say", file="/a.sls", rule="site/*", said="local.test.echo", kind="local", fun="test.echo"),
    state="issued",
    jid="20261123000000000001",
)


def rules(folder: Path) -> list[dict[str, str]]:
    return [{"site/*": str(written(folder, {"a.sls": FILE}) / "a.sls")}]


async def told(station: Reacting) -> dict[str, Report]:
    """What waits in the spool for those above, by the id of the reaction."""
    while await station.kept.reactions_upward.tell_page():
        pass
    rows = await station.rooms.reader.rows("SELECT body FROM spool_events ORDER BY sequence")
    items = [decode_item(body) for (body,) in rows]
    reports = [report_of(item) for item in items if isinstance(item, Event) and item.tag.startswith(tags.REACTION)]
    assert len({report.key for report in reports}) == len(reports)
    return {report.call.id: report for report in reports}


async def all_told(station: Reacting) -> dict[str, Report]:
    """The same once the call has ended, before which it is not told."""

    async def there() -> dict[str, Report]:
        found = await told(station)
        return found if len(found) == 3 else {}

    found: dict[str, Report] = await until(there, what="all three are told")
    return found


async def test_each_reaction_is_told_once_whatever_became_of_it(tmp_path: Path) -> None:
    said = rules(tmp_path)
    async with reacting(tmp_path, said) as station:
        await station.fire("site/a", id="cam-1", text="hello")
        made = (await station.event("site/a"))["reactions"]
        found = await all_told(station)
        for each in made:
            report = found[each["id"]]
            assert (report.key, report.state, report.jid) == (each["key"], each["state"], each["jid"])
            assert report.why == each["why"]
        (job,) = await station.jobs()
        say = found["say"]
        assert (say.tag, say.data["text"], say.jid, say.call.fun) == ("site/a", "hello", job.jid, "test.echo")
        assert (say.call.kwarg, say.call.tgt, say.outcome) == ({"text": "hello"}, "cam-1", "")
        assert (found["fire"].outcome, found["fire"].value) == ("ok", True)
        assert found["no_such"].state == "failed"
    async with reacting(tmp_path, said) as station:
        assert await all_told(station) == found


async def test_what_is_long_stays_at_the_site_and_is_named(tmp_path: Path) -> None:
    async with reacting(tmp_path, rules(tmp_path)) as station:
        await station.fire("site/a", id="cam-1", text="x" * ARGUMENT_BYTES)
        await station.event("site/a")
        say = (await all_told(station))["say"]
        assert (say.left_out, say.data, say.call.kwarg) == (["data", "arguments"], {}, {})
        assert DATA_BYTES < ARGUMENT_BYTES


def event(report: Report, **more: Any) -> Event:
    return Event(tag=tags.reaction(report.key), data={**data_of(report), **more}, stamp=11.0, site="lisbon")


async def test_a_report_is_kept_once_and_found_by_its_event_and_its_job(tmp_path: Path) -> None:
    async with opened_store(tmp_path) as store:
        metrics, sites = Metrics(HandClock()), SiteReactions(store.reader)
        other = replace(REPORT, key="b2", place=1, jid="", state="refused", why="no")
        await store.writer.commit(keeping([event(other), event(REPORT), event(REPORT)], 100.0, metrics))
        assert await sites.of(REPORT.jid) == await sites.of("site/a") == [("lisbon", [REPORT, other])]
        assert await sites.of("site/b") == await sites.of("") == []
        await store.writer.commit(pruning(100.0))
        assert await sites.of("site/a")
        await store.writer.commit(pruning(100.1))
        assert await sites.of("site/a") == []
        assert not metrics.refusals


async def test_a_report_that_is_none_is_counted_and_not_kept() -> None:
    metrics = Metrics(HandClock())
    for bad in ({"key": ""}, {"call": 7}, {"jid": "x" * 65}, {"tag": "x" * 513}, {"left_out": ["x"] * 5}):
        assert keeping([event(REPORT, **bad)], 1.0, metrics) == []
        with pytest.raises(Refused, match="bad_reaction"):
            report_of(event(REPORT, **bad))
    assert metrics.refusals["uplink", "bad_reaction"] == 5
    assert keeping([Event(tag="site/a", data={}, stamp=1.0, site="lisbon")], 1.0, metrics) == []


def test_a_report_names_its_job_as_events_of_functions_do() -> None:
    assert data_of(REPORT)["__pub_jid"] == REPORT.jid
    assert "__pub_jid" not in data_of(replace(REPORT, jid=""))
