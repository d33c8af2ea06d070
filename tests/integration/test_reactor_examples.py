"""Each file in ``examples/reactor`` through the reactor: what it says to an event, and the jobs that come of it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from device_agent.custom.modules import CustomModules
from device_agent.protocol import mine
from device_agent.protocol.messages import encode_value
from device_agent.protocol.stations import station_device
from device_agent.questions import Station
from gateway.answers import Within
from gateway.calls.custom import CustomRunners
from gateway.calls.running import Running
from gateway.devices.policy_file import load_policy
from gateway.runners.saltutil import SaltutilRunner
from tests.peers.calling import events
from tests.peers.fleet import Fleet
from tests.peers.orchestrating import Answers, orchestrating, steps_of
from tests.peers.reacting import Reacting, reacting
from tests.peers.reactor_examples import EXAMPLES, EXAMPLES_OF_RULES, SCRATCH, Call, Example, installed
from tests.peers.released import RELEASE_KEY, FolderSource, release
from tests.peers.waiting import until

FOO = f"{SCRATCH}/foo"
POLICY = (EXAMPLES / "policy.yaml").read_text(encoding="utf-8")


async def made(station: Reacting, example: Example) -> list[dict[str, Any]]:
    """The reactions to the example's event, once none of them waits."""
    await station.rooms.bus.accept([station.rooms.bus.event(example.tag, example.data)])
    told = await station.event(example.tag)
    assert warned(told) == example.warned
    return list(told["reactions"])


def warned(told: dict[str, Any]) -> tuple[str, ...]:
    """The files of which something is told that is no error; that data is read one level deeper is a note.

    That a device has no states of its own is told as well: a site brings them as modules.
    """
    assert {each["level"] for each in told["troubles"]} <= {"warning", "note"}, told["troubles"]
    return tuple(Path(each["file"]).name for each in told["troubles"] if is_about_the_file(each))


def is_about_the_file(trouble: dict[str, Any]) -> bool:
    return trouble["level"] == "warning" and "has state." not in trouble["what"]


def said(found: dict[str, Any]) -> Call:
    return Call(found["id"], found["said"], found["tgt"], found["tgt_type"], found["arg"], unstamped(found["kwarg"]))


def unstamped(value: Any) -> Any:
    """Without the time at which an event that was passed on had happened."""
    if not isinstance(value, dict):
        return value
    return {key: unstamped(inner) for key, inner in value.items() if key != "_stamp"}


def test_every_file_of_the_examples_has_an_event_and_one_that_looks_at_the_data_has_another() -> None:
    files = {
        path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.sls") if path.parent.name != "orchestrate"
    }
    used: dict[str, set[bool]] = {}
    for example in EXAMPLES_OF_RULES:
        for file in example.files:
            name = file.removeprefix("salt://")
            base = "served-reactor" if name.endswith("?saltenv=reactor") else "served"
            name = name.partition("?")[0] if name == file else f"{base}/{name.partition('?')[0]}"
            used.setdefault(name, set()).add(bool(example.calls))
    assert set(used) == files
    looks = {name for name in files if "{% if" in (EXAMPLES / name).read_text(encoding="utf-8")} - {"foo.sls"}
    assert {name for name, seen in used.items() if seen == {True, False}} == looks


@pytest.mark.parametrize("example", EXAMPLES_OF_RULES, ids=str)
async def test_an_example_says_what_it_is_there_for(example: Example, tmp_path: Path) -> None:
    given = installed(tmp_path)
    smtp = {"from": "outstation@example.net", "to": "ops@example.net", "host": "127.0.0.1"}
    async with reacting(tmp_path, given.pop("reactor"), policy=POLICY, smtp=smtp, **given) as station:
        told = await station.kept.explain.tested(example.tag, example.data)
        places = [each["file"].removeprefix(f"{tmp_path / 'reactor'}/") for each in told["files"]]
        assert (places, warned(told)) == (example.files, example.warned)
        found = await made(station, example)
        calls = [placed(call, tmp_path) for call in example.calls]
        assert [said(each) for each in found] == calls
        known = {job.jid: job for job in await station.jobs()}
        jobs = [known[each["jid"]] for each in found if each["kind"] not in {"runner", "wheel"}]
        ordered = [call for call in calls if call.kind not in {"runner", "wheel"}]
        assert [(job.fun, job.tgt, job.tgt_type, job.arg, job.kwarg) for job in jobs] == [
            (call.fun, *for_whom(call), call.arg, call.kwarg) for call in ordered
        ]
        assert {job.user for job in jobs} <= {"reactor"}
        mailed = await station.rooms.reader.rows("SELECT jid FROM job_returners WHERE returner = 'smtp'")
        assert {jid for (jid,) in mailed} == {
            job.jid for job in jobs if job.fun == "state.apply" and "auth-complete.sls" in example.files
        }


def placed(call: Call, folder: Path) -> Call:
    """The call with what it writes below the test's folder."""
    named = {name: str(folder / "foo") if value == FOO else value for name, value in call.kwarg.items()}
    return replace(call, arg=[str(folder / "foo") if value == FOO else value for value in call.arg], kwarg=named)


def for_whom(call: Call) -> tuple[str, str]:
    """The target of its job: a caller's is the station's own device."""
    return (station_device("lisbon"), "list") if call.kind == "caller" else (call.tgt, call.tgt_type)


async def test_the_whole_map_is_checked_without_a_trouble(tmp_path: Path) -> None:
    given = installed(tmp_path)
    smtp = {"from": "outstation@example.net", "to": "ops@example.net", "host": "127.0.0.1"}
    async with reacting(tmp_path, given.pop("reactor"), policy=POLICY, smtp=smtp, **given) as station:
        told = await station.kept.explain.checked()
        assert told["skipped"] == []
        troubles = [trouble for each in told["rules"] for trouble in each["troubles"]]
        # A site that has Salt beside it brings these functions as modules of its own.
        words = {trouble["what"].partition(";")[0].rpartition(" ")[2] for trouble in troubles}
        assert words == {"state.apply", "state.single"}
        assert {trouble["level"] for trouble in troubles} == {"warning"}
        assert all(trouble["line"] for trouble in troubles)


def test_the_example_of_a_policy_lets_reactions_do_all_that_the_examples_do() -> None:
    assert load_policy(EXAMPLES / "policy.yaml").users["reactor"] == {"admin"}


POOL = """\
listen pictures
    bind *:80
    balance source
    server cam-1 192.0.2.1:80 check
    server cam-8 192.0.2.8:80 disabled"""


async def test_the_pool_of_the_proxy_is_made_of_the_pillar_of_the_reaction_and_of_the_mine(tmp_path: Path) -> None:
    served = EXAMPLES / "served"
    files = {
        path.relative_to(served).as_posix(): path.read_text(encoding="utf-8")
        for path in (*served.glob("haproxy/*"), *served.glob("orchestrate/write_pool.sls"))
    }
    rules = [{"salt/key": str(EXAMPLES / "haproxy" / "react_new_minion.sls")}]
    answers: Answers = {"file.write": ("ok", "Wrote 5 lines"), "state.apply": ("refused", "unknown function")}
    kept = {
        "cam-1": ["192.0.2.1", "198.51.100.1"],
        "cam-2": ["192.0.2.2\n    server evil 203.0.113.1:80"],
        "cam-3": [],
        "cam-8": ["192.0.2.8"],
        "door-1": ["192.0.2.9"],
    }
    async with orchestrating(
        tmp_path, files, answers, reactor=rules, policy=POLICY, devices=("haproxy-1", *kept)
    ) as made:
        for device, addresses in kept.items():
            entry = mine.Entry("network.ip_addrs", encode_value(addresses), "", "glob")
            keep = mine.encode(mine.Keep([entry], clear=False))
            await Within(made.station.kept.to_devices, device).ask(mine.KEEP, keep)
        await made.station.fire("salt/key", id="cam-8", act="accept", result=True)
        jobs = {job.fun: job for job in await made.station.jobs_are(2)}
        assert jobs["state.apply"].kwarg == {"mods": "haproxy.refresh_pool", "pillar": {"new_minion": "cam-8"}}
        written = jobs["file.write"]
        assert (written.tgt, written.arg) == ("haproxy*", ["/var/tmp/pool.cfg"])
        assert written.kwarg["args"] == POOL.splitlines()


async def test_an_orchestration_calls_a_runner_that_the_site_signed_and_passes_pillar_as_it_is_written(
    tmp_path: Path,
) -> None:
    base = tmp_path / "base"
    shutil.copytree(EXAMPLES / "served", base)
    root = replace(Fleet().root, releases=(RELEASE_KEY.public,))
    custom = CustomModules(tmp_path / "custom", lambda: root, source=lambda _: FolderSource(base=base))
    rules = [{"my/own/event": str(EXAMPLES / "custom_event.sls")}]
    answers: Answers = {"state.sls": ("ok", {})}
    async with orchestrating(tmp_path, {}, answers, reactor=rules, policy=POLICY) as made:
        made.station.kept.own.calls.custom = CustomRunners(custom)

        async def runs() -> list[dict[str, Any]]:
            return [data for _, data in await events(made.station, "salt/run/*/ret")]

        async def orchestrated(times: int) -> dict[str, Any]:
            await made.station.fire("my/own/event", foo="Foo!", bar="cam*", baz="Baz!")

            async def there() -> list[dict[str, Any]]:
                found = [each for each in await runs() if each["fun"] == "runner.state.orchestrate"]
                return found if len(found) == times else []

            await until(there, 30.0, "the orchestration has ended")
            newest = await made.station.kept.own.calls.book.newest(10)
            return steps_of(next(each.ended for each in newest if not each.call.parent))

        steps = await orchestrated(1)
        assert (steps["do_first_thing"]["result"], steps["do_second_thing"]["result"]) == (False, False)
        assert (await made.jobs(), await events(made.station, "site/custom")) == ([], [])
        release(base)
        assert await SaltutilRunner(custom, cast("Station", None)).sync_runners(cast("Running", None)) == [
            "runners.custom_runner"
        ]
        steps = await orchestrated(2)
        assert steps["do_first_thing"]["changes"] == {"return": {"told": "Foo!"}}
        assert [data["foo"] for _, data in await events(made.station, "site/custom")] == ["Foo!"]
        (job,) = await made.jobs()
        assert (job.tgt, job.fun, job.arg, job.user) == ("cam*", "state.sls", ["do_thing_on_minion"], "reactor")
        assert job.kwarg["pillar"] == {"baz": "Baz!"}
        assert "warnings" not in steps["do_second_thing"]
