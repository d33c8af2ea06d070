"""The functions of runners and wheels on a real store: what they return, and that it is what Salt's return."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import PolicyRefused
from device_agent.protocol.messages import Event, Hello
from gateway.calls.call import CallRequest
from gateway.calls.functions import Function
from gateway.calls.running import Running
from gateway.devices.policy import Operator
from gateway.runners import queue
from tests.peers.calling import ADA, BOB, called, events
from tests.peers.database import spooled
from tests.peers.reacting import Reacting, reacting, written
from tests.peers.waiting import until

MANAGE = "salt/reactors/manage"

# --- the reactor's own ----------------------------------------------------------------------------------------------


async def test_the_reactor_runner_answers_word_for_word_and_its_changes_stay(tmp_path: Path) -> None:
    path = str(written(tmp_path, {"a.sls": "a: {local.test.ping: [{tgt: cam-1}]}\n"}) / "a.sls")
    said = [{"my/*": path}]
    async with reacting(tmp_path, said) as station:
        asked = await called(station, "reactor.list")
        assert asked.value == [{"my/*": [path]}]
        assert await events(station, f"{MANAGE}/*") == [(f"{MANAGE}/list-results", {"reactors": asked.value})]
        assert await events(station, f"*/{MANAGE}/list") == [(f"salt/run/{asked.jid}/{MANAGE}/list", {})]
        added = await called(station, "reactor.add", "other/*", path)
        told = (await station.kept.explain.listed())["rules"]
        assert [(rule["tag"], rule["added"]) for rule in told] == [("my/*", False), ("other/*", True)]
        assert added.value == {"status": True, "comment": "Reactor added."}
        assert (await called(station, "reactor.add", "other/*", [path])).value == {
            "status": False,
            "comment": "Reactor already exists.",
        }
        listed = [{"my/*": [path]}, {"other/*": [path]}]
        assert (f"salt/run/{added.jid}/salt/reactors/manage/add", {"event": "other/*", "reactors": [path]}) in (
            await events(station, "*/salt/reactors/manage/add")
        )
        assert (await events(station, "salt/reactors/manage/add-complete"))[0][1] == {
            "reactors": listed,
            "result": added.value,
        }
        gone = await called(station, "reactor.delete", "my/*")
        assert gone.value == {"status": True, "comment": "Reactor deleted."}
        again = await called(station, "reactor.delete", "my/*")
        assert again.value == {"status": False, "comment": "Reactor does not exists."}
        left = [{"other/*": [path]}]
        assert await events(station, f"*/{MANAGE}/delete") == [
            (f"salt/run/{each.jid}/{MANAGE}/delete", {"event": "my/*"}) for each in (gone, again)
        ]
        assert await events(station, f"{MANAGE}/delete-complete") == [
            (f"{MANAGE}/delete-complete", {"reactors": left, "result": each.value}) for each in (gone, again)
        ]
        assert (await called(station, "reactor.is_leader")).value is True
        assert await events(station, f"{MANAGE}/leader/value") == [
            (f"{MANAGE}/leader/value", {"reactors": left, "result": True})
        ]
        failed = await called(station, "reactor.add", "bad/*", [])
        assert (failed.state, failed.value) == ("ok", {"status": True, "comment": "Reactor added."})
    async with reacting(tmp_path, said) as station:
        assert (await called(station, "reactor.list")).value == [{"other/*": [path]}, {"bad/*": []}]
        # For people it is marked; the runner's answer is Salt's.
        told = await station.kept.explain.listed()
        assert ([(rule["tag"], rule["added"]) for rule in told["rules"]], told["taken_away"]) == (
            [("other/*", True), ("bad/*", True)],
            ["my/*"],
        )
        await station.fire("my/a")
        await station.fire("other/a")
        await station.event("other/a")
        assert len(await station.jobs()) == 1


async def test_a_station_without_rules_reacts_from_the_first_one_that_is_added(tmp_path: Path) -> None:
    path = str(written(tmp_path, {"a.sls": "a: {local.test.ping: [{tgt: cam-1}]}\n"}) / "a.sls")
    async with reacting(tmp_path, []) as station:
        await station.fire("site/before")
        await called(station, "reactor.add", "site/*", path)
        await until(lambda: station.kept.reactor._looks, what="it looks")
        await station.fire("site/after")
        await station.event("site/after")
        assert len(await station.jobs()) == 1


async def test_a_rule_that_is_added_does_not_count_for_the_past_though_the_station_is_killed(tmp_path: Path) -> None:
    path = str(written(tmp_path, {"a.sls": "a: {local.test.ping: [{tgt: cam-1}]}\n"}) / "a.sls")
    async with reacting(tmp_path, [{"my/*": path}]) as station:
        await station.fire("site/before")
        ((before,),) = await station.rooms.reader.rows("SELECT max(id) FROM events")
        await until(lambda: station.kept.reactor._seen.numbers["event"] >= before, what="it looked")
        await called(station, "reactor.add", "site/*", path)

        async def is_on_disk() -> bool:
            # From where a station that is killed now would go on.
            rows = await station.rooms.reader.rows("SELECT number FROM reactor_seen WHERE source = 'event'")
            return bool(rows) and bool(rows[0][0] >= before)

        await until(is_on_disk, what="how far was looked is on disk")
        await station.fire("site/after")
        await station.event("site/after")
        assert len(await station.jobs()) == 1


async def test_who_does_not_lead_reacts_to_nothing_and_can_be_managed_still(tmp_path: Path) -> None:
    path = str(written(tmp_path, {"a.sls": "a: {local.test.ping: [{tgt: cam-1}]}\n"}) / "a.sls")
    async with reacting(tmp_path, [{"site/*": path}]) as station:
        led = await called(station, "reactor.set_leader", False)
        assert led.value is False
        assert await events(station, f"*/{MANAGE}/set_leader") == [
            (f"salt/run/{led.jid}/{MANAGE}/set_leader", {"id": "lisbon", "value": False})
        ]
        assert await events(station, f"{MANAGE}/leader/value") == [
            (f"{MANAGE}/leader/value", {"reactors": [{"site/*": [path]}], "result": False})
        ]
        await station.fire("site/a")
    async with reacting(tmp_path, [{"site/*": path}]) as station:
        assert (await called(station, "reactor.is_leader")).value is False
        await station.fire("site/b")
        ((newest,),) = await station.rooms.reader.rows("SELECT max(id) FROM events")
        await until(lambda: station.kept.reactor._seen.numbers["event"] >= newest, what="it looked")
        assert (await called(station, "reactor.set_leader", True)).value is True
        await station.fire("site/c")
        await station.event("site/c")
        assert len(await station.jobs()) == 1


# --- jobs and manage ------------------------------------------------------------------------------------------------


async def test_event_send_is_flat_and_goes_up(tmp_path: Path) -> None:
    async with reacting(tmp_path, []) as station:
        assert (await called(station, "event.send", "my/tag", {"door": "north"})).value is True
        assert await events(station, "my/tag") == [("my/tag", {"door": "north"})]
        upward = [item for item in await spooled(station.rooms) if isinstance(item, Event)]
        assert [(event.tag, event.data) for event in upward] == [("my/tag", {"door": "north"})]
        for tag in ("salt/job/1/new", "bad\ntag", ""):
            assert (await called(station, "event.send", tag)).state == "failed"


async def test_jobs_have_the_shapes_of_salts_runner(tmp_path: Path) -> None:
    async with reacting(tmp_path, []) as station:
        sent = await called(station, "event.send", "my/tag", {"door": "north"})
        shown = (await called(station, "jobs.list_job", sent.jid)).value
        assert {
            name: shown[name] for name in ("Function", "Arguments", "Target", "Target-type", "User", "Minions")
        } == {
            "Function": "runner.event.send",
            "Arguments": ["my/tag", {"door": "north"}],
            "Target": "lisbon-station",
            "Target-type": "list",
            "User": "ada",
            "Minions": ["lisbon-station"],
        }
        assert shown["Result"] == {"lisbon-station": {"return": True, "retcode": 0, "success": True}}
        assert (await called(station, "jobs.lookup_jid", sent.jid)).value == {"lisbon-station": True}
        assert list((await called(station, "jobs.print_job", sent.jid)).value) == [sent.jid]
        assert (await called(station, "jobs.last_run", function="nothing.*")).value is False
        assert list((await called(station, "jobs.last_run", function="runner.event.*")).value) == [sent.jid]
        listed = (await called(station, "jobs.list_jobs", search_function="runner.event.*")).value
        assert list(listed) == [sent.jid]
        assert (await called(station, "jobs.active")).value == {}
        newest = (await called(station, "jobs.list_jobs_filter", 2)).value
        assert len(newest) == 2
        assert max(newest) > sent.jid
        assert (await called(station, "jobs.list_jobs_filter", 0)).value == {}
        assert (await called(station, "jobs.list_job", "1")).state == "failed"


async def test_who_is_present_is_known_without_asking(tmp_path: Path) -> None:
    async with reacting(tmp_path, []) as station:
        assert (await called(station, "manage.present")).value == ["cam-1"]
        assert (await called(station, "manage.not_present")).value == []
        assert (await called(station, "manage.allowed", subset=["cam-2"])).value == []
        assert (await called(station, "manage.present", show_ip=True)).value == {"cam-1": ""}


# --- cache, queue, http, config -------------------------------------------------------------------------------------


async def test_queues_are_lists_on_disk(tmp_path: Path) -> None:
    async with reacting(tmp_path, []) as station:
        assert (await called(station, "queue.insert", "todo", "a")).value is True
        assert (await called(station, "queue.insert", "todo", ["b", {"c": 1}])).value is True
        assert "already exist" in (await called(station, "queue.insert", "todo", "a")).value
        assert (await called(station, "queue.list_length", "todo")).value == 3
    async with reacting(tmp_path, []) as station:
        assert (await called(station, "queue.list_queues")).value == ["todo"]
        assert (await called(station, "queue.list_items", "todo")).value == ["a", "b", {"c": 1}]
        assert (await called(station, "queue.pop", "todo")).value == ["a"]
        assert (await called(station, "queue.delete", "todo", "b")).value is True
        told = {"items": [{"c": 1}], "backend": "sqlite", "queue": "todo"}
        assert (await called(station, "queue.process_queue", "todo", "all")).value == told
        assert await events(station, "salt/queue/*") == [("salt/queue/todo/process", told)]
        assert (await called(station, "queue.list_queues")).value == []
        assert (await called(station, "queue.insert", "a/b", "x")).state == "failed"


async def test_a_queue_is_bounded_in_items_and_bytes_by_those_who_insert_at_once_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "ITEMS", 5)
    monkeypatch.setattr(queue, "QUEUE_BYTES", 1000)
    async with reacting(tmp_path, []) as station:
        async with asyncio.TaskGroup() as group:
            made = [group.create_task(called(station, "queue.insert", "todo", f"{i}")) for i in range(8)]
        assert sorted(task.result().state for task in made) == ["failed"] * 3 + ["ok"] * 5
        assert {task.result().value for task in made} == {True, "a queue has at most 5 items, and todo has 5"}
        assert (await called(station, "queue.list_length", "todo")).value == 5
        there = (await called(station, "queue.list_items", "todo")).value
        # What is there already takes no room: a call that is made again after a kill is not refused.
        assert "already exist" in (await called(station, "queue.insert", "todo", there)).value
        assert (await called(station, "queue.insert", "large", "x" * 600)).ok
        ended = await called(station, "queue.insert", "large", "y" * 600)
        assert ended.value == "a queue has at most 1000 bytes, and large has 603"
        assert (await called(station, "queue.insert", "large", "y" * 300)).ok


async def test_a_queue_of_runners_is_called_in_order_and_one_that_fails_holds_up_none(tmp_path: Path) -> None:
    async with reacting(tmp_path, []) as station:
        await called(station, "queue.insert_runner", "test.arg", ["one"])
        await called(station, "queue.insert_runner", "event.send", ["salt/job/1/new"])
        await called(station, "queue.insert_runner", "event.send", kwargs={"tag": "site/later"})
        first = await called(station, "queue.process_runner")
        assert first.value == [{"args": ["one"], "kwargs": {}}]
        assert (await called(station, "queue.process_runner", quantity="all")).state == "failed"
        assert (await called(station, "queue.process_runner", quantity="all")).value == [True]
        assert await events(station, "site/later") == [("site/later", {})]
        newest = await station.kept.own.book.newest(3)
        assert [kept.call.fun for kept in newest] == ["event.send", "queue.process_runner", "event.send"]
        assert newest[0].call.parent == newest[1].call.jid


async def test_the_cache_has_what_the_station_knows_and_pillar_is_for_who_asked_alone(tmp_path: Path) -> None:
    tree = written(tmp_path / "pillar", {"top.sls": "base: {'*': [s]}\n", "s.sls": "secret: canary\n"})
    async with reacting(tmp_path, [], pillar_roots={"base": [str(tree)]}) as station:
        assert (await called(station, "cache.grains")).value == {"cam-1": {}}
        assert (await called(station, "cache.grains", "none-*")).value == {}
        assert (await called(station, "cache.mine")).value == {}
        calls = station.kept.own.calls
        ended = await called(station, "cache.pillar", "cam-1")
        assert calls.private(ended.jid, ADA) == {"cam-1": {"secret": "canary"}}
        assert calls.private(ended.jid, BOB) is None
        assert ended.value == "for who asked alone"
        assert "canary" not in repr(await events(station, "*"))
        with pytest.raises(PolicyRefused):
            await called(station, "cache.pillar", by=BOB)


async def test_http_query_asks_and_is_bounded(tmp_path: Path) -> None:
    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        path = asked.split(b" ")[1]
        body = b'{"well": true}' if path.startswith(b"/json") else b"x" * 2_000_000 if path == b"/large" else b"no"
        status = b"404 Not Found" if path == b"/none" else b"200 OK"
        writer.write(b"HTTP/1.0 %s\r\nX-Is: here\r\n\r\n%s" % (status, body))
        writer.close()

    async with await asyncio.start_server(answers, "127.0.0.1", 0) as server, reacting(tmp_path, []) as station:
        at = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        told = (await called(station, "http.query", f"{at}/json", params={"a": 1}, decode=True, status=True)).value
        assert told == {"body": '{"well": true}', "status": 200, "dict": {"well": True}}
        assert (await called(station, "http.query", f"{at}/x", headers=True)).value["headers"]["X-Is"] == "here"
        assert (await called(station, "http.query", f"{at}/none")).value["status"] == 404
        assert (await called(station, "http.query", f"{at}/none", raise_error=False)).ok
        assert "more than" in (await called(station, "http.query", f"{at}/large")).value["error"]
        assert (await called(station, "http.query", "file:///etc/passwd")).state == "failed"
        assert (await called(station, "http.query", "http://127.0.0.1:1/")).state == "failed"


async def wheel(station: Reacting, fun: str, *arg: Any, by: Operator = ADA) -> Any:
    calls = station.kept.own.calls
    return await calls.wait(await calls.submit(CallRequest(kind="wheel", fun=fun, arg=list(arg)), by))


async def test_wheels_fire_their_own_events_and_refuse_what_is_not_theirs_to_do(tmp_path: Path) -> None:
    async with reacting(tmp_path, []) as station:
        ended = await wheel(station, "minions.connected")
        assert ended.value == ["cam-1"]
        begun = {"fun": "wheel.minions.connected", "jid": ended.jid, "user": "ada", "fun_args": []}
        begun["tag"] = f"salt/wheel/{ended.jid}"
        assert await events(station, "salt/wheel/*") == [
            (f"salt/wheel/{ended.jid}/new", begun),
            (f"salt/wheel/{ended.jid}/ret", {**begun, "return": ["cam-1"], "success": True}),
        ]
        for fun, arg in (("config.apply", ["log_level", "debug"]), ("key.gen", [])):
            with pytest.raises(PolicyRefused, match=f"wheel.{fun} is not supported: "):
                await wheel(station, fun, *arg)
        ended = await wheel(station, "config.values")
        assert station.kept.own.calls.private(ended.jid, ADA)["name"] == "lisbon"
        assert set((await wheel(station, "key.list_all")).value) == {
            "local",
            "minions",
            "minions_pre",
            "minions_rejected",
            "minions_denied",
        }


async def test_every_function_says_what_it_does_and_how_it_is_called(tmp_path: Path) -> None:
    async with reacting(tmp_path, []) as station:
        for kind in ("runner", "wheel"):
            told = (await called(station, f"doc.{kind}")).value
            for name, doc in told.items():
                assert f"CLI example: ``outstation {kind} " in doc, name
        assert list((await called(station, "doc.runner", "event")).value) == ["event.send"]
        assert (await called(station, "sys.list_functions", "event")).value == ["event.send"]
        spec = (await called(station, "sys.argspec", "event.send")).value["event.send"]
        assert (spec["args"], spec["defaults"]) == (["tag", "data"], [None])


# --- runners in a reactor's file -------------------------------------------------------------------------------------

LOOKS = """\
{% for device in salt['manage.present']() if device != data['id'] %}
tell_{{ device }}:
  local.test.echo:
    - tgt: {{ device }}
    - args: {text: "{{ salt.cache.grains(device)[device].get('area', 'nowhere') }}"}
{% endfor %}
"""


async def test_a_file_calls_runners_that_only_look_while_it_is_rendered(tmp_path: Path) -> None:
    path = written(tmp_path, {"a.sls": LOOKS}) / "a.sls"
    async with reacting(tmp_path, [{"site/*": str(path)}]) as station:
        station.rooms.registry.hello("mqtt", "cam-2", Hello("1" * 16, "0", {"area": "roof"}))
        await station.fire("site/a", id="cam-1")
        assert [(job.tgt, job.kwarg) for job in await station.jobs_are(1)] == [("cam-2", {"text": "roof"})]
        assert (await events(station, "salt/run/*")) == []


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("salt['manage.up']()", "cannot be called in a file; these can: cache.grains"),
        ("salt['reactor.list']()", "cannot be called"),
        ("salt['cache.pillar']()", "cannot be called"),
        ("salt['manage.present'](taget=1)", "has no argument 'taget'"),
        ("salt['jobs.list_job']('1')", "no job 1"),
    ],
)
async def test_a_file_that_calls_what_it_may_not_harms_itself_alone(call: str, why: str, tmp_path: Path) -> None:
    path = written(tmp_path, {"a.sls": f"a: 1\nb: {{{{ {call} }}}}\n"}) / "a.sls"
    async with reacting(tmp_path, [{"site/*": str(path)}]) as station:
        await station.fire("site/a", id="cam-1")
        (trouble,) = (await station.event("site/a"))["troubles"]
        assert (trouble["line"], why in trouble["what"]) == (2, True), trouble
        for _ in range(3):
            assert (await called(station, "manage.present")).ok


@pytest.mark.parametrize(
    ("role", "said"),
    [("operator", ""), ("viewer", "cannot be called in a file; these can: cache.grains, doc.runner")],
)
async def test_a_file_reads_the_mine_as_far_as_the_reactor_may(role: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, {"a.sls": "{{ salt['cache.mine']('cam-*') }}"}) / "a.sls"
    async with reacting(tmp_path, [{"site/*": str(path)}], policy=f"users: {{reactor: {role}}}") as station:
        await station.fire("site/a", id="cam-1")
        troubles = (await station.event("site/a"))["troubles"]
        assert [said in each["what"] for each in troubles] == ([True] if said else []), troubles


async def test_what_a_device_says_of_itself_harms_no_file_and_no_station(tmp_path: Path) -> None:
    text = "{{ salt['manage.present'](show_ip=True) }} {{ salt['bad.broken']() }}"
    path = written(tmp_path, {"a.sls": text}) / "a.sls"
    broken = Function("bad.broken", _broken, need="view")
    async with reacting(tmp_path, [{"site/*": str(path)}], before=[broken]) as station:
        station.rooms.registry.hello("mqtt", "cam-1", Hello("1" * 16, "0", {"ipv4": 5}))
        assert (await called(station, "manage.present", show_ip=True)).value == {"cam-1": ""}
        await station.fire("site/a")
        (trouble,) = (await station.event("site/a"))["troubles"]
        assert "bad.broken: ValueError('broken')" in trouble["what"]
        assert (await called(station, "manage.present")).ok


async def _broken(_: Running) -> None:
    """Fail. CLI example: ``outstation runner bad.broken``."""
    raise ValueError("broken")


async def test_a_file_in_python_calls_runners_and_a_loop_of_calls_ends(tmp_path: Path) -> None:
    good = "#!py\ndef run():\n    here = salt['manage.present']()\n"
    good += "    return {'a': {'local.test.ping': [{'tgt': here[0]}]}}\n"
    loop = "{% for n in range(200) %}{{ salt['manage.present']() }}{% endfor %}"
    folder = written(tmp_path / "r", {"a.sls": good, "b.sls": loop})
    async with reacting(tmp_path, [{"site/*": str(folder / "*.sls")}]) as station:
        await station.fire("site/a")
        assert [job.tgt for job in await station.jobs_are(1)] == ["cam-1"]
        (trouble,) = (await station.event("site/a"))["troubles"]
        assert "a file calls at most 100 functions" in trouble["what"]
