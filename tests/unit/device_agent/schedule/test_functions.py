"""device_agent/functions/schedule: Salt's answers, on a schedule that is kept in a file."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from device_agent import loader
from device_agent.ended import Ended
from device_agent.errors import Refused
from device_agent.local_host import LocalHost
from device_agent.own import Own
from device_agent.schedule.kept import KeptFile
from device_agent.schedule.runner import AgentSchedule
from device_agent.schedule.zones import zone_of
from device_agent.trust.reach import reach_of
from tests.peers.clock import HandClock

PING: dict[str, Any] = {"function": "test.ping", "run_on_start": False, "seconds": 60}


class Device:
    """A schedule, and the functions that are called about it."""

    def __init__(
        self, folder: Path, settings: dict[str, Any] | None = None, pillar: dict[str, Any] | None = None
    ) -> None:
        self.clock = HandClock()
        self.path = folder / "schedule"
        self.schedule = AgentSchedule(self.path, settings or {}, zone_of("UTC"), self.clock)
        self.schedule._book.take_pillar(pillar or {})
        self.schedule._renew()
        self.own = Own(schedule=self.schedule)

    async def call(self, fun: str, *arg: Any, **kwarg: Any) -> Ended:
        return await loader.call(f"schedule.{fun}", LocalHost({}), list(arg), kwarg, self.own)

    async def said(self, fun: str, *arg: Any, **kwarg: Any) -> Any:
        return (await self.call(fun, *arg, **kwarg)).value


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path, {"set": PING}, {"pil": PING})


async def test_adding_says_what_salt_says_and_keeps_it(device: Device) -> None:
    given = {"function": "test.echo", "job_args": ["x"], "seconds": 3600, "splay": 5}
    assert await device.said("add", "new", test=True, **given) == {
        "comment": "Job: new would be added to schedule.",
        "result": True,
        "changes": {},
    }
    assert await device.said("add", "new", **given) == {
        "comment": "Added job: new to schedule.",
        "result": True,
        "changes": {"new": "added"},
    }
    again = await device.call("add", "new", **given)
    assert (again.outcome, again.value["comment"]) == ("failed", "Job new already exists in schedule.")
    kept = await KeptFile(device.path).load()
    assert kept.changes.entries["new"] == {
        "function": "test.echo",
        "args": ["x"],
        "seconds": 3600,
        "splay": 5,
        "maxrunning": 1,
        "name": "new",
        "enabled": True,
        "jid_include": True,
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"function": "test.ping", "seconds": 5, "when": "5pm"}, 'Unable to use "seconds", "minutes"'),
        ({"function": "test.ping", "cron": "* * * * *", "when": "5pm"}, 'Unable to use "when" and "cron"'),
        ({"function": "test.ping", "cron": "* *"}, "schedule.x.cron: it has not five fields; found '* *'; allowed:"),
        ({"function": "test.ping", "seconds": 5, "job_args": "x"}, "job_args is not a list"),
        ({"function": "test.ping", "seconds": 5, "colour": "red"}, "An entry takes no colour"),
        ({"seconds": 5}, "function is required"),
        ({"function": "test.ping", "seconds": 5, "offline": True}, "offline has no meaning here"),
    ],
)
async def test_what_cannot_be_added_is_said(device: Device, given: dict[str, Any], said: str) -> None:
    ended = await device.call("add", "x", **given)
    assert ended.outcome == "failed"
    assert ended.value["result"] is False
    assert said in ended.value["comment"]
    assert "x" not in device.schedule.written()


async def test_modifying_shows_what_was_and_what_is(device: Device) -> None:
    changed = await device.said("modify", "set", function="test.true", minutes=5)
    assert changed["comment"] == "Modified job: set in schedule."
    assert changed["changes"]["set"]["old"] == {**PING, "enabled": True}
    assert changed["changes"]["set"]["new"]["function"] == "test.true"
    assert (await device.said("modify", "set", minutes=5))["comment"] == "Job set in correct state"
    assert (await device.said("modify", "none", minutes=5))["comment"] == "Job none does not exist in schedule."


async def test_deleting_an_entry_of_the_settings_lasts(device: Device, tmp_path: Path) -> None:
    assert await device.said("delete", "set") == {
        "comment": "Deleted Job set from schedule.",
        "result": True,
        "changes": {"set": "removed"},
    }
    assert (await device.call("delete", "set")).value["comment"] == "Job set does not exist."
    again = AgentSchedule(tmp_path / "schedule", {"set": PING}, zone_of("UTC"), HandClock())
    await again.open()
    assert "set" not in again.written()


async def test_what_the_pillar_says_is_not_changed_here(device: Device) -> None:
    for fun, more in (("delete", {}), ("disable_job", {}), ("modify", {"minutes": 1})):
        ended = await device.call(fun, "pil", **more)
        assert ended.outcome == "failed", fun
        assert "it is in the pillar" in ended.value["comment"]
    purged = await device.said("purge")
    assert purged["changes"] == {"set": "removed"}
    assert sorted(purged["comment"]) == [
        "Deleted job: set from schedule.",
        "Failed to delete job pil from schedule: it is in the pillar.",
    ]


async def test_entries_and_the_whole_are_switched(device: Device) -> None:
    assert await device.said("disable_job", "set") == {
        "comment": "Disabled Job set in schedule.",
        "result": True,
        "changes": {"set": "disabled"},
    }
    assert (await device.said("is_enabled", "set"))["enabled"] is False
    assert (await device.said("list", show_disabled=False, return_yaml=False)).keys() == {"pil"}
    assert (await device.said("enable_job", "set"))["changes"] == {"set": "enabled"}
    assert await device.said("disable") == {
        "comment": "Disabled schedule on minion.",
        "result": True,
        "changes": {"schedule": "disabled"},
    }
    assert await device.said("is_enabled") is False
    assert (await device.said("show_next_fire_time", "set"))["next_fire_time"] is None
    assert (await device.said("enable"))["comment"] == "Enabled schedule on minion."
    assert await device.said("is_enabled", "none") == {}


async def test_it_is_listed_as_yaml_and_as_a_mapping(device: Device) -> None:
    await device.said("add", "new", function="test.ping", cron="0 5 * * *")
    listed = yaml.safe_load(await device.said("list"))["schedule"]
    assert {name: each["saved"] for name, each in listed.items()} == {"set": False, "pil": False, "new": True}
    assert (await device.said("list", return_yaml=False))["set"] == {**PING, "enabled": True}
    assert sorted(await device.said("list", where="pillar", return_yaml=False)) == ["pil"]
    assert sorted(await device.said("list", where="opts", return_yaml=False)) == ["new", "set"]


async def test_times_are_shown_moved_and_left_out(device: Device) -> None:
    await device.said("add", "new", function="test.ping", cron="0 5 * * *")
    fire = {"result": True, "next_fire_time": "2026-11-21T05:00:00"}
    assert await device.said("show_next_fire_time", "new") == fire
    assert await device.said("postpone_job", "new", "2026-11-21T05:00:00", "2026-11-21T04:00:00") == {
        "comment": "Postponed Job new in schedule.",
        "result": True,
    }
    assert (await device.said("show_next_fire_time", "new"))["next_fire_time"] == "2026-11-21T04:00:00"
    skipped = await device.said("skip_job", "new", "22.11.2026 05:00", time_fmt="%d.%m.%Y %H:%M")
    assert skipped["comment"] == "Added Skip Job new in schedule."
    assert len((await KeptFile(device.path).load()).states["new"].skips) == 2
    wrong = await device.call("skip_job", "new", "soon")
    assert "Date string could not be parsed" in wrong.value["comment"]
    assert (await device.call("skip_job", "none", "2026-11-22T05:00:00")).value["comment"] == "Job none does not exist."
    status = await device.said("job_status", "new")
    assert (status["_next_fire_time"], status["_last_run"], status["name"]) == ("2026-11-21T04:00:00", None, "new")
    assert await device.said("job_status", "none") == {}


async def test_changes_that_were_not_kept_are_saved_or_forgotten(device: Device) -> None:
    await device.said("add", "new", function="test.ping", seconds=5, persist=False)
    assert (await KeptFile(device.path).load()).changes.entries == {}
    assert await device.said("save") == {"comment": "Schedule (non-pillar items) saved.", "result": True}
    assert list((await KeptFile(device.path).load()).changes.entries) == ["new"]
    reloaded = await device.call("reload")
    assert (reloaded.outcome, reloaded.value["result"]) == ("failed", False)
    assert "the station gives no pillar" in str(reloaded.value["comment"])


async def test_an_entry_is_run_when_somebody_asks(device: Device) -> None:
    spawned: list[Coroutine[Any, Any, None]] = []
    ended: list[tuple[str, str]] = []

    class Identity:
        did = "did"
        name = "cam-7"

    class Kept:
        async def fire(self, device: str, tag: str, data: dict[str, Any], *, local: bool = False) -> None:
            ended.append((device, f"{tag} {data['schedule']} {data['return']} {data['jid']}"))

    def judge(fun: str, arg: list[Any], kwarg: dict[str, Any]) -> list[str]:
        raise Refused("not_granted", fun)

    def lent() -> Any:
        return nullcontext(LocalHost({}))

    device.schedule.begin(Identity(), Own(schedule=device.schedule, events=Kept()), lent, spawned.append, judge)
    run = await device.said("run_job", "set")
    assert (run["comment"], run["result"]) == ("Scheduling Job set on minion.", True)
    await device.said("run_job", "pil")
    await device.said("disable_job", "set")
    assert (await device.said("run_job", "set"))["comment"] == "Job set is disabled."
    await device.said("run_job", "set", force=True)
    for each in spawned:
        await each
    assert ended[0] == ("cam-7", f"__schedule_return set True {run['jid']}")
    assert ended[1][1].startswith("__schedule_return pil None")
    assert len(ended) == 3
    assert (await device.said("job_status", "pil"))["_last_outcome"] == "refused"
    assert (await device.call("run_job", "none")).value["comment"] == "Job none does not exist."


async def test_without_an_agent_it_is_said_who_can_do_it() -> None:
    ended = await loader.call("schedule.list", LocalHost({}), [], {}, Own())
    assert ended.outcome == "failed"
    assert "that of its station reaches it" in ended.why


@pytest.mark.parametrize(
    ("kwarg", "reach"),
    [
        ({"function": "test.ping"}, "changes"),
        ({"function": "service.restart", "job_args": ["x"]}, "changes"),
        ({"function": "cmd.run", "job_args": ["id"]}, "shell"),
        ({"function": "file.read", "job_args": ["/etc/shadow"]}, "shell"),
        ({"function": "camera.snapshot", "job_kwargs": {"save_to": "/etc/x"}}, "shell"),
        ({"function": "schedule.add", "job_kwargs": {"function": "cmd.run"}}, "shell"),
        ({"function": "unknown.thing"}, "shell"),
        ({"function": "test.ping", "job_args": "x"}, "shell"),
        ({"seconds": 5}, "shell"),
    ],
)
def test_an_entry_reaches_as_far_as_what_it_calls(kwarg: dict[str, Any], reach: str) -> None:
    assert reach_of("schedule.add", (["x"], kwarg)) == reach
    assert reach_of("schedule.modify", (["x"], kwarg)) == reach


def test_what_is_not_known_of_a_call_counts_as_a_shell() -> None:
    assert reach_of("schedule.add", None) == "shell"
